// Tiles of fibres, and where they are in an array (L, sizes of the modes, R).
#pragma once

#include "cuda/kron/arguments.cuh"
#include "cuda/kron/fibres/multiply.cuh"

namespace batchkron {

// A tile: `slices` blocks, `columns` wide (all R of them if it has several slices, or one column).
// Inputs and
// Outputs: its axes in shared memory, from columns to slices. word: elements that are copied
// together where addresses allow. stages: tiles of a team in shared memory; with two, one is loaded
// while the other is multiplied, and more are a ring. Direct: how the last pass writes to the array,
// DirectTarget.
template <int slices_, int columns_, int inputs_, int outputs_, int word_, int buffer_,
          int threads_, int teams_, int stages_, class Inputs_, class Outputs_, class Direct_>
struct FibreTile {
  static constexpr int slices = slices_, columns = columns_;
  static constexpr int inputs = inputs_, outputs = outputs_, word = word_;
  static constexpr int buffer = buffer_, threads = threads_, teams = teams_, stages = stages_;
  using Inputs = Inputs_;
  using Outputs = Outputs_;
  using Direct = Direct_;
};

// The array's rows (of R elements) that a tile's results go to: neighbouring results of the last
// pass are `step` rows apart, Rows are those of its fibres but for columns. step 0: the tile is
// written from shared memory.
template <int step_, class Rows_>
struct DirectTarget {
  static constexpr int step = step_;
  using Rows = Rows_;
};

// Whether a tile has all columns, and so is one stretch of the array.
template <class Tile>
constexpr bool in_a_row = Tile::slices > 1 || Tile::columns == 1;

// Elements of a row of the array.
template <class Tile>
__device__ Index row_length(Index R) {
  return in_a_row<Tile> ? Tile::columns : R;
}

// A tile in the array: offsets of its first element, and what of the tile there is.
struct TilePart {
  Index x, y;
  int slices, columns;
};

// The row that a fibre of the last pass begins in, from the tile's first one.
template <class Tile>
__device__ Index row_of(int fibre) {
  return Tile::Direct::Rows::place(fibre / Tile::columns);
}

// Whether there is such a fibre.
template <class Tile>
__device__ bool holds(const TilePart& part, int fibre) {
  constexpr int rows = Tile::Direct::Rows::size / Tile::slices;  // of a slice
  return Tile::slices > 1 ? fibre / Tile::columns < part.slices * rows
                          : fibre % Tile::columns < part.columns;
}

}  // namespace batchkron
