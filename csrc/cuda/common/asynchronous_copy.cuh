// Copies from global to shared memory that a thread begins now and waits for later.
#pragma once

namespace batchkron {

// Begins to copy `bytes` (4, 8 or 16), which both addresses are multiples of. reused: other blocks
// will read the same soon, so that the first-level cache should hold it. No compiler barrier: whoever
// reads what was copied has waited for it.
template <int bytes, bool reused>
__device__ void copy_asynchronously(void* shared, const void* global) {
  static_assert(bytes == 4 || bytes == 8 || bytes == 16, "sizes of cp.async");
  const unsigned target = unsigned(__cvta_generic_to_shared(shared));
  if constexpr (bytes == 16 && !reused)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(target), "l"(global));
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(target), "l"(global), "n"(bytes));
}

// The same for a word of 16 bytes, and asks for its line of 128 in the second-level cache: others are
// about to read the rest of it.
__device__ inline void copy_from_line(void* shared, const void* global) {
  const unsigned target = unsigned(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(target), "l"(global));
}

// The same for `bytes` of which the first `count` are read and the others become zero; `global` is an
// address in any case.
template <int bytes>
__device__ void copy_asynchronously_first(void* shared, const void* global, int count) {
  static_assert(bytes == 4 || bytes == 8 || bytes == 16, "sizes of cp.async");
  const unsigned target = unsigned(__cvta_generic_to_shared(shared));
  if constexpr (bytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(global),
                 "r"(count));
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(target), "l"(global),
                 "n"(bytes), "r"(count));
}

// Asks for whole words of 16 bytes, as `global` begins with one, in the second-level cache.
#if __CUDA_ARCH__ >= 900
constexpr bool can_prefetch_bulk = true;
#else
constexpr bool can_prefetch_bulk = false;
#endif
__device__ inline void prefetch_bulk(const void* global, unsigned bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(global), "r"(bytes));
#else
  __trap();
#endif
}

// Ends a batch of copies, maybe an empty one.
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits for the thread's copies, but for those of its last `batches` batches. Other threads see them
// after a synchronisation.
template <int batches>
__device__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(batches) : "memory");
}

}  // namespace batchkron
