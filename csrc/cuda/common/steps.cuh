// A Kronecker product applied mode by mode: the sizes of its single-mode multiplies, known when the
// kernel is compiled or read when it runs, and where their factors are.
#pragma once

#include "cuda/common/scalar.cuh"

namespace batchkron {

// One single-mode multiply (L, C, R) -> (L, K, R) of one block. A thread computes `tile` of the K
// results of a fibre at a time.
template <Index l, Index c, Index k, Index r, int t>
struct FixedStep {
  static constexpr Index L = l, C = c, K = k, R = r;
  static constexpr int tile = t;
};
struct RuntimeStep {
  Index L, C, K, R;
  static constexpr int tile = 4;
};

// The matrices of one mode, in elements: matrix `id` of system s, output index k, input index c is
// at data[s * system + id * matrix + k * row + c * column].
template <class T>
struct Factor {
  const T* data;
  Index system, matrix, row, column;
};

// `each` calls visit(step, factor, s) for all steps s in order.
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
