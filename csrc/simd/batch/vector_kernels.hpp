// Sums of matrix-vector products, for batch lists of one mode (contract: BlockTask in
// simd/batch/table.hpp).
#pragma once

#include "simd/batch/table.hpp"
#include "simd/common/repeated.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {
namespace vectors {

using lanes::kLanes;
using lanes::load;
using lanes::Pack;
using lanes::repeated;
using lanes::store;
using lanes::UpTo;

template <class T>
inline void write(const BlockTask<T>& task, T* y, const T* sums, Index count) {
  for (Index k = 0; k < count; ++k)
    y[k] = task.accumulate ? y[k] + task.alpha * sums[k] : task.alpha * sums[k];
}

// Elements first, first + 1, ... of x, each in n neighbouring lanes.
template <int n, int first, class V, int... i>
inline V spread(V x, Indices<i...>) {
  return __builtin_shufflevector(x, x, (first + i / n)...);
}

// A vector holds width / n columns of n results each; adds these columns.
template <class T, int n, int width>
inline Pack<T, n> folded(Pack<T, width> sum) {
  if constexpr (width == n) {
    return sum;
  } else {
    constexpr int half = width / 2;
    T values[width];
    store(values, sum);
    return folded<T, n, half>(load<Pack<T, half>>(values) + load<Pack<T, half>>(values + half));
  }
}

// Adds the products with an n x n matrix from its vector v on; a vector holds several columns.
template <class T, int n, int width, int vectors, int v = 0>
inline void add_vectors(const T* f, Pack<T, width> x, Pack<T, width> (&sum)[vectors]) {
  if constexpr (v < vectors) {
    constexpr int columns = width / n;
    sum[v] += spread<n, v * columns>(x, UpTo<width>{}) * load<Pack<T, width>>(f + v * width);
    add_vectors<T, n, width, vectors, v + 1>(f, x, sum);
  }
}

// For n x n matrices whose columns do not fill a vector: several columns are one vector. Products
// alternate between sets of sums, so that a multiply-add need not wait for the one before.
template <class T, int n>
inline void add_several_columns(const BlockTask<T>& task) {
  constexpr int width = n * n < kLanes<T> ? n * n : kLanes<T>;
  constexpr int vectors = n * n / width, sets = vectors >= 4 ? 1 : 4 / vectors;
  using V = Pack<T, width>;
  V sum[sets][vectors];
  BATCHKRON_UNROLL
  for (int j = 0; j < sets; ++j)
    BATCHKRON_UNROLL
    for (int v = 0; v < vectors; ++v) sum[j][v] = V{};
  const auto add = [&](Index i, V(&target)[vectors]) __attribute__((always_inline)) {
    const T* f = task.pools[0] + Index(task.ids[i]) * (n * n);
    const V x = repeated<T, n, width>(task.x + Index(task.inputs[i]) * n) *
                task.weights[i * task.weight_step];
    add_vectors<T, n, width, vectors>(f, x, target);
  };
  Index i = 0;
  for (; i + sets <= task.count; i += sets)
    BATCHKRON_UNROLL
    for (int j = 0; j < sets; ++j) add(i + j, sum[j]);
  for (; i < task.count; ++i) add(i, sum[0]);
  V total{};
  BATCHKRON_UNROLL
  for (int j = 0; j < sets; ++j)
    BATCHKRON_UNROLL
    for (int v = 0; v < vectors; ++v) total += sum[j][v];
  T values[n];
  store(values, folded<T, n, width>(total));
  write(task, task.y, values, n);
}

// Adds product i to rows from `first` on: columns j, j + sets, ... go to sum[j].
template <class T, int n, int width, int sets, int vectors>
inline void add_product(const BlockTask<T>& task, Index i, Index first, Index stride,
                        Pack<T, width> (&sum)[sets][vectors]) {
  using V = Pack<T, width>;
  const Index C = n ? n : task.C;
  const T* x = task.x + Index(task.inputs[i]) * C;
  const T* f = task.pools[0] + Index(task.ids[i]) * (C * stride) + first;
  const V weight = splat<V>(task.weights[i * task.weight_step]);
  const auto add = [&](Index c, V(&target)[vectors]) __attribute__((always_inline)) {
    const V in = weight * splat<V>(x[c]);
    BATCHKRON_UNROLL
    for (int v = 0; v < vectors; ++v) target[v] += in * load<V>(f + c * stride + v * width);
  };
  Index c = 0;
  for (; c + sets <= C; c += sets)
    BATCHKRON_UNROLL
    for (int j = 0; j < sets; ++j) add(c + j, sum[j]);
  BATCHKRON_UNROLL
  for (int j = 0; j < sets; ++j)
    if (c + j < C) add(c + j, sum[j]);
}

// Computes rows first ... first + vectors * width - 1 of y. Columns, and for known n also products,
// alternate between sets of sums. n is C and K if both are n, else 0.
template <class T, int n, int width, int vectors>
inline void add_rows(const BlockTask<T>& task, Index first) {
  constexpr int turns = n ? 2 : 1, sets = n ? n : vectors >= 4 ? 1 : 4 / vectors;
  using V = Pack<T, width>;
  const Index stride = packed_stride<T>(n ? n : task.K);
  V sum[turns][sets][vectors];
  BATCHKRON_UNROLL
  for (int t = 0; t < turns; ++t)
    BATCHKRON_UNROLL
    for (int j = 0; j < sets; ++j)
      BATCHKRON_UNROLL
      for (int v = 0; v < vectors; ++v) sum[t][j][v] = V{};
  Index i = 0;
  for (; i + turns <= task.count; i += turns)
    BATCHKRON_UNROLL
    for (int t = 0; t < turns; ++t) add_product<T, n, width>(task, i + t, first, stride, sum[t]);
  if (i < task.count) add_product<T, n, width>(task, i, first, stride, sum[0]);
  T values[vectors * width];
  BATCHKRON_UNROLL
  for (int v = 0; v < vectors; ++v) {
    V total = sum[0][0][v];
    BATCHKRON_UNROLL
    for (int j = 1; j < turns * sets; ++j) total += sum[j / sets][j % sets][v];
    store(values + v * width, total);
  }
  const Index left = task.K - first;
  write(task, task.y + first, values, left < vectors * width ? left : vectors * width);
}

template <class T, int n, int width, int vectors>
inline void add_rows_of(const BlockTask<T>& task, Index count, Index first) {
  if constexpr (vectors > 1)
    if (count < vectors) return add_rows_of<T, n, width, vectors - 1>(task, count, first);
  add_rows<T, n, width, vectors>(task, first);
}

// The widest vector that is tried: of a known n the packed stride, if that is less than a vector.
template <class T, int n>
constexpr int kWidth = n && packed_stride<T>(n) < kLanes<T> ? int(packed_stride<T>(n)) : kLanes<T>;

// All rows of y, column by column of the matrices; n is C and K if both are n, else 0.
template <class T, int n, int width = kWidth<T, n>>
void add_columns(const BlockTask<T>& task) {
  if constexpr (n == 0 && width > 1)
    if (packed_stride<T>(task.K) < width) return add_columns<T, n, width / 2>(task);
  // Rows that do not fill a wider vector are one vector.
  constexpr int limit = n ? (n + width - 1) / width : width == kLanes<T> ? 4 : 1;
  Index first = 0;
  for (Index left = (task.K + width - 1) / width; left > 0;) {
    const Index count = left >= limit ? limit : left;
    add_rows_of<T, n, width, limit>(task, count, first);
    first += count * width;
    left -= count;
  }
}

template <class T>
void add_products(const BlockTask<T>& task) {
  const Index n = task.C == task.K ? task.C : 0;
  if (n == 2) return add_several_columns<T, 2>(task);
  if constexpr (kLanes<T> >= 4)
    if (n == 4) return add_several_columns<T, 4>(task);
  if constexpr (kLanes<T> >= 16)
    if (n == 8) return add_several_columns<T, 8>(task);
  if (n == 3) return add_columns<T, 3>(task);
  add_columns<T, 0>(task);
}

}  // namespace vectors
}  // namespace BATCHKRON_ISA
}  // namespace batchkron
