// The arguments, and the contract, of the kernels that multiply by a Kronecker-sparse matrix
// (kron_sparse_tiles, kron_sparse_registers, kron_sparse_general).
#pragma once

#include "cuda/common/elements.cuh"
#include "cuda/common/half.cuh"
#include "cuda/common/scalar.cuh"

namespace batchkron {

//   y[o, i, k, j, r] = alpha sum_l values[i, k, l, j] x[o, i, l, j, r]  (+ y[o, i, k, j, r])
// for o < outer, i < a, k < b, l < c, j < d and r < inner. x is (outer, a, c, d, inner) and y is
// (outer, a, b, d, inner), both C-contiguous and aligned to an element (a complex one to one part).
// y overlaps neither x nor the values; it is read only if accumulate is not 0. All sizes are
// positive, a, b, c and d less than 2^30; kernels handle the ragged edges of their tiles. Numbers
// of 16 bits are summed in single precision, in which alpha is, too, and rounded once.
//
// How the values are stored, each kernel says. `row`: elements from one row of a stored matrix to
// the next. `tiles`: thread blocks that have work, and `together`: see cuda/kron_sparse/tiles.cuh.
//
// With an Ending other than kNone, accumulate is 0, and the product is only the first part:
//   z[o, i, k, j, r] = alpha sum_l values[i, k, l, j] x[o, i, l, j, r] + bias[i, k, j]
//   y[o, i, k, j, r] = activation(z[o, i, k, j, r])
// bias (a, b, d) is zero if it is null. z is written to `before`, which has the layout and the
// alignment of y, unless that is null or there is no activation. Both are rounded once.
template <class T>
struct KronSparseArguments {
  const T* x;
  T* y;
  const T* values;
  const T* bias;
  T* before;
  Index outer, a, b, c, d, inner, row, tiles, together, accumulate;
  typename SumOf<T>::Type alpha;
};

// What follows a product: nothing, a bias, or also an activation, x Phi(x) with the distribution
// function Phi of the normal distribution, or with its approximation by a hyperbolic tangent.
enum class Ending { kNone, kBias, kGelu, kGeluTanh };

__device__ inline float error_function(float x) { return erff(x); }
__device__ inline double error_function(double x) { return erf(x); }
__device__ inline float hyperbolic_tangent(float x) { return tanhf(x); }
__device__ inline double hyperbolic_tangent(double x) { return tanh(x); }

template <Ending ending, class Sum>
__device__ Sum activated(Sum z) {
  if constexpr (ending == Ending::kGelu)
    return z * Sum(0.5) * (Sum(1) + error_function(z * Sum(0.70710678118654752440)));
  if constexpr (ending == Ending::kGeluTanh) {
    const Sum inner = Sum(0.79788456080286535588) * (z + Sum(0.044715) * z * z * z);
    return z * Sum(0.5) * (Sum(1) + hyperbolic_tangent(inner));
  }
  return z;
}

// Writes the results of `count` sums to neighbouring elements, which are aligned to all of them
// together. `feature`: place (i, k, j) of the first one; `next`: from one to the next, 0 or 1.
template <Ending ending, int count, class T, class Sum>
__device__ void write_elements(const KronSparseArguments<T>& a, T* target, const Sum* sums,
                               Index feature, int next) {
  using Word = Elements<T, count>;
  Word word;
  if constexpr (ending == Ending::kNone) {
    Word old{};
    if (a.accumulate) old = *reinterpret_cast<const Word*>(target);
    UNROLLED for (int n = 0; n < count; ++n) {
      const auto value = multiply(a.alpha, sums[n]);
      word.values[n] =
          Narrowed<T>::make(a.accumulate ? add(widened(old.values[n]), value) : value);
    }
  } else {
    Word before;
    UNROLLED for (int n = 0; n < count; ++n) {
      Sum z = multiply(a.alpha, sums[n]);
      if (a.bias != nullptr) z = add(z, widened(a.bias[feature + n * next]));
      before.values[n] = Narrowed<T>::make(z);
      word.values[n] = Narrowed<T>::make(activated<ending>(z));
    }
    if (ending != Ending::kBias && a.before != nullptr)
      *reinterpret_cast<Word*>(a.before + (target - a.y)) = before;
  }
  *reinterpret_cast<Word*>(target) = word;
}

}  // namespace batchkron
