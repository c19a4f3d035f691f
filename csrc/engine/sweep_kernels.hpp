// Sums of single-mode multiplies over the edges of nodes (contract: sweep_kernel_table.hpp).
// Included by isa/sweep_kernels.cpp only.
#pragma once

#include "engine/first_lanes.hpp"
#include "engine/flat_kernels.hpp"
#include "engine/sweep_kernel_table.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {
namespace sweeps {

using lanes::joined;
using lanes::load_first;
using lanes::Pack;
using lanes::repeated;
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

// The factor in all lanes, loaded once if it multiplies several vectors.
template <class T, int width, bool several>
inline Pack<T, width> in_all_lanes(const T* factor) {
  if constexpr (width == 1)
    return *factor;
  else if constexpr (several)
    return in_register(splat<Pack<T, width>>(*factor));
  else
    return splat<Pack<T, width>>(*factor);
}
// What several rows multiply is loaded once.
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

// A node's edges and its block of y.
template <class T>
struct Node {
  const SweepTask<T>& task;
  T* y;
  Index number, first, stop;

  // The block of x that edge e multiplies, of `block` elements.
  const T* child(Index e, Index block) const {
    return task.x + (number + task.offsets[e]) * block;
  }
};

// Calls `add` with each node that has edges.
template <class T, class Add>
inline void for_nodes(const SweepTask<T>& task, Add add) {
  const Index block = task.L * task.n * task.R;
  T* y = task.y;
  for (Index node = task.begin; node < task.end; ++node, y += block) {
    const std::int32_t* list = task.starts + task.rows[node];
    const Node<T> here{task, y, node, list[0], list[1]};
    if (here.first != here.stop)
      add(here);
    else if (!task.adds)
      for (Index i = 0; i < block; ++i) y[i] = T{};
  }
}

template <class T, int width>
inline void finish(T* y, Pack<T, width> sum, int count, bool adds) {
  if (adds) sum = plus(load_first<T, width>(y, count), sum);
  store_first<T, width>(y, sum, count);
}

// A^T, row by row.
template <class T>
void lay_out_plain(const T* a, Index n, T* target) {
  for (Index c = 0; c < n; ++c)
    for (Index k = 0; k < n; ++k) *target++ = a[k * n + c];
}

// --- Panels: vectors along r. ---

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

// --- Shared vectors: a row of R elements fills a part of `part` lanes; the parts of a vector
// belong to as many l. ---

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

template <class T, int part, int parts>
inline void finish_parts(T* y, Pack<T, part * parts> sum, Index stride, int count, bool adds) {
  if constexpr (parts == 1) {
    finish<T, part>(y, sum, count, adds);
  } else {
    constexpr int half = part * parts / 2;
    const UpTo<half> all;
    finish_parts<T, part, parts / 2>(y, half_of<half, 0>(sum, all), stride, count, adds);
    finish_parts<T, part, parts / 2>(y + parts / 2 * stride, half_of<half, half>(sum, all), stride,
                                     count, adds);
  }
}

// All rows of parts * vectors consecutive l.
template <class T, int n, int part, int parts, int vectors>
inline void add_shared(const Node<T>& node, Index l) {
  using V = Pack<T, part * parts>;
  const SweepTask<T>& task = node.task;
  const Index R = task.R, stride = n * R, block = task.L * stride;
  V sum[n][vectors];
  BATCHKRON_UNROLL
  for (int i = 0; i < n; ++i)
    BATCHKRON_UNROLL
    for (int v = 0; v < vectors; ++v) sum[i][v] = V{};
  for (Index e = node.first; e < node.stop; ++e) {
    const T* x = node.child(e, block) + l * stride;
    const T* f = task.matrices + task.ids[e] * (n * n);
    BATCHKRON_UNROLL
    for (int c = 0; c < n; ++c) {
      V in[vectors];
      BATCHKRON_UNROLL
      for (int v = 0; v < vectors; ++v)
        in[v] = kept(load_parts<T, part, parts>(x + c * R + v * parts * stride, stride, int(R)));
      BATCHKRON_UNROLL
      for (int i = 0; i < n; ++i) {
        const V factor = in_all_lanes<T, part * parts, (vectors > 1)>(f + c * n + i);
        BATCHKRON_UNROLL
        for (int v = 0; v < vectors; ++v) sum[i][v] = fused(sum[i][v], in[v], factor);
      }
    }
  }
  T* y = node.y + l * stride;
  BATCHKRON_UNROLL
  for (int i = 0; i < n; ++i)
    BATCHKRON_UNROLL
    for (int v = 0; v < vectors; ++v)
      finish_parts<T, part, parts>(y + i * R + v * parts * stride, sum[i][v], stride, int(R),
                                   task.adds);
}

template <class T, int n, int part>
void shared(const SweepTask<T>& task) {
  constexpr int parts = kWidth<T> / part;
  constexpr int most = BATCHKRON_VECTOR_BYTES == 64 ? 4 : 2;
  for_nodes(task, [](const Node<T>& node) {
    const Index L = node.task.L;
    Index l = 0;
    for (; l + most * parts <= L; l += most * parts) {
      node.task.fetches->some();
      add_shared<T, n, part, parts, most>(node, l);
    }
    for (; l + parts <= L; l += parts) add_shared<T, n, part, parts, 1>(node, l);
    for (; l < L; ++l) add_shared<T, n, part, 1, 1>(node, l);
  });
}

// --- Flat: vectors of whole groups of n R elements, in their own order. The t-th of n sums has in
// lane (c, r) what belongs to ((c + t) mod n, r), and is put into place at the end. ---

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

// --- Rows: vectors along k, for R = 1. ---

template <class T, int rows, int vectors>
inline void add_rows(const Node<T>& node, Index l, Index k, int rest) {
  constexpr int width = kWidth<T>;
  using V = Pack<T, width>;
  const SweepTask<T>& task = node.task;
  const Index n = task.n, block = task.L * n;
  V sum[rows][vectors];
  BATCHKRON_UNROLL
  for (int i = 0; i < rows; ++i)
    BATCHKRON_UNROLL
    for (int v = 0; v < vectors; ++v) sum[i][v] = V{};
  for (Index e = node.first; e < node.stop; ++e) {
    const T* x = node.child(e, block) + l * n;
    const T* f = task.matrices + task.ids[e] * n * n + k;
    for (Index c = 0; c < n; ++c, f += n) {
      V factor[vectors];
      BATCHKRON_UNROLL
      for (int v = 0; v < vectors; ++v)
        factor[v] = kept(load_first<T, width>(f + v * width, v + 1 < vectors ? width : rest));
      BATCHKRON_UNROLL
      for (int i = 0; i < rows; ++i)
        BATCHKRON_UNROLL
        for (int v = 0; v < vectors; ++v)
          sum[i][v] = fused(sum[i][v], factor[v],
                            in_all_lanes<T, width, (vectors > 1)>(x + i * n + c));
    }
  }
  T* y = node.y + l * n + k;
  BATCHKRON_UNROLL
  for (int i = 0; i < rows; ++i)
    BATCHKRON_UNROLL
    for (int v = 0; v < vectors; ++v)
      finish<T, width>(y + i * n + v * width, sum[i][v], v + 1 < vectors ? width : rest, task.adds);
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

// --- The choice between them. ---

template <class T, int n, int R>
constexpr SweepKernel<T> flat_kernel() {
  if constexpr (kWidth<T> > 1 && n * R <= kWidth<T>)
    return {flats<T, n, R>, n * flat::Groups<T, n, R>::pattern, lay_out_flat<T, n, R>};
  else
    return {nullptr, 0, nullptr};
}

template <class T>
constexpr SweepKernel<T> find_flat(Index n, Index R) {
  if (n == 2 && R == 1) return flat_kernel<T, 2, 1>();
  if (n == 2 && R == 2) return flat_kernel<T, 2, 2>();
  if (n == 2 && R == 4) return flat_kernel<T, 2, 4>();
  if (n == 3 && R == 1) return flat_kernel<T, 3, 1>();
  if (n == 4 && R == 1) return flat_kernel<T, 4, 1>();
  if (n == 4 && R == 4) return flat_kernel<T, 4, 4>();
  if (n == 5 && R == 1) return flat_kernel<T, 5, 1>();
  if (n == 6 && R == 1) return flat_kernel<T, 6, 1>();
  return {nullptr, 0, nullptr};
}

template <class T, int n>
constexpr void (*find_shared(Index R))(const SweepTask<T>&) {
  constexpr int width = kWidth<T>;
  if constexpr (width >= 4)
    if (R == 2) return shared<T, n, 2>;
  if constexpr (width >= 8)
    if (R > 2 && R <= 4) return shared<T, n, 4>;
  if constexpr (width >= 16)
    if (R > 4 && R <= 8) return shared<T, n, 8>;
  return nullptr;
}

template <class T>
constexpr auto find_plain(Index L, Index n, Index R) -> void (*)(const SweepTask<T>&) {
  void (*found)(const SweepTask<T>&) = nullptr;
  if (L > 1) {
    if (n == 2) found = find_shared<T, 2>(R);
    if (n == 3) found = find_shared<T, 3>(R);
    if (n == 4) found = find_shared<T, 4>(R);
  }
  if (found) return found;
  if (kWidth<T> > 1 && R == 1 && n > 4) return rows<T>;
  if (n == 1) return panels<T, 1>;
  if (n == 2) return panels<T, 2>;
  if (n == 3) return panels<T, 3>;
  if (n == 4) return panels<T, 4>;
  return panels<T, 0>;
}

template <class T>
SweepKernel<T> find(Index L, Index n, Index R, bool plain) {
  if constexpr (kWidth<T> > 1) {
    const SweepKernel<T> kernel = find_flat<T>(n, R);
    if (kernel.add_edges && !plain) return kernel;
  }
  return {find_plain<T>(L, n, R), n * n, lay_out_plain<T>};
}

}  // namespace sweeps
}  // namespace BATCHKRON_ISA
}  // namespace batchkron
