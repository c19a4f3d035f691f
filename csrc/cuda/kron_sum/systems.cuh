// Kronecker sums of many systems, a thread block for each vector:
//   y[k, s, i, j] = alpha ((A_s1 ⊕ … ⊕ A_sd) x[k, s, :, j])[i],  or +=  with `accumulate`,
// for k < outer / systems, s < systems, i < elements of a vector, j < inner, where A_1 ⊕ A_2 = A_1
// ⊗ I + I ⊗ A_2. x and y are C-contiguous, aligned to an element, and do not overlap. Without
// `accumulate`, y is never read. The grid is (outer, any number up to inner).
#pragma once

#include "cuda/common/launch_order.cuh"
#include "cuda/kron_sum/one_system.cuh"

namespace batchkron {

template <class T, int modes>
struct SumArguments {
  const T* x;
  T* y;
  SumFactors<T, modes> factors;
  Index systems, inner;
  Index accumulate;
  T alpha;
};

template <class T, class Sum>
__global__ void __launch_bounds__(Sum::threads) kron_sum(SumArguments<T, Sum::modes> a) {
  wait_for_earlier_kernels();
  extern __shared__ __align__(16) unsigned char shared_memory[];
  T* const matrices = reinterpret_cast<T*>(shared_memory);
  T* const vector = matrices + Sum::matrix_elements;
  Sum::load(a.factors, Index(blockIdx.x) % a.systems, matrices);
  for (Index j = blockIdx.y; j < a.inner; j += gridDim.y) {
    const Index first = Index(blockIdx.x) * Sum::elements * a.inner + j;
    UNROLLED for (int e = 0; e < Sum::held; ++e)
      if (Sum::has(e)) vector[Sum::index(e)] = a.x[first + Sum::index(e) * a.inner];
    __syncthreads();
    T sum[Sum::held] = {};
    Sum::multiply(matrices, vector, sum);
    UNROLLED for (int e = 0; e < Sum::held; ++e) {
      if (!Sum::has(e)) continue;
      T* const target = a.y + first + Sum::index(e) * a.inner;
      *target = a.accumulate ? multiply_add(*target, a.alpha, sum[e]) : multiply(a.alpha, sum[e]);
    }
    __syncthreads();  // before the next vector overwrites this one
  }
}

}  // namespace batchkron
