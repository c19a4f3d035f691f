// How many threads were the fastest lately, in calls that do the same work.
#pragma once

#include <array>
#include <atomic>

namespace batchkron {

// The ways to make a call: with all threads that there are, with half of them, and so on, up to one.
// With more threads a call is not always faster: they share caches and memory, they must be woken,
// and other programs may have their processors. So the way that took the least time lately is taken,
// and the others are tried again now and then, in some calls one after the other, as in the first
// some are still asleep and their caches hold other data. Calls in several threads may share a gain; a
// lost update does no harm.
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

  struct Way {
    Shared<float> seconds;  // lately, for a unit of work
    Shared<int> wait;       // calls between two trials
    Shared<unsigned> due;   // the number of the call with which it is tried next
  };

  int threads_of(int way) const;
  int way_of(int threads) const;
  int fastest() const;
  int calls_until_trial(int way) const;
  bool takes_long(int way) const;
  void restart(int available);
  void record_first(int way, float seconds);
  void end_first_calls(int tried);
  void end_trial();
  void take(int way);
  void set_wait(int way, double calls);

  static constexpr int kWays = 8;  // with more than 128 threads: no fewer than 1/64, then one
  std::array<Way, kWays> ways_{};  // [k]: all threads halved k times, rounded up; the last one: 1
  Shared<int> available_;          // threads of way 0
  Shared<int> last_;               // the way with one thread
  Shared<int> first_;              // the way whose first calls are made; after them: beyond the last
  Shared<int> first_calls_;        // that it had
  Shared<int> taken_;              // the way that is taken but for trials
  Shared<int> taken_calls_;        // calls since it was taken first, up to kProof
  Shared<unsigned> number_;        // of the last call; it may start again at 0
  Shared<int> trial_;              // the way that is on trial
  Shared<int> tried_;              // calls of this trial
  Shared<float> least_;            // seconds of the fastest of these for a unit of work
  Shared<int> after_pause_;        // most calls until a trial of more threads after a pause
  Shared<bool> hastened_;          // a trial comes early because of a pause
  Shared<float> length_;           // seconds of the last call of the way that is taken
  Shared<double> end_;             // when the last call ended
};

// Gains of calls of one kind whose work differs from call to call: one for each power of two.
class ThreadGains {
 public:
  ThreadGain& of(double work);

 private:
  static constexpr int kFirstPower = 16, kPowers = 32;
  std::array<ThreadGain, kPowers> gains_;
};

}  // namespace batchkron
