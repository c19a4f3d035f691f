// Sums of single-mode multiplies over the edges of one node (contract: SegmentTask in
// simd/segmented/table.hpp).
#pragma once

#include "simd/segmented/flat_kernels.hpp"
#include "simd/segmented/table.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {
namespace segments {

using lanes::load;
using lanes::Pack;
using lanes::store;

template <class T>
constexpr int kWidest = BATCHKRON_VECTOR_BYTES / int(sizeof(T));
template <>
constexpr int kWidest<Complex<float>> = 1;
template <>
constexpr int kWidest<Complex<double>> = 1;

template <class V, class T>
inline V fused(V sum, V x, T factor) {
  return sum + x * factor;
}
template <class Real>
inline Complex<Real> fused(Complex<Real> sum, Complex<Real> x, Complex<Real> factor) {
  return multiply_add(sum, x, factor);
}

// Adds one edge to rows k, k + 1, ... of the sums: `vectors` vectors at points p, p + width, ...,
// of which the last one is at p + last. n is C and K if both are n, else 0.
template <class T, int n, int width, int rows, int vectors>
inline void add_edge(const SegmentTask<T>& task, Index e, Index k, Index p, Index last,
                     Pack<T, width> (&sum)[rows][vectors]) {
  using V = Pack<T, width>;
  const Index C = n ? n : task.C, K = n ? n : task.K;
  const T* x = task.x + task.children[e] * task.block + p;
  const T* f = task.matrices + task.ids[e] * C * K + k * task.step_k;
  for (Index c = 0; c < C; ++c, x += task.stride, f += task.step_c) {
    V in[vectors];
    BATCHKRON_UNROLL
    for (int v = 0; v + 1 < vectors; ++v) in[v] = load<V>(x + v * width);
    in[vectors - 1] = load<V>(x + last);
    BATCHKRON_UNROLL
    for (int i = 0; i < rows; ++i)
      BATCHKRON_UNROLL
      for (int v = 0; v < vectors; ++v) sum[i][v] = fused(sum[i][v], in[v], f[i * task.step_k]);
  }
}

// Computes rows x vectors sums in registers over all edges. If these are few, edges alternate
// between several sets of sums (chains), so that a multiply-add need not wait for the one before.
template <class T, int n, int width, int rows, int vectors>
inline void add_tile(const SegmentTask<T>& task, Index k, Index p, Index last) {
  constexpr int chains = vectors >= 3 ? 1 : 4 / vectors;
  using V = Pack<T, width>;
  V sum[chains][rows][vectors];
  BATCHKRON_UNROLL
  for (int j = 0; j < chains; ++j)
    BATCHKRON_UNROLL
    for (int i = 0; i < rows; ++i)
      BATCHKRON_UNROLL
      for (int v = 0; v < vectors; ++v) sum[j][i][v] = V{};
  Index e = 0;
  for (; e + chains <= task.count; e += chains)
    BATCHKRON_UNROLL
    for (int j = 0; j < chains; ++j)
      add_edge<T, n, width, rows, vectors>(task, e + j, k, p, last, sum[j]);
  for (; e < task.count; ++e) add_edge<T, n, width, rows, vectors>(task, e, k, p, last, sum[0]);
  BATCHKRON_UNROLL
  for (int i = 0; i < rows; ++i)
    BATCHKRON_UNROLL
    for (int v = 0; v < vectors; ++v) {
      V total = sum[0][i][v];
      BATCHKRON_UNROLL
      for (int j = 1; j < chains; ++j) total = fused(total, sum[j][i][v], T(1));
      store(task.sums + (k + i) * task.stride + p + (v + 1 < vectors ? v * width : last), total);
    }
}

template <class T, int n, int width, int vectors>
inline void add_rows(const SegmentTask<T>& task, Index p, Index last) {
  if constexpr (n > 0) {
    add_tile<T, n, width, n, vectors>(task, 0, p, last);
  } else {
    Index k = 0;
    for (; k + 4 <= task.K; k += 4) add_tile<T, 0, width, 4, vectors>(task, k, p, last);
    if (task.K - k == 3) add_tile<T, 0, width, 3, vectors>(task, k, p, last);
    if (task.K - k == 2) add_tile<T, 0, width, 2, vectors>(task, k, p, last);
    if (task.K - k == 1) add_tile<T, 0, width, 1, vectors>(task, k, p, last);
  }
}

template <class T, int n, int width, int vectors>
BATCHKRON_INLINE void add_rows_of(const SegmentTask<T>& task, Index count, Index p, Index last) {
  if constexpr (vectors > 1)
    if (count < vectors) return add_rows_of<T, n, width, vectors - 1>(task, count, p, last);
  add_rows<T, n, width, vectors>(task, p, last);
}

// All points, in the widest vectors that they fill and in tiles of nearly equal width. The last
// vector ends with the last point and may overlap the one before.
template <class T, int n, int width>
inline void add_points(const SegmentTask<T>& task) {
  if constexpr (width > 1)
    if (task.points < width) return add_points<T, n, width / 2>(task);
  // Points that do not fill a wider vector are at most two of this width.
  constexpr Index most = BATCHKRON_VECTOR_BYTES == 64 ? 4 : 3;
  constexpr Index limit = width == kWidest<T> ? most : width > 1 ? 2 : 1;
  Index vectors = (task.points + width - 1) / width, p = 0;
  for (Index tiles = (vectors + limit - 1) / limit; tiles > 0; --tiles) {
    const Index count = vectors / tiles;
    const Index last = tiles > 1 ? (count - 1) * width : task.points - width - p;
    add_rows_of<T, n, width, limit>(task, count, p, last);
    p += count * width;
    vectors -= count;
  }
}

template <class T>
void add_edges(const SegmentTask<T>& task) {
  constexpr int width = kWidest<T>;
  if (task.C == 2 && task.K == 2) return add_points<T, 2, width>(task);
  if (task.C == 3 && task.K == 3) return add_points<T, 3, width>(task);
  if (task.C == 4 && task.K == 4) return add_points<T, 4, width>(task);
  add_points<T, 0, width>(task);
}

template <class T>
FlatKernel<T> find_flat(Index n, Index R) {
  return flat::find<T>(n, R);
}
template <>
inline FlatKernel<Complex<float>> find_flat(Index, Index) { return {}; }
template <>
inline FlatKernel<Complex<double>> find_flat(Index, Index) { return {}; }

template <class T>
constexpr SegmentKernels<T> kernels_of() {
  return {kWidest<T>, add_edges<T>, find_flat<T>};
}

}  // namespace segments
}  // namespace BATCHKRON_ISA
}  // namespace batchkron
