// Copies between rows in memory and vectors of pieces of different rows (contract:
// simd/kron_sparse/table.hpp, `to_pieces` and `from_pieces`).
#pragma once

#include "simd/common/transpose.hpp"
#include "simd/kron_sparse/table.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {
namespace sparse {

// The vector of a tile for the pieces of a row, one after another.
template <class T>
class PiecePlace {
 public:
  BATCHKRON_INLINE PiecePlace(const PieceCopy<T>& copy, Index piece)
      : copy_(copy),
        piece_(piece % copy.pieces),
        place_(piece / copy.pieces * widest<T> + piece_ * copy.tile_piece) {}
  BATCHKRON_INLINE T* next() {
    T* const place = copy_.tile + place_;
    place_ += copy_.tile_piece;
    if (++piece_ == copy_.pieces) {
      piece_ = 0;
      place_ += widest<T> - copy_.pieces * copy_.tile_piece;
    }
    return place;
  }

 private:
  const PieceCopy<T>& copy_;
  Index piece_, place_;
};

template <class T, int piece, bool full>
void to_pieces_of(const PieceCopy<T>& copy, const T* x) {
  constexpr int lanes = widest<T>, rows = lanes / piece;
  const Index total = copy.indices * copy.pieces;
  const auto block = [&](Index first, PiecePlace<T>& place) {
    Pack<T, lanes> v[rows];
    BATCHKRON_UNROLL
    for (int i = 0; i < rows; ++i)
      v[i] = load<lanes>(x + (full ? i : smaller(i, copy.count - 1)) * copy.row + first * piece);
    transpose<T, piece>(v);
    BATCHKRON_UNROLL
    for (int i = 0; i < rows; ++i) store<lanes>(place.next(), v[i]);
  };
  PiecePlace<T> place(copy, 0);
  Index first = 0;
  for (; first + rows <= total; first += rows) block(first, place);
  if (first == total) return;
  if (total >= rows) {  // the last block overlaps the one before
    PiecePlace<T> last(copy, total - rows);
    return block(total - rows, last);
  }
  for (; first < total; ++first) {
    T* const to = place.next();
    for (Index i = 0; i < rows; ++i)
      for (int e = 0; e < piece; ++e)
        to[i * piece + e] = x[smaller(i, copy.count - 1) * copy.row + first * piece + e];
  }
}

// Calls body(copy, offset) for runs of pieces that lie one after another in memory: one run, or one
// for each index.
template <class T, int piece, class Body>
BATCHKRON_INLINE void each_run(const PieceCopy<T>& copy, Body body) {
  if (copy.step == copy.pieces * piece) return body(copy, 0);
  PieceCopy<T> one = copy;
  one.indices = 1;
  for (Index i = 0; i < copy.indices; ++i, one.tile += widest<T>) body(one, i * copy.step);
}

template <class T, int piece>
void to_pieces(const PieceCopy<T>& copy, const T* x) {
  each_run<T, piece>(copy, [&](const PieceCopy<T>& run, Index offset) {
    if (copy.count == widest<T> / piece)
      to_pieces_of<T, piece, true>(run, x + offset);
    else
      to_pieces_of<T, piece, false>(run, x + offset);
  });
}

template <class T, int piece, bool general>
void from_pieces_of(const PieceCopy<T>& copy, T* y, T alpha, bool accumulate) {
  constexpr int lanes = widest<T>, rows = lanes / piece;
  const Index total = copy.indices * copy.pieces;
  const auto block = [&](Index first, PiecePlace<T>& place) {
    Pack<T, lanes> v[rows];
    BATCHKRON_UNROLL
    for (int i = 0; i < rows; ++i) v[i] = load<lanes>(place.next());
    transpose<T, piece>(v);
    BATCHKRON_UNROLL
    for (int i = 0; i < rows; ++i)
      if (i < copy.count)
        finish<T, general, lanes>(y + i * copy.row + first * piece, v[i], alpha, accumulate);
  };
  PiecePlace<T> place(copy, 0);
  Index first = 0;
  for (; first + rows <= total; first += rows) block(first, place);
  if (first == total) return;
  if (total >= rows && !accumulate) {  // the last block overlaps the one before
    PiecePlace<T> last(copy, total - rows);
    return block(total - rows, last);
  }
  for (; first < total; ++first) {
    const T* const from = place.next();
    for (Index i = 0; i < copy.count; ++i)
      for (int e = 0; e < piece; ++e)
        finish<T, general, 1>(y + i * copy.row + first * piece + e, load<1>(from + i * piece + e),
                              alpha, accumulate);
  }
}

template <class T, int piece>
void from_pieces(const PieceCopy<T>& copy, T* y, T alpha, bool accumulate) {
  each_run<T, piece>(copy, [&](const PieceCopy<T>& run, Index offset) {
    if (accumulate || alpha != T(1))
      from_pieces_of<T, piece, true>(run, y + offset, alpha, accumulate);
    else
      from_pieces_of<T, piece, false>(run, y + offset, alpha, accumulate);
  });
}

template <class T>
void copy_vectors(T* to, const T* from, Index rows, Index columns, Index to_i, Index to_j,
                  Index from_i, Index from_j) {
  constexpr int lanes = widest<T>;
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < columns; ++j)
      store<lanes>(to + i * to_i + j * to_j, load<lanes>(from + i * from_i + j * from_j));
}

}  // namespace sparse
}  // namespace BATCHKRON_ISA
}  // namespace batchkron
