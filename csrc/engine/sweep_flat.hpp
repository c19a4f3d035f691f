// Sweeps with vectors of whole groups of n R elements, in their own order. The t-th of n sums has
// in lane (c, r) what belongs to ((c + t) mod n, r), and is put into place at the end.
#pragma once

#include "engine/flat_kernels.hpp"
#include "engine/sweep_node.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {
namespace sweeps {

template <class T, int n, int R, int vectors>
inline void add_flat(const Node<T>& node, Index p, int rest) {
  using G = flat::Groups<T, n, R>;
  constexpr int width = kWidth<T>;
  constexpr Index matrix = n * G::pattern;
  using V = Pack<T, width>;
  const SweepTask<T>& task = node.task;
  const Index block = task.L * n * R;
  V sum[n][vectors];
  BATCHKRON_UNROLL
  for (int t = 0; t < n; ++t)
    BATCHKRON_UNROLL
    for (int v = 0; v < vectors; ++v) sum[t][v] = V{};
  for (Index e = node.first; e < node.stop; ++e) {
    const T* x = node.child(e, block) + p;
    const T* f = task.matrices + task.ids[e] * matrix;
    V factor[n];
    BATCHKRON_UNROLL
    for (int t = 0; t < n; ++t) factor[t] = repeated<T, G::pattern, width>(f + t * G::pattern);
    BATCHKRON_UNROLL
    for (int v = 0; v < vectors; ++v) {
      const V in =
          load_first<T, width>(x + v * G::lanes, v + 1 < vectors ? int(G::lanes) : rest);
      BATCHKRON_UNROLL
      for (int t = 0; t < n; ++t) sum[t][v] += in * factor[t];
    }
  }
  BATCHKRON_UNROLL
  for (int v = 0; v < vectors; ++v)
    finish<T, width>(node.y + p + v * G::lanes, flat::joined_parts<T, n, R, vectors>(sum, v),
                     v + 1 < vectors ? int(G::lanes) : rest, task.adds);
}

template <class T, int n, int R, int vectors>
inline void add_flat_of(const Node<T>& node, Index p, Index count, int rest) {
  if constexpr (vectors > 1)
    if (count < vectors) return add_flat_of<T, n, R, vectors - 1>(node, p, count, rest);
  add_flat<T, n, R, vectors>(node, p, rest);
}

template <class T, int n, int R>
void flats(const SweepTask<T>& task) {
  for_nodes(task, [](const Node<T>& node) {
    constexpr int most = (BATCHKRON_VECTOR_BYTES == 64 ? 24 : 12) / n;
    constexpr Index lanes = flat::Groups<T, n, R>::lanes;
    const Index block = node.task.L * n * R;
    Index left = (block + lanes - 1) / lanes, p = 0;
    const int rest_of_last = int(block - (left - 1) * lanes);
    for (Index tiles = (left + most - 1) / most; tiles > 0; --tiles) {
      const Index count = left / tiles;
      node.task.fetches->some();
      add_flat_of<T, n, R, most>(node, p, count, tiles == 1 ? rest_of_last : int(lanes));
      p += count * lanes;
      left -= count;
    }
  });
}

template <class T, int n, int R>
void lay_out_flat(const T* a, Index, T* target) {
  for (Index t = 0; t < n; ++t)
    for (Index p = 0; p < flat::Groups<T, n, R>::pattern; ++p) {
      const Index c = p / R % n;
      *target++ = a[(c + t) % n * n + c];
    }
}

}  // namespace sweeps
}  // namespace BATCHKRON_ISA
}  // namespace batchkron
