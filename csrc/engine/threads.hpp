// How many OpenMP threads a call uses.
#pragma once

#include <array>
#include <atomic>

namespace batchkron {

// The number that was set, else OpenMP's default, at most the limit. Always 1 in a process that was
// forked after its parent had used threads, and never more than the system has started (the reasons
// are in threads.cpp).
int num_threads();
void set_num_threads(int count);
// The most threads that are taken where none were set and OMP_NUM_THREADS does not say how many.
void set_thread_limit(int count);
// The processors that the process may use; the calling thread may be bound to one of them, as by
// OMP_PROC_BIND.
int num_processors();
// Called with how many threads there are where the system refuses to start more.
void set_refusal_handler(void (*handler)(int threads));

// The index of the calling thread in the innermost parallel region, 0 outside of any.
int thread_index();

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

// Multiply-adds below which a call runs on one thread: about 5 to 10 us of one core. With 1e5, some
// products took longer on two threads than on one (Zen 5, docs/results/cpu.md).
constexpr double kMinParallelWork = 4e5;

// The threads of one call, and how long it takes from here to the end of its scope.
class ThreadTeam {
 public:
  // `work` in multiply-adds: a call with little is done by one thread, as waking others takes
  // longer than it saves.
  ThreadTeam(double work, ThreadGain& gain);
  ThreadTeam(double work, ThreadGains& gains) : ThreadTeam(work, gains.of(work)) {}
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;
  ~ThreadTeam();

  int threads() const { return threads_; }

 private:
  ThreadGain* gain_ = nullptr;  // null: nothing to learn
  double work_ = 0, begin_ = 0;
  int threads_ = 1;
};

}  // namespace batchkron
