// For cuda/kron_sparse/tiles.cuh: how a product is cut, and how panels lie in shared memory.
#pragma once

#include "cuda/kron_sparse/arguments.cuh"

namespace batchkron {

// What of x is contiguous, and what a thread block takes of it.
enum class Layout {
  kRows,   // many r: `columns` of them, of one o and j
  kAlong,  // inner = d = 1, entries l: `columns` vectors o
  kGroup,  // inner = 1, d > 1: `columns` vectors o, and J neighbouring j
};

// A thread block computes `results` rows k of each of J matrices (i, j), for `columns` columns; it
// goes through the sum's index l by panels of `depth`. The tile of one j is divided among
// warps_down x warps_across warps; a warp has one j, with numbers of 16 bits in kGroup two.
// stages: panels in shared memory at a time; blocks: thread blocks on a multiprocessor. pack:
// elements of x that are copied together. products: TF32 multiply-adds for one in float32, 0 for
// none of them.
template <Layout layout_, int J_, int results_, int columns_, int depth_, int warps_down_,
          int warps_across_, int stages_, int blocks_, int pack_, int products_>
struct SparseCut {
  static constexpr Layout layout = layout_;
  static constexpr int J = J_, results = results_, columns = columns_, depth = depth_;
  static constexpr int warps_down = warps_down_, warps_across = warps_across_;
  static constexpr int stages = stages_, blocks = blocks_, pack = pack_, products = products_;
};

// A panel of x is
//   kRows   [depth][columns],  kAlong  [columns][depth],  kGroup  [J / of_atom][columns][depth]
// of atoms: elements, or for 16 bits in kGroup pairs of neighbouring j. A panel of values is
// [J][results][depth]. Rows are padded so that the lanes of a warp, which read fragments, and those
// that write copies, are in different banks.
template <class T, class Cut>
struct SparsePanels {
  static constexpr bool rows = Cut::layout == Layout::kRows, group = Cut::layout == Layout::kGroup;
  static constexpr bool half = sizeof(T) == 2;
  static constexpr int of_atom = half && group ? 2 : 1;  // elements
  static constexpr int of_warp = of_atom;                // j of a warp
  static constexpr int j_warps = Cut::J / of_warp;
  static constexpr int threads = 32 * j_warps * Cut::warps_down * Cut::warps_across;
  static constexpr int down = Cut::results / Cut::warps_down;        // rows k of a warp
  static constexpr int across = Cut::columns / Cut::warps_across;  // columns of a warp
  static_assert(Cut::J % of_warp == 0 && down * Cut::warps_down == Cut::results &&
                    across * Cut::warps_across == Cut::columns,
                "whole parts");
  // atoms from one row to the next
  static constexpr int value_row = Cut::depth + (half ? 8 : 4);
  static constexpr int row = rows ? Cut::columns + (sizeof(T) == 8 ? 4 : 8)
                                  : Cut::depth + (half ? 8 : 4);
  static constexpr int plain = (rows ? Cut::depth : Cut::columns) * row;
  static constexpr int j_atoms = Cut::J / of_atom;
  static constexpr int banks = sizeof(T) == 8 ? 16 : 32;
  static constexpr int step = j_atoms <= 2 ? banks / 2 : j_atoms <= 4 ? banks / 4 : banks / 8;
  // atoms from one j, or pair of them, to the next
  static constexpr int j_row = group ? plain + (step + banks - plain % banks) % banks : plain;
  static constexpr int value_j_row = Cut::results * value_row;
  static constexpr int x_elements = j_atoms * j_row * of_atom;
  static constexpr int stage = x_elements + Cut::J * value_j_row;  // elements
  // a row of the results of a tile, which are collected in shared memory in kGroup
  static constexpr int result_row = Cut::results * Cut::J + 16 / int(sizeof(T));
  static constexpr int ring_bytes = Cut::stages * stage * int(sizeof(T));
  static constexpr int result_bytes = group ? Cut::columns * result_row * int(sizeof(T)) : 0;
  static constexpr int bytes = ring_bytes > result_bytes ? ring_bytes : result_bytes;
  static_assert(x_elements * sizeof(T) % 16 == 0 && stage * sizeof(T) % 16 == 0, "whole words");
};

// The tile of a thread block: its first vector o, column r, row k and matrix (i, j).
struct SparseTile {
  Index o, r;
  int k, i, j;
  bool exists;

  // Tiles of the same columns follow one another, so that x is read from memory once; but those of
  // `together` tiles of columns and the same matrices come first, where the values do not fit in
  // the second-level cache.
  template <class Cut, class Arguments>
  __device__ static SparseTile at(const Arguments& a, Index number) {
    constexpr bool rows = Cut::layout == Layout::kRows;
    const Index along = ((rows ? a.inner : a.outer) + Cut::columns - 1) / Cut::columns;
    const Index all = rows ? a.outer * along : along;
    const Index down = (a.b + Cut::results - 1) / Cut::results, js = (a.d + Cut::J - 1) / Cut::J;
    const Index set = a.together * down * js * a.a;
    const Index columns = number / set * a.together + number % a.together;
    const Index matrix = number % set / a.together;
    SparseTile tile;
    tile.exists = columns < all;
    tile.o = rows ? columns / along : columns * Cut::columns;
    tile.r = rows ? columns % along * Cut::columns : 0;
    tile.k = int(matrix % down * Cut::results);
    tile.j = int(matrix / down % js * Cut::J);
    tile.i = int(matrix / down / js);
    return tile;
  }
};

}  // namespace batchkron
