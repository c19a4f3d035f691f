#include "engine/threads.hpp"

#include <omp.h>

#include <atomic>

namespace batchkron {
namespace {
std::atomic<int> chosen{0};  // 0: OpenMP's own default
}

int num_threads() {
  const int count = chosen.load(std::memory_order_relaxed);
  return count > 0 ? count : omp_get_max_threads();
}

void set_num_threads(int count) { chosen.store(count, std::memory_order_relaxed); }

int thread_index() { return omp_get_thread_num(); }

int threads_for(double multiply_adds) {
  constexpr double kWorthwhile = 1e5;  // about 20 us of one core at a few multiply-adds a cycle
  return multiply_adds < kWorthwhile ? 1 : num_threads();
}

}  // namespace batchkron
