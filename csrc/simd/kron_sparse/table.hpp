// The interface between the plan of a Kronecker-sparse matrix and its kernels, which are compiled
// once for each instruction set.
//
// The matrix is a x d products with dense b x c matrices. A vector of the kernels holds lanes /
// piece pieces of `piece` consecutive elements j; each piece belongs to another vector of x. So one
// element of a dense matrix is `piece` numbers, and it multiplies all pieces of a vector:
// `piece` is a power of two that divides d, from 1, where lanes are different vectors of x, to
// the lanes, where a vector is `lanes` neighbouring products of one vector of x.
#pragma once

#include "simd/common/scalar.hpp"

namespace batchkron {

// Rows of a dense matrix that are multiplied at once, in a register tile. A matrix is packed in
// panels of so many rows, f[(l * rows + k) * piece + e], the last panel with rows of zeros. Of the
// three sizes the two smaller ones are for ends.
constexpr int kPanelRows[] = {2, 4, 6};
constexpr int kPanelSizes = 3;
constexpr int kMaxPieces = 5;  // piece = 1, 2, 4, 8, 16

// One panel times some vectors:
//
//   y[k * y_k + v * y_v + i]  =  alpha * sum_l f[(l * panel + k) * piece + i % piece]
//                                        * x[l * x_l + v * x_v + i]       (or += with `accumulate`)
//   for k in [0, rows), v in [0, vectors), i in [0, lanes).
//
// rows is at most the panel's, terms at least 1. Strides are in elements; nothing is aligned beyond
// an element; nothing outside of the ranges is read or written. A sum runs over l in order, so that
// it does not depend on how k and v are split. Complex sums are two, over the real and the
// imaginary parts of f, which are added at the end. Without `accumulate` y is never read. y aliases
// neither x nor f. Where `elements` is less than the lanes there is one vector, and only its first
// `elements` are written to y; x is read in full.
template <class T>
struct SparsePanel {
  T* y;
  const T* x;
  const T* f;
  Index terms, rows, vectors, elements;
  Index x_l, x_v, y_k, y_v;
  T alpha;
  bool accumulate;
};

// For d = 1: a strip of a dense matrix times rows of x, with vectors along the strip's columns.
//
//   y[n * y_n + k]  =  alpha * sum_l f[l * width + k] * x[n * x_n + l]     (or += with `accumulate`)
//   for n in [0, rows), k in [0, columns).
//
// width is 1 to `vectors` vectors and at least `columns`; f is readable over all of it. The rest is
// as for SparsePanel.
template <class T>
struct SparseStrip {
  T* y;
  const T* x;
  const T* f;
  Index terms, rows, columns, width;
  Index x_n, y_n;
  T alpha;
  bool accumulate;
};

// Between rows in memory, and vectors of pieces of different rows. Row i is at i * row; of each
// index, `step` elements after the one before, `pieces` pieces are copied. Piece j of an index is in
// the vector at index * lanes + j * tile_piece of the tile. There are `count` rows, at most lanes /
// piece; a tile has pieces for all, those of other rows are any numbers.
template <class T>
struct PieceCopy {
  T* tile;
  Index row, count;
  Index indices, pieces, step;
  Index tile_piece;
};

template <class T>
struct SparseKernels {
  Index lanes;
  Index vectors;  // in a register tile
  // [log2 piece][number of kPanelRows]
  void (*multiply[kMaxPieces][kPanelSizes])(const SparsePanel<T>&);
  void (*multiply_strip)(const SparseStrip<T>&);
  // [log2 piece], for pieces smaller than the lanes. Nothing outside of the rows is touched.
  void (*to_pieces[kMaxPieces])(const PieceCopy<T>&, const T* x);
  // y = alpha * tile, or += with `accumulate`; without it y is never read.
  void (*from_pieces[kMaxPieces])(const PieceCopy<T>&, T* y, T alpha, bool accumulate);
  // to[i * to_i + j * to_j] = from[i * from_i + j * from_j], a vector each, for i < rows and
  // j < columns.
  void (*copy_vectors)(T* to, const T* from, Index rows, Index columns, Index to_i, Index to_j,
                       Index from_i, Index from_j);
};

struct SparseKernelTable {
  SparseKernels<float> f32;
  SparseKernels<double> f64;
  SparseKernels<Complex<float>> c64;
  SparseKernels<Complex<double>> c128;
};

}  // namespace batchkron
