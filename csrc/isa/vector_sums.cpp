// Sums of long vectors for one instruction set; compiled like kernels.cpp.
#include "engine/first_lanes.hpp"
#include "engine/vector_sum_table.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {
namespace {

using lanes::kLanes;
using lanes::load;
using lanes::load_first;
using lanes::store;
using lanes::store_first;
using lanes::Wide;

template <class T>
void add_vectors(const VectorSum<T>& task) {
  using V = Wide<T>;
  constexpr Index width = kLanes<T>, vectors = 4;
  Index i = task.begin;
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
  for (; i < task.end; i += width) {
    const int rest = int(task.end - i < width ? task.end - i : width);
    V sum = load_first<T, width>(task.vectors[0] + i, rest) * task.factors[0];
    for (Index k = 1; k < task.count; ++k)
      sum = fused_vector(load_first<T, width>(task.vectors[k] + i, rest),
                         splat<V>(task.factors[k]), sum);
    store_first<T, width>(task.y + i, sum, rest);
  }
}

}  // namespace

extern const VectorSumTable vector_sum_table = {add_vectors<float>, add_vectors<double>};

}  // namespace BATCHKRON_ISA
}  // namespace batchkron
