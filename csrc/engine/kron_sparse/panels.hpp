// How a Kronecker-sparse matrix is cut into panels of rows and blocks of terms, and packed so that
// the kernels (simd/kron_sparse/table.hpp) read it from one end to the other.
#pragma once

#include <algorithm>
#include <vector>

#include "engine/kron_sparse/call.hpp"
#include "engine/threads.hpp"

namespace batchkron {

// Rows first ... first + rows - 1 of a dense matrix; `size` is the place of the kernel in a table.
struct SparseRows {
  Index first, rows;
  int size;
};

// The matrix for kernels with pieces of 2^power elements, in tiles of many pieces where vectors have
// pieces of different vectors of x, or of one. All sizes follow from the pattern and the kernels
// alone, so that sums do not depend on the vectors or the threads.
template <class T>
class SparsePanels {
 public:
  SparsePanels(const SparseShape& shape, int power, bool many_pieces,
               const SparseKernels<T>& kernels)
      : shape_(shape), power_(power), piece_(Index(1) << power), pieces_(shape.d / piece_) {
    for (Index first = 0; first < shape.b; first += panels_.back().rows) {
      int size = 0;
      while (size + 1 < kPanelSizes && kPanelRows[size] < shape.b - first) ++size;
      panels_.push_back({first, std::min<Index>(kPanelRows[size], shape.b - first), size});
      padded_ = first + kPanelRows[size];
    }
    // A tile has all pieces of a term, unless there are too many, or a piece fills a vector.
    const Index parts = std::max<Index>(1, (pieces_ + kMaxPiecesInTile - 1) / kMaxPiecesInTile);
    if (many_pieces && piece_ < kernels.lanes)
      in_tile_ = std::max<Index>(1, (pieces_ + parts - 1) / parts);
    const Index vector = kernels.lanes * Index(sizeof(T));
    const Index limit =
        std::max(kMinTerms, std::min(kPanelBytes / (kPanelRows[2] * piece_ * Index(sizeof(T))),
                                     kTileBytes / (in_tile_ * vector * kernels.vectors)));
    const Index blocks = std::max<Index>(1, (shape.c + limit - 1) / limit);
    terms_ = (shape.c + blocks - 1) / blocks;
    checked_product({shape.a, pieces_, std::max<Index>(shape.c, 1), padded_, piece_});
  }

  int power() const { return power_; }
  Index piece() const { return piece_; }
  Index pieces() const { return pieces_; }            // of d
  Index pieces_in_tile() const { return in_tile_; }
  Index terms() const { return terms_; }              // of a block, the last one may have fewer
  const std::vector<SparseRows>& panels() const { return panels_; }
  Index elements() const { return shape_.a * pieces_ * shape_.c * padded_ * piece_; }

  // The panel of block i, piece j of d, terms l ... l + terms - 1.
  const T* panel(const T* packed, Index i, Index j, Index l, Index terms,
                 const SparseRows& rows) const {
    return packed + place(i, j, l, terms, rows);
  }

  // values is (a, b, c, d), contiguous.
  void pack(const T* values, T* packed, const ThreadTeam& team) const {
    team.run(shape_.a * pieces_, [&](Index begin, Index end, int) {
      for (Index at = begin; at < end; ++at) {
        const Index i = at / pieces_, j = at % pieces_;
        for (Index l = 0; l < shape_.c; l += terms_) {
          const Index count = std::min(terms_, shape_.c - l);
          for (const SparseRows& rows : panels_)
            pack_panel(values, i, j, l, count, rows, packed + place(i, j, l, count, rows));
        }
      }
    });
  }

 private:
  // Bytes of a panel with the terms of a block, half of an L1 cache of 48 KiB: it is multiplied by
  // one vector after another. 16 KiB were slower, 32 KiB no faster (Sapphire Rapids with other
  // programs, 2026-11). And bytes of a tile with all pieces of the least vectors, a part of the L2
  // cache; chosen by hand.
  static constexpr Index kPanelBytes = 24 << 10;
  static constexpr Index kTileBytes = 256 << 10;
  static constexpr Index kMaxPiecesInTile = 64;  // chosen by hand
  static constexpr Index kMinTerms = 8;  // in a block: y is read and written once for each

  Index place(Index i, Index j, Index l, Index terms, const SparseRows& rows) const {
    return (((i * pieces_ + j) * shape_.c + l) * padded_ + terms * rows.first) * piece_;
  }

  void pack_panel(const T* values, Index i, Index j, Index l, Index terms, const SparseRows& rows,
                  T* panel) const {
    const Index height = kPanelRows[rows.size];
    for (Index k = 0; k < height; ++k) {
      T* to = panel + k * piece_;
      if (k >= rows.rows) {
        for (Index t = 0; t < terms; ++t) std::fill_n(to + t * height * piece_, piece_, T{});
        continue;
      }
      const T* from = values + (((i * shape_.b + rows.first + k) * shape_.c) + l) * shape_.d +
                      j * piece_;
      if (piece_ == 1)  // said apart, as the compiler knows then that it is one element
        for (Index t = 0; t < terms; ++t) to[t * height] = from[t * shape_.d];
      else
        for (Index t = 0; t < terms; ++t)
          std::copy_n(from + t * shape_.d, piece_, to + t * height * piece_);
    }
  }

  SparseShape shape_;
  int power_;
  Index piece_, pieces_, in_tile_ = 1, terms_, padded_ = 0;
  std::vector<SparseRows> panels_;
};

}  // namespace batchkron
