// The transpose of interpolation, for some vectors at once:
//   grid[c, r] = sum over points p whose windows have the cell c of
//                w_1[p, c_1 - corner_1] ... w_N[p, c_N - corner_N] points[p, r].
// Each cell has an owner, which alone writes it: no addition is atomic. An owner is a thread, or
// `share` neighbouring lanes, with `cells` neighbouring cells of the last mode and `held` vectors. It
// visits the bins whose windows meet its cells, the first mode slowest, and the points of each in
// their order, lane s of an owner every share-th one from the s-th on. The sums of lanes are added in
// a tree. So results have the same bits in each run.
//
// Each point is visited for 4^(N-1) (cells + 3) / cells times as many cells as it has windows'
// rows; a visit takes N - 1 products of weights, and at most `cells` multiply-adds for each vector.
// Arrays need the alignment of an element; points and grid may not overlap. The grid is not read;
// cells without points become zero. Cells beyond the end of the last mode are left out.
#pragma once

#include "cuda/common/launch_order.cuh"
#include "cuda/interpolated/windows.cuh"

namespace batchkron {

template <class T, int modes, int vectors, int held, int cells, int share, int threads>
__global__ void __launch_bounds__(threads) interpolate_scatter(InterpolationArguments<T, modes> a) {
  wait_for_earlier_kernels();
  static_assert(vectors % held == 0 && 32 % share == 0, "");
  constexpr int last = modes - 1, parts = vectors / held;
  constexpr Index rows_of_window = Index(1) << 2 * last;
  const Index corners = a.sizes[last] - kWindow + 1;  // of the last mode
  const Index runs = (a.sizes[last] + cells - 1) / cells;
  Index owners = runs * parts;
  UNROLLED for (int k = 0; k < last; ++k) owners *= a.sizes[k];

  const Index step = Index(gridDim.x) * (threads / share);
  const Index begin = (Index(blockIdx.x) * threads + threadIdx.x / 32 * 32) / share;
  for (Index warp = begin; warp < owners; warp += step) {  // all lanes of a warp stay together
    const Index owner = warp + threadIdx.x % 32 / share;
    const Index run = owner / parts, row = run / runs;
    const Index first = run % runs * cells;
    const int vector = int(owner % parts) * held;
    T sum[cells][held] = {};
    Index at[modes];  // of the cells, in the modes before the last
    Index rest = row;
    UNROLLED for (int k = last - 1; k >= 0; --k) {
      at[k] = rest % a.sizes[k];
      rest /= a.sizes[k];
    }
    for (Index m = 0; m < rows_of_window && owner < owners; ++m) {
      bool inside = true;
      Index bin = 0;
      int digits[modes];  // where the cells are in the windows of this row
      UNROLLED for (int k = 0; k < last; ++k) {
        digits[k] = int(m >> 2 * (last - 1 - k)) % kWindow;
        const Index corner = at[k] - digits[k];
        inside = inside && corner >= 0 && corner <= a.sizes[k] - kWindow;
        bin = bin * (a.sizes[k] - kWindow + 1) + corner;
      }
      if (!inside) continue;
      const int* starts = a.starts + bin * corners;
      const Index low = first < kWindow ? 0 : first - kWindow + 1;
      const Index high = first + cells < corners ? first + cells : corners;
      if (starts[low] == starts[high]) continue;
      UNROLLED for (int d = 1 - kWindow; d < cells; ++d) {  // windows that begin at first + d
        const Index corner = first + d;
        if (corner < 0 || corner >= corners) continue;
        const int end = starts[corner + 1];
        for (int p = starts[corner] + int(threadIdx.x % share); p < end; p += share) {
          const T* weights = a.weights + Index(p) * modes * kWindow;
          const T* value = a.points + a.places[p] * a.point_step;
          T factor = 1;
          UNROLLED for (int k = 0; k < last; ++k)
            factor = multiply(factor, weights[k * kWindow + digits[k]]);
          UNROLLED for (int r = 0; r < held; ++r) {
            const T scaled = multiply(factor, value[a.vectors[vector + r]]);
            UNROLLED for (int c = 0; c < cells; ++c)
              if (c - d >= 0 && c - d < kWindow)
                sum[c][r] = multiply_add(sum[c][r], weights[last * kWindow + c - d], scaled);
          }
        }
      }
    }
    UNROLLED for (int c = 0; c < cells; ++c) {
      UNROLLED for (int r = 0; r < held; ++r) {
        T total = sum[c][r];
        UNROLLED for (int distance = 1; distance < share; distance *= 2)
          total = add(total, __shfl_xor_sync(0xffffffffu, total, distance));
        const bool writes = owner < owners && threadIdx.x % share == 0;
        if (writes && first + c < a.sizes[last])
          a.grid[(row * a.sizes[last] + first + c) * a.cell_step + vector + r] = total;
      }
    }
  }
}

}  // namespace batchkron
