// The hierarchical blocks of multiplications by parts of fields along one axis, from values at the
// Gauss points of the finest cells. problems/discretization/fields/local_blocks.py has the
// mathematics, in NumPy.
#pragma once

#include <cstdint>

#include "simd/common/scalar.hpp"

namespace batchkron {

// q = n * n. Arrays are contiguous:
//   values (fields, 2^level * points);  part p is max(signs[p] * values[fields[p]], lowest[p])
//   outer (points, q);  coarsen (2 q, 4 q);  upward (2^level - 1, n, n * level)
//   heap (2^level, parts, 4 q) and ancestors (2^level - 1, parts * n, n * level) are written, but
//   for the last 3 q of cell 0, for all B, which are the transposes of C, and for columns of levels
//   that are not ancestors
struct FieldBlocks {
  Index level, n, points, parts;
  const double* values;
  const std::int64_t* fields;
  const double* signs;
  const double* lowest;
  const double* outer;
  const double* coarsen;
  const double* upward;
  double* heap;
  double* ancestors;
};

void write_field_blocks(const FieldBlocks& s);

}  // namespace batchkron
