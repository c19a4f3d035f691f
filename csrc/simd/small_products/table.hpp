// The interface to products of small matrices by rows, which are compiled once for each instruction
// set.
#pragma once

#include "simd/common/scalar.hpp"

namespace batchkron {

// C = A B for A (rows, inner), B (inner, columns) and C (rows, columns). Elements of a row are
// contiguous, rows lie a_row, b_row and c_row elements apart. C overlaps neither A nor B, and is
// not read. Each element is one chain of multiply-adds, k ascending.
struct SmallProduct {
  const double* a;
  const double* b;
  double* c;
  Index rows, inner, columns;
  Index a_row, b_row, c_row;
};

struct SmallProductTable {
  void (*multiply)(const SmallProduct&);
};

}  // namespace batchkron
