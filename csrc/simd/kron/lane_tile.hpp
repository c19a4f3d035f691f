// Transposes into and out of tiles with a different row of x in each vector lane (contract:
// simd/kron/table.hpp, to_lanes and from_lanes). In this layout every mode, also the last, is
// multiplied in full vectors whatever its size.
#pragma once

#include "simd/common/transpose.hpp"
#include "simd/kron/mode_multiply.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {

// Calls body(s) for blocks s ... s + lanes - 1 that cover [0, size); the last one may overlap the
// one before.
template <class T, class Body>
BATCHKRON_INLINE void each_block(Index size, Body body) {
  constexpr int lanes = widest<T>;
  Index s = 0;
  for (; s + lanes <= size; s += lanes) body(s);
  if (s < size) body(size - lanes);
}

template <class T, bool full>
void to_lanes_of(T* tile, const T* x, Index count, Index size) {
  constexpr int lanes = widest<T>;
  using V = Pack<T, lanes>;
  if (size < lanes) {
    for (Index i = 0; i < lanes; ++i)
      for (Index s = 0; s < size; ++s) tile[s * lanes + i] = x[smaller(i, count - 1) * size + s];
    return;
  }
  each_block<T>(size, [&](Index s) {
    V rows[lanes];
#pragma GCC unroll 16
    for (int i = 0; i < lanes; ++i)
      rows[i] = load<lanes>(x + (full ? i : smaller(i, count - 1)) * size + s);
    transpose<T>(rows);
#pragma GCC unroll 16
    for (int i = 0; i < lanes; ++i) store<lanes>(tile + (s + i) * lanes, rows[i]);
  });
}

template <class T>
void to_lanes(T* tile, const T* x, Index count, Index size) {
  if (count == widest<T>)
    to_lanes_of<T, true>(tile, x, count, size);
  else
    to_lanes_of<T, false>(tile, x, count, size);
}

template <class T, bool general, bool full>
void from_lanes_of(T* y, const T* tile, Index count, Index size, T alpha, bool accumulate) {
  constexpr int lanes = widest<T>;
  using V = Pack<T, lanes>;
  if (size < lanes || (general && accumulate && size % lanes)) {
    for (Index i = 0; i < count; ++i)
      for (Index s = 0; s < size; ++s)
        finish<T, general, 1>(y + i * size + s, load<1>(tile + s * lanes + i), alpha,
                           accumulate);
    return;
  }
  each_block<T>(size, [&](Index s) {
    V rows[lanes];
#pragma GCC unroll 16
    for (int i = 0; i < lanes; ++i) rows[i] = load<lanes>(tile + (s + i) * lanes);
    transpose<T>(rows);
#pragma GCC unroll 16
    for (int i = 0; i < lanes; ++i)
      if (full || i < count)
        finish<T, general, lanes>(y + i * size + s, rows[i], alpha, accumulate);
  });
}

template <class T>
void from_lanes(T* y, const T* tile, Index count, Index size, T alpha, bool accumulate) {
  if (accumulate || alpha != T(1))
    from_lanes_of<T, true, false>(y, tile, count, size, alpha, accumulate);
  else if (count == widest<T>)
    from_lanes_of<T, false, true>(y, tile, count, size, alpha, accumulate);
  else
    from_lanes_of<T, false, false>(y, tile, count, size, alpha, accumulate);
}

}  // namespace BATCHKRON_ISA
}  // namespace batchkron
