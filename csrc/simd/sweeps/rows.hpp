// Sweeps along the last mode (R = 1) with vectors along the results k.
#pragma once

#include "simd/sweeps/node.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {
namespace sweeps {

// Results [l, k] for `rows` l and `vectors` vectors of k, the last of which has `rest` lanes.
template <class T, int rows, int vectors>
inline void add_rows(const Node<T>& node, Index l, Index k, int rest) {
  constexpr int width = kWidth<T>;
  using V = Pack<T, width>;
  const SweepTask<T>& task = node.task;
  const Index n = task.n, C = task.C;
  V sum[rows][vectors];
  BATCHKRON_UNROLL
  for (int i = 0; i < rows; ++i)
    BATCHKRON_UNROLL
    for (int v = 0; v < vectors; ++v) sum[i][v] = V{};
  for_edges(node, [&](const T* x, const T* f) __attribute__((always_inline)) {
    for (Index c = 0; c < C; ++c) {
      V factor[vectors];
      BATCHKRON_UNROLL
      for (int v = 0; v < vectors; ++v) {
        const int count = v + 1 < vectors ? width : rest;
        factor[v] = kept(load_first<T, width>(f + c * n + k + v * width, count));
      }
      BATCHKRON_UNROLL
      for (int i = 0; i < rows; ++i)
        BATCHKRON_UNROLL
        for (int v = 0; v < vectors; ++v)
          sum[i][v] = fused(sum[i][v], factor[v],
                            in_all_lanes<T, width, (vectors > 1)>(x + (l + i) * C + c));
    }
  });
  T* y = node.y + l * n + k;
  BATCHKRON_UNROLL
  for (int i = 0; i < rows; ++i)
    BATCHKRON_UNROLL
    for (int v = 0; v < vectors; ++v)
      finish_first<T, width>(y + i * n + v * width, sum[i][v], v + 1 < vectors ? width : rest,
                             task.adds);
}

template <class T, int vectors>
inline void add_all_rows(const Node<T>& node, Index k, int rest) {
  Index l = 0;
  for (; l + 4 <= node.task.L; l += 4) {
    node.task.fetches->some();
    add_rows<T, 4, vectors>(node, l, k, rest);
  }
  for (; l < node.task.L; ++l) add_rows<T, 1, vectors>(node, l, k, rest);
}

template <class T>
void rows(const SweepTask<T>& task) {
  constexpr int width = kWidth<T>;
  for_nodes(task, [](const Node<T>& node) {
    Index k = 0;
    for (; k + 2 * width < node.task.n; k += 2 * width) add_all_rows<T, 2>(node, k, width);
    const Index left = node.task.n - k;
    if (left > width)
      add_all_rows<T, 2>(node, k, int(left - width));
    else
      add_all_rows<T, 1>(node, k, int(left));
  });
}

// The same for sizes that are known, of less than a vector: a row of n results has a vector of its own,
// of as many lanes.
template <class T, int n, int C, int rows>
inline void add_short_rows(const Node<T>& node, Index l) {
  constexpr int width = n <= 2 ? n : 4;
  using V = Pack<T, width>;
  V sum[rows];
  BATCHKRON_UNROLL
  for (int i = 0; i < rows; ++i) sum[i] = V{};
  for_edges(node, [&](const T* x, const T* f) __attribute__((always_inline)) {
    BATCHKRON_UNROLL
    for (int c = 0; c < C; ++c) {
      const V factor = kept(load_first<T, width>(f + c * n, n));
      BATCHKRON_UNROLL
      for (int i = 0; i < rows; ++i)
        sum[i] = fused(sum[i], factor, in_all_lanes<T, width, false>(x + (l + i) * C + c));
    }
  });
  BATCHKRON_UNROLL
  for (int i = 0; i < rows; ++i)
    finish_first<T, width>(node.y + (l + i) * n, sum[i], n, node.task.adds);
}

template <class T, int n, int C>
void short_rows(const SweepTask<T>& task) {
  for_nodes(task, [](const Node<T>& node) {
    Index l = 0;
    for (; l + 8 <= node.task.L; l += 8) {
      node.task.fetches->some();
      add_short_rows<T, n, C, 8>(node, l);
    }
    for (; l < node.task.L; ++l) add_short_rows<T, n, C, 1>(node, l);
  });
}

}  // namespace sweeps
}  // namespace BATCHKRON_ISA
}  // namespace batchkron
