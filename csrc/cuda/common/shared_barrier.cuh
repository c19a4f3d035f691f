// Barriers in shared memory (mbarrier), at which arriving and waiting are separate: a thread that
// arrives goes on, another one waits later. They can also count the bytes of bulk copies, which
// need compute capability 9.0; on older devices the functions for these stop the kernel.
#pragma once

namespace batchkron {

// Counts arrivals in phases: with the last arrival a phase ends and the next one begins. Phases are
// numbered from 0; wait() looks at the lowest bit only, so a thread may wait for the current phase
// or the one before, not for older ones.
class SharedBarrier {
  unsigned long long word;

  __device__ unsigned address() const { return unsigned(__cvta_generic_to_shared(this)); }

 public:
  // Called by one thread; all threads that use the barrier synchronise after it.
  __device__ void begin(int arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(address()), "r"(arrivals) : "memory");
  }
  // The same for a barrier that counts bulk copies.
  __device__ void begin_for_bulk(int arrivals) {
    begin(arrivals);
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
  }
  __device__ void arrive() {
    asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(address())
                 : "memory");
  }
  // Arrives, and says how many bytes of bulk copies must have arrived, too, before the phase ends.
  __device__ void arrive_and_expect(unsigned bytes) {
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address()),
                 "r"(bytes)
                 : "memory");
#else
    __trap();
#endif
  }
  // Begins a bulk copy that this barrier counts; addresses and size are multiples of 16.
  __device__ void copy_bulk(void* shared, const void* global, unsigned bytes) {
#if __CUDA_ARCH__ >= 900
    const unsigned target = unsigned(__cvta_generic_to_shared(shared));
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1], %2, [%3];" ::"r"(target),
        "l"(global), "r"(bytes), "r"(address())
        : "memory");
#else
    __trap();
#endif
  }
  // Arrives as soon as all asynchronous copies that the thread has begun are complete.
  __device__ void arrive_with_copies() {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(address()) : "memory");
  }
  // Returns when phase number `phase` has ended.
  __device__ void wait(int phase) const {
#if __CUDA_ARCH__ >= 900
#define BATCHKRON_ASK "mbarrier.try_wait.parity.shared::cta.b64"
#else
#define BATCHKRON_ASK "mbarrier.test_wait.parity.shared.b64"
#endif
    asm volatile("{\n.reg .pred ended;\nAGAIN:\n" BATCHKRON_ASK
                 " ended, [%0], %1;\n@!ended bra AGAIN;\n}" ::"r"(address()),
                 "r"(phase & 1)
                 : "memory");
#undef BATCHKRON_ASK
  }
};

}  // namespace batchkron
