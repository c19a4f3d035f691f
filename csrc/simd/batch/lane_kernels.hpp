// Products of a batch list, one in each vector lane (contract: LaneTask in simd/batch/table.hpp).
#pragma once

#include "simd/batch/lane_multiply.hpp"
#include "simd/batch/table.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {
namespace lanes {

// The weights of the products from `first` on; 0 in lanes without a product.
template <class T>
inline Wide<T> weights_of(const LaneTask<T>& task, Index first) {
  if (first + kLanes<T> <= task.count)
    return task.weight_step ? load<Wide<T>>(task.weights + first) : splat<Wide<T>>(task.weights[0]);
  T weights[kLanes<T>];
  for (int lane = 0; lane < kLanes<T>; ++lane)
    weights[lane] =
        first + lane < task.count ? task.weights[(first + lane) * task.weight_step] : T{};
  return load<Wide<T>>(weights);
}

template <class T>
inline void scale(T* values, Index size, Wide<T> factor) {
  for (Index i = 0; i < size; ++i) {
    T* value = values + i * kLanes<T>;
    store(value, Wide<T>(load<Wide<T>>(value) * factor));
  }
}

// Transposes the matrices of one step into lanes; n is their size if all are n x n, else 0.
template <class T, int n>
inline void read_matrices(const LaneTask<T>& task, Index first, const Step& step) {
  const T* rows[kLanes<T>];
  const Index size = n ? n * n : step.C * step.K;
  const std::int32_t* ids = task.ids + first * task.modes + step.mode;
  const T* pool = task.pools[step.mode];
  const Index present = task.count - first;
  for (int lane = 0; lane < kLanes<T>; ++lane, ids += task.modes)
    rows[lane] = lane < present ? pool + *ids * size : task.zeros;
  interleave(rows, size, task.matrix);
}

template <class T>
inline void read_inputs(const LaneTask<T>& task, Index first) {
  const T* rows[kLanes<T>];
  const std::int32_t* inputs = task.inputs + first;
  const Index present = task.count - first;
  for (int lane = 0; lane < kLanes<T>; ++lane)
    rows[lane] = lane < present ? task.x + inputs[lane] * task.input_size : task.zeros;
  interleave(rows, task.input_size, task.tiles);
}

template <class T, int n, bool accumulates>
inline void multiply_step(const Step& step, const T* f, bool by_row, const T* x, T* y) {
  if constexpr (n > 0)
    multiply_fixed<T, n, accumulates>(step.L, step.R, f, by_row, x, y);
  else
    multiply_any<T, accumulates>(step.L, step.C, step.K, step.R, f, by_row, x, y);
}

// Adds the products first ... first + lanes - 1 to the sums.
template <class T, int n>
inline void add_group(const LaneTask<T>& task, Index first) {
  T* source = task.tiles;
  T* target = task.tiles + task.tile;
  read_inputs(task, first);
  for (int s = 0; s + 1 < task.num_steps; ++s) {
    read_matrices<T, n>(task, first, task.steps[s]);
    multiply_step<T, n, false>(task.steps[s], task.matrix, task.by_row, source, target);
    T* swapped = source;
    source = target;
    target = swapped;
  }
  const Step& last = task.steps[task.num_steps - 1];
  read_matrices<T, n>(task, first, last);
  scale(task.matrix, n ? n * n : last.C * last.K, weights_of(task, first));
  multiply_step<T, n, true>(last, task.matrix, task.by_row, source, task.sums);
}

template <class T, int n>
void add_all(const LaneTask<T>& task) {
  for (Index first = 0; first < task.count; first += kLanes<T>) add_group<T, n>(task, first);
}

template <class T>
void add_products(const LaneTask<T>& task) {
  bool square = true;
  const Index n = task.steps[0].C;
  for (int s = 0; s < task.num_steps; ++s)
    square = square && task.steps[s].C == n && task.steps[s].K == n;
  if (square && n == 2) return add_all<T, 2>(task);
  if (square && n == 3) return add_all<T, 3>(task);
  if (square && n == 4) return add_all<T, 4>(task);
  add_all<T, 0>(task);
}

template <class T>
void add_lanes(const LaneSum<T>& task) {
  constexpr int part = kPart<T>;
  using V = Pack<T, part>;
  for (Index i = 0; i < task.size; i += part) {
    T sum[part];
    store(sum, V(lane_sums(task.sums + i * kLanes<T>) * task.alpha));
    for (int j = 0; j < part && i + j < task.size; ++j)
      task.y[i + j] = task.accumulate ? task.y[i + j] + sum[j] : sum[j];
  }
}

}  // namespace lanes
}  // namespace BATCHKRON_ISA
}  // namespace batchkron
