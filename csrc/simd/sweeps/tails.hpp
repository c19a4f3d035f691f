// Sweeps along the last modes of a block, whose n^modes elements are contiguous (a row). Vectors go
// along the row, so that the lanes of a vector have different indices c of a mode. Along a mode
// there are n sums: in a lane with index c, sum t gets A[(c + t) mod n, c] x, which belongs to
// index (c + t) mod n. The sums are moved to their places and added once, after all edges of the
// mode.
#pragma once

#include "simd/sweeps/node.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {
namespace sweeps {

constexpr int power(int n, int exponent) { return exponent == 0 ? 1 : n * power(n, exponent - 1); }

// A row of n^modes elements in vectors. has_factors: the factors of every vector are stored; else
// only the n wrapped diagonals of the matrix, from which they are made by shuffles (see
// lay_out_row).
template <class T_, int n_, int modes_, bool has_factors_>
struct Row {
  using T = T_;
  static constexpr bool has_factors = has_factors_;
  static constexpr int n = n_, modes = modes_, size = power(n, modes), width = kWidth<T>;
  static constexpr int vectors = (size + width - 1) / width;
  // Vectors of sums that the registers hold, and the rows that are computed together with so many.
  static constexpr int max_sums = BATCHKRON_VECTOR_BYTES == 64 ? 24 : 12;
  static constexpr int at_once = max_sums / (n * vectors) < 4 ? max_sums / (n * vectors) : 4;
  static constexpr bool fits = width > 1 && n <= width && size <= 32 && at_once > 0;
  // Elements of a matrix in memory: for each t, and for all.
  static constexpr int part = (has_factors ? vectors : 1) * width, matrix = n * part;
  using V = Pack<T, width>;
  using Sums = V[vectors];
  using All = UpTo<width>;  // all lanes

  // The product of the sizes of the modes behind this one.
  static constexpr int behind(int mode) { return power(n, modes - 1 - mode); }
  // The index of element i along a mode.
  static constexpr int index(int mode, int i) { return i / behind(mode) % n; }
  // The first element of vector v. The last vector ends with the row and overlaps the one before,
  // as masked loads that straddle cache lines took several times as long.
  static constexpr int begin(int v) {
    return vectors > 1 && v + 1 == vectors ? size - width : v * width;
  }
  // The vector and lane of element i.
  static constexpr int vector_of(int i) { return i / width; }
  static constexpr int lane_of(int i) { return i - begin(vector_of(i)); }
  // The element whose sum t belongs to element i.
  static constexpr int source(int mode, int t, int i) {
    const int own = index(mode, i);
    return i < size ? i + ((own - t + n) % n - own) * behind(mode) : 0;
  }
  // The first vector behind vector `after` that has sums t which belong to vector v, or -1.
  static constexpr int source_vector(int mode, int t, int v, int after) {
    for (int from = after + 1; from < vectors; ++from)
      for (int i = begin(v); i < begin(v) + width && i < size; ++i)
        if (vector_of(source(mode, t, i)) == from) return from;
    return -1;
  }

  static V loaded(const T* x, int v) {
    if constexpr (size < width)
      return kept(load_first<T, width>(x, size));
    else
      return kept(load<V>(x + begin(v)));
  }
  static void finish(T* y, const Sums& sums, bool adds) {
    if constexpr (size < width) {
      finish_first<T, width>(y, sums[0], size, adds);
    } else {
      finish_whole<T, vectors>(y, sums, adds, begin);
    }
  }
};

// The factors of vector v for one t: each lane has diagonal t's element of its index. `factors` are
// those stored for t.
template <class R, int mode, int v, int... lane>
BATCHKRON_INLINE auto factor_of(const typename R::T* factors, Indices<lane...>) {
  if constexpr (R::has_factors) {
    return in_register(load<typename R::V>(factors + v * R::width));
  } else {
    const typename R::V diagonal = load<typename R::V>(factors);
    return __builtin_shufflevector(diagonal, diagonal, R::index(mode, R::begin(v) + lane)...);
  }
}

// Collects the sums t that belong to vector v from vectors a, number `first`, and b, number
// `second`. If is_found, a is what was collected already, of which all lanes that are not in b are
// kept.
template <class R, int mode, int t, int v, int first, int second, bool is_found, int... lane>
BATCHKRON_INLINE auto joined_sums(typename R::V a, typename R::V b, Indices<lane...>) {
  constexpr auto place = [](int i, int own) {
    const int source = R::source(mode, t, i);
    if (R::vector_of(source) == second) return R::width + R::lane_of(source);
    return !is_found && R::vector_of(source) == first ? R::lane_of(source) : own;
  };
  return __builtin_shufflevector(a, b, place(R::begin(v) + lane, lane)...);
}

// `found`, with the sums from all vectors behind `last` added to the collection.
template <class R, int mode, int t, int v, int last>
BATCHKRON_INLINE auto with_more(const typename R::Sums& sums, typename R::V found) {
  constexpr int next = R::source_vector(mode, t, v, last);
  if constexpr (next < 0)
    return found;
  else
    return with_more<R, mode, t, v, next>(
        sums, joined_sums<R, mode, t, v, last, next, true>(found, sums[next], typename R::All{}));
}

// The sums t that belong to vector v, each in its lane.
template <class R, int mode, int t, int v>
BATCHKRON_INLINE auto in_place(const typename R::Sums& sums) {
  constexpr int first = R::source_vector(mode, t, v, -1);
  constexpr int next = R::source_vector(mode, t, v, first), second = next < 0 ? first : next;
  return with_more<R, mode, t, v, second>(
      sums, joined_sums<R, mode, t, v, first, second, false>(sums[first], sums[second],
                                                             typename R::All{}));
}
template <class R, int mode, int t, int v = 0>
BATCHKRON_INLINE void add_in_place(const typename R::Sums& turned, typename R::Sums& sums) {
  if constexpr (v < R::vectors) {
    sums[v] = plus(sums[v], in_place<R, mode, t, v>(turned));
    add_in_place<R, mode, t, v + 1>(turned, sums);
  }
}
template <class R, int mode, int t = 1>
BATCHKRON_INLINE void add_all_in_place(const typename R::Sums (&turned)[R::n],
                                       typename R::Sums& sums) {
  if constexpr (t < R::n) {
    add_in_place<R, mode, t>(turned[t], sums);
    add_all_in_place<R, mode, t + 1>(turned, sums);
  }
}

// Adds an edge's products with vector v of the rows and with all vectors behind it.
template <class R, int mode, int rows, int v = 0>
BATCHKRON_INLINE void add_row_vectors(const typename R::T* x, const typename R::T* factors,
                                      typename R::Sums (&sums)[rows][R::n]) {
  using V = typename R::V;
  if constexpr (v < R::vectors) {
    V in[rows];
    BATCHKRON_UNROLL
    for (int i = 0; i < rows; ++i)
      in[i] = R::loaded(x + i * R::size, v);
    BATCHKRON_UNROLL
    for (int t = 0; t < R::n; ++t) {
      const V factor = factor_of<R, mode, v>(factors + t * R::part, typename R::All{});
      BATCHKRON_UNROLL
      for (int i = 0; i < rows; ++i) sums[i][t][v] = fused(sums[i][t][v], in[i], factor);
    }
    add_row_vectors<R, mode, rows, v + 1>(x, factors, sums);
  }
}

// Adds the edges along one mode. sums[i][0] are the results of row i; sums[i][t], t > 0, are
// scratch.
template <class R, int mode, int rows>
BATCHKRON_INLINE void add_tail_mode(const Node<typename R::T>& node,
                                    const SweepEdges<typename R::T>& edges, Index offset,
                                    typename R::Sums (&sums)[rows][R::n]) {
  const Range range = node.range(edges);
  if (range.first == range.stop) return;
  BATCHKRON_UNROLL
  for (int i = 0; i < rows; ++i)
    BATCHKRON_UNROLL
    for (int t = 1; t < R::n; ++t)
      BATCHKRON_UNROLL
      for (int v = 0; v < R::vectors; ++v) sums[i][t][v] = typename R::V{};
  for (Index e = range.first; e < range.stop; ++e)
    add_row_vectors<R, mode, rows>(node.child(edges, e) + offset,
                                   edges.matrices + Index(edges.ids[e]) * R::matrix, sums);
  BATCHKRON_UNROLL
  for (int i = 0; i < rows; ++i) add_all_in_place<R, mode>(sums[i], sums[i][0]);
}

// Adds the edges along all modes from `mode` on; the task's lists are sorted by mode.
template <class R, int rows, int mode = 0>
BATCHKRON_INLINE void add_tail_modes(const Node<typename R::T>& node, Index offset,
                                     typename R::Sums (&sums)[rows][R::n], Index next = 0) {
  if constexpr (mode < R::modes) {
    for (; next < node.task.num_edges && node.task.edges[next].mode == mode; ++next)
      add_tail_mode<R, mode>(node, node.task.edges[next], offset, sums);
    add_tail_modes<R, rows, mode + 1>(node, offset, sums, next);
  }
}

// Computes `rows` rows of a node's block from `offset` on.
template <class R, int rows>
inline void add_tail(const Node<typename R::T>& node, Index offset) {
  typename R::Sums sums[rows][R::n];
  BATCHKRON_UNROLL
  for (int i = 0; i < rows; ++i)
    BATCHKRON_UNROLL
    for (int v = 0; v < R::vectors; ++v) sums[i][0][v] = typename R::V{};
  add_tail_modes<R, rows>(node, offset, sums);
  BATCHKRON_UNROLL
  for (int i = 0; i < rows; ++i)
    R::finish(node.y + offset + i * R::size, sums[i][0], node.task.adds);
}

template <class R>
void tails(const SweepTask<typename R::T>& task) {
  for_nodes(task, [](const Node<typename R::T>& node) {
    Index row = 0;
    for (; row + R::at_once <= node.task.L; row += R::at_once) {
      node.task.fetches->some();
      add_tail<R, R::at_once>(node, row * R::size);
    }
    for (; row < node.task.L; ++row) add_tail<R, 1>(node, row * R::size);
  });
}

// Writes a matrix as its n wrapped diagonals: diagonal t has A[(c + t) mod n, c] at index c. With
// has_factors it is written for every lane of a row; else once, padded to a vector. This is done once
// for a matrix: unrolled, the loops were a third of the code of all sweeps.
template <class R>
void lay_out_row(const typename R::T* a, Index, Index, int mode, typename R::T* target) {
  constexpr int n = R::n;
  for (int i = 0; i < R::part; ++i) {
    const int c = R::has_factors ? R::index(mode, R::begin(i / R::width) + i % R::width) : i;
    for (int t = 0; t < n; ++t)
      target[t * R::part + i] = c < n ? a[(c + t) % n * n + c] : typename R::T{};
  }
}

}  // namespace sweeps
}  // namespace BATCHKRON_ISA
}  // namespace batchkron
