#include "engine/thread_pool.hpp"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "engine/processors.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace batchkron {
namespace {

constexpr std::memory_order relaxed = std::memory_order_relaxed;
constexpr std::memory_order acquire = std::memory_order_acquire;
constexpr std::memory_order release = std::memory_order_release;

constexpr int kMaxThreads = 4096;  // as of batchkron.set_num_threads
// A waiting thread looks so often before it looks at the clock.
constexpr int kPolls = 32;
// Seconds that a member waits before it sleeps: by default, which is long enough for the time
// between two calls in a row, and short for the threads of other libraries that need the processor;
// if OMP_WAIT_POLICY is "active"; and while a caller keeps it awake. Chosen by hand.
constexpr double kWait = 5e-5, kActiveWait = 1e-2, kHeldWait = 1e-3;
// A thread that wakes wakes so many others: one after another would take the caller as long as the
// work of a short call.
constexpr int kWoken = 4;
// Bits for the ranges that were taken of a share. The others are enough for the passes of some years.
constexpr int kRangeBits = 20;
constexpr std::uint64_t kRanges = (std::uint64_t(1) << kRangeBits) - 1;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

double wait_policy() {
  const char* policy = std::getenv("OMP_WAIT_POLICY");
  if (policy && strcasecmp(policy, "passive") == 0) return 0;
  if (policy && strcasecmp(policy, "active") == 0) return kActiveWait;
  return kWait;
}

Index share_begin(const ThreadPass& pass, int share) {
  if (pass.begins) return pass.begins[share];
  return pass.count / pass.threads * share + std::min<Index>(pass.count % pass.threads, share);
}

// New threads may use all processors of the process, also if the thread that starts them is bound.
void unbind(pthread_attr_t& attributes) {
#ifdef __linux__
  cpu_set_t processors;
  if (usable_processors(processors))
    pthread_attr_setaffinity_np(&attributes, sizeof processors, &processors);
#endif
}

}  // namespace

ThreadPool& ThreadPool::instance() {
  static ThreadPool& pool = *new ThreadPool;
  return pool;
}

ThreadPool::ThreadPool() : members_(kMaxThreads) {
  for (Published& place : passes_) place.begins = std::vector<std::atomic<Index>>(kMaxThreads + 1);
  members_[0] = std::make_unique<Member>();
}

int ThreadPool::start(int threads) {
  threads = std::min(threads, kMaxThreads);
  int count = threads_.load(relaxed);
  while (count < threads && start_member(count)) threads_.store(++count, release);
  return std::min(threads, count);
}

bool ThreadPool::start_member(int thread) {
  members_[std::size_t(thread)] = std::make_unique<Member>();
  // Signals are for the threads that the program knows.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  unbind(attributes);
  pthread_t unused;
  members_[std::size_t(thread)]->number = thread;
  const int error = pthread_create(
      &unused, &attributes,
      [](void* member) -> void* {
        instance().live(static_cast<Member*>(member)->number);
        return nullptr;
      },
      members_[std::size_t(thread)].get());
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return error == 0;
}

void ThreadPool::run(const ThreadPass& given) {
  ThreadPass pass = given;
  pass.grain = std::max(pass.grain, pass.count >> (kRangeBits - 1));
  const Index before = done(pass.threads);
#ifdef __linux__
  members_[0]->place.store(sched_getcpu(), relaxed);
#endif
  const std::uint64_t number = publish(pass);
  wake_members(0, pass.threads);
  work(pass, number, 0);
  double until = 0;  // unknown
  for (int poll = 1; done(pass.threads) - before < pass.count; ++poll) {
    pause();
    if (poll % kPolls > 0) continue;
    if (until == 0) until = now() + kWait;
    if (now() > until) sched_yield();
  }
}

Index ThreadPool::done(int threads) const {
  Index sum = 0;
  for (int thread = 0; thread < threads; ++thread)
    sum += members_[std::size_t(thread)]->done.load(acquire);
  return sum;
}

// Returns the number of the pass.
std::uint64_t ThreadPool::publish(const ThreadPass& pass) {
  const std::uint64_t number = number_.load(relaxed) + 1;
  Published& place = passes_[number % 2];
  // Who reads one of the new values finds the number of the last pass or of this one afterwards, and
  // not that of the pass before, which was here.
  place.threads.store(pass.threads, release);
  place.call.store(pass.call, release);
  place.part.store(pass.part, release);
  place.count.store(pass.count, release);
  place.grain.store(pass.grain, release);
  place.has_begins.store(pass.begins != nullptr, release);
  if (pass.begins)
    for (int share = 0; share <= pass.threads; ++share)
      place.begins[std::size_t(share)].store(pass.begins[share], release);
  // In one order with `asleep`: a member sees the pass before it sleeps, or is seen to sleep.
  number_.store(number, std::memory_order_seq_cst);
  return number;
}

// Whether `pass` is now the pass of this number, which is for the thread.
bool ThreadPool::read(int thread, std::uint64_t number, ThreadPass& pass) {
  const Published& place = passes_[number % 2];
  pass.threads = place.threads.load(acquire);
  if (thread >= pass.threads) return false;
  pass.call = place.call.load(acquire);
  pass.part = place.part.load(acquire);
  pass.count = place.count.load(acquire);
  pass.grain = place.grain.load(acquire);
  pass.begins = nullptr;
  if (place.has_begins.load(acquire)) {
    std::vector<Index>& begins = members_[std::size_t(thread)]->begins;
    begins.resize(std::size_t(pass.threads) + 1);
    for (std::size_t share = 0; share < begins.size(); ++share)
      begins[share] = place.begins[share].load(acquire);
    pass.begins = begins.data();
  }
  return number_.load(relaxed) == number;
}

// Takes ranges until none are left.
void ThreadPool::work(const ThreadPass& pass, std::uint64_t number, int thread) {
  std::atomic<Index>& done = members_[std::size_t(thread)]->done;
  for (int visited = 0, share = thread; visited < pass.threads; ++visited) {
    const Index first = share_begin(pass, share), last = share_begin(pass, share + 1);
    std::atomic<std::uint64_t>& taken = members_[std::size_t(share)]->taken;
    std::uint64_t word = taken.load(relaxed);
    for (;;) {
      const std::uint64_t owner = word >> kRangeBits;
      if (owner > number) return;  // another pass has begun
      const std::uint64_t ranges = owner == number ? word & kRanges : 0;
      const Index begin = first + Index(ranges) * pass.grain;
      if (begin >= last) break;
      if (!taken.compare_exchange_weak(word, (number << kRangeBits) + ranges + 1, relaxed)) continue;
      const Index end = std::min(begin + pass.grain, last);
      pass.call(pass.part, begin, end, thread);
      done.store(done.load(relaxed) + end - begin, release);
      word = taken.load(relaxed);
    }
    share = share + 1 < pass.threads ? share + 1 : 0;
  }
}

void ThreadPool::live(int thread) {
  std::uint64_t number = 0;
  leave_shared_processor(thread);
  for (;;) {
    const ThreadPass pass = await(thread, number);
#ifdef __linux__
    members_[std::size_t(thread)]->place.store(sched_getcpu(), relaxed);
#endif
    wake_members(thread, pass.threads);
    work(pass, number, thread);
  }
}

// Waits for a pass with another number that is for this thread.
ThreadPass ThreadPool::await(int thread, std::uint64_t& number) {
  ThreadPass pass{};
  double begin = 0;  // unknown
  for (int poll = 1;; ++poll) {
    const std::uint64_t next = number_.load(acquire);
    if (next != number) {
      const bool is_for_this = read(thread, next, pass);
      if (number_.load(relaxed) == next) number = next;  // else it was read while another one began
      if (is_for_this) {
        number = next;
        return pass;
      }
    }
    pause();
    if (poll % kPolls > 0) continue;
    const double time = now();
    if (begin == 0) begin = time;
    if (time - begin < seconds_to_wait(thread)) continue;
    sleep(thread, number);
    begin = 0;
  }
}

// A member for which there is no processor sleeps at once.
double ThreadPool::seconds_to_wait(int thread) const {
  static const double usual = wait_policy();
  static const int processors = num_processors();
  if (thread >= processors) return 0;
  return thread < awake_.load(relaxed) ? std::max(kHeldWait, usual) : usual;
}

// Sleeps unless there is another pass than that with this number.
void ThreadPool::sleep(int thread, std::uint64_t number) {
  Member& own = *members_[std::size_t(thread)];
  own.asleep.store(true, std::memory_order_seq_cst);
  if (number_.load(std::memory_order_seq_cst) != number) {
    own.asleep.store(false, relaxed);
    return;
  }
  {
    std::unique_lock<std::mutex> lock(own.mutex);
    own.wakes.wait(lock, [&] { return !own.asleep.load(relaxed); });
  }
  leave_shared_processor(thread);
}

// Wakes some of the members that are asleep. They wake others.
void ThreadPool::wake_members(int thread, int threads) {
  const int first = kWoken * thread + 1;
  for (int other = first; other < std::min(first + kWoken, threads); ++other) {
    Member& member = *members_[std::size_t(other)];
    if (!member.asleep.load(std::memory_order_seq_cst)) continue;
    {
      const std::lock_guard<std::mutex> lock(member.mutex);
      member.asleep.store(false, relaxed);
    }
    member.wakes.notify_one();
  }
}

// Linux may wake a thread on the processor of another one while others are free, and leave it there
// for tens of milliseconds: such a thread moves. Processors that it may use are the same before and
// after.
void ThreadPool::leave_shared_processor(int thread) {
#ifdef __linux__
  const int own = sched_getcpu();
  members_[std::size_t(thread)]->place.store(own, relaxed);
  cpu_set_t allowed, others;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  others = allowed;
  bool is_shared = false;
  for (int other = 0; other < threads_.load(acquire); ++other) {
    const int place = members_[std::size_t(other)]->place.load(relaxed);
    is_shared = is_shared || (other < thread && place == own);
    if (place >= 0 && place < CPU_SETSIZE) CPU_CLR(std::size_t(place), &others);
  }
  if (!is_shared || CPU_COUNT(&others) == 0) return;
  if (sched_setaffinity(0, sizeof others, &others) != 0) return;
  members_[std::size_t(thread)]->place.store(sched_getcpu(), relaxed);
  sched_setaffinity(0, sizeof allowed, &allowed);
#endif
}

}  // namespace batchkron
