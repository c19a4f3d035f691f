// The hierarchical blocks of multiplications by parts of fields along one axis, from values at the
// Gauss points of the finest cells. problems/discretization/fields/local_blocks.py has the
// mathematics, in NumPy.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/dispatch.hpp"

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

inline void write_field_blocks(const FieldBlocks& s) {
  const auto multiply = kernels().small_products->multiply;
  const Index cells = Index(1) << s.level, q = s.n * s.n, size = cells * s.points;
  std::vector<double> clipped, own;
  clipped.resize(std::size_t(size));
  own.resize(std::size_t(cells * q));
  for (Index p = 0; p < s.parts; ++p) {
    const double* values = s.values + s.fields[p] * size;
    const double sign = s.signs[p], lowest = s.lowest[p];
    for (Index i = 0; i < size; ++i) {  // NaN stays NaN
      const double value = sign * values[i];
      clipped[std::size_t(i)] = value < lowest ? lowest : value;
    }
    multiply({clipped.data(), s.outer, own.data(), cells, s.points, q, s.points, q, q});
    for (Index half = cells / 2; half > 0; half /= 2) {
      double* target = s.heap + (half * s.parts + p) * 4 * q;
      const Index stride = s.parts * 4 * q;
      multiply({own.data(), s.coarsen, target, half, 2 * q, 3 * q, 2 * q, 4 * q, stride});
      for (Index i = 0; i < half; ++i)
        std::copy_n(target + i * stride, q, own.data() + i * q);
    }
    std::copy_n(own.data(), q, s.heap + p * 4 * q);
  }
  const Index width = s.n * s.level;
  Index own_level = 0;
  for (Index cell = 1; cell < cells; ++cell) {
    if (cell == Index(1) << own_level) ++own_level;
    for (Index p = 0; p < s.parts; ++p)
      multiply({s.heap + (cell * s.parts + p) * 4 * q + q, s.upward + (cell - 1) * s.n * width,
                s.ancestors + ((cell - 1) * s.parts + p) * s.n * width, s.n, s.n,
                s.n * own_level, s.n, width, width});
  }
}

}  // namespace batchkron
