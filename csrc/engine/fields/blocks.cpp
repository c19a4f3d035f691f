#include "engine/fields/blocks.hpp"

#include <algorithm>
#include <vector>

#include "engine/dispatch.hpp"

namespace batchkron {

void write_field_blocks(const FieldBlocks& s) {
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
