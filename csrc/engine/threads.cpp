#include "engine/threads.hpp"

#include <omp.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace batchkron {
namespace {

constexpr std::memory_order relaxed = std::memory_order_relaxed;
constexpr int kNoLimit = std::numeric_limits<int>::max();

// Of what threads gain (ThreadGain); all chosen by hand. The times of the first calls are those of
// new threads and cold memory: of these the least counts.
constexpr int kFirstCalls = 2;
// The slower way is tried after so many calls that it costs about 1/kTrials of the time, and earlier
// at first, as a comparison may have been lost by chance.
constexpr double kTrials = 64;
constexpr int kMinWait = 4, kMaxWait = 4096;
constexpr float kMaxRatio = 4;    // a call that was interrupted counts at most as so many
// One thread is not tried where that may take so many seconds.
constexpr float kLongTrial = 0.1f;
constexpr double kPause = 0.02;  // seconds between two calls
constexpr int kAfterPause = 3;   // most calls until the slower way is tried after a pause

std::atomic<int> chosen{0};        // by set_num_threads; 0: OpenMP's default
std::atomic<int> limit{kNoLimit};  // by set_thread_limit
std::atomic<int> started{kNoLimit};  // most threads after the system has refused one
std::atomic<void (*)(int)> on_refusal{nullptr};
std::atomic<bool> pool_exists{false};
std::atomic<bool> pool_is_lost{false};

// A forked child inherits the state of OpenMP's thread pool but not its threads, so that a parallel
// region of the child would wait for ever. The child therefore runs on one thread.
const int at_fork = pthread_atfork(nullptr, nullptr, [] {
  if (pool_exists.load(relaxed)) pool_is_lost.store(true);
});

// Whether OMP_NUM_THREADS says how many threads there are.
bool is_set_by_user() {
  static const bool is_set = [] {
    const char* value = std::getenv("OMP_NUM_THREADS");
    return value && *value;
  }();
  return is_set;
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// How many of `count` more threads the system starts, all at the same time.
int startable(int count) {
  std::vector<std::thread> threads;
  std::mutex until_all_are_started;
  {
    const std::lock_guard<std::mutex> held(until_all_are_started);
    try {
      while (int(threads.size()) < count)
        threads.emplace_back([&] { std::lock_guard<std::mutex> wait(until_all_are_started); });
    } catch (const std::system_error&) {
      // what has been started is what there is
    }
  }
  for (std::thread& thread : threads) thread.join();
  return int(threads.size());
}

// The threads, at most `count`, that the calling thread can have in parallel regions. OpenMP ends
// the process if the system refuses to start one, so that this is tried before, once for each
// calling thread: each has a pool of its own.
int started_threads(int count) {
  thread_local int tried = 1;
  if (count > tried) {
    const int others = startable(count - 1);
    tried = count;
    if (others < count - 1) {
      const int fewer = 1 + others / 2;  // OpenMP itself needs some of what is left, too
      started.store(fewer);
      if (const auto handler = on_refusal.load()) handler(fewer);
    }
  }
  return std::min(count, started.load(relaxed));
}

}  // namespace

int num_threads() {
  if (pool_is_lost.load(relaxed)) return 1;
  int count = chosen.load(relaxed);
  if (count == 0) {
    count = omp_get_max_threads();
    if (!is_set_by_user()) count = std::min(count, limit.load(relaxed));
  }
  return std::min(count, started.load(relaxed));
}

void set_num_threads(int count) { chosen.store(count, relaxed); }

void set_thread_limit(int count) { limit.store(count, relaxed); }

void set_refusal_handler(void (*handler)(int threads)) { on_refusal.store(handler); }

int thread_index() { return omp_get_thread_num(); }

int ThreadGain::choose(int available, double now) {
  if (available_.exchange(available, relaxed) != available) calls_[together].store(0, relaxed);
  if (calls_[together].load(relaxed) < kFirstCalls) return available;
  if (last_.load(relaxed) * float(available) > kLongTrial) return available;
  if (calls_[alone].load(relaxed) == 0) return 1;
  // After a pause other programs may be at work than before.
  if (now - end_.load(relaxed) > kPause) {
    wait_.store(kMinWait, relaxed);
    left_.store(std::min(left_.load(relaxed), kAfterPause), relaxed);
  }
  const bool tries = left_.fetch_sub(1, relaxed) <= 0;
  return gains() != tries ? available : 1;
}

void ThreadGain::record(int threads, double work, double begin, double end) {
  const double seconds = end - begin;
  end_.store(end, relaxed);
  const Way way = threads > 1 ? together : alone;
  const bool gained = gains();
  const int calls = calls_[way].load(relaxed);
  const bool is_trial = calls > 0 && (way == together) != gained;
  const float before = seconds_[way].load(relaxed), now = float(seconds / work);
  float mean = now;
  if (calls >= kFirstCalls)
    mean = before + (std::min(now, kMaxRatio * before) - before) * (is_trial ? 0.5f : 0.125f);
  else if (calls > 0)
    mean = std::min(before, now);
  seconds_[way].store(mean, relaxed);
  if (calls < kFirstCalls) calls_[way].store(calls + 1, relaxed);
  last_.store(float(seconds), relaxed);
  if (calls_[alone].load(relaxed) == 0 || (gains() == gained && !is_trial)) return;
  const float one = seconds_[alone].load(relaxed), all = seconds_[together].load(relaxed);
  const float faster = std::min(one, all), slower = std::max(one, all);
  int wait = kMinWait;
  if (gains() == gained && now < faster) {  // it was the faster one this time
    wait = std::max(kMinWait, wait_.load(relaxed) / 2);
  } else if (gains() == gained) {
    const double longest = std::min(kTrials * (slower / faster - 1), 2.0 * wait_.load(relaxed));
    wait = int(std::clamp<double>(longest, kMinWait, kMaxWait));
  }
  wait_.store(wait, relaxed);
  left_.store(wait, relaxed);
}

bool ThreadGain::gains() const { return seconds_[together].load(relaxed) < seconds_[alone].load(relaxed); }

ThreadGain& ThreadGains::of(double work) {
  return gains_[std::size_t(std::clamp(std::ilogb(std::max(work, 1.0)), 0, kPowers - 1))];
}

ThreadTeam::ThreadTeam(double work, ThreadGain& gain) {
  if (work < kMinParallelWork) return;
  const int wanted = num_threads();
  if (wanted <= 1) return;
  const int available = started_threads(wanted);
  if (available <= 1) return;
  gain_ = &gain;
  work_ = work;
  begin_ = now();
  threads_ = gain.choose(available, begin_);
  if (threads_ > 1) pool_exists.store(true, relaxed);
}

ThreadTeam::~ThreadTeam() {
  if (gain_) gain_->record(threads_, work_, begin_, now());
}

}  // namespace batchkron
