// The arguments, and the contract, of the kernels that multiply by a Kronecker-sparse matrix
// (kron_sparse_tiles, kron_sparse_registers, kron_sparse_general).
#pragma once

#include "cuda/common/elements.cuh"
#include "cuda/common/half.cuh"
#include "cuda/common/scalar.cuh"

namespace batchkron {

//   y[o, i, k, j, r] = alpha sum_l values[i, k, l, j] x[o, i, l, j, r]  (+ y[o, i, k, j, r])
//
// for o < outer, i < a, k < b, l < c, j < d and r < inner. x is (outer, a, c, d, inner) and y is
// (outer, a, b, d, inner), both C-contiguous and aligned to an element (a complex one to one part).
// y overlaps neither x nor the values; it is read only if accumulate is not 0. All sizes are
// positive, a, b, c and d less than 2^30; kernels handle the ragged edges of their tiles. Numbers
// of 16 bits are summed in single precision, in which alpha is, too, and rounded once.
//
// How the values are stored, each kernel says. `row`: elements from one row of a stored matrix to
// the next. `tiles`: thread blocks that have work, and `together`: see cuda/kron_sparse/tiles.cuh.
template <class T>
struct KronSparseArguments {
  const T* x;
  T* y;
  const T* values;
  Index outer, a, b, c, d, inner, row, tiles, together, accumulate;
  typename SumOf<T>::Type alpha;
};

// Writes alpha sum, or adds it, to one element of y.
template <class T>
__device__ void write_element(const KronSparseArguments<T>& a, T* target,
                              typename SumOf<T>::Type sum) {
  const auto value = multiply(a.alpha, sum);
  *target = Narrowed<T>::make(a.accumulate ? add(widened(*target), value) : value);
}

// The same for `count` neighbouring elements, which are aligned to all of them together.
template <int count, class T, class Sum>
__device__ void write_elements(const KronSparseArguments<T>& a, T* target, const Sum* sums) {
  using Word = Elements<T, count>;
  Word old{}, word;
  if (a.accumulate) old = *reinterpret_cast<const Word*>(target);
#pragma unroll
  for (int n = 0; n < count; ++n) {
    const auto value = multiply(a.alpha, sums[n]);
    word.values[n] =
        Narrowed<T>::make(a.accumulate ? add(widened(old.values[n]), value) : value);
  }
  *reinterpret_cast<Word*>(target) = word;
}

}  // namespace batchkron
