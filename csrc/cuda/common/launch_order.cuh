// Order among the kernels of a stream: one may be launched while that before it still runs.
#pragma once

namespace batchkron {

// Waits until the kernels before are done and what they wrote is seen. It is the first statement of
// every kernel, as all are launched that early where devices can; otherwise there is no wait.
__device__ inline void wait_for_earlier_kernels() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace batchkron
