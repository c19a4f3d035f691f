// Products with diagonal matrices:
//   y[i] = alpha d[(i / inner) mod period] x[i],  or +=  with `accumulate`,   for i < count.
// x and y are contiguous, `count` elements each; d has `period` elements. Without `repeated`, inner
// is 1 and period is count. All are aligned to an element. y overlaps neither x nor d. Without
// `accumulate` y is never read. Any count: a thread checks each of its elements against the end.
#pragma once

#include "cuda/common/launch_order.cuh"
#include "cuda/common/scalar.cuh"

namespace batchkron {

template <class T>
struct DiagonalArguments {
  const T* x;
  T* y;
  const T* d;
  Index count, period, inner;
  Index scaled;      // whether alpha is not 1
  Index accumulate;  // whether to add to y
  T alpha;
};

template <class T, int threads, bool repeated>
__global__ void __launch_bounds__(threads) diagonal_multiply(DiagonalArguments<T> a) {
  wait_for_earlier_kernels();
  constexpr int held = 4;  // elements that a thread loads before it uses the first; chosen by hand
  const Index stride = Index(gridDim.x) * threads;
  for (Index i = Index(blockIdx.x) * threads + threadIdx.x; i < a.count; i += held * stride) {
    T x[held], d[held], y[held];
    UNROLLED for (int e = 0; e < held; ++e) {
      const Index at = i + e * stride;
      if (at >= a.count) continue;
      x[e] = a.x[at];
      d[e] = a.d[repeated ? at / a.inner % a.period : at];
      if (a.accumulate) y[e] = a.y[at];
    }
    UNROLLED for (int e = 0; e < held; ++e) {
      const Index at = i + e * stride;
      if (at >= a.count) continue;
      const T entry = a.scaled ? multiply(a.alpha, d[e]) : d[e];
      a.y[at] = a.accumulate ? multiply_add(y[e], entry, x[e]) : multiply(entry, x[e]);
    }
  }
}

}  // namespace batchkron
