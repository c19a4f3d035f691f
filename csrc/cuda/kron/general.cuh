// y = alpha (A_g x ... x A_h) x + beta previous: one factor or several neighbouring ones applied in
// one pass over memory. A Kron-Matmul is a chain of such passes.
#pragma once

#include "cuda/common/launch_order.cuh"
#include "cuda/common/mode_multiply.cuh"
#include "cuda/common/team.cuh"

namespace batchkron {

// x is (L, input_size, R) and y is (L, output_size, R), contiguous: what lies outside of the
// group's modes and inside of them. `columns` is L * R. previous is null or laid out like y, and
// may be y itself; x may not overlap y.
template <class T, class Steps>
struct GroupArguments {
  const T* x;
  T* y;
  const T* previous;
  T* workspace;  // of buffers that do not fit in shared memory, for each thread block
  Steps steps;
  Index columns, R, input_size, output_size;
  Index staged;  // elements of shared memory for factors, before the buffers
  Index buffer;  // elements of one buffer
  T alpha, beta;
};

// The elements of a tile of `size` rows and up to `width` columns: visit(place in the tile, offset
// in an array (L, size, R)).
//
// Columns that are long in memory (row_length 0): a thread keeps to one column, and columns beyond
// the edge are visited with offset -1. R = row_length < width: the tile is whole slices of L, one
// stretch of memory, visited in its order; a row of the tile is padded by one against bank
// conflicts.
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

struct EveryFactor {
  __device__ int operator[](int) const { return 0; }
};

// One thread block evaluates tiles of (block, columns) in two buffers.
template <class T, class Steps, Index input_size, Index output_size, int width, int row_length,
          int threads, bool is_staged, bool in_shared>
__global__ void __launch_bounds__(threads) kron_group(const GroupArguments<T, Steps> a) {
  wait_for_earlier_kernels();
  using Size = typename Choice<in_shared, int, Index>::Type;
  extern __shared__ __align__(16) unsigned char shared_memory[];
  const Team<threads> team;
  const EveryFactor ids;
  constexpr int stride = row_length ? width + 1 : width;
  constexpr int tile_columns = row_length ? width - width % (row_length ? row_length : 1) : width;
  T* const staged = reinterpret_cast<T*>(shared_memory);
  T* const from = in_shared ? staged + a.staged : a.workspace + blockIdx.x * 2 * a.buffer;

  if constexpr (is_staged)
    stage_factors<Size>(a.steps, ids, 0, staged, team.rank(), team.size);
  const Index tiles = (a.columns + tile_columns - 1) / tile_columns;
  for (Index tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    visit_tile<Size, width, row_length>(
        tile, a.columns, a.R, Size(input_size),
        [&](Size place, Index offset) { from[place] = offset < 0 ? T{} : a.x[offset]; });
    team.sync();
    const T* const result = run_steps<is_staged, Size>(a.steps, ids, 0, staged, Size(stride), from,
                                                       from + a.buffer, team);
    visit_tile<Size, width, row_length>(
        tile, a.columns, a.R, Size(output_size), [&](Size place, Index offset) {
          if (offset < 0) return;
          const T value = multiply(a.alpha, result[place]);
          a.y[offset] = a.previous ? multiply_add(value, a.beta, a.previous[offset]) : value;
        });
    team.sync();  // the buffers are free again
  }
}

}  // namespace batchkron
