// What is multiplied: the pattern of a Kronecker-sparse matrix, and one product with it.
#pragma once

#include "engine/dispatch.hpp"
#include "engine/steps.hpp"

namespace batchkron {

// The pattern: K[(i b + k) d + j, (i c + l) d + j] = values[i, k, l, j].
struct SparseShape {
  Index a, b, c, d;

  Index rows() const { return checked_product({a, b, d}); }
  Index columns() const { return checked_product({a, c, d}); }
};

// One product with a packed matrix. x is (outer, a, c, d, inner) and y (outer, a, b, d, inner), both
// contiguous. accumulate = false overwrites y and never reads it. y does not alias x.
template <class T>
struct SparseCall {
  const T* packed;
  const T* x;
  T* y;
  Index outer, inner;
  T alpha;
  bool accumulate;
};

}  // namespace batchkron
