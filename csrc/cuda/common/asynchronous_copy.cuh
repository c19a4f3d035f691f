// Asynchronous copies from global to shared memory (cp.async): a thread begins them now and waits
// for them later.
#pragma once

namespace batchkron {

// Begins to copy 4, 8 or 16 bytes; both addresses are multiples of that number. reused: other
// thread blocks will read the same soon, so it goes through the L1 cache (cp.async without that
// exists for 16 bytes only). There is no compiler barrier here: wait_for_copies, which must come
// before the copy is read, has one.
template <int bytes, bool reused>
__device__ void copy_asynchronously(void* shared, const void* global) {
  static_assert(bytes == 4 || bytes == 8 || bytes == 16, "sizes of cp.async");
  const unsigned target = unsigned(__cvta_generic_to_shared(shared));
  if constexpr (bytes == 16 && !reused)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(target), "l"(global));
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(target), "l"(global), "n"(bytes));
}

// Copies 16 bytes, and brings their whole line of 128 bytes into the L2 cache: other threads are
// about to read the rest of it.
__device__ inline void copy_from_line(void* shared, const void* global) {
  const unsigned target = unsigned(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(target), "l"(global));
}

// Copies the first `count` of `bytes` bytes and writes zeros to the others. `global` must be a
// valid, aligned address even if count is 0.
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

// Prefetches to the L2 cache; `bytes` and `global` are multiples of 16. For compute capability 9.0
// and up (can_prefetch_bulk); elsewhere a call stops the kernel.
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

// Ends a batch: all copies that the thread has begun since the last batch, maybe none.
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits for all copies of the calling thread except those of its last `batches` batches. Other
// threads see what was copied after a synchronisation.
template <int batches>
__device__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(batches) : "memory");
}

}  // namespace batchkron
