// Order among the kernels of a stream. From compute capability 9.0 on a kernel is launched before
// the one ahead of it has ended (programmatic dependent launch), which hides the latency of the
// launch.
#pragma once

namespace batchkron {

// Waits until all earlier kernels of the stream have ended and what they wrote is visible. It must
// be the first statement of every kernel. On older devices, where kernels are not launched early,
// it does nothing.
__device__ inline void wait_for_earlier_kernels() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace batchkron
