// The Kronecker product of two matrices, or of two such products, as a dense matrix, written in
// tiles: a tile of the left matrix times a tile of the right one, both in shared memory.
#pragma once

#include "cuda/common/launch_order.cuh"
#include "cuda/explicit/words.cuh"

namespace batchkron {

// Addresses come first, because a launch fills in the first fields only. The left matrix is a, or
// a ⊗ a_inner where a_inner has rows, and so is the right one.
template <class T>
struct ExplicitTilesArguments {
  const T *a_data, *b_data;
  T* out;
  const T *a_inner_data, *b_inner_data;
  MatrixLayout a, b, a_inner, b_inner;
  Index a_rows, a_columns, b_rows, b_columns;          // of the left and of the right matrix
  Index tile_rows, tile_columns;                       // of a tile of the left matrix
  Index b_tile_rows, b_tile_columns;                   // of a tile of the right matrix
  Index column_tiles, b_row_tiles, b_column_tiles;     // numbers of tiles
  unsigned over_width;                                 // floor((2^32 - 1) / b_tile_columns)
};

// A number in shared memory or in the result, aligned so that it is read and stored at once.
template <class T, int bytes>
using Number = OutWord<T, 1, bytes>;

// Copies rows and columns of a matrix, or of the product of two, to a row-major tile.
template <int threads, class T, class Held>
__device__ void load_tile(const Matrix<T>& outer, const Matrix<T>& inner, Index row, Index column,
                          unsigned rows, unsigned columns, Held* tile) {
  constexpr int batch = 4;  // loads that a thread begins before it waits for the first one
  const unsigned count = rows * columns, down = threads / columns, across = threads % columns;
  unsigned i = threadIdx.x / columns, j = threadIdx.x % columns;
  UNROLLED_BY(1) for (unsigned n = threadIdx.x; n < count; n += batch * threads) {
    Held values[batch];
    UNROLLED for (int u = 0; u < batch; ++u) {
      if (n + u * threads < count) {
        if (inner.rows == 0)
          values[u].values[0] = outer.at(row + i, column + j);
        else
          values[u].values[0] = multiply(
              outer.at(unsigned(row + i) / unsigned(inner.rows),
                       unsigned(column + j) / unsigned(inner.columns)),
              inner.at(unsigned(row + i) % unsigned(inner.rows),
                       unsigned(column + j) % unsigned(inner.columns)));
      }
      i += down;
      j += across;
      if (j >= columns) {
        j -= columns;
        ++i;
      }
    }
    UNROLLED for (int u = 0; u < batch; ++u)
      if (n + u * threads < count) tile[n + u * threads] = values[u];
  }
}

// Writes run[j * width + l] = left[j] right[l], `length` elements. Each store of a warp begins at a
// multiple of a line, except for the ends of the run.
template <int threads, int bytes, bool streaming, class T, class Held>
__device__ void write_run(T* run, unsigned length, const Held* left, const Held* right,
                          unsigned width, unsigned reciprocal, unsigned down, unsigned across) {
  constexpr int batch = 4;  // elements that a thread computes before it stores the first one
  using Word = Number<T, bytes>;
  const unsigned shift = unsigned(reinterpret_cast<Bits>(run) % kLine / sizeof(T));
  // threads whose first element would lie before the run begin one step later
  const bool late = threadIdx.x < shift;
  unsigned at = threadIdx.x - shift + (late ? threads : 0);
  const Division<unsigned> place = divide(at, width, reciprocal);
  unsigned j = place.quotient, l = place.rest;
  const auto product = [&] { return Word{multiply(left[j].values[0], right[l].values[0])}; };
  const auto advance = [&] {
    at += threads;
    j += down;
    l += across;
    if (l >= width) {
      l -= width;
      ++j;
    }
  };
  if (!late) {
    if (at >= length) return;
    put<streaming>(reinterpret_cast<Word*>(run + at), product());
    advance();
  }
  UNROLLED_BY(1) for (; at + (batch - 1) * threads < length;) {
    T* const target = run + at;
    Word words[batch];
    UNROLLED for (int u = 0; u < batch; ++u) {
      words[u] = product();
      advance();
    }
    UNROLLED for (int u = 0; u < batch; ++u)
      put<streaming>(reinterpret_cast<Word*>(target + u * threads), words[u]);
  }
  UNROLLED_BY(1) for (; at < length; advance())
    put<streaming>(reinterpret_cast<Word*>(run + at), product());
}

// out[i * b_rows + k, j * b_columns + l] = left[i, j] right[k, l]
// The matrices have any strides; out is row-major, contiguous, aligned to `bytes` (an element, or a
// part of a complex one), overlaps none of them, and is never read. Each element is one
// multiplication, and one more for each matrix that is a product itself.
//
// A thread block holds a tile of the left and one of the right matrix, and writes one run after
// another: contiguous elements of a row of out, which come from one row of either tile. Tiles of
// the right matrix have all of its columns, or a run has one element of the left one. A run begins
// anywhere, but warps store whole lines of the cache between its ends. Tiles are numbered in the
// order of out: columns first, then rows of the right matrix, then rows of the left one.
template <class T, int bytes, int threads, bool streaming>
__global__ void __launch_bounds__(threads) explicit_tiles(const ExplicitTilesArguments<T> x) {
  wait_for_earlier_kernels();
  using Held = Number<T, sizeof(T)>;
  extern __shared__ __align__(16) unsigned char shared_memory[];
  Held* const left = reinterpret_cast<Held*>(shared_memory);
  Held* const right = left + x.tile_rows * x.tile_columns;

  unsigned tile = blockIdx.x;
  const unsigned b_column_tile = tile % unsigned(x.b_column_tiles);
  tile /= unsigned(x.b_column_tiles);
  const unsigned column_tile = tile % unsigned(x.column_tiles);
  tile /= unsigned(x.column_tiles);
  const unsigned b_row_tile = tile % unsigned(x.b_row_tiles);
  const Index i0 = tile / unsigned(x.b_row_tiles) * x.tile_rows, k0 = b_row_tile * x.b_tile_rows;
  const Index j0 = column_tile * x.tile_columns, l0 = b_column_tile * x.b_tile_columns;
  const auto part = [](Index tile, Index all, Index begin) {
    return unsigned(all - begin < tile ? all - begin : tile);
  };
  const unsigned rows = part(x.tile_rows, x.a_rows, i0);
  const unsigned columns = part(x.tile_columns, x.a_columns, j0);
  const unsigned b_rows = part(x.b_tile_rows, x.b_rows, k0);
  const unsigned width = part(x.b_tile_columns, x.b_columns, l0);

  load_tile<threads>(Matrix<T>{x.a, x.a_data}, Matrix<T>{x.a_inner, x.a_inner_data}, i0, j0, rows,
                     columns, left);
  load_tile<threads>(Matrix<T>{x.b, x.b_data}, Matrix<T>{x.b_inner, x.b_inner_data}, k0, l0, b_rows,
                     width, right);
  __syncthreads();

  const bool whole = x.b_column_tiles == 1;  // a run has all columns of both tiles
  const unsigned runs = whole ? 1 : columns, length = whole ? columns * width : width;
  const unsigned down = threads / width, across = threads % width;
  const unsigned reciprocal = whole ? x.over_width : 0xffffffffu / width;
  const Index out_row = x.a_columns * x.b_columns;
  UNROLLED_BY(1) for (unsigned i = 0; i < rows; ++i) {
    UNROLLED_BY(1) for (unsigned k = 0; k < b_rows; ++k) {
      T* run = x.out + ((i0 + i) * x.b_rows + k0 + k) * out_row + j0 * x.b_columns + l0;
      UNROLLED_BY(1) for (unsigned s = 0; s < runs; ++s, run += x.b_columns)
        write_run<threads, bytes, streaming>(run, length, left + i * columns + s,
                                             right + k * width, width, reciprocal, down, across);
    }
  }
}

}  // namespace batchkron
