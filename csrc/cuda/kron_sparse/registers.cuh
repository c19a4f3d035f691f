// kron_sparse_registers: multiplies by a Kronecker-sparse matrix of small b and c (contract:
// cuda/kron_sparse/arguments.cuh), such as a factor of a butterfly. The values are stored as
// (a, b, c, d).
#pragma once

#include "cuda/common/launch_order.cuh"
#include "cuda/kron_sparse/arguments.cuh"

namespace batchkron {

// A thread keeps the values of one i and of the j of `width` neighbouring (j, r), and multiplies
// `turns` vectors o by them. shared_j: inner is a multiple of width, so that the `width` places have
// one j; else inner is 1. width divides d inner, and x and y are aligned to `width` elements.
template <class T, int b, int c, int width, bool shared_j, int turns, int threads,
          Ending ending = Ending::kNone>
__global__ void __launch_bounds__(threads)
    kron_sparse_registers(const KronSparseArguments<T> a) {
  wait_for_earlier_kernels();
  using Sum = typename SumOf<T>::Type;
  using Word = Elements<T, width>;
  constexpr int entries = shared_j ? 1 : width;
  const Index places = a.d * a.inner, words = places / width, columns = a.a * words;
  const Index groups = (a.outer + turns - 1) / turns, stride = Index(gridDim.x) * threads;
  for (Index item = Index(blockIdx.x) * threads + threadIdx.x; item < groups * columns;
       item += stride) {
    const Index column = item % columns, first = item / columns * turns;
    const Index i = column / words, place = column % words * width;
    Sum values[b][c][entries];
    UNROLLED for (int k = 0; k < b; ++k)
      UNROLLED for (int l = 0; l < c; ++l) {
        const T* const from = a.values + ((i * b + k) * c + l) * a.d;
        if constexpr (shared_j) {
          values[k][l][0] = widened(from[place / a.inner]);
        } else {
          const Word word = *reinterpret_cast<const Word*>(from + place);
          UNROLLED for (int n = 0; n < width; ++n) values[k][l][n] = widened(word.values[n]);
        }
      }
    UNROLLED_BY(2) for (int turn = 0; turn < turns; ++turn) {
      const Index o = first + turn;
      if (o >= a.outer) break;
      const T* const x = a.x + (o * a.a + i) * c * places + place;
      T* const y = a.y + (o * a.a + i) * b * places + place;
      Word given[c];
      UNROLLED for (int l = 0; l < c; ++l)
        given[l] = *reinterpret_cast<const Word*>(x + l * places);
      UNROLLED for (int k = 0; k < b; ++k) {
        Sum sums[width] = {};
        UNROLLED for (int l = 0; l < c; ++l)
          UNROLLED for (int n = 0; n < width; ++n)
            sums[n] = multiply_add(sums[n], values[k][l][shared_j ? 0 : n],
                                   widened(given[l].values[n]));
        const Index feature = (i * b + k) * a.d + (shared_j ? place / a.inner : place);
        write_elements<ending, width>(a, y + k * places, sums, feature, shared_j ? 0 : 1);
      }
    }
  }
}

}  // namespace batchkron
