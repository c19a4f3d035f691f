// A Kronecker product as a sequence of single-mode multiplies ("steps"): their sizes, known at
// compile time or read at run time, and where their factors are.
#pragma once

#include "cuda/common/scalar.cuh"

namespace batchkron {

// One single-mode multiply (L, C, R) -> (L, K, R) of a block. A fibre is the C entries for one l
// and r; a thread computes `tile` of its K results at a time, so that a load of x serves them all.
template <Index l, Index c, Index k, Index r, int t>
struct FixedStep {
  static constexpr Index L = l, C = c, K = k, R = r;
  static constexpr int tile = t;
};
struct RuntimeStep {
  Index L, C, K, R;
  static constexpr int tile = 4;
};

// The matrices of one mode. Element (k, c), output index first, of matrix `id` of system s is
// data[s * system + id * matrix + k * row + c * column]; any strides, aligned to an element.
template <class T>
struct Factor {
  const T* data;
  Index system, matrix, row, column;
};

// Steps known at compile time, and at run time. each(visit) calls visit(step, factor, s) for all
// steps s in order.
template <class T, class... Step>
struct FixedSteps {
  static constexpr int count = int(sizeof...(Step));
  Factor<T> factors[sizeof...(Step)];

  template <class Visit>
  __device__ void each(Visit visit) const {
    int s = 0;
    ((visit(Step{}, factors[s], s), ++s), ...);
  }
};
template <class T>
struct RuntimeSteps {
  const RuntimeStep* steps;
  const Factor<T>* factors;
  Index count;

  template <class Visit>
  __device__ void each(Visit visit) const {
    for (int s = 0; s < int(count); ++s) visit(steps[s], factors[s], s);
  }
};

}  // namespace batchkron
