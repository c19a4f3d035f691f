// The interface between linear combinations of long vectors and their kernels, which are compiled
// once for each instruction set.
#pragma once

#include "simd/common/scalar.hpp"

namespace batchkron {

// y[i] = sum over k < count of factors[k] * vectors[k][i] for i in [begin, end): k ascends, the
// first term is a product, the others are fused multiply-adds. count >= 1. y may be one of the
// vectors, and overlaps the others nowhere. Arrays are aligned to an element; nothing outside of
// the range is touched.
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
