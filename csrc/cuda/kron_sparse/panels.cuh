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
// warps_down x warps_across warps; a warp has `atom` neighbouring j, more than one in kGroup only.
// stages: panels in shared memory at a time; blocks: thread blocks on a multiprocessor. pack:
// elements of x that are copied together. products: TF32 multiply-adds for one in float32, 0 for
// none of them. kept: 0, or the number of panels of a tile, whose values are kept in shared memory
// for `together` tiles one after another (SparseTile).
template <Layout layout_, int J_, int atom_, int results_, int columns_, int depth_,
          int warps_down_, int warps_across_, int stages_, int blocks_, int pack_, int products_,
          int kept_>
struct SparseCut {
  static constexpr Layout layout = layout_;
  static constexpr int J = J_, atom = atom_, results = results_, columns = columns_;
  static constexpr int depth = depth_, warps_down = warps_down_, warps_across = warps_across_;
  static constexpr int stages = stages_, blocks = blocks_, pack = pack_, products = products_;
  static constexpr int kept = kept_;
};

// A panel of x is
//   kRows   [depth][columns],  kAlong  [columns][depth],  kGroup  [J / atom][columns][depth]
// of atoms: elements, or in kGroup `atom` neighbouring j, as they are in memory. A panel of values
// is [J][results][depth]. Rows are padded so that the lanes of a warp, which read fragments, and
// those that write copies, are in different banks.
template <class T, class Cut>
struct SparsePanels {
  static constexpr bool rows = Cut::layout == Layout::kRows, group = Cut::layout == Layout::kGroup;
  static constexpr bool half = sizeof(T) == 2, core = sizeof(T) == 4 && Cut::products == 0;
  static constexpr int atom = Cut::atom;
  static constexpr int j_warps = Cut::J / atom;
  static constexpr int threads = 32 * j_warps * Cut::warps_down * Cut::warps_across;
  static constexpr int down = Cut::results / Cut::warps_down;      // rows k of a warp
  static constexpr int across = Cut::columns / Cut::warps_across;  // columns of a warp
  static_assert(Cut::J % atom == 0 && (group || Cut::J == 1) &&
                    down * Cut::warps_down == Cut::results &&
                    across * Cut::warps_across == Cut::columns,
                "whole parts");
  static_assert((!half || !group || atom > 1) && atom * sizeof(T) <= 16, "atoms of 4 to 16 bytes");
  // atoms from one row to the next
  static constexpr int value_row = Cut::depth + (half ? 8 : 4);
  static constexpr int gap = half ? (atom == 8 ? 1 : 8) : !core || atom == 1 ? 4 : 4 / atom;
  static constexpr int row = rows ? Cut::columns + (sizeof(T) == 8 ? 4 : 8) : Cut::depth + gap;
  static constexpr int plain = (rows ? Cut::depth : Cut::columns) * row;
  static constexpr int banks = 128 / (atom * int(sizeof(T)));  // atoms
  static constexpr int step = j_warps <= 2 ? banks / 2 : j_warps <= 4 ? banks / 4 : banks / 8;
  // atoms from one of `j_warps` parts to the next
  static constexpr int j_row = group ? plain + (step + banks - plain % banks) % banks : plain;
  static constexpr int value_j_row = Cut::results * value_row;
  static constexpr int x_elements = j_warps * j_row * atom;
  static constexpr int value_elements = Cut::J * value_j_row;
  static constexpr int stage = x_elements + (Cut::kept > 0 ? 0 : value_elements);  // elements
  static constexpr int bytes =
      (Cut::stages * stage + Cut::kept * value_elements) * int(sizeof(T));
  static_assert(x_elements * sizeof(T) % 16 == 0 && stage * sizeof(T) % 16 == 0, "whole words");
};

// The tile of a thread block: its first vector o, column r, row k and matrix (i, j).
struct SparseTile {
  Index o, r;
  int k, i, j;

  // Tiles of the same columns follow one another, so that x is read from memory once; but those of
  // `together` tiles of columns and the same matrices come first, where their values are kept or
  // all values do not fit in the second-level cache. Returns whether there is such a tile. There
  // are less than 2^31.
  template <class Cut, class Arguments>
  __device__ bool set(const Arguments& a, unsigned number) {
    constexpr bool rows = Cut::layout == Layout::kRows;
    const Index along = ((rows ? a.inner : a.outer) + Cut::columns - 1) / Cut::columns;
    const unsigned down = unsigned(a.b + Cut::results - 1) / Cut::results;
    const unsigned js = unsigned(a.d + Cut::J - 1) / Cut::J, together = unsigned(a.together);
    const unsigned each = together * down * js * unsigned(a.a);
    const unsigned set = number / each, place = number - set * each;
    const unsigned matrix = place / together;
    const unsigned columns = set * together + place - matrix * together;
    const unsigned j_and_i = matrix / down;
    i = int(j_and_i / js);
    j = (int(j_and_i) - i * int(js)) * Cut::J;
    k = int(matrix - j_and_i * down) * Cut::results;
    if constexpr (rows) {
      o = columns / unsigned(along);
      r = (columns - unsigned(o) * along) * Cut::columns;
      return o < a.outer;
    } else {
      o = Index(columns) * Cut::columns;
      r = 0;
      return o < a.outer;
    }
  }

};

// The numbers `next`, next + step, ... below `end`.
struct TileNumbers {
  unsigned next, end, step;

  // Goes on to the next tile that there is, and returns whether there is one.
  template <class Cut, class Arguments>
  __device__ bool find(const Arguments& a, SparseTile& tile) {
    while (next < end) {
      const unsigned number = next;
      next += step;
      if (tile.set<Cut>(a, number)) return true;
    }
    return false;
  }
};

}  // namespace batchkron
