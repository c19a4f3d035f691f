// Barriers in shared memory: who arrives at one goes on, and who waits may come much later. Bulk
// copies, which they count, are for compute capability 9.0 and up; before, they stop the program.
#pragma once

namespace batchkron {

// Counts arrivals; a phase ends with the last of them, and the next one begins. `phase` is the
// number of a phase, of which its lowest bit counts: nobody waits for one before the last.
class SharedBarrier {
  unsigned long long word;

  __device__ unsigned address() const { return unsigned(__cvta_generic_to_shared(this)); }

 public:
  // By one thread, before a synchronisation of all that use it.
  __device__ void begin(int arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(address()), "r"(arrivals) : "memory");
  }
  // The same if bulk copies will be counted.
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
  // Arrives, and names the bytes of bulk copies that have to come in this phase, too.
  __device__ void arrive_and_expect(unsigned bytes) {
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address()),
                 "r"(bytes)
                 : "memory");
#else
    __trap();
#endif
  }
  // Begins such a copy; addresses and size are multiples of 16.
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
  // Arrives as soon as all copies that the thread has begun are there.
  __device__ void arrive_with_copies() {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(address()) : "memory");
  }
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
