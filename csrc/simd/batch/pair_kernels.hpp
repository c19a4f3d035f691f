// Products of two n x n factors, n = 3 ... 8, with an output block whole in registers (contract:
// BlockTask and "Pairs" in simd/batch/table.hpp).
#pragma once

#include "simd/batch/table.hpp"
#include "simd/common/lanes.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {
namespace pairs {

using lanes::kLanes;
using lanes::load;
using lanes::Pack;
using lanes::store;

// Columns first ... first + width - 1 of y = sum of w A x B^T. The rows of x B^T pass one after
// another through a register, and y stays in registers over all products.
template <class T, int n, int width>
inline void add_columns(const BlockTask<T>& task, Index first) {
  using V = Pack<T, width>;
  constexpr Index stride = packed_stride<T>(n), matrix = n * stride;
  V sum[n];
  BATCHKRON_UNROLL
  for (int k = 0; k < n; ++k) sum[k] = V{};
  for (Index i = 0; i < task.count; ++i) {
    const T* x = task.x + Index(task.inputs[i]) * (n * n);
    const T* a = task.pools[0] + task.ids[2 * i] * matrix;
    const T* b = task.pools[1] + task.ids[2 * i + 1] * matrix + first;
    const T weight = task.weights[i * task.weight_step];
    V row[n];
    BATCHKRON_UNROLL
    for (int c = 0; c < n; ++c) row[c] = load<V>(b + c * stride) * weight;
    BATCHKRON_UNROLL
    for (int l = 0; l < n; ++l) {
      V t = row[0] * x[l * n];
      BATCHKRON_UNROLL
      for (int c = 1; c < n; ++c) t += row[c] * x[l * n + c];
      BATCHKRON_UNROLL
      for (int k = 0; k < n; ++k) sum[k] += t * a[l * stride + k];
    }
  }
  const int columns = n - int(first) < width ? n - int(first) : width;
  for (int k = 0; k < n; ++k) {
    T values[width];
    store(values, V(sum[k] * task.alpha));
    T* y = task.y + k * n + first;
    for (int j = 0; j < columns; ++j) y[j] = task.accumulate ? y[j] + values[j] : values[j];
  }
}

template <class T, int n>
void add_products(const BlockTask<T>& task) {
  constexpr Index stride = packed_stride<T>(n);
  constexpr int width = stride < kLanes<T> ? int(stride) : kLanes<T>;
  for (Index first = 0; first < n; first += width) add_columns<T, n, width>(task, first);
}

}  // namespace pairs
}  // namespace BATCHKRON_ISA
}  // namespace batchkron
