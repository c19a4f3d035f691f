// Sums over the pieces of points' windows:
//   points[p, r] = alpha sum over s of partial[s, p, r],   or  +=  with `accumulate`.
// partial is contiguous, (pieces, count, vectors). A thread adds the pieces of one element in their
// order. Without `accumulate` points are not read.
#pragma once

#include "cuda/common/launch_order.cuh"
#include "cuda/interpolated/windows.cuh"

namespace batchkron {

template <class T>
struct FoldArguments {
  T* points;
  const T* partial;
  Index count, pieces, point_step;
  Index vectors[kMaxVectors];  // where they begin in points
  Index accumulate;            // whether to add to the points
  T alpha;
};

template <class T, int vectors, int threads>
__global__ void __launch_bounds__(threads) interpolate_fold(FoldArguments<T> a) {
  wait_for_earlier_kernels();
  const Index all = a.count * vectors, stride = Index(gridDim.x) * threads;
  for (Index i = Index(blockIdx.x) * threads + threadIdx.x; i < all; i += stride) {
    T sum = a.partial[i];
    UNROLLED_BY(4) for (Index s = 1; s < a.pieces; ++s) sum = add(sum, a.partial[s * all + i]);
    T* const target = a.points + i / vectors * a.point_step + a.vectors[i % vectors];
    *target = a.accumulate ? multiply_add(*target, a.alpha, sum) : multiply(a.alpha, sum);
  }
}

}  // namespace batchkron
