// kron_sparse_transpose_blocks: transposes matrices that lie one after the other, each in its place.
//   to[n, s, l] = from[n, l, s]  if to_long,  to[n, l, s] = from[n, s, l]  otherwise
// for n < blocks, l < length, s < width. Both arrays are contiguous and overlap nowhere. Elements
// have the size of T. On the side of (n, l, s), which is one run for a whole tile, side_pack of
// them are read or written together, on the side of (n, s, l) run_pack: side_pack divides length *
// width and tile * width, run_pack divides length and tile, addresses are aligned to them.
#pragma once

#include "cuda/common/elements.cuh"
#include "cuda/common/launch_order.cuh"
#include "cuda/common/scalar.cuh"

namespace batchkron {

template <class T>
struct TransposeBlocksArguments {
  const T* from;
  T* to;
  Index blocks;
};

// A thread block moves `tile` places (n, l) with all their s through shared memory, where those of
// one s lie together. A tile is a part of a matrix, or some whole ones. `row` places, a multiple of
// run_pack, are from one s to the next there, so that most lanes of a warp are in different banks.
template <class T, int length, int width, int tile, int row, int threads, int side_pack,
          int run_pack, bool to_long>
struct BlockTransposition {
  static constexpr int together = tile < length ? 1 : tile / length;   // matrices of a tile
  static constexpr int parts = (length * together + tile - 1) / tile;  // tiles of a matrix
  static_assert(parts == 1 ? tile == together * length : together == 1, "whole matrices, or a part");
  static constexpr int side_packs = tile * width / side_pack;
  static constexpr int run_packs = tile / run_pack * width;
  using SidePack = Elements<T, side_pack>;
  using RunPack = Elements<T, run_pack>;

  // Where a tile begins, and how many of its places there are.
  Index block, place;
  int places;

  __device__ BlockTransposition(const TransposeBlocksArguments<T>& a, Index number)
      : block(number / parts * together), place(number % parts * tile) {
    const Index rest = parts == 1 ? (a.blocks - block) * length : length - place;
    places = rest < tile ? int(rest) : tile;
  }

  __device__ Index side(int element) const { return (block * length + place) * width + element; }

  __device__ Index run(int s, int l) const {
    return ((block + l / length) * width + s) * length + place + l % length;
  }

  // Calls take(number, element) for the packs of this thread on the side of (n, l, s).
  template <class Take>
  __device__ void each_side(const Take& take) const {
    constexpr int turns = (side_packs + threads - 1) / threads;
    UNROLLED for (int n = 0; n < turns; ++n) {
      const int element = (threadIdx.x + n * threads) * side_pack;
      if (element < places * width) take(n, element);
    }
  }

  // Calls take(number, s, l) for the packs of this thread on the side of (n, s, l).
  template <class Take>
  __device__ void each_run(const Take& take) const {
    constexpr int turns = (run_packs + threads - 1) / threads;
    UNROLLED for (int n = 0; n < turns; ++n) {
      const int pack = threadIdx.x + n * threads;
      const int l = pack % (tile / run_pack) * run_pack;
      if (pack < run_packs && l < places) take(n, pack / (tile / run_pack), l);
    }
  }

  __device__ void move(const TransposeBlocksArguments<T>& a, T* shared) const {
    if constexpr (to_long) {
      SidePack own[(side_packs + threads - 1) / threads];
      each_side([&](int n, int element) {
        own[n] = *reinterpret_cast<const SidePack*>(a.from + side(element));
      });
      each_side([&](int n, int element) {
        UNROLLED for (int i = 0; i < side_pack; ++i)
          shared[(element + i) % width * row + (element + i) / width] = own[n].values[i];
      });
      __syncthreads();
      each_run([&](int, int s, int l) {
        put(a.to + run(s, l), *reinterpret_cast<const RunPack*>(shared + s * row + l));
      });
    } else {
      RunPack own[(run_packs + threads - 1) / threads];
      each_run([&](int n, int s, int l) {
        own[n] = *reinterpret_cast<const RunPack*>(a.from + run(s, l));
      });
      each_run([&](int n, int s, int l) {
        *reinterpret_cast<RunPack*>(shared + s * row + l) = own[n];
      });
      __syncthreads();
      each_side([&](int, int element) {
        SidePack pack;
        UNROLLED for (int i = 0; i < side_pack; ++i)
          pack.values[i] = shared[(element + i) % width * row + (element + i) / width];
        put(a.to + side(element), pack);
      });
    }
    __syncthreads();  // all have read the tile
  }
};

template <class T, int length, int width, int tile, int row, int threads, int side_pack,
          int run_pack, bool to_long>
__global__ void __launch_bounds__(threads)
    kron_sparse_transpose_blocks(const TransposeBlocksArguments<T> a) {
  wait_for_earlier_kernels();
  using Tile = BlockTransposition<T, length, width, tile, row, threads, side_pack, run_pack, to_long>;
  extern __shared__ __align__(16) unsigned char shared_memory[];
  T* const shared = reinterpret_cast<T*>(shared_memory);
  const Index tiles = (a.blocks + Tile::together - 1) / Tile::together * Tile::parts;
  for (Index number = blockIdx.x; number < tiles; number += gridDim.x)
    Tile(a, number).move(a, shared);
}

}  // namespace batchkron
