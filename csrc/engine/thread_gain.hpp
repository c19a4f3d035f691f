// How many threads were the fastest lately, in calls that do the same work.
#pragma once

#include <array>
#include <atomic>

namespace batchkron {

// What several threads gained lately, against one, in calls that do the same work. Beside other
// busy threads they may lose: a call then waits for a thread that has no processor, several times
// as long as one thread needs for all of it. So the faster way is taken, and the other one is tried
// again now and then, threads in some calls one after the other, as in the first they are still
// asleep and their caches hold other data. Calls in several threads may share one; a lost update
// does no harm.
class ThreadGain {
 public:
  ThreadGain() = default;
  // Plans are copied when they are made, before they have learned anything.
  ThreadGain(const ThreadGain&) {}
  ThreadGain& operator=(const ThreadGain&) { return *this; }

  // Threads for a call that begins now where `available`, at least 2, may be used. Times are in
  // seconds, from any beginning.
  int choose(int available, double now);
  // Learns from when to when a call of so much work took.
  void record(int threads, double work, double begin, double end);

 private:
  enum Way { alone, together };

  bool gains() const { return seconds_[together].load() < seconds_[alone].load(); }
  void end_trial();
  void change(Way dropped);

  // A value that several threads read and write, in any order.
  template <class V>
  class Shared {
   public:
    Shared(V value = V()) : value_(value) {}
    V load() const { return value_.load(std::memory_order_relaxed); }
    V operator=(V value) {  // as of std::atomic
      value_.store(value, std::memory_order_relaxed);
      return value;
    }

   private:
    std::atomic<V> value_;
  };

  Shared<float> seconds_[2]{};  // of each way lately, for a unit of work
  Shared<int> calls_[2]{};      // of each way, up to the first few
  Shared<int> available_;       // threads of the way `together`
  Shared<int> wait_[2]{};       // calls until each way is tried again, while the other is taken
  Shared<int> left_;            // how many of these are left
  Shared<int> taken_;           // calls since the way that is taken was taken first
  Shared<int> tried_;           // calls of the trial that goes on
  Shared<float> least_;         // seconds of the fastest of these for a unit of work
  Shared<int> after_pause_;     // most calls until a trial after a pause
  Shared<bool> hastened_;       // the next trial is one after a pause
  Shared<float> last_;          // seconds of the last call
  Shared<double> end_;          // when it ended
};

// Gains of calls of one kind whose work differs from call to call: one for each power of two.
class ThreadGains {
 public:
  ThreadGain& of(double work);

 private:
  static constexpr int kPowers = 64;
  std::array<ThreadGain, kPowers> gains_;
};

}  // namespace batchkron
