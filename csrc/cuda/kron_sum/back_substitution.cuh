// One step of back substitution for (T_1 ⊕ … ⊕ T_d + shift) x = b with upper triangular T_k, in place:
//   x[i, j] = (x[i, j] - sum over k and m > i_k of T_k[i_k, m] x[i with m in the place of i_k, j])
//             / (sum over k of T_k[i_k, i_k] + shift)
// for all multi-indices i whose sum is `level`, and j < inner. It reads unknowns of higher levels
// alone, so that all of a level are independent; before it those levels must hold the solution.
//
// x is C-contiguous, (n_1, ..., n_d, inner); each T_k is (n_k, n_k), C-contiguous, of which the lower
// triangle is not read. All are aligned to an element. A warp computes an unknown: lanes have every
// 32nd term, and add their sums in a tree, so that results have the same bits in each run. The divisor
// must not be zero.
#pragma once

#include "cuda/common/launch_order.cuh"
#include "cuda/common/scalar.cuh"

namespace batchkron {

template <class T, int modes>
struct BackSubstitutionArguments {
  T* x;
  const T* triangles[modes];
  Index sizes[modes];
  Index inner;
  Index level;
  T shift;
};

// a / b; of the parts of b the smaller one is divided by the larger one, so that |b|^2 is not formed
// (R. L. Smith, Algorithm 116, Comm. ACM 5, 1962).
template <class Real>
__device__ Complex<Real> divide(Complex<Real> a, Complex<Real> b) {
  const bool wide = (b.real < 0 ? -b.real : b.real) >= (b.imag < 0 ? -b.imag : b.imag);
  if (wide) {
    const Real ratio = b.imag / b.real, size = b.real + b.imag * ratio;
    return {(a.real + a.imag * ratio) / size, (a.imag - a.real * ratio) / size};
  }
  const Real ratio = b.real / b.imag, size = b.real * ratio + b.imag;
  return {(a.real * ratio + a.imag) / size, (a.imag * ratio - a.real) / size};
}

template <class Real, int modes, int threads>
__global__ void __launch_bounds__(threads)
    back_substitute(BackSubstitutionArguments<Complex<Real>, modes> a) {
  wait_for_earlier_kernels();
  using T = Complex<Real>;
  constexpr int last = modes - 1;
  const int lane = threadIdx.x % 32;
  Index items = a.inner;  // warps that have work, but for those whose last index is no index
  UNROLLED for (int k = 0; k < last; ++k) items *= a.sizes[k];
  const Index warps = Index(gridDim.x) * (threads / 32);
  Index item = Index(blockIdx.x) * (threads / 32) + threadIdx.x / 32;
  for (; item < items; item += warps) {
    Index at[modes], steps[modes];  // indices, and elements between neighbours of a mode
    Index rest = item / a.inner, left = a.level;
    UNROLLED for (int k = last - 1; k >= 0; --k) {
      at[k] = rest % a.sizes[k];
      rest /= a.sizes[k];
      left -= at[k];
    }
    at[last] = left;
    if (left < 0 || left >= a.sizes[last]) continue;
    T* own = a.x + item % a.inner;
    steps[last] = a.inner;
    UNROLLED for (int k = last; k >= 0; --k) {
      if (k < last) steps[k] = steps[k + 1] * a.sizes[k + 1];
      own += at[k] * steps[k];
    }
    T sum{}, divisor = a.shift;
    UNROLLED for (int k = 0; k < modes; ++k) {
      const T* row = a.triangles[k] + at[k] * a.sizes[k];
      const T* fibre = own - at[k] * steps[k];
      divisor = add(divisor, row[at[k]]);
      for (Index m = at[k] + 1 + lane; m < a.sizes[k]; m += 32)
        sum = multiply_add(sum, row[m], fibre[m * steps[k]]);
    }
    UNROLLED for (int distance = 1; distance < 32; distance *= 2) {
      sum.real += __shfl_xor_sync(0xffffffffu, sum.real, distance);
      sum.imag += __shfl_xor_sync(0xffffffffu, sum.imag, distance);
    }
    if (lane == 0) *own = divide(T{own->real - sum.real, own->imag - sum.imag}, divisor);
  }
}

}  // namespace batchkron
