// For cuda/kron_sparse/tiles.cuh: asynchronous copies of panels of x and of the values to shared
// memory. What lies beyond an edge becomes zero.
#pragma once

#include "cuda/common/asynchronous_copy.cuh"
#include "cuda/kron_sparse/panels.cuh"

namespace batchkron {

// A number of entries or rows that are left, as far as a tile needs to know.
__device__ inline int left_of(Index count) { return int(count < (1 << 30) ? count : 1 << 30); }

// Copies `count` elements. `safe`: a valid, aligned address to name where nothing is to be read.
template <int count, class T>
__device__ void copy_first(T* to, const T* from, const T* safe, bool wanted) {
  constexpr int bytes = count * int(sizeof(T));
  copy_asynchronously_first<bytes>(to, wanted ? from : safe, wanted ? bytes : 0);
}

// Copies the panels of x of one tile. A thread copies the same place of every `step`-th row: a row
// is the columns of one l in kRows, else what belongs to one vector.
template <class T, class Cut>
class VectorCopies {
  using Panels = SparsePanels<T, Cut>;
  static constexpr bool rows = Panels::rows, group = Panels::group;
  static constexpr int pack = Cut::pack, atom = Panels::atom, depth = Cut::depth;
  static constexpr int entries = pack > atom ? pack / atom : 1;  // that are copied together
  // places of a row, rows, and the rows between those of a thread
  static constexpr int across = rows ? Cut::columns / pack : depth / entries * Panels::j_warps;
  static constexpr int all = rows ? depth : Cut::columns;
  static constexpr int step = Panels::threads / across, turns = (all + step - 1) / step;
  // elements that are copied together, and such copies of a place
  static constexpr int together = !group || pack < atom ? pack : atom * entries;
  static constexpr int parts = group && pack < atom ? atom / pack : 1;
  static_assert(!group || entries == 1 || Cut::J == atom, "neighbours in memory");
  static_assert(Panels::threads % across == 0, "the same place of all rows");
  const T* safe;
  const T* from;  // in the thread's first row of the next panel
  Index stride;   // elements from one of its rows to the next
  Index advance;  // elements from one panel to the next
  int to;         // element of the panel where its first row goes
  int first_row, entry;
  int left_entries, left_rows, left_places;

 public:
  __device__ VectorCopies(const KronSparseArguments<T>& a, const SparseTile& tile)
      : safe(a.x),
        stride(step * (rows ? a.d * a.inner : a.a * a.c * a.d)),
        advance(depth * a.d * (rows ? a.inner : 1)) {
    const int own = threadIdx.x % across;
    first_row = threadIdx.x / across;
    const int lane_j = group ? own % Panels::j_warps : 0;
    entry = rows ? first_row : own / Panels::j_warps * entries;
    left_entries = left_of(a.c);
    const Index begin = (tile.o * a.a + tile.i) * a.c * a.d;
    if constexpr (rows) {
      from = a.x + (begin + tile.j + first_row * a.d) * a.inner + tile.r + own * pack;
      to = first_row * Panels::row + own * pack;
      left_rows = 0;
      left_places = left_of(a.inner - tile.r - own * pack);
    } else {
      from = a.x + begin + (first_row * a.a * a.c + entry) * a.d + tile.j + lane_j * atom;
      to = (lane_j * Panels::j_row + first_row * Panels::row + entry) * atom;
      left_rows = left_of(a.outer - tile.o - first_row);
      left_places = left_of(a.d - tile.j - lane_j * atom);
    }
  }

  // Begins to copy the next panel. Single elements of 16 bits, for which there is no asynchronous
  // copy, are there when it returns.
  __device__ void next(T* panel) {
    if constexpr (together * sizeof(T) == 2) {
      T held[turns * parts];  // all are read before the first is written
      each_copy([&](int n, int, const T* source, bool wanted) {
        held[n] = wanted ? *source : T{};
      });
      each_copy([&](int n, int place, const T*, bool) { panel[place] = held[n]; });
    } else {
      each_copy([&](int, int place, const T* source, bool wanted) {
        copy_first<together>(panel + place, source, safe, wanted);
      });
    }
    from += advance;
    left_entries -= depth;
  }

 private:
  // Calls copy(number, element of the panel, address, whether it exists) for each copy of the
  // thread in the next panel.
  template <class Copy>
  __device__ void each_copy(Copy&& copy) const {
    const T* source = from;
    const bool has = (rows || entry < left_entries) && left_places > 0;
    UNROLLED for (int turn = 0; turn < turns; ++turn) {
      const int row = turn * step;
      if (row + step > all && first_row >= all - row) break;
      const bool wanted = has && row < (rows ? left_entries - entry : left_rows);
      UNROLLED for (int n = 0; n < parts; ++n) {
        const int first = n * together;
        copy(turn * parts + n, to + row * Panels::row * atom + first, source + first,
             wanted && (!group || first < left_places));
      }
      source += stride;
    }
  }
};

// Copies the panels of values of one tile. Rows of stored values are padded with zeros to whole
// words of 16 bytes, which a thread copies: the same one of every `step`-th row. Units::slot says in
// which row of the panel a row k is.
template <class T, class Cut, class Units>
class ValueCopies {
  using Panels = SparsePanels<T, Cut>;
  static constexpr int pack = 16 / int(sizeof(T)), across = Cut::depth / pack;
  static constexpr int step = Panels::threads / across, all = Cut::J * Cut::results;
  static_assert(Panels::threads % across == 0, "the same word of all rows");
  const T* safe;
  const T* from;  // the thread's word of row (j, k) = (0, 0)
  Index row, of_j;
  int first_row, entry;
  int left_entries, left_rows, left_j;

 public:
  __device__ ValueCopies(const KronSparseArguments<T>& a, const SparseTile& tile)
      : safe(a.values),
        row(a.row),
        of_j(a.b * a.row),
        first_row(threadIdx.x / across),
        entry(threadIdx.x % across * pack),
        left_entries(left_of(a.row)),
        left_rows(left_of(a.b - tile.k)),
        left_j(left_of(a.d - tile.j)) {
    from = a.values + ((tile.i * a.d + tile.j) * a.b + tile.k) * a.row + entry;
  }

  // Begins to copy the next panel.
  __device__ void next(T* panel) {
    const bool has = entry < left_entries;
    UNROLLED for (int turn = 0; turn < all; turn += step) {
      if (turn + step > all && first_row >= all - turn) break;
      // one of j and k is the same for all threads, or for all turns, where sizes divide each other
      const int number = first_row + turn;
      const int j = Cut::results % step == 0 ? turn / Cut::results : number / Cut::results;
      const int k = Cut::results % step == 0   ? first_row + turn % Cut::results
                    : step % Cut::results == 0 ? first_row % Cut::results
                                               : number % Cut::results;
      const bool wanted = has && k < left_rows && j < left_j;
      copy_first<pack>(panel + j * Panels::value_j_row + Units::slot(k) * Panels::value_row + entry,
                       from + j * of_j + k * row, safe, wanted);
    }
    from += Cut::depth;
    left_entries -= Cut::depth;
  }
};

// Copies the panels of some tiles, one after another. Values that are kept are those of the first
// tile.
template <class T, class Cut, class Units>
class SparseCopies {
  using Panels = SparsePanels<T, Cut>;
  const KronSparseArguments<T>& arguments;
  T* const shared;
  TileNumbers numbers;
  SparseTile tile{};
  bool exists;
  VectorCopies<T, Cut> x;
  ValueCopies<T, Cut, Units> values;
  int left;  // entries l of the tile that have not been copied
  int stage = 0, kept = 0;

 public:
  __device__ SparseCopies(const KronSparseArguments<T>& a, const TileNumbers& tiles, T* target)
      : arguments(a),
        shared(target),
        numbers(tiles),
        exists(numbers.find<Cut>(a, tile)),
        x(a, tile),
        values(a, tile),
        left(left_of(a.c)) {}

  // Begins to copy the next panel, if any, and ends a batch of copies.
  __device__ void next() {
    if (exists && left <= 0) {
      exists = numbers.find<Cut>(arguments, tile);
      if (exists) {
        x = VectorCopies<T, Cut>(arguments, tile);
        if constexpr (Cut::kept == 0) values = ValueCopies<T, Cut, Units>(arguments, tile);
        left = left_of(arguments.c);
      }
    }
    if (exists) {
      T* const panel = shared + stage * Panels::stage;
      x.next(panel);
      if constexpr (Cut::kept == 0)
        values.next(panel + Panels::x_elements);
      else if (kept < Cut::kept)
        values.next(shared + Cut::stages * Panels::stage + kept++ * Panels::value_elements);
      stage = stage + 1 == Cut::stages ? 0 : stage + 1;
      left -= Cut::depth;
    }
    commit_copies();
  }
};

}  // namespace batchkron
