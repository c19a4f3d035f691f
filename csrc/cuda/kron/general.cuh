// kron_group: multiplies by one factor or several neighbouring ones of any size and dtype in one
// pass over memory, a tile of x after another, between two buffers. A product by all factors is a
// chain of such passes.
#pragma once

#include "cuda/common/launch_order.cuh"
#include "cuda/common/mode_multiply.cuh"
#include "cuda/common/thread_group.cuh"

namespace batchkron {

// y = alpha (A_g (x) ... (x) A_h) x + beta previous, as in cuda/kron/arguments.cuh: x is (L,
// input_size, R) and y is (L, output_size, R), contiguous, aligned to an element, without overlap.
// previous is null (y is never read then) or laid out like y, and may be y itself. `columns` is L *
// R.
template <class T, class Steps>
struct GroupArguments {
  const T* x;
  T* y;
  const T* previous;
  T* workspace;  // two buffers for each thread block, if they do not fit in shared memory
  Steps steps;
  Index columns, R, input_size, output_size;
  Index staged;  // elements of shared memory for factors, before the buffers
  Index buffer;  // elements of one buffer
  T alpha, beta;
};

// Calls visit(place in the tile, offset in the array) for the elements of tile number `tile` of an
// array (L, size, R). A tile has `size` rows and up to `width` columns; a column is a pair (l, r).
// row_length 0, for long R: each thread keeps to one column, and columns beyond the edge of the
// array are visited with offset -1. row_length = R < width: the tile is some whole (size, R)
// blocks, which are one piece of memory and visited in its order; a row of the tile has one element
// of padding against bank conflicts.
template <class Size, int width, int row_length, class Visit>
__device__ void visit_tile(Index tile, Index columns, Index R, Size size, Visit visit) {
  if constexpr (row_length == 0) {
    const Size w = threadIdx.x % width;
    const Index column = tile * width + w;
    const Index first = column / R * size * R + column % R;
    for (Size m = threadIdx.x / width; m < size; m += blockDim.x / width)
      visit(m * width + w, column < columns ? first + m * R : -1);
  } else {
    constexpr int slices = width / row_length;
    const Index first = tile * slices, left = columns / row_length - first;
    const Size slice = size * row_length;
    const Size elements = (left < slices ? Size(left) : slices) * slice;
    for (Size i = threadIdx.x; i < elements; i += blockDim.x) {
      const Size l = i / slice, m = i % slice / row_length, r = i % row_length;
      visit(m * (width + 1) + l * row_length + r, first * slice + i);
    }
  }
}

// Ids for run_steps: no factor is an identity.
struct EveryFactor {
  __device__ int operator[](int) const { return 0; }
};

// A thread block takes tiles in turn: reads one to a buffer, multiplies it mode by mode between two
// buffers, and writes it. The buffers are in shared memory (in_shared) or in `workspace`, and so
// the factors are staged in shared memory (is_staged) or read from global memory.
template <class T, class Steps, Index input_size, Index output_size, int width, int row_length,
          int threads, bool is_staged, bool in_shared>
__global__ void __launch_bounds__(threads) kron_group(const GroupArguments<T, Steps> a) {
  wait_for_earlier_kernels();
  using Size = typename Choice<in_shared, int, Index>::Type;
  extern __shared__ __align__(16) unsigned char shared_memory[];
  const ThreadGroup<threads> group;
  const EveryFactor ids;
  constexpr int stride = row_length ? width + 1 : width;
  constexpr int tile_columns = row_length ? width - width % (row_length ? row_length : 1) : width;
  T* const staged = reinterpret_cast<T*>(shared_memory);
  T* const from = in_shared ? staged + a.staged : a.workspace + blockIdx.x * 2 * a.buffer;

  if constexpr (is_staged)
    stage_factors<Size>(a.steps, ids, 0, staged, group.rank(), group.size);
  const Index tiles = (a.columns + tile_columns - 1) / tile_columns;
  for (Index tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    visit_tile<Size, width, row_length>(
        tile, a.columns, a.R, Size(input_size),
        [&](Size place, Index offset) { from[place] = offset < 0 ? T{} : a.x[offset]; });
    group.sync();
    const T* const result = run_steps<is_staged, Size>(a.steps, ids, 0, staged, Size(stride), from,
                                                       from + a.buffer, group);
    visit_tile<Size, width, row_length>(
        tile, a.columns, a.R, Size(output_size), [&](Size place, Index offset) {
          if (offset < 0) return;
          const T value = multiply(a.alpha, result[place]);
          a.y[offset] = a.previous ? multiply_add(value, a.beta, a.previous[offset]) : value;
        });
    group.sync();  // the buffers are free again
  }
}

}  // namespace batchkron
