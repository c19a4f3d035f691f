// What the kernels of sweeps share: nodes with their edges, tiles of blocks, and arithmetic on
// vectors.
#pragma once

#include "simd/common/first_lanes.hpp"
#include "simd/sweeps/table.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {
namespace sweeps {

using lanes::joined;
using lanes::load;
using lanes::load_first;
using lanes::Pack;
using lanes::store;
using lanes::store_first;
using lanes::UpTo;

template <class T>
constexpr int kWidth = BATCHKRON_VECTOR_BYTES / int(sizeof(T));
template <>
constexpr int kWidth<Complex<float>> = 1;
template <>
constexpr int kWidth<Complex<double>> = 1;

template <class V>
inline V fused(V sum, V x, V factor) {
  return sum + x * factor;
}
template <class Real>
inline Complex<Real> fused(Complex<Real> sum, Complex<Real> x, Complex<Real> factor) {
  return multiply_add(sum, x, factor);
}

// *factor in all lanes; kept in a register if it multiplies several vectors.
template <class T, int width, bool several>
inline Pack<T, width> in_all_lanes(const T* factor) {
  if constexpr (width == 1)
    return *factor;
  else if constexpr (several)
    return in_register(splat<Pack<T, width>>(*factor));
  else
    return splat<Pack<T, width>>(*factor);
}
// v kept in a register, because it multiplies several rows (see in_register).
template <class V>
inline V kept(V v) {
  if constexpr (sizeof(V) >= 16)
    return in_register(v);
  else
    return v;
}
template <class Real>
inline Complex<Real> kept(Complex<Real> v) {
  return v;
}
template <class V>
inline V plus(V a, V b) {
  return a + b;
}
template <class Real>
inline Complex<Real> plus(Complex<Real> a, Complex<Real> b) {
  return {a.real + b.real, a.imag + b.imag};
}

struct Range {
  Index first, stop;
};

template <class T, int width>
inline void finish_first(T* y, Pack<T, width> sum, int count, bool adds) {
  if (adds) sum = plus(load_first<T, width>(y, count), sum);
  store_first<T, width>(y, sum, count);
}

// y = sums, or += if `adds`, in whole vectors, number v at place(v). All of y is read before any is
// written, as neighbouring vectors may overlap.
template <class T, int vectors, class Place>
BATCHKRON_INLINE void finish_whole(T* y, const Pack<T, kWidth<T>> (&sums)[vectors], bool adds,
                                   Place place) {
  using V = Pack<T, kWidth<T>>;
  V results[vectors];
  BATCHKRON_UNROLL
  for (int v = 0; v < vectors; ++v)
    results[v] = adds ? plus(load<V>(y + place(v)), sums[v]) : sums[v];
  BATCHKRON_UNROLL
  for (int v = 0; v < vectors; ++v) store(y + place(v), results[v]);
}

// A node, the cell of the grid whose block of y is computed.
template <class T>
struct Node {
  const SweepTask<T>& task;
  T* y;
  Index number;

  Range range(const SweepEdges<T>& edges) const {
    const std::int32_t* list = edges.starts + edges.rows[number];
    return {list[0], list[1]};
  }
  // The block of x that edge e multiplies.
  const T* child(const SweepEdges<T>& edges, Index e) const {
    return edges.x + (number + edges.offsets[e]) * task.x_block;
  }
  bool has_edges() const {
    for (Index i = 0; i < task.num_edges; ++i) {
      const Range own = range(task.edges[i]);
      if (own.first < own.stop) return true;
    }
    return false;
  }
};

// Calls add(node) for each node that has edges; blocks of the others become zero unless task.adds.
template <class T, class Add>
inline void for_nodes(const SweepTask<T>& task, Add add) {
  T* y = task.y;
  for (Index number = task.begin; number < task.end; ++number, y += task.block) {
    const Node<T> node{task, y, number};
    if (node.has_edges())
      add(node);
    else if (!task.adds)
      for (Index i = 0; i < task.block; ++i) y[i] = T{};
  }
}

// Calls add(child's block of x, matrix) for each edge of a node; all edges are along one mode.
template <class T, class Add>
BATCHKRON_INLINE void for_edges(const Node<T>& node, Add add) {
  const Index matrix = node.task.n * node.task.C;
  for (Index i = 0; i < node.task.num_edges; ++i) {
    const SweepEdges<T>& edges = node.task.edges[i];
    const Range range = node.range(edges);
    for (Index e = range.first; e < range.stop; ++e)
      add(node.child(edges, e), edges.matrices + edges.ids[e] * matrix);
  }
}

// A tile: some neighbouring vectors of the R elements behind a mode, which begin at `offset` in a block
// of y and at `given` in one of x. The row's last vector begins
// `back` lanes earlier, so that it is whole, and overlaps the one before, which is in the same
// tile: masked loads that straddle cache lines took several times as long
// (docs/background/sparse-sweeps.md). If R is less than a vector (is_whole is false) the only
// vector has `count` lanes.
template <class T, int vectors_, bool is_whole>
struct Tile {
  static constexpr int vectors = vectors_, width = kWidth<T>;
  using V = Pack<T, width>;
  Index offset, given;
  int back, count;

  Index place(int v) const { return v * width - (is_whole && v + 1 == vectors ? back : 0); }
  V loaded(const T* x, int v) const {
    if constexpr (is_whole)
      return kept(load<V>(x + place(v)));
    else
      return kept(load_first<T, width>(x, count));
  }
  void finish(T* y, const V (&sums)[vectors], bool adds) const {
    if constexpr (is_whole) {
      finish_whole<T, vectors>(y, sums, adds, [this](int v) { return place(v); });
    } else {
      finish_first<T, width>(y, sums[0], count, adds);
    }
  }
};

template <class T, int vectors, class Add>
inline void add_tile(Index count, Index offset, Index given, int back, Add& add) {
  if constexpr (vectors > 1)
    if (count < vectors) return add_tile<T, vectors - 1>(count, offset, given, back, add);
  add(Tile<T, vectors, true>{offset, given, back, kWidth<T>});
}

// Calls add(tile) for tiles that cover a row of R elements, for each l < L; a block has n rows, one of
// x C rows, for each l. Tiles have up to `limit` vectors and nearly equal widths, the last one the largest.
template <class T, int limit, class Add>
inline void for_tiles(const Node<T>& node, Add add) {
  constexpr Index width = kWidth<T>;
  const Index R = node.task.R, all = (R + width - 1) / width;
  for (Index l = 0; l < node.task.L; ++l) {
    Index left = all, offset = l * node.task.n * R, given = l * node.task.C * R;
    if constexpr (width > 1)
      if (R < width) {
        node.task.fetches->some();
        add(Tile<T, 1, false>{offset, given, 0, int(R)});
        continue;
      }
    for (Index tiles = (left + limit - 1) / limit; tiles > 0; --tiles) {
      const Index count = left / tiles;
      node.task.fetches->some();
      add_tile<T, limit>(count, offset, given, tiles > 1 ? 0 : int(all * width - R), add);
      offset += count * width;
      given += count * width;
      left -= count;
    }
  }
}

// The plain layout of a matrix: A^T, row by row.
template <class T>
void lay_out_plain(const T* a, Index n, Index C, int, T* target) {
  for (Index c = 0; c < C; ++c)
    for (Index k = 0; k < n; ++k) *target++ = a[k * C + c];
}

}  // namespace sweeps
}  // namespace BATCHKRON_ISA
}  // namespace batchkron
