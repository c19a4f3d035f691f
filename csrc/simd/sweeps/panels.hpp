// Sweeps along one mode with vectors along the R elements behind it.
#pragma once

#include "simd/sweeps/node.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {
namespace sweeps {

// Computes results k ... k + rows - 1 of a tile; n is the number of results at compile time, C that of
// the columns of the matrices, each 0 for any.
template <class T, int n, int C, int rows, class Tile>
inline void add_panel(const Node<T>& node, const Tile& tile, Index k) {
  using V = typename Tile::V;
  const Index size = n ? n : node.task.n, columns = node.task.C, R = node.task.R;
  V sums[rows][Tile::vectors];
  BATCHKRON_UNROLL
  for (int i = 0; i < rows; ++i)
    BATCHKRON_UNROLL
    for (int v = 0; v < Tile::vectors; ++v) sums[i][v] = V{};
  for_edges(node, [&](const T* x, const T* f) __attribute__((always_inline)) {
    const auto add_row = [&](Index c) __attribute__((always_inline)) {
      V in[Tile::vectors];
      BATCHKRON_UNROLL
      for (int v = 0; v < Tile::vectors; ++v) in[v] = tile.loaded(x + tile.given + c * R, v);
      BATCHKRON_UNROLL
      for (int i = 0; i < rows; ++i) {
        const V factor = in_all_lanes<T, Tile::width, (Tile::vectors > 1)>(f + c * size + k + i);
        BATCHKRON_UNROLL
        for (int v = 0; v < Tile::vectors; ++v) sums[i][v] = fused(sums[i][v], in[v], factor);
      }
    };
    if constexpr (C > 0) {
      BATCHKRON_UNROLL
      for (int c = 0; c < C; ++c) add_row(c);
    } else {
      for (Index c = 0; c < columns; ++c) add_row(c);
    }
  });
  T* y = node.y + tile.offset + k * R;
  BATCHKRON_UNROLL
  for (int i = 0; i < rows; ++i) tile.finish(y + i * R, sums[i], node.task.adds);
}

template <class T, int n, int C = n>
void panels(const SweepTask<T>& task) {
  constexpr int limit = BATCHKRON_VECTOR_BYTES == 64 ? 4 : 3;
  for_nodes(task, [](const Node<T>& node) {
    const Index size = node.task.n;
    for_tiles<T, limit>(node, [&](const auto& tile) {
      if constexpr (n > 0) {
        add_panel<T, n, C, n>(node, tile, 0);
      } else {
        Index k = 0;
        for (; k + 4 <= size; k += 4) add_panel<T, 0, 0, 4>(node, tile, k);
        if (size - k == 3) add_panel<T, 0, 0, 3>(node, tile, k);
        if (size - k == 2) add_panel<T, 0, 0, 2>(node, tile, k);
        if (size - k == 1) add_panel<T, 0, 0, 1>(node, tile, k);
      }
    });
  });
}

}  // namespace sweeps
}  // namespace BATCHKRON_ISA
}  // namespace batchkron
