#include "engine/threads.hpp"

#include <omp.h>
#include <pthread.h>
#include <sched.h>

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
// A trial of threads ends after some calls, or at once with one that is faster than the other way or
// takes so many times as long.
constexpr int kTrialCalls = 3;
constexpr float kHopeless = 3;
// The slower way is tried after so many calls that it costs about 1/kTrials of the time, and earlier
// at first, as a comparison may have been lost by chance.
constexpr int kTrials = 64;
constexpr int kMinWait = 4, kMaxWait = 8192;
// A way that was dropped after fewer calls had won by chance, and is tried later each time.
constexpr int kProof = 64;
constexpr float kMaxRatio = 16;  // a call that was interrupted counts at most as so many
// One thread is not tried where that may take so many seconds.
constexpr float kLongTrial = 0.1f;
constexpr double kPause = 0.02;  // seconds between two calls
constexpr int kAfterPause = 3;   // most calls until a trial after a pause, at first

// Threads that have had nothing to do for so many seconds may be asleep.
constexpr double kAsleep = 1e-4;
constexpr int kSpreadRounds = 20000;  // some 50 us

std::atomic<int> chosen{0};        // by set_num_threads; 0: OpenMP's default
std::atomic<int> limit{kNoLimit};  // by set_thread_limit
std::atomic<int> started{kNoLimit};  // most threads after the system has refused one
std::atomic<void (*)(int)> on_refusal{nullptr};
std::atomic<bool> pool_exists{false};
std::atomic<bool> pool_is_lost{false};
thread_local double last_team = 0;  // when this thread's last call with others ended

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

// Linux may wake a thread on the processor of another one of its team while others are free, and
// leave it there for tens of milliseconds: such threads move. Processors that a thread may use are
// the same before and after.
void spread(int count) {
#ifdef __linux__
  static constexpr int kMost = 64;
  std::array<std::atomic<int>, kMost> places;
  cpu_set_t processors;
  if (count > kMost || sched_getaffinity(0, sizeof processors, &processors) != 0) return;
  if (CPU_COUNT(&processors) < count) return;
  for (auto& place : places) place.store(-1, relaxed);
  std::atomic<int> arrived{0};
#pragma omp parallel num_threads(count)
  {
    const int index = omp_get_thread_num(), own = sched_getcpu();
    places[std::size_t(index)].store(own);
    arrived.fetch_add(1);
    // A thread that waits for this processor comes on while this one sleeps.
    for (int round = 0; arrived.load() < omp_get_num_threads(); ++round)
      if (round > kSpreadRounds) std::this_thread::sleep_for(std::chrono::microseconds(10));
    bool is_shared = false;
    cpu_set_t allowed, others;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) {
      others = allowed;
      for (int i = 0; i < omp_get_num_threads(); ++i) {
        const int place = places[std::size_t(i)].load();
        is_shared = is_shared || (i < index && place == own);
        if (place >= 0 && place < CPU_SETSIZE) CPU_CLR(std::size_t(place), &others);
      }
      if (is_shared && CPU_COUNT(&others) > 0 && sched_setaffinity(0, sizeof others, &others) == 0)
        sched_setaffinity(0, sizeof allowed, &allowed);
    }
  }
#endif
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

int num_processors() { return omp_get_num_procs(); }

void set_refusal_handler(void (*handler)(int threads)) { on_refusal.store(handler); }

int thread_index() { return omp_get_thread_num(); }

int ThreadGain::choose(int available, double now) {
  if (available_.load() != available) {
    available_ = available;
    calls_[together] = 0;
    tried_ = 0;
  }
  if (calls_[together].load() < kFirstCalls) return available;
  if (last_.load() * float(available) > kLongTrial) return available;
  if (calls_[alone].load() < kFirstCalls) return 1;
  if (now - end_.load() > kPause) {
    if (tried_.load() > 0) end_trial();
    // Other programs may be at work than before.
    if (left_.load() > after_pause_.load()) {
      left_ = after_pause_.load();
      hastened_ = true;
    }
  }
  const bool tries = tried_.load() > 0 || left_.load() <= 0;
  left_ = left_.load() - 1;
  return gains() != tries ? available : 1;
}

void ThreadGain::record(int threads, double work, double begin, double end) {
  end_ = end;
  last_ = float(end - begin);
  const Way way = threads > 1 ? together : alone;
  const int calls = calls_[way].load();
  const float before = seconds_[way].load(), now = float((end - begin) / work);
  if (calls < kFirstCalls) {
    seconds_[way] = calls > 0 ? std::min(before, now) : now;
    calls_[way] = calls + 1;
    wait_[alone] = wait_[together] = left_ = kMinWait;
    taken_ = 0;
    after_pause_ = kAfterPause;
    return;
  }
  if (calls_[alone].load() < kFirstCalls) return;
  const bool gained = gains();
  if ((way == together) == gained) {
    seconds_[way] = before + (std::min(now, kMaxRatio * before) - before) / 8;
    taken_ = std::min(taken_.load() + 1, kProof);
    if (gains() != gained) change(way);
    return;
  }
  const int tried = tried_.load();
  least_ = tried > 0 ? std::min(least_.load(), now) : now;
  tried_ = tried + 1;
  const float other = seconds_[way == alone ? together : alone].load();
  if (way == alone || tried + 1 >= kTrialCalls || now < other || now > kHopeless * other) end_trial();
}

void ThreadGain::end_trial() {
  const Way tried = gains() ? alone : together, taken = tried == alone ? together : alone;
  const float before = seconds_[tried].load(), best = seconds_[taken].load(), now = least_.load();
  const int calls = tried_.load();
  tried_ = 0;
  if (now < best) {
    seconds_[tried] = now;
    return change(taken);
  }
  const float mean = before + (std::min(now, kMaxRatio * before) - before) / 2;
  seconds_[tried] = mean;
  const double longest =
      std::min(double(kTrials * calls) * (mean / best - 1), 2.0 * wait_[tried].load());
  wait_[tried] = left_ = int(std::clamp<double>(longest, kMinWait * calls, kMaxWait));
  if (hastened_.load()) after_pause_ = std::min(2 * after_pause_.load(), kTrials);
  hastened_ = false;
}

void ThreadGain::change(Way dropped) {
  const int later = std::min(2 * wait_[dropped].load(), kTrials * kTrialCalls);
  wait_[dropped] = left_ = taken_.load() < kProof ? later : kMinWait;
  taken_ = 0;
  after_pause_ = kAfterPause;
  hastened_ = false;
}

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
  if (threads_ == 1) return;
  pool_exists.store(true, relaxed);
  if (begin_ - last_team > kAsleep) spread(threads_);
}

ThreadTeam::~ThreadTeam() {
  if (!gain_) return;
  const double end = now();
  gain_->record(threads_, work_, begin_, end);
  if (threads_ > 1) last_team = end;
}

}  // namespace batchkron
