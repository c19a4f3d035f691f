// The product of a panel of a dense matrix with vectors of pieces (contract:
// simd/kron_sparse/table.hpp, `multiply`).
#pragma once

#include "simd/kron_sparse/sums.hpp"
#include "simd/kron_sparse/table.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {
namespace sparse {

// All rows of a panel for `vectors` vectors of x.
template <class T, int piece, int panel, int vectors>
BATCHKRON_INLINE void tile(const SparsePanel<T>& t, const T* x, T* y) {
  constexpr int lanes = widest<T>;
  Sum<T> sum[panel][vectors];
  BATCHKRON_UNROLL
  for (int k = 0; k < panel; ++k) {
    BATCHKRON_UNROLL
    for (int v = 0; v < vectors; ++v) sum[k][v].clear();
  }
  const T* f = t.f;
  for (Index l = 0; l < t.terms; ++l, f += panel * piece, x += t.x_l) {
    Pack<T, lanes> xs[vectors];
    BATCHKRON_UNROLL
    for (int v = 0; v < vectors; ++v) xs[v] = in_register(load<lanes>(x + v * t.x_v));
    BATCHKRON_UNROLL
    for (int k = 0; k < panel; ++k) {
      const Entry<T, piece> entry(f + k * piece);
      BATCHKRON_UNROLL
      for (int v = 0; v < vectors; ++v) sum[k][v].add(xs[v], entry);
    }
  }
  const bool general = t.accumulate || t.alpha != T(1);
  BATCHKRON_UNROLL
  for (int k = 0; k < panel; ++k) {
    if (k >= t.rows) break;
    BATCHKRON_UNROLL
    for (int v = 0; v < vectors; ++v) {
      T* to = y + k * t.y_k + v * t.y_v;
      const Pack<T, lanes> result = sum[k][v].result();
      if (vectors == 1 && t.elements < lanes) {
        alignas(64) T values[lanes];
        store<lanes>(values, result);
        finish_part<T, true, lanes>(to, values, t.elements, t.alpha, t.accumulate);
      } else if (general) {
        finish<T, true, lanes>(to, result, t.alpha, t.accumulate);
      } else {
        store<lanes>(to, result);
      }
    }
  }
}

template <class T, int piece, int panel>
void multiply(const SparsePanel<T>& task) {
  constexpr int most = tile_vectors<T>;
  const SparsePanel<T> t = task;  // a copy: the compiler knows that stores do not change it
  Index v = 0;
  for (; v + most <= t.vectors; v += most)
    tile<T, piece, panel, most>(t, t.x + v * t.x_v, t.y + v * t.y_v);
  if constexpr (most > 2) {
    if (t.vectors - v == 3)
      return tile<T, piece, panel, 3>(t, t.x + v * t.x_v, t.y + v * t.y_v);
    if (t.vectors - v == 2)
      return tile<T, piece, panel, 2>(t, t.x + v * t.x_v, t.y + v * t.y_v);
  }
  if constexpr (most > 1)
    if (v < t.vectors) tile<T, piece, panel, 1>(t, t.x + v * t.x_v, t.y + v * t.y_v);
}

}  // namespace sparse
}  // namespace BATCHKRON_ISA
}  // namespace batchkron
