// Barriers in shared memory: who arrives at one goes on, and who waits may come much later.
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
  __device__ void arrive() {
    asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(address())
                 : "memory");
  }
  // Arrives as soon as all copies that the thread has begun are there.
  __device__ void arrive_with_copies() {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(address()) : "memory");
  }
  __device__ void wait(int phase) const {
    while (!has_ended(phase & 1)) {
    }
  }

 private:
  __device__ bool has_ended(int parity) const {
    unsigned ended;
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(ended)
        : "r"(address()), "r"(parity)
        : "memory");
#else
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.test_wait.parity.shared.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(ended)
        : "r"(address()), "r"(parity)
        : "memory");
#endif
    return ended != 0;
  }
};

}  // namespace batchkron
