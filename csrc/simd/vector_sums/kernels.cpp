// Linear combinations of long vectors for one instruction set (contract:
// simd/vector_sums/table.hpp).
#include <cstdint>

#include "simd/common/first_lanes.hpp"
#include "simd/vector_sums/table.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {
namespace {

using lanes::kLanes;
using lanes::load;
using lanes::load_first;
using lanes::store;
using lanes::store_first;
using lanes::Wide;

// std::min, which is not used here, as functions of the library are not (csrc/README.md).
constexpr const Index& smaller(const Index& a, const Index& b) {
  if (b < a) return b;
  return a;
}

// Elements i ... i + count - 1, at most a vector of them.
template <class T>
void add_few(const VectorSum<T>& task, Index i, Index count) {
  using V = Wide<T>;
  V sum = load_first<T, kLanes<T>>(task.vectors[0] + i, int(count)) * task.factors[0];
  for (Index k = 1; k < task.count; ++k)
    sum = fused_vector(load_first<T, kLanes<T>>(task.vectors[k] + i, int(count)),
                       splat<V>(task.factors[k]), sum);
  store_first<T, kLanes<T>>(task.y + i, sum, int(count));
}

template <class T>
void add_vectors(const VectorSum<T>& task) {
  using V = Wide<T>;
  constexpr Index width = kLanes<T>, vectors = 4;
  Index i = task.begin;
  // First come the elements before an aligned vector of y. The vectors of all arrays are aligned
  // then, as large arrays mostly have the same offset from a cache line.
  const Index beyond = Index(reinterpret_cast<std::uintptr_t>(task.y + i) / sizeof(T)) % width;
  if (beyond > 0 && task.end - i > width) {
    add_few(task, i, width - beyond);
    i += width - beyond;
  }
  for (; i + vectors * width <= task.end; i += vectors * width) {
    V sum[vectors];
    BATCHKRON_UNROLL
    for (int v = 0; v < vectors; ++v)
      sum[v] = load<V>(task.vectors[0] + i + v * width) * task.factors[0];
    for (Index k = 1; k < task.count; ++k) {
      const V factor = splat<V>(task.factors[k]);
      BATCHKRON_UNROLL
      for (int v = 0; v < vectors; ++v)
        sum[v] = fused_vector(load<V>(task.vectors[k] + i + v * width), factor, sum[v]);
    }
    BATCHKRON_UNROLL
    for (int v = 0; v < vectors; ++v) store(task.y + i + v * width, sum[v]);
  }
  for (; i < task.end; i += width) add_few(task, i, smaller(width, task.end - i));
}

}  // namespace

extern const VectorSumTable vector_sum_table = {add_vectors<float>, add_vectors<double>};

}  // namespace BATCHKRON_ISA
}  // namespace batchkron
