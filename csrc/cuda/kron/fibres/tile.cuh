// For cuda/kron/fibres/kernel.cuh: tiles, their layout in shared memory and where they are in an
// array (L, sizes of the modes, R).
#pragma once

#include "cuda/kron/arguments.cuh"
#include "cuda/kron/fibres/multiply.cuh"

namespace batchkron {

// A tile: `slices` values of l by `columns` values of r (all R of them if slices > 1) times the
// entries of all modes, `inputs` before and `outputs` after the multiplies. Inputs, Outputs
// (TileAxes): its layout in shared memory before and after, axes from r to l. word: elements that
// are copied together where addresses allow it. buffer: elements of shared memory for a tile.
// thread groups of `threads` threads each have tiles of their own. stages: tiles of a thread group
// in shared memory; with two, one is loaded while the other is multiplied, and more are a ring.
// Direct (DirectTarget): how the last pass writes to the array.
template <int slices_, int columns_, int inputs_, int outputs_, int word_, int buffer_,
          int threads_, int groups_, int stages_, class Inputs_, class Outputs_, class Direct_>
struct FibreTile {
  static constexpr int slices = slices_, columns = columns_;
  static constexpr int inputs = inputs_, outputs = outputs_, word = word_;
  static constexpr int buffer = buffer_, threads = threads_, groups = groups_, stages = stages_;
  using Inputs = Inputs_;
  using Outputs = Outputs_;
  using Direct = Direct_;
};

// Where the last pass writes its results in the array. A row of the array is R elements:
// neighbouring results of a fibre are `step` rows apart, and Rows are the axes of the rows in which
// fibres begin. step 0: results go to shared memory, and the tile is copied from there. parts: if
// not 0, results are spread over the memory of so many owners (SpreadArguments), by their number.
template <int step_, class Rows_, int parts_ = 0>
struct DirectTarget {
  static constexpr int step = step_, parts = parts_;
  using Rows = Rows_;
};

// The arguments of a kernel with such tiles.
template <class T, class Tile, int count>
using ArgumentsOf =
    typename Choice<(Tile::Direct::parts > 0), SpreadArguments<T, count, Tile::Direct::parts>,
                    KronArguments<T, count>>::Type;

// A place among results that are spread: of result k, `at` elements behind that of result 0.
struct SpreadPlace {
  Index at;
  int k;

  __device__ SpreadPlace operator+(const SpreadPlace& other) const {
    return {at + other.at, k + other.k};
  }
  __device__ SpreadPlace& operator+=(const SpreadPlace& other) { return *this = *this + other; }
};

// Whether a tile has all columns of its blocks, and so is contiguous in the array.
template <class Tile>
constexpr bool in_a_row = Tile::slices > 1 || Tile::columns == 1;

// Elements of a row of the array.
template <class Tile>
__device__ Index row_length(Index R) { return in_a_row<Tile> ? Tile::columns : R; }

// A tile's place in the array: offsets of its first element in x and y, and how many slices and
// columns of the tile exist (fewer at the array's edge).
struct TilePart {
  Index x, y;
  int slices, columns;
};

// The row of the array in which a fibre of the last pass begins, counted from the tile's first row.
template <class Tile>
__device__ Index row_of(int fibre) { return Tile::Direct::Rows::place(fibre / Tile::columns); }

// Whether a fibre of the tile exists.
template <class Tile>
__device__ bool holds(const TilePart& part, int fibre) {
  constexpr int rows = Tile::Direct::Rows::size / Tile::slices;  // of a slice
  return Tile::slices > 1 ? fibre / Tile::columns < part.slices * rows
                          : fibre % Tile::columns < part.columns;
}

}  // namespace batchkron
