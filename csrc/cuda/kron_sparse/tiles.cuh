// kron_sparse_tiles: multiplies by a Kronecker-sparse matrix of real elements, such as one whose
// b x c matrices have some ten rows and columns or more (contract: cuda/kron_sparse/arguments.cuh).
//
// The a d matrices are multiplied one by one, or those of some neighbouring j together (Layout), as
// in a matrix product: panels of x and of the values follow one another through shared memory, those
// of the next tile behind those of this one, and each result is written once. The values are stored
// as (a, d, b, row), where row is c rounded up to whole words of 16 bytes, with zeros; they are
// aligned to such words. x is aligned to `pack` elements, and so are its rows: pack divides inner in
// kRows, c in kAlong, d in kGroup, or there c d if atom = J = d and pack > atom.
#pragma once

#include "cuda/common/launch_order.cuh"
#include "cuda/kron_sparse/copies.cuh"
#include "cuda/kron_sparse/units.cuh"

namespace batchkron {

template <class T, class Cut, Ending ending>
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

  // Writes the sums of a tile, `count` neighbours in y together. These lie along the columns in
  // kRows, along k in kAlong, along j in kGroup; and along k, then, too, if `whole`: atom = d.
  template <int count, bool whole>
  __device__ static void store(const Arguments& a, const SparseTile& tile, Units& units) {
    constexpr bool rows = Panels::rows;
    constexpr int atom = Panels::atom, run = Units::run * atom;
    const Index limit = rows ? a.inner - tile.r : a.b - tile.k;  // of neighbours
    const Index others = rows ? a.b - tile.k : a.outer - tile.o;
    const Index stride = rows ? a.d * a.inner : a.a * a.b * a.d;
    const Index next = rows ? 1 : a.d;  // elements from one of a run to the next
    const int own_j = SparseWarp<T, Cut>().j * atom, left_j = left_of(a.d - tile.j - own_j);
    T* const y = rows ? a.y + ((tile.o * a.a + tile.i) * a.b + tile.k) * a.d * a.inner +
                            tile.j * a.inner + tile.r
                      : a.y + ((tile.o * a.a + tile.i) * a.b + tile.k) * a.d + tile.j + own_j;
    units.each([&](int k, int column, const auto& sums) {
      const int along = rows ? column : k, down = rows ? k : column;
      if (down >= others) return;
      T* const target = y + down * stride + along * next;
      const Index feature =
          (Index(tile.i) * a.b + tile.k + k) * a.d + tile.j + (rows ? 0 : own_j);
      UNROLLED for (int n = 0; n < run; n += count) {
        typename SumOf<T>::Type own[count];
        UNROLLED for (int i = 0; i < count; ++i) own[i] = sums[(n + i) % atom][(n + i) / atom];
        const int first = n / atom, j = n % atom;
        const Index offset = whole ? Index(n) : first * next + j;
        if (along + first < limit && j < left_j)
          write_elements<ending, count>(a, target + offset, own, feature + (rows ? 0 : offset),
                                        rows ? 0 : 1);
      }
    });
  }

  __device__ static void write_results(const Arguments& a, const SparseTile& tile, Units& units) {
    constexpr int atom = Panels::atom;
    constexpr int of_run = part(Units::run * atom), of_atom = part(atom);
    const bool aligned = is_aligned(a.y);
    const Index rows = Panels::rows ? a.inner : a.b * a.d;
    if (aligned && rows % of_run == 0 && (Panels::rows || a.d == atom))
      store<of_run, true>(a, tile, units);
    else if (of_atom > 1 && aligned && a.d % of_atom == 0)
      store<of_atom, false>(a, tile, units);
    else
      store<1, false>(a, tile, units);
  }

  // Computes some tiles. Those whose values are kept have the same ones.
  __device__ static void multiply_tiles(const Arguments& a, TileNumbers numbers, T* shared) {
    SparseCopies<T, Cut, Units> copies(a, numbers, shared);
    UNROLLED for (int s = 0; s < Cut::stages - 1; ++s) copies.next();
    SparseTile tile;
    int stage = 0;
    UNROLLED_BY(1) while (numbers.find<Cut>(a, tile)) {
      Units units;
      const T* kept = shared + Cut::stages * Panels::stage;
      UNROLLED_BY(1) for (Index l = 0; l < a.c; l += Cut::depth) {
        wait_for_copies<Cut::stages - 2>();
        __syncthreads();  // the panel is there, and the one before has been read
        copies.next();
        const T* const panel = shared + stage * Panels::stage;
        units.add(panel, Cut::kept > 0 ? kept : panel + Panels::x_elements);
        kept += Panels::value_elements;
        stage = stage + 1 == Cut::stages ? 0 : stage + 1;
      }
      write_results(a, tile, units);
    }
  }

  __device__ static void run(const Arguments& a, T* shared) {
    const unsigned all = unsigned(a.tiles), together = unsigned(a.together);
    if constexpr (Cut::kept == 0) {
      multiply_tiles(a, {blockIdx.x, all, gridDim.x}, shared);
    } else {
      UNROLLED_BY(1)
      for (unsigned first = blockIdx.x * together; first < all; first += gridDim.x * together) {
        multiply_tiles(a, {first, first + together, 1}, shared);
        __syncthreads();  // all have read the values
      }
    }
  }
};

template <class T, class Cut, Ending ending = Ending::kNone>
__global__ void __launch_bounds__(SparsePanels<T, Cut>::threads, Cut::blocks)
    kron_sparse_tiles(const KronSparseArguments<T> a) {
  wait_for_earlier_kernels();
  extern __shared__ __align__(16) unsigned char shared_memory[];
  SparseKernel<T, Cut, ending>::run(a, reinterpret_cast<T*>(shared_memory));
}

}  // namespace batchkron
