// Sums over the edges of one node by n x n matrices along a mode whose n R entries fit in a vector,
// on blocks in their own order (contract: FlatTask in simd/segmented/table.hpp).
//
// A sum has n parts. Part t is, element by element, a pattern of the matrix times x; what it adds
// to element (c, r) belongs to ((c + t) mod n, r). The parts are rotated to their places once,
// after the last edge.
#pragma once

#include "simd/common/repeated.hpp"
#include "simd/common/vectors.hpp"
#include "simd/segmented/table.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {
namespace flat {

using lanes::kLanes;
using lanes::load;
using lanes::Pack;
using lanes::repeated;
using lanes::store;
using lanes::UpTo;
using lanes::Wide;

// A group is n R lanes, for one l. lanes: lanes of a vector that whole groups fill; pattern:
// elements of the factor that are stored for each part.
template <class T, int n, int R>
struct Groups {
  static constexpr int group = n * R;
  static constexpr int lanes = kLanes<T> / group * group;
  static constexpr int pattern = kLanes<T> % group ? kLanes<T> : group;
};

// Moves lane (c, r) of every group to ((c + turns) mod n, r).
template <int n, int R, int turns, class V, int... i>
inline V rotated(V v, Indices<i...>) {
  return __builtin_shufflevector(
      v, v, (i + ((i / R % n - turns + n) % n - i / R % n) * R < int(sizeof...(i))
                 ? i + ((i / R % n - turns + n) % n - i / R % n) * R
                 : i)...);
}

template <class T, int n, int R, int vectors>
inline void add_edge(const T* f, const T* x, Wide<T> (&sum)[n][vectors]) {
  using G = Groups<T, n, R>;
  using V = Wide<T>;
  V factor[n];
  BATCHKRON_UNROLL
  for (int t = 0; t < n; ++t) factor[t] = repeated<T, G::pattern, kLanes<T>>(f + t * G::pattern);
  BATCHKRON_UNROLL
  for (int v = 0; v < vectors; ++v) {
    const V in = in_register(load<V>(x + v * G::lanes));
    BATCHKRON_UNROLL
    for (int t = 0; t < n; ++t) sum[t][v] += in * factor[t];
  }
}

// The sum of all parts, each rotated to its place.
template <class T, int n, int R, int vectors, int turns = 1>
inline Wide<T> joined_parts(const Wide<T> (&sum)[n][vectors], int v) {
  if constexpr (turns == n)
    return sum[0][v];
  else
    return joined_parts<T, n, R, vectors, turns + 1>(sum, v) +
           rotated<n, R, turns>(sum[turns][v], UpTo<kLanes<T>>{});
}

// Prefetches the block of edge e: small blocks lie at random places of x, which the processor's own
// prefetcher cannot foresee.
template <class T, int elements>
inline void prefetch(const FlatTask<T>& task, Index e) {
  const char* x = reinterpret_cast<const char*>(task.x + task.edges[e].child * task.block);
  BATCHKRON_UNROLL
  for (int byte = 0; byte < elements * int(sizeof(T)); byte += 64) __builtin_prefetch(x + byte);
}

// Computes `vectors` vectors of the sums from element p on, in registers over all edges. If these
// are few, edges alternate between two sets of sums, so that a multiply-add need not wait for the
// one before.
template <class T, int n, int R, int vectors>
inline void add_tile(const FlatTask<T>& task, Index p) {
  constexpr int sets = n * vectors < 8 ? 2 : 1;
  constexpr Index matrix = n * Groups<T, n, R>::pattern;
  using V = Wide<T>;
  const bool one_tile = task.block <= vectors * Groups<T, n, R>::lanes;
  V sum[sets][n][vectors];
  BATCHKRON_UNROLL
  for (int s = 0; s < sets; ++s)
    BATCHKRON_UNROLL
    for (int t = 0; t < n; ++t)
      BATCHKRON_UNROLL
      for (int v = 0; v < vectors; ++v) sum[s][t][v] = V{};
  const auto add = [&](Index e, V(&target)[n][vectors]) __attribute__((always_inline)) {
    const Index child = task.edges[e].child;
    const T* x = child < task.first_copied ? task.x : task.copied;
    if (one_tile) prefetch<T, vectors * Groups<T, n, R>::lanes>(task, e + kEdgesAhead);
    add_edge<T, n, R, vectors>(task.matrices + task.edges[e].id * matrix,
                               x + child * task.block + p, target);
  };
  Index e = 0;
  for (; e + sets <= task.count; e += sets)
    BATCHKRON_UNROLL
    for (int s = 0; s < sets; ++s) add(e + s, sum[s]);
  if (e < task.count) add(e, sum[0]);
  BATCHKRON_UNROLL
  for (int v = 0; v < vectors; ++v) {
    V total = joined_parts<T, n, R, vectors>(sum[0], v);
    if constexpr (sets == 2) total += joined_parts<T, n, R, vectors>(sum[1], v);
    store(task.sums + p + v * Groups<T, n, R>::lanes, total);
  }
}

template <class T, int n, int R, int vectors>
inline void add_tile_of(const FlatTask<T>& task, Index p, Index count) {
  if constexpr (vectors > 1)
    if (count < vectors) return add_tile_of<T, n, R, vectors - 1>(task, p, count);
  add_tile<T, n, R, vectors>(task, p);
}

// The whole block, in tiles of nearly equal width.
template <class T, int n, int R>
void add_edges(const FlatTask<T>& task) {
  constexpr int limit = (BATCHKRON_VECTOR_BYTES == 64 ? 24 : 12) / n;
  constexpr Index lanes = Groups<T, n, R>::lanes;
  Index left = (task.block + lanes - 1) / lanes, p = 0;
  for (Index tiles = (left + limit - 1) / limit; tiles > 0; --tiles) {
    const Index count = left / tiles;
    add_tile_of<T, n, R, limit>(task, p, count);
    p += count * lanes;
    left -= count;
  }
}

// The kernel of a mode, if n R entries fit in a vector, which is then at least half full.
template <class T, int n, int R>
constexpr FlatKernel<T> kernel() {
  if constexpr (n * R <= kLanes<T>)
    return {Groups<T, n, R>::pattern, kLanes<T> - 1, add_edges<T, n, R>};
  else
    return {0, 0, nullptr};
}

template <class T>
constexpr FlatKernel<T> find(Index n, Index R) {
  if (n == 2 && R == 1) return kernel<T, 2, 1>();
  if (n == 2 && R == 2) return kernel<T, 2, 2>();
  if (n == 2 && R == 4) return kernel<T, 2, 4>();
  if (n == 3 && R == 1) return kernel<T, 3, 1>();
  if (n == 3 && R == 3) return kernel<T, 3, 3>();
  if (n == 4 && R == 1) return kernel<T, 4, 1>();
  if (n == 4 && R == 4) return kernel<T, 4, 4>();
  return {0, 0, nullptr};
}

}  // namespace flat
}  // namespace BATCHKRON_ISA
}  // namespace batchkron
