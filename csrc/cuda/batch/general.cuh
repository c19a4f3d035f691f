// batched_kron: y[outputs[b]] += alpha weights[b] (A_1b (x) ... (x) A_db) x[inputs[b]] for all
// products b of a batch list; any sizes, dtypes and numbers of vectors.
#pragma once

#include "cuda/common/launch_order.cuh"
#include "cuda/common/mode_multiply.cuh"
#include "cuda/common/thread_group.cuh"

namespace batchkron {

// x is (outer, num_inputs, input_size, inner), y is (outer, num_outputs, output_size, inner),
// contiguous, aligned to an element, without overlap. Entry e of outer has the matrices and weights
// of system e mod systems. ids is (products, steps), -1 for an identity; weights is (systems or 1,
// products), or null if all are 1. owner: products are sorted by output, those of output o are
// starts[o] ... starts[o + 1] - 1; y is added to if `accumulate`, and otherwise overwritten and
// never read. Else (atomic): y is added to.
template <class T, class Steps>
struct BatchArguments {
  const T* x;
  T* y;
  T* workspace;  // the buffers of all thread blocks, if they do not fit in shared memory
  const int* ids;
  const Index* inputs;
  const Index* outputs;
  const Index* starts;
  const T* weights;
  Steps steps;
  Index products, outer, inner, num_inputs, num_outputs, input_size, output_size;
  Index systems, weight_system;
  Index staged;  // elements of shared memory for factors, before the buffers
  Index buffer;  // elements of one buffer
  Index group;    // elements of shared memory of one thread group
  Index accumulate;
  T alpha;
};

// A thread group computes a product for `width` of the inner vectors at a time, between two buffers
// of (block, width). owner: a thread group computes an output, whose products it sums in the list's
// order in a third buffer: the same bits from run to run. Else a thread group computes a product
// and adds it to y atomically, in any order.
template <class T, class Steps, int width, int threads, bool owner, bool is_staged, bool in_shared>
__global__ void __launch_bounds__(ThreadGroup<threads>::block)
    batched_kron(const BatchArguments<T, Steps> a) {
  wait_for_earlier_kernels();
  using Size = typename Choice<in_shared, int, Index>::Type;
  extern __shared__ __align__(16) unsigned char shared_memory[];
  const ThreadGroup<threads> group;
  T* const staged = reinterpret_cast<T*>(shared_memory) + group.index() * a.group;
  const Index block = blockIdx.x + Index(gridDim.x) * blockIdx.y;
  constexpr int count = owner ? 3 : 2;
  T* const buffers = in_shared ? staged + a.staged : a.workspace + block * count * a.buffer;
  T* const sum = buffers + 2 * a.buffer;

  // Each thread loads and stores one column w, and always the same rows m, of its group's buffers.
  const int w = group.rank() % width, first_row = group.rank() / width, rows = group.size / width;
  const Index tiles = (a.inner + width - 1) / width;
  const Index units = owner ? a.num_outputs : a.products;
  for (Index slab = blockIdx.y; slab < a.outer * tiles; slab += gridDim.y) {
    const Index e = slab / tiles, column = slab % tiles * width + w, system = e % a.systems;
    const bool inside = column < a.inner;
    for (Index unit = Index(blockIdx.x) * group.count + group.index(); unit < units;
         unit += Index(gridDim.x) * group.count) {
      const Index begin = owner ? a.starts[unit] : unit;
      const Index end = owner ? a.starts[unit + 1] : unit + 1;
      const Index output = owner ? unit : a.outputs[unit];
      T* const target = a.y + (e * a.num_outputs + output) * a.output_size * a.inner + column;
      for (Index b = begin; b < end; ++b) {
        const int* const ids = a.ids + b * a.steps.count;
        const T* const source =
            a.x + (e * a.num_inputs + a.inputs[b]) * a.input_size * a.inner + column;
        group.sync();  // the buffers are free again
        if constexpr (is_staged)
          stage_factors<Size>(a.steps, ids, system, staged, group.rank(), group.size);
        for (Size m = first_row; m < a.input_size; m += rows)
          buffers[m * width + w] = inside ? source[m * a.inner] : T{};
        group.sync();
        const T* const result = run_steps<is_staged, Size>(
            a.steps, ids, system, staged, Size(width), buffers, buffers + a.buffer, group);
        const T weight =
            a.weights ? multiply(a.alpha, a.weights[system * a.weight_system + b]) : a.alpha;
        for (Size m = first_row; m < a.output_size; m += rows) {
          const Size i = m * width + w;
          const T previous = owner && b > begin ? sum[i] : T{};
          const T value = multiply_add(previous, weight, result[i]);
          if (owner) sum[i] = value;
          else if (inside) atomic_add(target + m * a.inner, value);
        }
      }
      if (owner && inside)
        for (Size m = first_row; m < a.output_size; m += rows) {
          const T value = end > begin ? sum[m * width + w] : T{};
          T* const element = target + m * a.inner;
          *element = a.accumulate ? multiply_add(*element, T{1}, value) : value;
        }
    }
  }
}

}  // namespace batchkron
