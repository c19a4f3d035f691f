// Products of small matrices for one instruction set (contract: simd/small_products/table.hpp).
#include "simd/common/first_lanes.hpp"
#include "simd/small_products/table.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {
namespace {

using lanes::kLanes;
using lanes::load;
using lanes::load_first;
using lanes::store;
using lanes::store_first;
using lanes::Wide;

constexpr int kWidth = kLanes<double>;
// Vectors of a row that are computed together, and rows: as many sums as hide the latency of a
// multiply-add.
constexpr int kVectors = 4, kRows = 2;

// Columns j ... of `rows` rows from i on: `vectors` vectors, of which the last has `last` lanes.
template <int rows, int vectors>
void multiply_part(const SmallProduct& s, Index i, Index j, int last) {
  using V = Wide<double>;
  V sum[rows][vectors];
  BATCHKRON_UNROLL
  for (int r = 0; r < rows; ++r)
    BATCHKRON_UNROLL
    for (int v = 0; v < vectors; ++v) sum[r][v] = V{};
  const double* a = s.a + i * s.a_row;
  const double* b = s.b + j;
  for (Index k = 0; k < s.inner; ++k, b += s.b_row) {
    V row[vectors];
    BATCHKRON_UNROLL
    for (int v = 0; v + 1 < vectors; ++v) row[v] = load<V>(b + v * kWidth);
    row[vectors - 1] = load_first<double, kWidth>(b + (vectors - 1) * kWidth, last);
    BATCHKRON_UNROLL
    for (int r = 0; r < rows; ++r) {
      const V factor = splat<V>(a[r * s.a_row + k]);
      BATCHKRON_UNROLL
      for (int v = 0; v < vectors; ++v) sum[r][v] = fused_vector(factor, row[v], sum[r][v]);
    }
  }
  BATCHKRON_UNROLL
  for (int r = 0; r < rows; ++r) {
    double* c = s.c + (i + r) * s.c_row + j;
    BATCHKRON_UNROLL
    for (int v = 0; v + 1 < vectors; ++v) store(c + v * kWidth, sum[r][v]);
    store_first<double, kWidth>(c + (vectors - 1) * kWidth, sum[r][vectors - 1], last);
  }
}

template <int vectors>
void multiply_columns(const SmallProduct& s, Index j, int last) {
  Index i = 0;
  for (; i + kRows <= s.rows; i += kRows) multiply_part<kRows, vectors>(s, i, j, last);
  for (; i < s.rows; ++i) multiply_part<1, vectors>(s, i, j, last);
}

void multiply(const SmallProduct& s) {
  Index j = 0;
  for (; j + kVectors * kWidth < s.columns; j += kVectors * kWidth)
    multiply_columns<kVectors>(s, j, kWidth);
  const Index left = s.columns - j;
  if (left <= 0) return;
  const int vectors = int((left + kWidth - 1) / kWidth), last = int(left - (vectors - 1) * kWidth);
  if (vectors == 1) return multiply_columns<1>(s, j, last);
  if (vectors == 2) return multiply_columns<2>(s, j, last);
  if (vectors == 3) return multiply_columns<3>(s, j, last);
  multiply_columns<4>(s, j, last);
}

}  // namespace

extern const SmallProductTable small_product_table = {multiply};

}  // namespace BATCHKRON_ISA
}  // namespace batchkron
