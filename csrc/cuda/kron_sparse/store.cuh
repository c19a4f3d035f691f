// kron_sparse_store: copies the values of a Kronecker-sparse matrix to where the kernels of
// products read them, in one launch.
//   stored[p, q, r, s] = values[p, q, r, s]  for s < sizes[3],  0  for sizes[3] <= s < row;
// or, with a spread d > 1 or a shift,
//   stored[p, q, r, shift p + d s + r] = values[p, q, r, s],  0  elsewhere.
// The axes are in the order in which values are stored: (a, b, c, d), or (a, d, b, c) with padded
// rows (cuda/kron_sparse/tiles.cuh), or (a, b, d, c) spread to dense matrices, or to one of them. `strides` are those
// of the values along them, in elements, 0 or more; stored is contiguous and overlaps no value. Both
// are aligned to an element, a complex one to one part. All sizes are positive.
#pragma once

#include "cuda/common/half.cuh"
#include "cuda/common/launch_order.cuh"
#include "cuda/common/scalar.cuh"

namespace batchkron {

template <class T>
struct StoreArguments {
  const T* values;
  T* stored;
  Index sizes[4], strides[4], row, spread, shift;
};

// Neighbouring threads take `lanes` neighbouring s, then neighbouring r: where values lie along r,
// as those of a transposed matrix do, a thread block uses all that it reads of a cache line.
template <class T, int lanes, int threads>
__global__ void __launch_bounds__(threads) kron_sparse_store(const StoreArguments<T> a) {
  wait_for_earlier_kernels();
  constexpr int down = threads / lanes;
  static_assert(down * lanes == threads, "whole rows of threads");
  const Index across = (a.row + lanes - 1) / lanes, tall = (a.sizes[2] + down - 1) / down;
  const Index tiles = a.sizes[0] * a.sizes[1] * tall * across;
  for (Index tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const Index rest = tile / across, matrix = rest / tall;
    const Index s = tile % across * lanes + threadIdx.x % lanes;
    const Index r = rest % tall * down + threadIdx.x / lanes;
    if (r >= a.sizes[2] || s >= a.row) continue;
    const T* const from = a.values + matrix / a.sizes[1] * a.strides[0] +
                          matrix % a.sizes[1] * a.strides[1] + r * a.strides[2];
    const Index own = s - matrix / a.sizes[1] * a.shift, column = own / a.spread;
    const bool is_value =
        own >= 0 && column < a.sizes[3] && (a.spread == 1 || own % a.spread == r);
    a.stored[(matrix * a.sizes[2] + r) * a.row + s] =
        is_value ? from[column * a.strides[3]] : T{};
  }
}

}  // namespace batchkron
