// Linear combinations of vectors in one pass over memory:
//   y[i] = sum over k < vectors of factors[k] x[k][i]   for i < count.
// k ascends; the first term is a product, the others are fused multiply-adds, so that the bits are
// those of the CPU (simd/vector_sums/table.hpp). All vectors are contiguous and aligned to an
// element. y may be one of the x[k], and overlaps the others nowhere. Any count: a thread checks
// each of its elements against the end.
#pragma once

#include "cuda/common/launch_order.cuh"
#include "cuda/common/scalar.cuh"

namespace batchkron {

template <class T, int vectors>
struct VectorSumArguments {
  const T* x[vectors];
  T* y;
  Index count;
  T factors[vectors];
};

template <class T, int threads, int vectors>
__global__ void __launch_bounds__(threads) vector_sum(VectorSumArguments<T, vectors> a) {
  wait_for_earlier_kernels();
  constexpr int held = 4;  // elements that a thread has at once; chosen by hand
  const Index stride = Index(gridDim.x) * threads;
  for (Index i = Index(blockIdx.x) * threads + threadIdx.x; i < a.count; i += held * stride) {
    T sum[held];
    UNROLLED for (int k = 0; k < vectors; ++k)
      UNROLLED for (int e = 0; e < held; ++e) {
        const Index at = i + e * stride;
        if (at >= a.count) continue;
        const T x = a.x[k][at];
        sum[e] = k == 0 ? a.factors[k] * x : multiply_add(sum[e], a.factors[k], x);
      }
    UNROLLED for (int e = 0; e < held; ++e)
      if (i + e * stride < a.count) a.y[i + e * stride] = sum[e];
  }
}

}  // namespace batchkron
