// What a call brings to a kernel of neighbouring factors.
#pragma once

#include "cuda/common/steps.cuh"

namespace batchkron {

// y = alpha (A_g x ... x A_h) x + beta previous; x is (L, input_size, R) and y is (L, output_size,
// R), contiguous. previous may be y, or null.
template <class T, int count>
struct KronArguments {
  const T* x;
  T* y;
  const T* previous;
  Factor<T> factors[count];
  Index L, R;
  T alpha, beta;
};

}  // namespace batchkron
