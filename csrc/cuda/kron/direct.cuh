// kron_direct: multiplies by one factor of any size and dtype, a thread for each result.
//
// The operation and what arrays may be are in cuda/kron/arguments.cuh. Elements are read and written
// one by one, so that they need their own alignment only. A sum is one chain of multiply-adds in the
// order of c. A thread reads the element of `previous` that it adds to before it writes it.
#pragma once

#include "cuda/common/launch_order.cuh"
#include "cuda/kron/arguments.cuh"

namespace batchkron {

template <class T, int C, int K, int threads>
__global__ void __launch_bounds__(threads) kron_direct(const KronArguments<T, 1> a) {
  wait_for_earlier_kernels();
  const Factor<T> f = a.factors[0];
  const Index results = a.L * K * a.R, stride = Index(gridDim.x) * threads;
  for (Index i = Index(blockIdx.x) * threads + threadIdx.x; i < results; i += stride) {
    const Index r = i % a.R, k = i / a.R % K, l = i / a.R / K;
    T sum{};
    for (int c = 0; c < C; ++c)
      sum = multiply_add(sum, f.data[k * f.row + c * f.column], a.x[(l * C + c) * a.R + r]);
    const T value = multiply(a.alpha, sum);
    a.y[i] = a.previous ? multiply_add(value, a.beta, a.previous[i]) : value;
  }
}

}  // namespace batchkron
