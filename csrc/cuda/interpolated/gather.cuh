// Interpolation at points, for some vectors at once:
//   points[p, r] = alpha sum over windows of w_1[p, i_1] ... w_N[p, i_N] grid[corner_p + i, r],
//   or  +=  with `accumulate`.
// Some lanes of a warp compute a point. They read the window row by row, a row being its four cells
// of the last mode with their vectors, side by side in memory if cell_step is `vectors`. Each lane
// contracts one element of a row, mode by mode from the last but one to the first: that takes
// (4^N + 4^(N-1) + ... + 4) multiply-adds for each vector. If a row is shorter than the lanes, these
// share the cells of the last mode but one. The sums of lanes are added in a tree, so that results
// have the same bits in each run. In two and three modes, where a warp's lanes have whole rows, it
// keeps a window in registers and takes points one behind another, which often share it.
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
  // Whether a warp keeps a window in registers, for the points behind that have the same one.
  static constexpr bool keeps = shares == 1 && (modes == 2 || modes == 3);
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
    UNROLLED for (int q = 0; q < Cut::parts; ++q) sum.values[q] = cells[q * apart];
  } else {
    constexpr int shares = k == modes - 2 ? Cut::shares : 1;
    const int begin = shares > 1 ? threadIdx.x % Cut::lanes / Cut::row : 0;
    UNROLLED_BY(Cut::unrolled(k)) for (int n = 0; n < kWindow / shares; ++n) {
      const int i = begin + n * shares;
      const T* there = cells + i * a.steps[k];
      const auto inner = contracted<T, modes, vectors, k + 1>(a, weights, there, apart);
      UNROLLED for (int q = 0; q < Cut::parts; ++q)
        sum.values[q] = multiply_add(sum.values[q], weights[k * kWindow + i], inner.values[q]);
    }
  }
  return sum;
}

// One lane's elements of a window, row by row, and the sum over modes as in `contracted`.
template <class T, int modes, int vectors>
struct KeptWindow {
  using Cut = GatherCut<modes, vectors>;
  static constexpr int rows = 1 << 2 * (modes - 1);
  T values[rows][Cut::parts];
  Index corner = -1;

  __device__ void load(const InterpolationArguments<T, modes>& a, const T* cells, Index apart) {
    UNROLLED for (int row = 0; row < rows; ++row) {
      Index place = 0;
      UNROLLED for (int k = 0; k < modes - 1; ++k)
        place += (row >> 2 * (modes - 2 - k) & (kWindow - 1)) * a.steps[k];
      UNROLLED for (int q = 0; q < Cut::parts; ++q) values[row][q] = cells[place + q * apart];
    }
  }

  template <int k, int row>
  __device__ RowPart<T, Cut::parts> contracted(const T* weights) const {
    RowPart<T, Cut::parts> sum{};
    if constexpr (k == modes - 1) {
      UNROLLED for (int q = 0; q < Cut::parts; ++q) sum.values[q] = values[row][q];
    } else {
      add_row<k, row * kWindow>(weights, sum);
      add_row<k, row * kWindow + 1>(weights, sum);
      add_row<k, row * kWindow + 2>(weights, sum);
      add_row<k, row * kWindow + 3>(weights, sum);
    }
    return sum;
  }

  template <int k, int row>
  __device__ void add_row(const T* weights, RowPart<T, Cut::parts>& sum) const {
    const auto inner = contracted<k + 1, row>(weights);
    UNROLLED for (int q = 0; q < Cut::parts; ++q)
      sum.values[q] =
          multiply_add(sum.values[q], weights[k * kWindow + row % kWindow], inner.values[q]);
  }
};

template <class T, int modes, int vectors, int threads>
__global__ void __launch_bounds__(threads) interpolate_gather(InterpolationArguments<T, modes> a) {
  wait_for_earlier_kernels();
  using Cut = GatherCut<modes, vectors>;
  constexpr int points = 32 / Cut::lanes;  // of a warp
  const int lane = threadIdx.x % Cut::lanes, element = lane % Cut::row;
  const Index warps = Index(gridDim.x) * (threads / 32);
  // All points of a warp that keeps windows are one behind another.
  const Index turns = (a.count + points * warps - 1) / (points * warps);
  const Index first_warp = Index(blockIdx.x) * (threads / 32) + threadIdx.x / 32;
  const Index next = Cut::keeps ? 1 : warps;
  Index warp = Cut::keeps ? first_warp * turns : first_warp;
  const Index end = Cut::keeps ? warp + turns : turns * warps;
  KeptWindow<T, Cut::keeps ? modes : 1, Cut::keeps ? vectors : 1> window;
  for (; warp < end && warp * points < a.count; warp += next) {
    const Index p = warp * points + threadIdx.x % 32 / Cut::lanes;
    T sum = 0;
    if (p < a.count) {
      const T* weights = a.weights + p * modes * kWindow;
      const int cell = element / vectors;
      const Index corner = a.corners[p];
      const T* first = a.grid + (corner + cell) * a.cell_step + element % vectors;
      const Index apart = Cut::lanes / vectors * a.cell_step;
      RowPart<T, Cut::parts> row;
      if constexpr (Cut::keeps) {
        if (corner != window.corner) window.load(a, first, apart);
        window.corner = corner;
        row = window.template contracted<0, 0>(weights);
      } else {
        row = contracted<T, modes, vectors, 0>(a, weights, first, apart);
      }
      UNROLLED for (int q = 0; q < Cut::parts; ++q)
        sum = multiply_add(sum, weights[(modes - 1) * kWindow + cell + q * (Cut::lanes / vectors)],
                           row.values[q]);
    }
    UNROLLED for (int distance = vectors; distance < Cut::lanes; distance *= 2)
      sum = add(sum, __shfl_xor_sync(0xffffffffu, sum, distance));
    if (p < a.count && lane < vectors) {
      T* value = a.points + a.places[p] * a.point_step + a.vectors[lane];
      *value = a.accumulate ? multiply_add(*value, a.alpha, sum) : multiply(a.alpha, sum);
    }
  }
}

}  // namespace batchkron
