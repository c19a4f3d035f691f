// kron_sparse_tiles: multiplies by a Kronecker-sparse matrix of real elements, such as one whose
// b x c matrices have some ten rows and columns or more (contract: cuda/kron_sparse/arguments.cuh).
//
// The a d matrices are multiplied one by one, or those of some neighbouring j together (Layout), as
// in a matrix product: panels of x and of the values follow one another through shared memory, and
// each result is written once. The values are stored as (a, d, b, row), where row is c rounded up
// to whole words of 16 bytes; they are aligned to such words, and the elements that c lacks are
// zero. x is aligned to `pack` elements, and so are its rows: pack divides inner in kRows, c in
// kAlong, d in kGroup.
#pragma once

#include "cuda/common/launch_order.cuh"
#include "cuda/kron_sparse/copies.cuh"
#include "cuda/kron_sparse/units.cuh"

namespace batchkron {

template <class T, class Cut>
struct SparseKernel {
  using Arguments = KronSparseArguments<T>;
  using Panels = SparsePanels<T, Cut>;
  using Units = typename SparseUnits<T, Cut>::Type;
  static constexpr int pack = 16 / int(sizeof(T));

  // The largest power of two that divides a number, at most `pack`.
  static constexpr int part(int number) {
    int most = pack;
    while (number % most != 0) most /= 2;
    return most;
  }
  __device__ static bool is_aligned(const T* first) {
    return reinterpret_cast<unsigned long long>(first) % 16 == 0;
  }

  // Writes the sums of a tile straight to y; neighbours lie along the columns in kRows, along k in
  // kAlong.
  template <int count>
  __device__ static void store(const Arguments& a, const SparseTile& tile, Units& units) {
    constexpr bool rows = Panels::rows;
    const Index limit = rows ? a.inner - tile.r : a.b - tile.k;       // of neighbours
    const Index others = rows ? a.b - tile.k : a.outer - tile.o;
    const Index stride = rows ? a.d * a.inner : a.a * a.b;
    T* const y = rows ? a.y + ((tile.o * a.a + tile.i) * a.b + tile.k) * a.d * a.inner +
                            tile.j * a.inner + tile.r
                      : a.y + (tile.o * a.a + tile.i) * a.b + tile.k;
    units.each([&](int k, int column, const auto& sums) {
      const int along = rows ? column : k, down = rows ? k : column;
      if (down >= others) return;
      T* const target = y + down * stride + along;
#pragma unroll
      for (int n = 0; n < Units::run; n += count)
        if (along + n < limit) write_elements<count>(a, target + n, sums[0] + n);
    });
  }

  // Writes the sums of a tile to shared memory, [column][k J + j].
  __device__ static void collect(const Arguments& a, Units& units, T* shared) {
    const SparseWarp<T, Cut> warp;
    constexpr int of_warp = Panels::of_warp;
    units.each([&](int k, int column, const auto& sums) {
#pragma unroll
      for (int n = 0; n < Units::run; ++n) {
        Elements<T, of_warp> word;
#pragma unroll
        for (int j = 0; j < of_warp; ++j)
          word.values[j] = Narrowed<T>::make(multiply(a.alpha, sums[j][n]));
        *reinterpret_cast<Elements<T, of_warp>*>(shared + column * Panels::result_row +
                                                 (k + n) * Cut::J + warp.j * of_warp) = word;
      }
    });
  }

  // Writes what is in shared memory to y. A row of it is contiguous in y if J is d; otherwise its
  // parts of J elements are.
  template <int count>
  __device__ static void write(const Arguments& a, const SparseTile& tile, const T* shared) {
    using Word = Elements<T, count>;
    constexpr int across = Cut::results * Cut::J / count, of_j = Cut::J / count;
    const bool whole = Cut::J == a.d;
    const Index left = (a.b - tile.k) * a.d;
    T* const y = a.y + ((tile.o * a.a + tile.i) * a.b + tile.k) * a.d + tile.j;
#pragma unroll 4
    for (int e = threadIdx.x; e < Cut::columns * across; e += Panels::threads) {
      const int column = e / across, place = e % across * count;
      if (tile.o + column >= a.outer) break;
      const int j = of_j == 0 ? place % Cut::J : e % (of_j == 0 ? 1 : of_j) * count;
      const Index at = whole ? place : Index(place / Cut::J) * a.d + j;
      if (at >= left || (!whole && tile.j + j >= a.d)) continue;
      T* const target = y + column * a.a * a.b * a.d + at;
      Word word = *reinterpret_cast<const Word*>(shared + column * Panels::result_row + place);
      if (a.accumulate) {
        const Word old = *reinterpret_cast<const Word*>(target);
#pragma unroll
        for (int n = 0; n < count; ++n)
          word.values[n] =
              Narrowed<T>::make(add(widened(old.values[n]), widened(word.values[n])));
      }
      *reinterpret_cast<Word*>(target) = word;
    }
  }

  __device__ static void write_results(const Arguments& a, const SparseTile& tile, Units& units,
                                       T* shared) {
    if constexpr (Panels::group) {
      __syncthreads();  // the last panel has been read
      collect(a, units, shared);
      __syncthreads();
      constexpr int of_j = part(Cut::J), of_row = part(Cut::J * Cut::results);
      const bool aligned = is_aligned(a.y);
      if (aligned && Cut::J == a.d && a.b * a.d % of_row == 0 &&
          tile.k * a.d % of_row == 0)
        write<of_row>(a, tile, shared);
      else if (aligned && a.d % of_j == 0 && Cut::J != a.d)
        write<of_j>(a, tile, shared);
      else
        write<1>(a, tile, shared);
    } else {
      constexpr int count = part(Units::run);
      if (is_aligned(a.y) && (Panels::rows ? a.inner : a.b) % count == 0)
        store<count>(a, tile, units);
      else
        store<1>(a, tile, units);
    }
  }

  __device__ static void run(const Arguments& a, T* shared) {
#pragma unroll 1
    for (Index number = blockIdx.x; number < a.tiles; number += gridDim.x) {
      const SparseTile tile = SparseTile::at<Cut>(a, number);
      if (!tile.exists) continue;
      SparseCopies<T, Cut, Units> copies(a, tile, shared);
#pragma unroll
      for (int s = 0; s < Cut::stages - 1; ++s) copies.next();
      Units units;
      int stage = 0;
#pragma unroll 1
      for (Index l = 0; l < a.c; l += Cut::depth) {
        wait_for_copies<Cut::stages - 2>();
        __syncthreads();
        copies.next();
        const T* const panel = shared + stage * Panels::stage;
        units.add(panel, panel + Panels::x_elements);
        stage = stage + 1 == Cut::stages ? 0 : stage + 1;
      }
      write_results(a, tile, units, shared);
      __syncthreads();  // shared memory is free for the next tile
    }
  }
};

template <class T, class Cut>
__global__ void __launch_bounds__(SparsePanels<T, Cut>::threads, Cut::blocks)
    kron_sparse_tiles(const KronSparseArguments<T> a) {
  wait_for_earlier_kernels();
  extern __shared__ __align__(16) unsigned char shared_memory[];
  SparseKernel<T, Cut>::run(a, reinterpret_cast<T*>(shared_memory));
}

}  // namespace batchkron
