// Interpolation at points, for some vectors at once:
//
//   points[p, r] = alpha sum over windows of w_1[p, i_1] ... w_N[p, i_N] grid[corner_p + i, r],
//   or  +=  with `accumulate`.
//
// Some lanes of a warp compute a point. They read the window row by row, a row being its four cells
// of the last mode with their vectors, side by side in memory if cell_step is `vectors`. Each lane
// contracts one element of a row, mode by mode from the last but one to the first: that takes
// (4^N + 4^(N-1) + ... + 4) multiply-adds for each vector. If a row is shorter than the lanes, these
// share the cells of the last mode but one. The sums of lanes are added in a tree, so that results
// have the same bits in each run.
//
// Arrays need the alignment of an element. Points that are not there are left out at the end. points
// and grid may not overlap. Without `accumulate` points are not read.
#pragma once

#include "cuda/common/launch_order.cuh"
#include "cuda/interpolated/windows.cuh"

namespace batchkron {

// How lanes are given the elements of a window: lane = (share * 4 + cell) * vectors + vector, where
// a row fits in a warp; else each lane has `parts` elements of a row, one warp apart.
template <int modes, int vectors>
struct GatherCut {
  static constexpr int row = kWindow * vectors;
  static constexpr int wanted = modes > 1 ? kWindow * row : row;
  static constexpr int lanes = wanted < 32 ? wanted : 32;
  static constexpr int parts = row > lanes ? row / lanes : 1;
  static constexpr int shares = row < lanes ? lanes / row : 1;
  static constexpr int loads = kWindow / shares * parts;  // of a lane in the last mode but one
  // How often the loop over mode k is unrolled: at most 16 loads are under way, chosen by hand.
  static constexpr int unrolled(int k) {
    return k >= modes - 2 ? kWindow : k < modes - 3 ? 1 : loads < 8 ? 4 : 2;
  }
};

template <class T, int parts>
struct RowPart {
  T values[parts];
};

// The sum over the modes k, ..., modes - 2 of one lane's elements of rows, of which the first is at
// `cells`; `apart` are the elements between its parts.
template <class T, int modes, int vectors, int k>
__device__ RowPart<T, GatherCut<modes, vectors>::parts> contracted(
    const InterpolationArguments<T, modes>& a, const T* weights, const T* cells, Index apart) {
  using Cut = GatherCut<modes, vectors>;
  RowPart<T, Cut::parts> sum{};
  if constexpr (k >= modes - 1) {
#pragma unroll
    for (int q = 0; q < Cut::parts; ++q) sum.values[q] = cells[q * apart];
  } else {
    constexpr int shares = k == modes - 2 ? Cut::shares : 1;
    const int begin = shares > 1 ? threadIdx.x % Cut::lanes / Cut::row : 0;
#pragma unroll(Cut::unrolled(k))
    for (int n = 0; n < kWindow / shares; ++n) {
      const int i = begin + n * shares;
      const T* there = cells + i * a.steps[k];
      const auto inner = contracted<T, modes, vectors, k + 1>(a, weights, there, apart);
#pragma unroll
      for (int q = 0; q < Cut::parts; ++q)
        sum.values[q] = multiply_add(sum.values[q], weights[k * kWindow + i], inner.values[q]);
    }
  }
  return sum;
}

template <class T, int modes, int vectors, int threads>
__global__ void __launch_bounds__(threads) interpolate_gather(InterpolationArguments<T, modes> a) {
  wait_for_earlier_kernels();
  using Cut = GatherCut<modes, vectors>;
  constexpr int points = 32 / Cut::lanes;  // of a warp
  const int lane = threadIdx.x % Cut::lanes, element = lane % Cut::row;
  const Index warps = Index(gridDim.x) * (threads / 32);
  Index warp = Index(blockIdx.x) * (threads / 32) + threadIdx.x / 32;
  for (; warp * points < a.count; warp += warps) {
    const Index p = warp * points + threadIdx.x % 32 / Cut::lanes;
    T sum = 0;
    if (p < a.count) {
      const T* weights = a.weights + p * modes * kWindow;
      const int cell = element / vectors;
      const T* first = a.grid + (a.corners[p] + cell) * a.cell_step + element % vectors;
      const Index apart = Cut::lanes / vectors * a.cell_step;
      const auto row = contracted<T, modes, vectors, 0>(a, weights, first, apart);
#pragma unroll
      for (int q = 0; q < Cut::parts; ++q)
        sum = multiply_add(sum, weights[(modes - 1) * kWindow + cell + q * (Cut::lanes / vectors)],
                           row.values[q]);
    }
#pragma unroll
    for (int distance = vectors; distance < Cut::lanes; distance *= 2)
      sum = add(sum, __shfl_xor_sync(0xffffffffu, sum, distance));
    if (p < a.count && lane < vectors) {
      T* value = a.points + a.places[p] * a.point_step + a.vectors[lane];
      *value = a.accumulate ? multiply_add(*value, a.alpha, sum) : multiply(a.alpha, sum);
    }
  }
}

}  // namespace batchkron
