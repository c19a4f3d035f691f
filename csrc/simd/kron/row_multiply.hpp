// The single-mode multiply for width = 1, the last mode: a small matrix product with vectors along
// k, over the padded rows of the packed factor (contract: simd/kron/table.hpp).
#pragma once

#include "simd/kron/mode_multiply.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {

// y[l, k] for `rows` l from `l` on and `vectors` vectors of k from `k` on. The last vector may
// reach beyond K, where the factor's padding is read and nothing is written.
template <class T, int fixed, bool general, int lanes, int vectors, int rows>
BATCHKRON_INLINE void row_tile(const PassTask<T>& t, Index l, Index k) {
  using V = Pack<T, lanes>;
  const Index C = fixed ? fixed : t.C, K = fixed ? fixed : t.K;
  const Index stride = packed_stride<T>(K);
  const T* x = t.x + l * C;
  const T* f = t.f + k;
  V sum[rows][vectors];
  for (int i = 0; i < rows; ++i)
    for (int v = 0; v < vectors; ++v) sum[i][v] = V{};
  for (Index c = 0; c < C; ++c) {
    Pack<T, lanes> fs[vectors];
    for (int v = 0; v < vectors; ++v) fs[v] = load<lanes>(f + c * stride + v * lanes);
    for (int i = 0; i < rows; ++i) {
      const RowEntry<T, lanes> xs(x + i * C + c);
      for (int v = 0; v < vectors; ++v) sum[i][v] = fused_row<T, lanes>(sum[i][v], fs[v], xs);
    }
  }
  // If the tile has all k, what a row's last vector writes too much is overwritten by the next row.
  const Index spilling = !general && K <= vectors * lanes ? t.count - 1 : 0;
  for (int i = 0; i < rows; ++i)
    for (int v = 0; v < vectors; ++v) {
      T* y = t.y + (l + i) * K + k + v * lanes;
      if (v + 1 < vectors || k + vectors * lanes <= K || l + i < spilling) {
        finish<T, general, lanes>(y, sum[i][v], t.alpha, t.accumulate);
      } else {
        alignas(64) T values[lanes];
        store<lanes>(values, sum[i][v]);
        finish_part<T, general, lanes>(y, values, K - k - v * lanes, t.alpha, t.accumulate);
      }
    }
}

// All l for `vectors` vectors of k, `rows` of l at a time.
template <class T, int fixed, bool general, int lanes, int vectors, int rows>
BATCHKRON_INLINE void all_l(const PassTask<T>& t, Index k) {
  Index l = 0;
  for (; l + rows <= t.count; l += rows) {
    row_tile<T, fixed, general, lanes, vectors, rows>(t, l, k);
    // The last tile overlaps the one before: some l are computed twice.
    if (const Index left = t.count - l - rows; !general && 0 < left && left < rows) l -= rows - left;
  }
  for (; l < t.count; ++l) row_tile<T, fixed, general, lanes, vectors, 1>(t, l, k);
}

template <class T, int fixed, bool general, int lanes>
void rows_of(const PassTask<T> t) {
  const Index K = fixed ? fixed : t.K;
  if constexpr (fixed == 0 && lanes > 1)
    if (packed_stride<T>(K) < lanes) return rows_of<T, fixed, general, lanes / 2>(t);
  Index k = 0;
  if constexpr (fixed == 0 && lanes == widest<T>) {  // else K <= lanes
    if constexpr (kManyRegisters)
      for (; K - k > 3 * lanes; k += 4 * lanes) all_l<T, fixed, general, lanes, 4, 6>(t, k);
    for (; K - k > lanes; k += 2 * lanes)
      all_l<T, fixed, general, lanes, 2, kManyRegisters ? 8 : 6>(t, k);
  }
  for (; k < K; k += lanes) all_l<T, fixed, general, lanes, 1, 8>(t, k);
}

template <class T, int fixed>
void rows(const PassTask<T>& t) {
  constexpr int stride = int(packed_stride<T>(fixed));
  constexpr int lanes = fixed && stride < widest<T> ? stride : widest<T>;
  if (is_general(t))
    rows_of<T, fixed, true, lanes>(t);
  else
    rows_of<T, fixed, false, lanes>(t);
}

}  // namespace BATCHKRON_ISA
}  // namespace batchkron
