// What the kernels of sweeps share: a node with its edges, and arithmetic on vectors.
#pragma once

#include "engine/first_lanes.hpp"
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

}  // namespace sweeps
}  // namespace BATCHKRON_ISA
}  // namespace batchkron
