#include "engine/threads.hpp"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <limits>

#include "engine/processors.hpp"

namespace batchkron {
namespace {

constexpr std::memory_order relaxed = std::memory_order_relaxed;
constexpr int kNoLimit = std::numeric_limits<int>::max();

std::atomic<int> chosen{0};          // by set_num_threads; 0: the default
std::atomic<int> limit{kNoLimit};    // by set_thread_limit
std::atomic<int> started{kNoLimit};  // most threads after the system has refused one
std::atomic<void (*)(int)> on_refusal{nullptr};
std::atomic<bool> pool_exists{false};
std::atomic<bool> pool_is_lost{false};

// What a calling thread does at the moment.
struct Caller {
  bool is_at_work = false;  // in a part of a pass: it uses no other threads
  int scope = 0;            // threads of its TeamScope; 0: it has none
  int last = 1;             // threads of its last call
};
thread_local Caller caller;

// A forked child inherits the state of the pool but not its threads. It runs on one thread.
const int at_fork = pthread_atfork(nullptr, nullptr, [] {
  if (pool_exists.load(relaxed)) pool_is_lost.store(true);
});

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The threads, at most `count`, of the pool that this thread has.
int start_threads(int count) {
  const int there = ThreadPool::instance().start(count);
  if (there < count && started.exchange(there) > there)
    if (const auto handler = on_refusal.load()) handler(there);
  return there;
}

}  // namespace

int num_threads() {
  if (pool_is_lost.load(relaxed)) return 1;
  int count = chosen.load(relaxed);
  if (count == 0) {
    count = default_threads();
    if (!threads_are_set_by_user()) count = std::min(count, limit.load(relaxed));
  }
  return std::min(count, started.load(relaxed));
}

void set_num_threads(int count) { chosen.store(count, relaxed); }

void set_thread_limit(int count) { limit.store(count, relaxed); }

void set_refusal_handler(void (*handler)(int threads)) { on_refusal.store(handler); }

int last_team_size() { return caller.last; }

ThreadTeam::ThreadTeam(double work, ThreadGain& gain) {
  Caller& self = caller;
  if (self.is_at_work) return;
  if (self.scope > 0) {
    if (work >= kMinWorkOfPass && !pool_is_lost.load(relaxed)) threads_ = self.scope;
    return;
  }
  self.last = 1;
  if (work < kMinParallelWork) return;
  const int wanted = num_threads();
  if (wanted <= 1) return;
  pool_exists.store(true, relaxed);
  if (!ThreadPool::instance().try_take()) return;
  const int available = start_threads(wanted);
  if (available > 1) {
    gain_ = &gain;
    work_ = work;
    begin_ = now();
    self.last = threads_ = gain.choose(available, begin_);
  }
  has_pool_ = threads_ > 1;
  if (!has_pool_) ThreadPool::instance().give_back();
}

ThreadTeam::~ThreadTeam() {
  if (gain_) gain_->record(threads_, work_, begin_, now());
  if (has_pool_) ThreadPool::instance().give_back();
}

void ThreadTeam::run_together(const ThreadPass& pass) {
  caller.is_at_work = true;
  ThreadPool::instance().run(pass);
  caller.is_at_work = false;
}

TeamScope::TeamScope(double work, ThreadGain& gain)
    : team_(work, gain), is_outermost_(caller.scope == 0 && !caller.is_at_work) {
  if (!is_outermost_) return;
  caller.scope = team_.threads();
  if (team_.has_pool_) ThreadPool::instance().keep_awake(team_.threads());
}

TeamScope::~TeamScope() {
  if (!is_outermost_) return;
  if (team_.has_pool_) ThreadPool::instance().keep_awake(0);
  caller.scope = 0;
}

}  // namespace batchkron
