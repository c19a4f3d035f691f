// The single-mode multiply with vectors along r (contract: simd/kron/table.hpp).
#pragma once

#include "simd/common/vectors.hpp"
#include "simd/kron/table.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {

// Size of a register tile: rows of accumulators (k), and vectors (along r) in each, at most as many
// as the registers hold. With AVX-512 four vectors were slower than two for sizes 5 and 6 (measured
// on a Zen 5).
constexpr int rows_in_tile(int fixed) {
  if (fixed == 0) return 6;
  return kManyRegisters || fixed <= 6 ? fixed : 4;
}
constexpr int vectors_in_tile(int fixed) {
  if (fixed == 0) return kManyRegisters ? 4 : 2;
  return fixed <= (kManyRegisters ? 4 : 3) ? 4 : 2;
}
template <int fixed>
constexpr int tile_rows = rows_in_tile(fixed);
template <int fixed>
constexpr int tile_vectors = vectors_in_tile(fixed);

// A register tile: y[k, v] = sum_c f[c, k] x[c, v] for `rows` k and `vectors` vectors v. y, x, f
// point at the tile's first element; its vectors lie x_v and y_v elements apart.
//
// Tiles are inlined into the loops that call them: as functions they would load the task again,
// which cost a third of the speed for factors up to 4 x 4 (docs/developer/cpu-kernels.md).
template <class T, int fixed, bool general, int lanes, int vectors, int rows>
BATCHKRON_INLINE void tile(const PassTask<T>& t, T* y, const T* x, const T* f, Index x_v,
                           Index y_v) {
  using V = Pack<T, lanes>;
  V sum[rows][vectors];
  for (int k = 0; k < rows; ++k)
    for (int v = 0; v < vectors; ++v) sum[k][v] = V{};
  const Index terms = fixed ? fixed : t.C;
  const Index stride = packed_stride<T>(fixed ? fixed : t.K);
  for (Index c = 0; c < terms; ++c) {
    V xs[vectors];
    for (int v = 0; v < vectors; ++v) xs[v] = in_register(load<lanes>(x + c * t.x_c + v * x_v));
    for (int k = 0; k < rows; ++k)
      for (int v = 0; v < vectors; ++v) sum[k][v] = fused<T>(sum[k][v], xs[v], f[c * stride + k]);
  }
  for (int k = 0; k < rows; ++k)
    for (int v = 0; v < vectors; ++v)
      finish<T, general, lanes>(y + k * t.y_k + v * y_v, sum[k][v], t.alpha, t.accumulate);
}

// The same for the last `count` <= rows rows.
template <class T, int fixed, bool general, int lanes, int vectors, int rows>
BATCHKRON_INLINE void last_rows(const PassTask<T>& t, T* y, const T* x, const T* f, Index count,
                                Index x_v, Index y_v) {
  if constexpr (rows > 0) {
    if (count == rows)
      return tile<T, fixed, general, lanes, vectors, rows>(t, y, x, f, x_v, y_v);
    last_rows<T, fixed, general, lanes, vectors, rows - 1>(t, y, x, f, count, x_v, y_v);
  }
}

// All k for `vectors` vectors of x.
template <class T, int fixed, bool general, int lanes, int vectors>
BATCHKRON_INLINE void all_rows(const PassTask<T>& t, T* y, const T* x, Index x_v, Index y_v) {
  constexpr int limit = tile_rows<fixed>;
  const Index K = fixed ? fixed : t.K;
  Index k = 0;
  for (; k + limit <= K; k += limit)
    tile<T, fixed, general, lanes, vectors, limit>(t, y + k * t.y_k, x, t.f + k, x_v, y_v);
  if constexpr (fixed == 0)
    last_rows<T, fixed, general, lanes, vectors, limit - 1>(t, y + k * t.y_k, x, t.f + k, K - k,
                                                           x_v, y_v);
  else if constexpr (fixed % limit != 0)
    tile<T, fixed, general, lanes, vectors, fixed % limit>(t, y + k * t.y_k, x, t.f + k, x_v, y_v);
}

// All k for the last `count` < 2 * lanes elements of a row, by vectors of halving width.
template <class T, int fixed, bool general, int lanes>
void narrow_rest(const PassTask<T>& t, T* y, const T* x, Index count) {
  if (count >= lanes) {
    all_rows<T, fixed, general, lanes, 1>(t, y, x, lanes, lanes);
    y += lanes;
    x += lanes;
    count -= lanes;
  }
  if constexpr (lanes > 1) narrow_rest<T, fixed, general, lanes / 2>(t, y, x, count);
}

// All k for the elements of a row from r on, fewer than lanes * tile_vectors.
template <class T, int fixed, bool general>
BATCHKRON_INLINE void row_end(const PassTask<T>& t, T* y, const T* x, Index r) {
  constexpr int lanes = widest<T>;
  if constexpr (tile_vectors<fixed> > 2)
    if (r + 2 * lanes <= t.width) {
      all_rows<T, fixed, general, lanes, 2>(t, y + r, x + r, lanes, lanes);
      r += 2 * lanes;
    }
  if (r + lanes <= t.width) {
    all_rows<T, fixed, general, lanes, 1>(t, y + r, x + r, lanes, lanes);
    r += lanes;
  }
  if (r == t.width) return;
  if constexpr (!general)
    if (t.width >= lanes) {  // a vector that overlaps the one before is faster than narrow ones
      r = t.width - lanes;
      return all_rows<T, fixed, general, lanes, 1>(t, y + r, x + r, lanes, lanes);
    }
  if constexpr (lanes > 1) narrow_rest<T, fixed, general, lanes / 2>(t, y + r, x + r, t.width - r);
}

template <class T, int fixed, bool general>
void panel_of(const PassTask<T> t) {  // by value: the compiler knows that stores do not change it
  constexpr int lanes = widest<T>, vectors = tile_vectors<fixed>;
  Index l = 0;
  if (t.width == lanes)  // a row is one vector: the vectors of a tile belong to different l
    for (; l + vectors <= t.count; l += vectors)
      all_rows<T, fixed, general, lanes, vectors>(t, t.y + l * t.y_l, t.x + l * t.x_l, t.x_l,
                                                  t.y_l);
  for (; l < t.count; ++l) {
    const T* x = t.x + l * t.x_l;
    T* y = t.y + l * t.y_l;
    Index r = 0;
    for (; r + vectors * lanes <= t.width; r += vectors * lanes)
      all_rows<T, fixed, general, lanes, vectors>(t, y + r, x + r, lanes, lanes);
    if (r < t.width) row_end<T, fixed, general>(t, y, x, r);
  }
}

// Whether `finish` has more to do than to store the sum.
template <class T>
inline bool is_general(const PassTask<T>& t) {
  return t.accumulate || t.alpha != T(1);
}

template <class T, int fixed>
void panel(const PassTask<T>& t) {
  if (is_general(t))
    panel_of<T, fixed, true>(t);
  else
    panel_of<T, fixed, false>(t);
}

}  // namespace BATCHKRON_ISA
}  // namespace batchkron
