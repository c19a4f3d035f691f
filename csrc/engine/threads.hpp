// How many threads a call uses, and how they share its work.
#pragma once

#include <algorithm>
#include <vector>

#include "engine/thread_gain.hpp"
#include "engine/thread_pool.hpp"

namespace batchkron {

// The number that was set, else the default (processors.hpp), at most the limit. Always 1 in a process that was
// forked after its parent had used threads (the child inherits none of them), and never more than
// the system has started.
int num_threads();
void set_num_threads(int count);
// The most threads that are taken where none were set and OMP_NUM_THREADS does not say how many.
void set_thread_limit(int count);
// Called with how many threads there are where the system refuses to start more.
void set_refusal_handler(void (*handler)(int threads));
// The threads of the last call by this thread.
int last_team_size();

// Multiply-adds below which a call runs on one thread: about 5 to 10 us of one core. With 1e5, some
// products took longer on two threads than on one (Zen 5, docs/results/cpu.md).
constexpr double kMinParallelWork = 4e5;
// The same within a TeamScope, where the threads are awake. Chosen by hand.
constexpr double kMinWorkOfPass = 1e5;

// The threads of one call, from here to the end of its scope. The calling thread is one of them. If
// another calling thread has the others at this time, it works alone.
class ThreadTeam {
 public:
  ThreadTeam() = default;  // one thread
  // `work` in multiply-adds: a call with little is done by one thread, as waking others takes
  // longer than it saves.
  ThreadTeam(double work, ThreadGain& gain);
  ThreadTeam(double work, ThreadGains& gains) : ThreadTeam(work, gains.of(work)) {}
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;
  ~ThreadTeam();

  int threads() const { return threads_; }

  // Calls part(begin, end, thread) for ranges that make up 0 ... count - 1, each of up to `grain`
  // numbers; returns when all have been done. Each thread has a share in one piece; a thread that has
  // finished its own takes ranges of others. One thread gets all as one range. part must not throw.
  template <class Part>
  void run(Index count, Index grain, const Part& part) const {
    run_pass({nullptr, nullptr, count, grain, threads_, nullptr}, part);
  }
  // The same with ranges of which each thread has some.
  template <class Part>
  void run(Index count, const Part& part) const {
    run(count, std::max<Index>(1, count / (kRanges * threads_)), part);
  }
  // The same with shares that begin at begins[thread]; begins[threads()] is the count.
  template <class Part>
  void run(const std::vector<Index>& begins, Index grain, const Part& part) const {
    run_pass({nullptr, nullptr, begins.back(), grain, threads_, begins.data()}, part);
  }

 private:
  friend class TeamScope;
  static constexpr int kRanges = 8;  // that a thread takes of its share; chosen by hand

  template <class Part>
  void run_pass(ThreadPass pass, const Part& part) const {
    if (pass.count <= 0) return;
    if (threads_ == 1 || pass.count <= 1) return part(Index(0), pass.count, 0);
    pass.call = [](const void* given, Index begin, Index end, int thread) {
      (*static_cast<const Part*>(given))(begin, end, thread);
    };
    pass.part = &part;
    run_together(pass);
  }
  static void run_together(const ThreadPass& pass);

  ThreadGain* gain_ = nullptr;  // null: nothing to learn
  double work_ = 0, begin_ = 0;
  int threads_ = 1;
  bool has_pool_ = false;
};

// Keeps a team for all calls of this thread to the end of the scope: they use its threads, or one if
// they have little work, and learn nothing of their own. The threads stay awake between them. Where
// a team exists already, a scope in it has no effect.
class TeamScope {
 public:
  // `work` in multiply-adds, of all that is done in the scope.
  TeamScope(double work, ThreadGain& gain);
  TeamScope(const TeamScope&) = delete;
  TeamScope& operator=(const TeamScope&) = delete;
  ~TeamScope();

  int threads() const { return team_.threads(); }

 private:
  ThreadTeam team_;
  bool is_outermost_;
};

}  // namespace batchkron
