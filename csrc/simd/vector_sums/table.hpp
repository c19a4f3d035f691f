// The seam between sums of long vectors and their kernels, compiled once per instruction set.
#pragma once

#include "simd/common/scalar.hpp"

namespace batchkron {

// y[i] = sum over k of factors[k] * vectors[k][i] for i in [begin, end), k ascending: a product,
// then fused multiply-adds. y may be one of the vectors; else it does not alias them. count >= 1.
template <class T>
struct VectorSum {
  T* y;
  const T* const* vectors;
  const T* factors;
  Index count;
  Index begin, end;
};

struct VectorSumTable {
  void (*f32)(const VectorSum<float>&);
  void (*f64)(const VectorSum<double>&);
};

}  // namespace batchkron
