// Sweeps along a mode with few elements behind it: a vector has `parts` parts of `part` >= R lanes,
// each with the R elements of another l.
#pragma once

#include "simd/sweeps/node.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {
namespace sweeps {

template <class T, int part, int parts>
inline Pack<T, part * parts> load_parts(const T* x, Index stride, int count) {
  if constexpr (parts == 1) {
    return load_first<T, part>(x, count);
  } else {
    constexpr int half = part * parts / 2;
    return joined<T, half>(load_parts<T, part, parts / 2>(x, stride, count),
                           load_parts<T, part, parts / 2>(x + parts / 2 * stride, stride, count),
                           UpTo<2 * half>{});
  }
}

template <int half, int first, class V, int... i>
inline auto half_of(V v, Indices<i...>) {
  return __builtin_shufflevector(v, v, (first + i)...);
}

template <class T, int part, int parts, bool adds>
inline void finish_parts(T* y, Pack<T, part * parts> sum, Index stride, int count) {
  if constexpr (parts == 1) {
    finish_first<T, part>(y, sum, count, adds);
  } else {
    constexpr int half = part * parts / 2;
    const UpTo<half> all;
    finish_parts<T, part, parts / 2, adds>(y, half_of<half, 0>(sum, all), stride, count);
    finish_parts<T, part, parts / 2, adds>(y + parts / 2 * stride, half_of<half, half>(sum, all),
                                           stride, count);
  }
}

template <class T, int n, int part, int parts, int vectors, bool adds>
inline void finish_shared(T* y, const Pack<T, part * parts> (&sum)[n][vectors], Index R) {
  BATCHKRON_UNROLL
  for (int i = 0; i < n; ++i)
    BATCHKRON_UNROLL
    for (int v = 0; v < vectors; ++v)
      finish_parts<T, part, parts, adds>(y + i * R + v * parts * n * R, sum[i][v], n * R, int(R));
}

// All results for parts * vectors consecutive l.
template <class T, int n, int C, int part, int parts, int vectors>
inline void add_shared(const Node<T>& node, Index l) {
  using V = Pack<T, part * parts>;
  const SweepTask<T>& task = node.task;
  const Index R = task.R, stride = C * R;
  V sum[n][vectors];
  BATCHKRON_UNROLL
  for (int i = 0; i < n; ++i)
    BATCHKRON_UNROLL
    for (int v = 0; v < vectors; ++v) sum[i][v] = V{};
  for_edges(node, [&](const T* x, const T* f) __attribute__((always_inline)) {
    BATCHKRON_UNROLL
    for (int c = 0; c < C; ++c) {
      V in[vectors];
      BATCHKRON_UNROLL
      for (int v = 0; v < vectors; ++v)
        in[v] = kept(load_parts<T, part, parts>(x + (l + v * parts) * stride + c * R, stride,
                                                int(R)));
      BATCHKRON_UNROLL
      for (int i = 0; i < n; ++i) {
        const V factor = in_all_lanes<T, part * parts, (vectors > 1)>(f + c * n + i);
        BATCHKRON_UNROLL
        for (int v = 0; v < vectors; ++v) sum[i][v] = fused(sum[i][v], in[v], factor);
      }
    }
  });
  T* y = node.y + l * n * R;
  // One branch here: with one for each part, compilers take a third longer for all sweeps.
  if (task.adds)
    finish_shared<T, n, part, parts, vectors, true>(y, sum, R);
  else
    finish_shared<T, n, part, parts, vectors, false>(y, sum, R);
}

template <class T, int n, int C, int part>
void shared(const SweepTask<T>& task) {
  constexpr int parts = kWidth<T> / part;
  constexpr int limit = BATCHKRON_VECTOR_BYTES == 64 ? 4 : 2;
  for_nodes(task, [](const Node<T>& node) {
    const Index L = node.task.L;
    Index l = 0;
    for (; l + limit * parts <= L; l += limit * parts) {
      node.task.fetches->some();
      add_shared<T, n, C, part, parts, limit>(node, l);
    }
    for (; l + parts <= L; l += parts) add_shared<T, n, C, part, parts, 1>(node, l);
    for (; l < L; ++l) add_shared<T, n, C, part, 1, 1>(node, l);
  });
}

}  // namespace sweeps
}  // namespace BATCHKRON_ISA
}  // namespace batchkron
