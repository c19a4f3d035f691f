// The single-mode multiply of several products at once, one in each vector lane:
//
//   y[l, k, r, lane] = sum_c f[c, k, lane] * x[l, c, r, lane]        or  +=
//
// x is (L, C, R) vectors, f is (C, K) vectors, or (K, C) with `by_row`, and y is (L, K, R) vectors,
// all contiguous; y aliases neither. Where it is not added to, y is not read.
#pragma once

#include "simd/common/lanes.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {
namespace lanes {

// For small n x n matrices: all n^2 vectors of the matrix stay in registers, or at least in the L1
// cache.
template <class T, int n, bool accumulates>
inline void multiply_fixed(Index L, Index R, const T* f, bool by_row, const T* x, T* y) {
  using V = Wide<T>;
  constexpr int width = kLanes<T>;
  V matrix[n * n];
  const Index c_step = by_row ? width : n * width, k_step = by_row ? n * width : width;
  BATCHKRON_UNROLL
  for (int i = 0; i < n * n; ++i) matrix[i] = load<V>(f + i / n * c_step + i % n * k_step);
  for (Index l = 0; l < L; ++l, x += n * R * width, y += n * R * width)
    for (Index r = 0; r < R; ++r) {
      V in[n];
      BATCHKRON_UNROLL
      for (int c = 0; c < n; ++c) in[c] = load<V>(x + (c * R + r) * width);
      BATCHKRON_UNROLL
      for (int k = 0; k < n; ++k) {
        T* target = y + (k * R + r) * width;
        V sum = accumulates ? V(load<V>(target) + in[0] * matrix[k]) : V(in[0] * matrix[k]);
        BATCHKRON_UNROLL
        for (int c = 1; c < n; ++c) sum += in[c] * matrix[c * n + k];
        store(target, sum);
      }
    }
}

// A factor: entry (c, k) is c * c_step + k * k_step elements from the first.
template <class T>
struct LaneFactor {
  const T* data;
  Index c_step, k_step;
};

// Computes rows (k) x points sums in registers. x, y and f point at the tile's first elements;
// points are x_step and y_step elements apart.
template <class T, bool accumulates, int rows, int points>
inline void multiply_tile(Index C, Index R, LaneFactor<T> f, const T* x, Index x_step, T* y,
                          Index y_step) {
  using V = Wide<T>;
  constexpr int width = kLanes<T>;
  V sum[rows][points];
  BATCHKRON_UNROLL
  for (int k = 0; k < rows; ++k)
    BATCHKRON_UNROLL
    for (int p = 0; p < points; ++p)
      sum[k][p] = accumulates ? load<V>(y + p * y_step + k * R * width) : V{};
  for (Index c = 0; c < C; ++c) {
    V in[points];
    BATCHKRON_UNROLL
    for (int p = 0; p < points; ++p) in[p] = load<V>(x + p * x_step + c * R * width);
    BATCHKRON_UNROLL
    for (int k = 0; k < rows; ++k) {
      const V factor = load<V>(f.data + c * f.c_step + k * f.k_step);
      BATCHKRON_UNROLL
      for (int p = 0; p < points; ++p) sum[k][p] += in[p] * factor;
    }
  }
  BATCHKRON_UNROLL
  for (int k = 0; k < rows; ++k)
    BATCHKRON_UNROLL
    for (int p = 0; p < points; ++p) store(y + p * y_step + k * R * width, sum[k][p]);
}

// All k for some points, in tiles of up to 4 rows of nearly equal size: a tile of one row waits for
// its own sums.
template <class T, bool accumulates, int points>
inline void multiply_points(Index C, Index K, Index R, LaneFactor<T> f, const T* x, Index x_step,
                            T* y, Index y_step) {
  constexpr int width = kLanes<T>;
  Index k = 0;
  for (Index left = K; left > 0;) {
    const Index rows = left <= 4 ? left : left == 5 || left == 6 ? 3 : 4;
    T* target = y + k * R * width;
    if (rows == 4)
      multiply_tile<T, accumulates, 4, points>(C, R, f, x, x_step, target, y_step);
    else if (rows == 3)
      multiply_tile<T, accumulates, 3, points>(C, R, f, x, x_step, target, y_step);
    else if (rows == 2)
      multiply_tile<T, accumulates, 2, points>(C, R, f, x, x_step, target, y_step);
    else
      multiply_tile<T, accumulates, 1, points>(C, R, f, x, x_step, target, y_step);
    k += rows;
    f.data += rows * f.k_step;
    left -= rows;
  }
}

// Any sizes. Points are along r, or along l for the last mode (R = 1), in tiles of nearly equal
// width.
template <class T, bool accumulates>
void multiply_any(Index L, Index C, Index K, Index R, const T* data, bool by_row, const T* x, T* y) {
  constexpr int width = kLanes<T>, points = BATCHKRON_VECTOR_BYTES == 64 ? 4 : 3;
  const LaneFactor<T> f{data, by_row ? width : K * width, by_row ? C * width : width};
  const bool along_l = R == 1;
  const Index outer = along_l ? 1 : L, inner = along_l ? L : R;
  const Index x_step = (along_l ? C : 1) * width, y_step = (along_l ? K : 1) * width;
  for (Index l = 0; l < outer; ++l, x += C * R * width, y += K * R * width) {
    Index r = 0;
    for (Index tiles = (inner + points - 1) / points; tiles > 0; --tiles) {
      const Index count = (inner - r) / tiles;
      const T* source = x + r * x_step;
      T* target = y + r * y_step;
      if (count == 4)
        multiply_points<T, accumulates, 4>(C, K, R, f, source, x_step, target, y_step);
      else if (count == 3)
        multiply_points<T, accumulates, 3>(C, K, R, f, source, x_step, target, y_step);
      else if (count == 2)
        multiply_points<T, accumulates, 2>(C, K, R, f, source, x_step, target, y_step);
      else
        multiply_points<T, accumulates, 1>(C, K, R, f, source, x_step, target, y_step);
      r += count;
    }
  }
}

}  // namespace lanes
}  // namespace BATCHKRON_ISA
}  // namespace batchkron
