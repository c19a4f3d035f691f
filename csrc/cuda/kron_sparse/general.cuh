// kron_sparse_general: multiplies by a Kronecker-sparse matrix of any sizes and dtype (contract:
// cuda/kron_sparse/arguments.cuh), with `results` sums of one column in a thread. The values are
// stored as (a, b, c, d).
#pragma once

#include "cuda/common/launch_order.cuh"
#include "cuda/kron_sparse/arguments.cuh"

namespace batchkron {

// A thread takes `results` neighbouring k of one (o, i, j, r); neighbouring threads have
// neighbouring (j, r). A sum is one chain of multiply-adds in the order of l.
template <class T, int results, int threads, Ending ending = Ending::kNone>
__global__ void __launch_bounds__(threads)
    kron_sparse_general(const KronSparseArguments<T> a) {
  wait_for_earlier_kernels();
  using Sum = typename SumOf<T>::Type;
  const Index places = a.d * a.inner, groups = (a.b + results - 1) / results;
  const Index items = a.outer * a.a * groups * places, stride = Index(gridDim.x) * threads;
  for (Index item = Index(blockIdx.x) * threads + threadIdx.x; item < items; item += stride) {
    const Index place = item % places, rest = item / places;
    const Index first = rest % groups * results, block = rest / groups;
    const T* x = a.x + block * a.c * places + place;
    const T* values = a.values + ((block % a.a * a.b + first) * a.c) * a.d + place / a.inner;
    const int count = int(a.b - first < results ? a.b - first : results);
    Sum sums[results] = {};
    for (Index l = 0; l < a.c; ++l) {
      const Sum entry = widened(x[l * places]);
      UNROLLED for (int n = 0; n < results; ++n)
        if (n < count)
          sums[n] = multiply_add(sums[n], widened(values[(n * a.c + l) * a.d]), entry);
    }
    T* const y = a.y + (block * a.b + first) * places + place;
    UNROLLED for (int n = 0; n < results; ++n)
      if (n < count)
        write_elements<ending, 1>(a, y + n * places, sums + n,
                                  (block % a.a * a.b + first + n) * a.d + place / a.inner, 0);
  }
}

}  // namespace batchkron
