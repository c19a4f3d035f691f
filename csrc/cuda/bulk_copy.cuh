// Bulk copies from global to shared memory that one thread begins, and the barriers in shared
// memory that count their bytes. For compute capability 9.0 and up; before, they do nothing.
#pragma once

namespace batchkron {

// In shared memory. A phase ends once all of its arrivals have come, and the bytes that they named.
using CopyBarrier = unsigned long long;

__device__ inline unsigned shared_address(const void* shared) {
  return unsigned(__cvta_generic_to_shared(shared));
}

// Others see it after a synchronisation.
__device__ inline void begin(CopyBarrier* barrier, int arrivals) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(arrivals)
               : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

// Arrives, and names how many bytes will be copied in this phase, before or after they are.
__device__ inline void expect(CopyBarrier* barrier, unsigned bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                   shared_address(barrier)),
               "r"(bytes)
               : "memory");
#endif
}

// Arrives once the copies that the thread has begun by `copy_asynchronously` are there.
__device__ inline void arrive_after_copies(CopyBarrier* barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier))
               : "memory");
#endif
}

// Begins a copy; addresses and size are multiples of 16.
__device__ inline void copy_bulk(void* shared, const void* global, unsigned bytes,
                                 CopyBarrier* barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1], %2, [%3];" ::"r"(shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
#endif
}

// Waits for the end of a phase; phases have parity 0, 1, 0, …
__device__ inline void wait(CopyBarrier* barrier, unsigned parity) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "WAIT:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra WAIT;\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
#endif
}

}  // namespace batchkron
