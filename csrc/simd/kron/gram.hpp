// Sums over all indices but those of one mode, of real tensors (contract: simd/kron/table.hpp,
// GramTask).
#pragma once

#include "simd/common/first_lanes.hpp"
#include "simd/common/lanes.hpp"
#include "simd/kron/table.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {

// Rows and columns of a register tile: its sums, the vectors of y and one of x fill the registers.
constexpr int kGramRows = 4, kGramColumns = kManyRegisters ? 6 : 3;

// Adds one vector of each row and column to the tile's sums.
template <class T, int rows, int columns, class V, class Load>
BATCHKRON_INLINE void add_products(V (&sum)[rows][columns], const T* x, const T* y, Index R,
                                   Load load_vector) {
  V ys[columns];
  BATCHKRON_UNROLL
  for (int j = 0; j < columns; ++j) ys[j] = load_vector(y + j * R);
  BATCHKRON_UNROLL
  for (int i = 0; i < rows; ++i) {
    const V xs = load_vector(x + i * R);
    BATCHKRON_UNROLL
    for (int j = 0; j < columns; ++j) sum[i][j] = fused_vector(xs, ys[j], sum[i][j]);
  }
}

// Adds the tile's sums over the lanes, kPart of them at a time.
template <class T, int rows, int columns, class V>
BATCHKRON_INLINE void add_totals(T* target, Index stride, const V (&sum)[rows][columns]) {
  constexpr int width = widest<T>, at_once = lanes::kPart<T>;
  constexpr int count = (rows * columns + at_once - 1) / at_once * at_once;
  T all[count * width], totals[count];
  BATCHKRON_UNROLL
  for (int i = 0; i < rows; ++i)
    BATCHKRON_UNROLL
    for (int j = 0; j < columns; ++j) lanes::store(all + (i * columns + j) * width, sum[i][j]);
  BATCHKRON_UNROLL
  for (int i = rows * columns; i < count; ++i) lanes::store(all + i * width, V{});
  BATCHKRON_UNROLL
  for (int i = 0; i < count; i += at_once)
    lanes::store(totals + i, lanes::lane_sums(all + i * width));
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j) target[i * stride + j] += totals[i * columns + j];
}

template <class T, int rows, int columns>
void gram_tile(const GramTask<T>& task, Index p, Index q) {
  constexpr int lanes = widest<T>;
  using V = lanes::Wide<T>;
  const Index R = task.R, whole = R / lanes * lanes;
  const int rest = int(R - whole);
  const T* x = task.x + p * R;
  const T* y = task.y + q * R;
  V sum[rows][columns] = {};
  const auto full = [](const T* from) { return lanes::load<V>(from); };
  const auto part = [&](const T* from) { return lanes::load_first<T, lanes>(from, rest); };
  for (Index l = 0; l < task.L; ++l, x += task.P * R, y += task.Q * R) {
    for (Index r = 0; r < whole; r += lanes)
      add_products<T, rows, columns>(sum, x + r, y + r, R, full);
    if (rest > 0) add_products<T, rows, columns>(sum, x + whole, y + whole, R, part);
  }
  add_totals<T, rows, columns>(task.sums + p * task.Q + q, task.Q, sum);
}

template <class T, int rows, int columns = kGramColumns>
void gram_columns(const GramTask<T>& task, Index p, Index q, Index count) {
  if (count == columns) return gram_tile<T, rows, columns>(task, p, q);
  if constexpr (columns > 1) gram_columns<T, rows, columns - 1>(task, p, q, count);
}

template <class T, int rows = kGramRows>
void gram_rows(const GramTask<T>& task, Index p, Index q, Index height, Index width) {
  if (height == rows) return gram_columns<T, rows>(task, p, q, width);
  if constexpr (rows > 1) gram_rows<T, rows - 1>(task, p, q, height, width);
}

// Tiles whose sizes differ as little as possible.
template <class T>
void gram(const GramTask<T>& task) {
  const Index down = (task.P + kGramRows - 1) / kGramRows;
  const Index across = (task.Q + kGramColumns - 1) / kGramColumns;
  for (Index i = 0; i < down; ++i) {
    const Index p = i * task.P / down, height = (i + 1) * task.P / down - p;
    for (Index j = 0; j < across; ++j) {
      const Index q = j * task.Q / across;
      gram_rows<T>(task, p, q, height, (j + 1) * task.Q / across - q);
    }
  }
}

}  // namespace BATCHKRON_ISA
}  // namespace batchkron
