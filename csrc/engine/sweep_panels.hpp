// Sweeps with vectors along r.
#pragma once

#include "engine/sweep_node.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {
namespace sweeps {

// Rows k ... k + rows - 1 of `vectors` vectors of the points r, r + width, ..., of which the last
// has `rest`; n is the size of the matrices if it is known.
template <class T, int n, int rows, int vectors>
inline void add_panel(const Node<T>& node, Index l, Index k, Index r, int rest) {
  constexpr int width = kWidth<T>;
  using V = Pack<T, width>;
  const SweepTask<T>& task = node.task;
  const Index C = n ? n : task.n, R = task.R, block = task.L * C * R, offset = l * C * R + r;
  V sum[rows][vectors];
  BATCHKRON_UNROLL
  for (int i = 0; i < rows; ++i)
    BATCHKRON_UNROLL
    for (int v = 0; v < vectors; ++v) sum[i][v] = V{};
  for (Index e = node.first; e < node.stop; ++e) {
    const T* x = node.child(e, block) + offset;
    const T* f = task.matrices + task.ids[e] * C * C + k;
    const auto add_row = [&](Index c) __attribute__((always_inline)) {
      V in[vectors];
      BATCHKRON_UNROLL
      for (int v = 0; v < vectors; ++v)
        in[v] = kept(load_first<T, width>(x + c * R + v * width, v + 1 < vectors ? width : rest));
      BATCHKRON_UNROLL
      for (int i = 0; i < rows; ++i) {
        const V factor = in_all_lanes<T, width, (vectors > 1)>(f + c * C + i);
        BATCHKRON_UNROLL
        for (int v = 0; v < vectors; ++v) sum[i][v] = fused(sum[i][v], in[v], factor);
      }
    };
    if constexpr (n > 0) {
      BATCHKRON_UNROLL
      for (int c = 0; c < n; ++c) add_row(c);
    } else {
      for (Index c = 0; c < C; ++c) add_row(c);
    }
  }
  T* y = node.y + offset + k * R;
  BATCHKRON_UNROLL
  for (int i = 0; i < rows; ++i)
    BATCHKRON_UNROLL
    for (int v = 0; v < vectors; ++v)
      finish<T, width>(y + i * R + v * width, sum[i][v], v + 1 < vectors ? width : rest, task.adds);
}

template <class T, int n, int vectors>
inline void add_panel_rows(const Node<T>& node, Index l, Index r, int rest) {
  if constexpr (n > 0) {
    add_panel<T, n, n, vectors>(node, l, 0, r, rest);
  } else {
    const Index K = node.task.n;
    Index k = 0;
    for (; k + 4 <= K; k += 4) add_panel<T, 0, 4, vectors>(node, l, k, r, rest);
    if (K - k == 3) add_panel<T, 0, 3, vectors>(node, l, k, r, rest);
    if (K - k == 2) add_panel<T, 0, 2, vectors>(node, l, k, r, rest);
    if (K - k == 1) add_panel<T, 0, 1, vectors>(node, l, k, r, rest);
  }
}

// Tiles of nearly equal width.
template <class T, int n>
inline void add_panels(const Node<T>& node) {
  constexpr int width = kWidth<T>;
  constexpr Index most = BATCHKRON_VECTOR_BYTES == 64 ? 4 : 3;
  const SweepTask<T>& task = node.task;
  const Index all = (task.R + width - 1) / width;
  const int rest_of_last = int(task.R - (all - 1) * width);
  for (Index l = 0; l < task.L; ++l) {
    Index left = all, r = 0;
    for (Index tiles = (left + most - 1) / most; tiles > 0; --tiles) {
      const Index count = left / tiles;
      const int rest = tiles == 1 ? rest_of_last : width;
      task.fetches->some();
      if (count == 4)
        add_panel_rows<T, n, 4>(node, l, r, rest);
      else if (count == 3)
        add_panel_rows<T, n, 3>(node, l, r, rest);
      else if (count == 2)
        add_panel_rows<T, n, 2>(node, l, r, rest);
      else
        add_panel_rows<T, n, 1>(node, l, r, rest);
      r += count * width;
      left -= count;
    }
  }
}

template <class T, int n>
void panels(const SweepTask<T>& task) {
  for_nodes(task, [](const Node<T>& node) { add_panels<T, n>(node); });
}

}  // namespace sweeps
}  // namespace BATCHKRON_ISA
}  // namespace batchkron
