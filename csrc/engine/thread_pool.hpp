// The threads that help a calling thread with its work.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "simd/common/step.hpp"

namespace batchkron {

// Work on the numbers 0 ... count - 1. A thread calls call(part, begin, end, thread) for a range of
// up to `grain` of them at a time. It begins with its own share, in ascending order, which is the
// same in each pass with the same sizes, so that it finds in its caches what it read and wrote
// before; then it takes what is left of the other threads' shares.
struct ThreadPass {
  void (*call)(const void* part, Index begin, Index end, int thread);
  const void* part;
  Index count, grain;
  int threads;          // the calling thread is number 0
  const Index* begins;  // where the shares begin and the last one ends; null: all are alike
};

// The threads of a process, for one calling thread at a time. A member that has nothing to do waits
// for the next pass in a loop for some microseconds, then it sleeps. The caller waits for members
// that are at work, but never for one that has not begun: then the others do its share.
class ThreadPool {
 public:
  // Never destroyed, as its threads run until the process ends.
  static ThreadPool& instance();

  // Whether the calling thread has the pool from now on, until give_back().
  bool try_take() { return !taken_.exchange(true, std::memory_order_acquire); }
  void give_back() { taken_.store(false, std::memory_order_release); }

  // The others are for who has the pool.

  // Starts threads so that there are so many with the caller, if the system lets it; returns how
  // many there are, up to `threads`.
  int start(int threads);
  // Returns when all of the pass is done; `threads` at most as start() has returned.
  void run(const ThreadPass& pass);
  // Members 1 ... threads - 1 wait for longer before they sleep.
  void keep_awake(int threads) { awake_.store(threads, std::memory_order_relaxed); }

 private:
  struct Member {
    // What of its share has been taken: the number of the pass, shifted, and how many ranges. Who is
    // late compares the first, and takes nothing of another pass.
    alignas(64) std::atomic<std::uint64_t> taken{0};
    alignas(64) std::atomic<Index> done{0};  // numbers, of all passes
    std::atomic<int> place{-1};              // its processor
    // Others look at it in each pass, so that it is apart from what changes in each.
    alignas(64) std::atomic<bool> asleep{false};
    std::mutex mutex;
    std::condition_variable wakes;
    std::vector<Index> begins;  // of its pass
    int number = 0;             // of the thread
  };

  ThreadPool();
  bool start_member(int thread);
  void live(int thread);
  ThreadPass await(int thread, std::uint64_t& number);
  bool read(int thread, std::uint64_t number, ThreadPass& pass);
  double seconds_to_wait(int thread) const;
  void sleep(int thread, std::uint64_t number);
  void wake_members(int thread, int threads);
  void leave_shared_processor(int thread);
  std::uint64_t publish(const ThreadPass& pass);
  void work(const ThreadPass& pass, std::uint64_t number, int thread);
  Index done(int threads) const;

  std::atomic<bool> taken_{false};
  std::atomic<int> awake_{0};
  std::atomic<int> threads_{1};  // with the caller

  // Passes take turns in two places: who finds the same number before and after it has read one has
  // read this pass. The number, at which all members look, is apart.
  struct alignas(64) Published {
    std::atomic<int> threads{0};
    std::atomic<void (*)(const void*, Index, Index, int)> call{nullptr};
    std::atomic<const void*> part{nullptr};
    std::atomic<Index> count{0}, grain{0};
    std::atomic<bool> has_begins{false};
    std::vector<std::atomic<Index>> begins;
  };
  Published passes_[2];
  alignas(64) std::atomic<std::uint64_t> number_{0};  // of the last pass
  // There is room for all that there may be, as some read while others are added.
  alignas(64) std::vector<std::unique_ptr<Member>> members_;
};

}  // namespace batchkron
