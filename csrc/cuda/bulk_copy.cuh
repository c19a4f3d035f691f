// Copies of stretches of global memory to shared memory by one thread, and barriers in shared memory
// that know when they are there. From compute capability 9.0 on.
#pragma once

namespace batchkron {

// A barrier of 8 bytes in shared memory. Its phases are complete when `count` threads have arrived
// and all bytes that they announced are there.
__device__ inline unsigned shared_address(const void* pointer) {
  return unsigned(__cvta_generic_to_shared(pointer));
}
__device__ inline void begin_barrier(unsigned long long* barrier, int count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count)
               : "memory");
}
// What was begun is seen by copies, after a synchronisation by other threads too.
__device__ inline void show_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ inline void arrive(unsigned long long* barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
// Arrives, and announces that many bytes.
__device__ inline void arrive_expecting(unsigned long long* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(bytes)
               : "memory");
}
// Waits for the end of the phase of this parity: 0 for the first one, then in turn.
__device__ inline void wait_for_phase(unsigned long long* barrier, int parity) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
      "@!done bra again;\n}" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}
// Begins to copy `bytes`, a multiple of 16 as both addresses are; they count for the barrier.
__device__ inline void copy_bulk(void* shared, const void* global, int bytes,
                                 unsigned long long* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}

}  // namespace batchkron
