// Products whose blocks of n^d elements, n a power of two, stay in registers through all of their
// factors (contract: BlockTask and "Tensors" in simd/batch/table.hpp). Along a mode with neighbours
// R apart, lane i gets for each j < n the term of lane i xor (j R), by a shuffle and a
// multiply-add.
#pragma once

#include "simd/batch/table.hpp"
#include "simd/common/repeated.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {
namespace tensors {

using lanes::kLanes;
using lanes::load;
using lanes::Pack;
using lanes::repeated;
using lanes::store;
using lanes::UpTo;

// A block in vectors. If it is a single vector, the terms j of the first mode, which is multiplied
// last, are summed apart, in n sums; their lanes are exchanged once, after the last product.
template <class T, int n, int d>
struct Block {
  static constexpr int size = power(n, d);
  static constexpr int width = size < kLanes<T> ? size : kLanes<T>;
  static constexpr int vectors = size / width;
  static constexpr int sums = vectors == 1 ? n : vectors;
  typedef Pack<T, width> V;
};

template <int distance, class V, int... i>
inline V exchange(V v, Indices<i...>) {
  return __builtin_shufflevector(v, v, (i ^ distance)...);
}

// Adds the terms j, j + 1, ... of a mode whose neighbours lie R < width elements apart: lane i of y
// gets its factor j times lane i xor (j R) of x.
template <class T, int n, int R, int width, int vectors, int j = 0>
inline void add_exchanged(const T* f, const Pack<T, width> (&x)[vectors],
                          Pack<T, width> (&y)[vectors]) {
  if constexpr (j < n) {
    using V = Pack<T, width>;
    const V factor = repeated<T, n * R, width>(f + j * n * R);
    BATCHKRON_UNROLL
    for (int v = 0; v < vectors; ++v) {
      const V in = exchange<j * R>(x[v], UpTo<width>{});
      y[v] = j == 0 ? V(in * factor) : V(y[v] + in * factor);
    }
    add_exchanged<T, n, R, width, vectors, j + 1>(f, x, y);
  }
}

// sum += the multiply of x along a mode whose neighbours are `step` vectors apart, or = if
// `starts`.
template <class T, int n, int step, bool starts, int width, int vectors>
inline void add_vectors(const T* f, const Pack<T, width> (&x)[vectors],
                        Pack<T, width> (&sum)[vectors]) {
  using V = Pack<T, width>;
  BATCHKRON_UNROLL
  for (int j = 0; j < n; ++j)
    BATCHKRON_UNROLL
    for (int v = 0; v < vectors; ++v) {
      const V in = x[v ^ (j * step)];
      const T factor = f[j * n + v / step % n];
      sum[v] = starts && j == 0 ? V(in * factor) : V(sum[v] + in * factor);
    }
}

// Multiplies x along the active ones of modes `mode`, mode - 1, ..., 1, in place.
template <class T, int n, int d, int mode>
inline void multiply_modes(const BlockTask<T>& task, const std::int32_t* ids,
                           typename Block<T, n, d>::V (&x)[Block<T, n, d>::vectors]) {
  if constexpr (mode > 0) {
    constexpr int R = power(n, d - 1 - mode), width = Block<T, n, d>::width;
    constexpr int vectors = Block<T, n, d>::vectors;
    if (task.active[mode]) {
      const T* f = task.pools[mode] + Index(ids[mode]) * (n * n * (R < width ? R : 1));
      typename Block<T, n, d>::V y[vectors];
      if constexpr (R < width)
        add_exchanged<T, n, R, width, vectors>(f, x, y);
      else
        add_vectors<T, n, R / width, true, width, vectors>(f, x, y);
      BATCHKRON_UNROLL
      for (int v = 0; v < vectors; ++v) x[v] = y[v];
    }
    multiply_modes<T, n, d, mode - 1>(task, ids, x);
  }
}

// The sum of all parts, after their lanes were exchanged.
template <class T, int n, int R, int width, int j = 1>
inline Pack<T, width> joined_parts(const Pack<T, width> (&sum)[n]) {
  if constexpr (j == n)
    return sum[0];
  else
    return joined_parts<T, n, R, width, j + 1>(sum) +
           exchange<j * R>(sum[j], UpTo<width>{});
}

template <class T, int width>
inline void write(const BlockTask<T>& task, T* y, Pack<T, width> sum) {
  using V = Pack<T, width>;
  sum *= task.alpha;
  store(y, task.accumulate ? V(load<V>(y) + sum) : sum);
}

template <class T, int n, int d>
void add_products(const BlockTask<T>& task) {
  using B = Block<T, n, d>;
  using V = typename B::V;
  constexpr int width = B::width, vectors = B::vectors, R = B::size / n;
  V sum[B::sums];
  BATCHKRON_UNROLL
  for (int v = 0; v < B::sums; ++v) sum[v] = V{};
  const std::int32_t* ids = task.ids;
  for (Index i = 0; i < task.count; ++i, ids += d) {
    const T* block = task.x + Index(task.inputs[i]) * B::size;
    const T weight = task.weights[i * task.weight_step];
    V x[vectors];
    BATCHKRON_UNROLL
    for (int v = 0; v < vectors; ++v) x[v] = load<V>(block + v * width) * weight;
    multiply_modes<T, n, d, d - 1>(task, ids, x);
    if (!task.active[0]) {
      BATCHKRON_UNROLL
      for (int v = 0; v < vectors; ++v) sum[v] += x[v];
    } else if constexpr (vectors == 1) {
      const T* f = task.pools[0] + Index(ids[0]) * (n * B::size);
      BATCHKRON_UNROLL
      for (int j = 0; j < n; ++j) sum[j] += x[0] * load<V>(f + j * width);
    } else {
      const T* f = task.pools[0] + Index(ids[0]) * (n * n);
      add_vectors<T, n, R / width, false, width, vectors>(f, x, sum);
    }
  }
  if constexpr (vectors == 1)
    write<T, width>(task, task.y, joined_parts<T, n, R, width>(sum));
  else
    for (int v = 0; v < vectors; ++v) write<T, width>(task, task.y + v * width, sum[v]);
}

// Whether the vector's width is a power of n: then every mode's neighbours are all in one vector or
// all in different ones.
template <class T, int n, int d>
constexpr bool divides_modes() {
  int group = 1;
  while (group < Block<T, n, d>::width) group *= n;
  return group == Block<T, n, d>::width;
}

// The kernel, or null if the sums and a product do not fit in the registers or modes straddle
// vectors.
template <class T, int n, int d>
constexpr auto kernel() -> void (*)(const BlockTask<T>&) {
  constexpr int limit = BATCHKRON_VECTOR_BYTES == 64 ? 8 : 4;
  if constexpr (Block<T, n, d>::vectors <= limit && divides_modes<T, n, d>())
    return add_products<T, n, d>;
  else
    return nullptr;
}

}  // namespace tensors
}  // namespace BATCHKRON_ISA
}  // namespace batchkron
