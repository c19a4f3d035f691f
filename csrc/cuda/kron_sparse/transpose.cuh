// kron_sparse_transpose: writes a matrix with its rows as columns, in one launch.
//
//   to[c, r] = from[r, c]  for r < rows, c < columns
//
// Both matrices are contiguous and overlap nowhere. Elements have the size of T; from_pack of them
// are read together and to_pack written together, where these divide `columns` and `rows`, and
// `from` and `to` are aligned to them.
#pragma once

#include "cuda/common/elements.cuh"
#include "cuda/common/launch_order.cuh"
#include "cuda/common/scalar.cuh"

namespace batchkron {

template <class T>
struct TransposeArguments {
  const T* from;
  T* to;
  Index rows, columns;
};

// A thread block moves tiles of side x side elements through shared memory, whose rows are padded
// by `gap` elements, so that the lanes that read down its columns are in different banks.
template <class T, int side, int threads, int from_pack, int to_pack>
struct Transposition {
  static constexpr int gap = sizeof(T) == 2 ? 2 : 1, row = side + gap;
  // packs in a row of a tile, and packs of a thread
  static constexpr int from_lanes = side / from_pack, to_lanes = side / to_pack;
  static constexpr int reads = side * from_lanes / threads, writes = side * to_lanes / threads;
  static_assert(reads * threads == side * from_lanes && writes * threads == side * to_lanes,
                "equal parts");
  using FromPack = Elements<T, from_pack>;
  using ToPack = Elements<T, to_pack>;

  // Moves the tile whose first row and column are r and c.
  __device__ static void move(const TransposeArguments<T>& a, Index r, Index c, T* tile) {
    FromPack own[reads];
#pragma unroll
    for (int n = 0; n < reads; ++n) {
      const int number = threadIdx.x + n * threads;
      const int down = number / from_lanes, along = number % from_lanes * from_pack;
      if (r + down < a.rows && c + along < a.columns)
        own[n] = *reinterpret_cast<const FromPack*>(a.from + (r + down) * a.columns + c + along);
    }
#pragma unroll
    for (int n = 0; n < reads; ++n) {
      const int number = threadIdx.x + n * threads;
      T* const target = tile + number / from_lanes * row + number % from_lanes * from_pack;
#pragma unroll
      for (int i = 0; i < from_pack; ++i) target[i] = own[n].values[i];
    }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < writes; ++n) {
      const int number = threadIdx.x + n * threads;
      const int down = number % to_lanes * to_pack, along = number / to_lanes;
      if (r + down >= a.rows || c + along >= a.columns) continue;
      ToPack pack;
#pragma unroll
      for (int i = 0; i < to_pack; ++i) pack.values[i] = tile[(down + i) * row + along];
      *reinterpret_cast<ToPack*>(a.to + (c + along) * a.rows + r + down) = pack;
    }
    __syncthreads();  // all have read the tile
  }
};

template <class T, int side, int threads, int from_pack, int to_pack>
__global__ void __launch_bounds__(threads) kron_sparse_transpose(const TransposeArguments<T> a) {
  wait_for_earlier_kernels();
  extern __shared__ __align__(16) unsigned char shared_memory[];
  T* const tile = reinterpret_cast<T*>(shared_memory);
  const Index across = (a.columns + side - 1) / side;
  const Index tiles = (a.rows + side - 1) / side * across;
  for (Index number = blockIdx.x; number < tiles; number += gridDim.x)
    Transposition<T, side, threads, from_pack, to_pack>::move(
        a, number / across * side, number % across * side, tile);
}

}  // namespace batchkron
