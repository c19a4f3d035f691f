// The single-mode multiply for any sizes, and chains of it between two buffers. Not a kernel: the
// kernels kron_group and batched_kron are made of it.
#pragma once

#include "cuda/common/steps.cuh"

namespace batchkron {

// `tile` elements of a factor with consecutive k, loaded in as few words as their size allows.
template <class T, int tile>
struct Pack {
  static constexpr int bytes = tile * int(sizeof(T));
  static constexpr int alignment = bytes % 16 == 0 ? 16 : bytes % 8 == 0 ? 8 : 4;
  T values[tile];
};

// A factor in shared memory, [c][k], rows padded with zeros to a multiple of the tile.
template <class T, class Size>
struct StagedFactor {
  const T* data;
  Size stride;

  template <int tile>
  __device__ Pack<T, tile> load(Size c, Size k) const {
    struct alignas(Pack<T, tile>::alignment) Aligned {
      Pack<T, tile> pack;
    };
    return reinterpret_cast<const Aligned*>(data + c * stride + k)->pack;
  }
};

// A factor in global memory: element (c, k) is data[k * row + c * column].
template <class T, class Size>
struct GlobalFactor {
  const T* data;
  Index row, column;
  Size K;

  template <int tile>
  __device__ Pack<T, tile> load(Size c, Size k) const {
    Pack<T, tile> pack;
    UNROLLED for (int j = 0; j < tile; ++j)
      pack.values[j] = k + j < K ? data[(k + j) * row + c * column] : T{};
    return pack;
  }
};

// y[l, k, r, w] = sum_c f(c, k) x[l, c, r, w]
// for l < L, c < C, k < K, r < R and w < columns. x is (L, C, R, columns) and y (L, K, R, columns),
// in shared or global memory, contiguous, aligned to an element, without overlap. y is overwritten.
// The sum runs over c in order with one accumulator, so the bits do not depend on the number of
// threads. `rank` is the calling thread's number among `threads`. The caller synchronises before
// and after.
template <class Size, class T, class Step, class AnyFactor>
__device__ void mode_multiply(const Step& step, Size columns, const AnyFactor& factor, const T* x,
                              T* y, int rank, int threads) {
  constexpr int tile = Step::tile;
  const Size C = Size(step.C), K = Size(step.K), R = Size(step.R) * columns;
  const Size tiles = (K + tile - 1) / tile;
  const Size items = Size(step.L) * tiles * R;
  for (Size i = rank; i < items; i += threads) {
    const Size r = i % R, k = i / R % tiles * tile, l = i / R / tiles;
    const T* source = x + l * C * R + r;
    T sums[tile] = {};
    UNROLLED_BY(8) for (Size c = 0; c < C; ++c) {
      const T value = source[c * R];
      const Pack<T, tile> pack = factor.template load<tile>(c, k);
      UNROLLED for (int j = 0; j < tile; ++j)
        sums[j] = multiply_add(sums[j], value, pack.values[j]);
    }
    T* target = y + (l * K + k) * R + r;
    UNROLLED for (int j = 0; j < tile; ++j)
      if (k + j < K) target[j * R] = sums[j];
  }
}

// Elements of one row (all k of one c) of a staged factor, and of the whole factor, which is
// rounded up to 16 bytes.
template <class Size, class Step>
__device__ Size staged_stride(const Step& step) {
  return (Size(step.K) + Step::tile - 1) / Step::tile * Step::tile;
}
template <class T, class Size, class Step>
__device__ Size staged_size(const Step& step) {
  constexpr int unit = 16 / int(sizeof(T));
  return (Size(step.C) * staged_stride<Size>(step) + unit - 1) / unit * unit;
}

// Copies the factors of all steps s with ids[s] >= 0 to shared memory at `staged`, each at its own
// place whether the others are copied or not.
template <class Size, class T, class Steps, class Ids>
__device__ void stage_factors(const Steps& steps, const Ids& ids, Index system, T* staged, int rank,
                              int threads) {
  steps.each([&](auto step, const Factor<T>& factor, int s) {
    if (ids[s] >= 0) {
      const Size K = Size(step.K), stride = staged_stride<Size>(step), size = Size(step.C) * stride;
      const T* matrix = factor.data + system * factor.system + Index(ids[s]) * factor.matrix;
      for (Size i = rank; i < size; i += threads) {
        const Size k = i % stride, c = i / stride;
        staged[i] = k < K ? matrix[k * factor.row + c * factor.column] : T{};
      }
    }
    staged += staged_size<T, Size>(step);
  });
}

// Applies all steps s with ids[s] >= 0 (the others are identities) to the tile in `from`, which is
// (input size, columns), with `to` as the second buffer, and returns the buffer that holds the
// result. The caller has synchronised the thread group; the last step ends with a synchronisation.
template <bool is_staged, class Size, class T, class Steps, class Ids, class AnyGroup>
__device__ T* run_steps(const Steps& steps, const Ids& ids, Index system, const T* staged,
                        Size columns, T* from, T* to, AnyGroup group) {
  steps.each([&](auto step, const Factor<T>& factor, int s) {
    if (ids[s] >= 0) {
      if constexpr (is_staged) {
        const StagedFactor<T, Size> matrix{staged, staged_stride<Size>(step)};
        mode_multiply<Size>(step, columns, matrix, from, to, group.rank(), AnyGroup::size);
      } else {
        const T* data = factor.data + system * factor.system + Index(ids[s]) * factor.matrix;
        const GlobalFactor<T, Size> matrix{data, factor.row, factor.column, Size(step.K)};
        mode_multiply<Size>(step, columns, matrix, from, to, group.rank(), AnyGroup::size);
      }
      group.sync();
      T* const result = to;
      to = from;
      from = result;
    }
    staged += staged_size<T, Size>(step);
  });
  return from;
}

}  // namespace batchkron
