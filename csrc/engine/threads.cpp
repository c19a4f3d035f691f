#include "engine/threads.hpp"

#include <omp.h>
#include <pthread.h>

#include <atomic>

namespace batchkron {
namespace {

std::atomic<int> chosen{0};  // by set_num_threads; 0: OpenMP's default
std::atomic<bool> pool_exists{false};
std::atomic<bool> pool_is_lost{false};

// A forked child inherits the state of OpenMP's thread pool but not its threads, so that a parallel
// region of the child would wait for ever. The child therefore runs on one thread.
const int at_fork = pthread_atfork(nullptr, nullptr, [] {
  if (pool_exists.load(std::memory_order_relaxed)) pool_is_lost.store(true);
});

}  // namespace

int num_threads() {
  if (pool_is_lost.load(std::memory_order_relaxed)) return 1;
  const int count = chosen.load(std::memory_order_relaxed);
  return count > 0 ? count : omp_get_max_threads();
}

void set_num_threads(int count) { chosen.store(count, std::memory_order_relaxed); }

int thread_index() { return omp_get_thread_num(); }

int threads_for(double multiply_adds) {
  // Multiply-adds, about 5 to 10 us of one core. With 1e5, some products took longer on two threads
  // than on one (Zen 5, docs/results/cpu.md).
  constexpr double kMinParallelWork = 4e5;
  const int count = multiply_adds < kMinParallelWork ? 1 : num_threads();
  if (count > 1) pool_exists.store(true, std::memory_order_relaxed);
  return count;
}

}  // namespace batchkron
