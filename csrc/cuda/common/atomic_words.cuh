// Atomic additions of several neighbouring elements.
#pragma once

#include "cuda/common/scalar.cuh"

namespace batchkron {

// The elements of one atomic addition: float32 is added by words of 8 or 16 bytes from compute
// capability 9.0 on, all else one by one.
template <class T>
constexpr int max_atomic_word = 1;
#if __CUDA_ARCH__ >= 900
template <>
constexpr int max_atomic_word<float> = 4;
#endif

// Adds `count` neighbouring elements to memory, each atomically; target is aligned to all of them
// together. count is at most max_atomic_word<T>.
template <int count, class T>
__device__ void atomic_add_word(T* target, const T* values) {
  static_assert(count == 1, "one element at a time");
  atomic_add(target, *values);
}
#if __CUDA_ARCH__ >= 900
template <>
__device__ inline void atomic_add_word<2, float>(float* target, const float* values) {
  asm volatile("red.global.add.v2.f32 [%0], {%1, %2};" ::"l"(target), "f"(values[0]), "f"(values[1])
               : "memory");
}
template <>
__device__ inline void atomic_add_word<4, float>(float* target, const float* values) {
  asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(target), "f"(values[0]),
               "f"(values[1]), "f"(values[2]), "f"(values[3])
               : "memory");
}
#endif

}  // namespace batchkron
