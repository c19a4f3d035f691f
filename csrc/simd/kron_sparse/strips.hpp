// The product of a strip of a dense matrix with rows of x (contract: simd/kron_sparse/table.hpp,
// SparseStrip).
#pragma once

#include "simd/kron_sparse/sums.hpp"
#include "simd/kron_sparse/table.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {
namespace sparse {

// `rows` rows of x, x_n elements apart, times `vectors` vectors of the strip. The first `written` are
// written.
template <class T, int rows, int vectors>
BATCHKRON_INLINE void strip_tile(const SparseStrip<T>& t, const T* x, T* y, Index x_n,
                                 Index written) {
  constexpr int lanes = widest<T>;
  Sum<T> sum[rows][vectors];
  BATCHKRON_UNROLL
  for (int n = 0; n < rows; ++n) {
    BATCHKRON_UNROLL
    for (int v = 0; v < vectors; ++v) sum[n][v].clear();
  }
  const T* f = t.f;
  for (Index l = 0; l < t.terms; ++l, f += vectors * lanes) {
    Pack<T, lanes> fs[vectors];
    BATCHKRON_UNROLL
    for (int v = 0; v < vectors; ++v) fs[v] = in_register(load<lanes>(f + v * lanes));
    BATCHKRON_UNROLL
    for (int n = 0; n < rows; ++n) {
      const Entry<T, 1> entry(x + n * x_n + l);
      BATCHKRON_UNROLL
      for (int v = 0; v < vectors; ++v) sum[n][v].add(fs[v], entry);
    }
  }
  const bool general = t.accumulate || t.alpha != T(1);
  BATCHKRON_UNROLL
  for (int n = 0; n < rows; ++n) {
    if (n >= written) break;
    BATCHKRON_UNROLL
    for (int v = 0; v < vectors; ++v) {
      T* to = y + n * t.y_n + v * lanes;
      const Pack<T, lanes> result = sum[n][v].result();
      if (v + 1 == vectors && t.columns < t.width) {
        alignas(64) T values[lanes];
        store<lanes>(values, result);
        finish_part<T, true, lanes>(to, values, t.columns - v * lanes, t.alpha, t.accumulate);
      } else if (general) {
        finish<T, true, lanes>(to, result, t.alpha, t.accumulate);
      } else {
        store<lanes>(to, result);
      }
    }
  }
}

template <class T, int vectors>
void strip_rows(const SparseStrip<T>& task) {
  const SparseStrip<T> t = task;  // a copy: the compiler knows that stores do not change it
  Index n = 0;
  for (; n + 6 <= t.rows; n += 6)
    strip_tile<T, 6, vectors>(t, t.x + n * t.x_n, t.y + n * t.y_n, t.x_n, 6);
  for (; n < t.rows; n += 2) {  // a last single row is taken twice
    const bool both = n + 2 <= t.rows;
    strip_tile<T, 2, vectors>(t, t.x + n * t.x_n, t.y + n * t.y_n, both ? t.x_n : 0, both ? 2 : 1);
  }
}

template <class T, int vectors = tile_vectors<T>>
void multiply_strip(const SparseStrip<T>& task) {
  if (task.width == vectors * widest<T>) return strip_rows<T, vectors>(task);
  if constexpr (vectors > 1) multiply_strip<T, vectors - 1>(task);
}

}  // namespace sparse
}  // namespace BATCHKRON_ISA
}  // namespace batchkron
