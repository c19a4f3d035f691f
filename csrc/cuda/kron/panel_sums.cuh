// For cuda/kron/panels.cuh: the layout of panels in shared memory, and the sums of a tile that a
// thread has in registers.
#pragma once

#include "cuda/common/matrix_units.cuh"
#include "cuda/common/scalar.cuh"

namespace batchkron {

// How a product is divided. The factor is K x C. along: R is 1, so that the entries of a fibre are
// contiguous. A thread block computes `fibres` x `results` sums, `depth` entries at a time. rows,
// columns: fibres and results of a thread; in double precision, the rows and columns of a warp's
// part of the tile, of which the columns are neighbours in y. stages: panels in shared memory at a
// time. blocks: thread blocks on a multiprocessor.
template <int C_, int K_, bool along_, int fibres_, int results_, int depth_, int rows_,
          int columns_, int threads_, int stages_, int blocks_>
struct PanelCut {
  static constexpr int C = C_, K = K_, fibres = fibres_, results = results_, depth = depth_;
  static constexpr int rows = rows_, columns = columns_, threads = threads_;
  static constexpr int stages = stages_, blocks = blocks_;
  static constexpr bool along = along_;
  static constexpr int steps = (C + depth - 1) / depth;
};

// A panel in shared memory: `depth` entries of each of `size` fibres, or of rows of the factor.
// Either the entries of a fibre are contiguous or the fibres of an entry are. Padding keeps what a
// warp reads together in different banks.
template <class T, int size_, int depth, bool entries_together>
struct PanelLayout {
  static constexpr int pack = 16 / int(sizeof(T)), size = size_;
  static constexpr int pad = is_same<T, double> ? 4 : pack;
  static constexpr int stride = (entries_together ? depth : size) + pad;
  static constexpr int elements = (entries_together ? size : depth) * stride;

  __device__ static constexpr int place(int i, int d) {
    return entries_together ? i * stride + d : d * stride + i;
  }
};

template <class T, class Cut>
struct Panels {
  using Fibres = PanelLayout<T, Cut::fibres, Cut::depth, Cut::along>;
  using Results = PanelLayout<T, Cut::results, Cut::depth, true>;
  static constexpr int stage = Fibres::elements + Results::elements;
};

// The sums of a thread, for ordinary cores: all dtypes but real double precision.
template <class T, class Cut>
struct PanelSums {
  static constexpr int pack = 16 / int(sizeof(T));
  static constexpr int across = Cut::fibres / Cut::rows;     // threads along fibres
  static constexpr int down = Cut::results / Cut::columns;   // threads along results
  static constexpr int lanes = Cut::along ? 4 : 8;           // lanes of a warp along fibres
  static constexpr int together = Cut::along ? 1 : pack;     // neighbouring fibres of a thread
  static constexpr int fibre_groups = Cut::rows / together, result_groups = Cut::columns;
  using Fibres = typename Panels<T, Cut>::Fibres;
  using Results = typename Panels<T, Cut>::Results;
  static_assert(across * down == Cut::threads && across % lanes == 0, "whole warps");
  static_assert(Cut::rows % together == 0 && Cut::depth % pack == 0, "whole words");
  struct alignas(16) Word {
    T values[pack];
  };
  T sums[Cut::rows][Cut::columns];
  int row, column;

  // Lanes 2 i and 2 i + 1 have the same fibres and different results, so that a warp's reads of a
  // word are shared.
  __device__ explicit PanelSums(int thread)
      : row(thread % 32 / 2 % lanes + thread / 32 % (across / lanes) * lanes),
        column(thread % 2 + thread % 32 / (2 * lanes) * 2 +
               thread / 32 / (across / lanes) * (32 / lanes)) {
    clear();
  }
  __device__ void clear() {
    UNROLLED for (int i = 0; i < Cut::rows; ++i)
      UNROLLED for (int j = 0; j < Cut::columns; ++j) sums[i][j] = T{};
  }

  // The sums are in groups of `together` that are neighbours in y. fibre(v), result(j): the first
  // of group (v, j); at(v, j, i): its sum i.
  __device__ int fibre(int v) const { return (v * across + row) * together; }
  __device__ int result(int j) const { return j * down + column; }
  __device__ T at(int v, int j, int i) const { return sums[v * together + i][j]; }

  __device__ static Word word(const T* from) { return *reinterpret_cast<const Word*>(from); }

  // Adds the products of two panels. copy() begins the copy of later ones.
  template <class Copy>
  __device__ void add(const T* fibres, const T* results, Copy copy) {
    copy();
    UNROLLED for (int d = 0; d < Cut::depth; d += pack) {
      Word b[Cut::columns];
      UNROLLED for (int j = 0; j < Cut::columns; ++j)
        b[j] = word(results + Results::place(column, d) + Results::place(j * down, 0));
      if constexpr (Cut::along) {
        UNROLLED for (int i = 0; i < Cut::rows; ++i) {
          const Word a = word(fibres + Fibres::place(row, d) + Fibres::place(i * across, 0));
          UNROLLED for (int e = 0; e < pack; ++e)
            UNROLLED for (int j = 0; j < Cut::columns; ++j)
              sums[i][j] = multiply_add(sums[i][j], a.values[e], b[j].values[e]);
        }
      } else {
        UNROLLED for (int e = 0; e < pack; ++e)
          UNROLLED for (int v = 0; v < Cut::rows; v += pack) {
            const Word a = word(fibres + Fibres::place(row * pack, d + e) + v * across);
            UNROLLED for (int i = 0; i < pack; ++i)
              UNROLLED for (int j = 0; j < Cut::columns; ++j)
                sums[v + i][j] = multiply_add(sums[v + i][j], a.values[i], b[j].values[e]);
          }
      }
    }
  }
};

// The same in double precision on matrix units, with fragments of 16 rows by 8 columns. The columns
// are the neighbours in y: results if R is 1, else fibres.
template <class Cut>
struct PanelSums<double, Cut> {
  static constexpr int blocks = Cut::rows / 16, tiles = Cut::columns / 8;
  using Fibres = typename Panels<double, Cut>::Fibres;
  using Results = typename Panels<double, Cut>::Results;
  using Rows = typename Choice<Cut::along, Fibres, Results>::Type;
  using Columns = typename Choice<Cut::along, Results, Fibres>::Type;
  static constexpr int warps = Columns::size / Cut::columns;  // warps along columns
  static_assert(Rows::size / Cut::rows * warps * 32 == Cut::threads, "a warp each");
  static constexpr int together = 2;  // neighbours in y
  static constexpr int fibre_groups = Cut::along ? 2 * blocks : tiles;
  static constexpr int result_groups = Cut::along ? tiles : 2 * blocks;
  double sums[tiles][blocks][4];
  int row, column, lane;

  __device__ explicit PanelSums(int thread)
      : row(thread / 32 / warps * Cut::rows),
        column(thread / 32 % warps * Cut::columns),
        lane(thread % 32) {
    clear();
  }
  __device__ void clear() {
    UNROLLED for (int t = 0; t < tiles; ++t)
      UNROLLED for (int m = 0; m < blocks; ++m)
        UNROLLED for (int i = 0; i < 4; ++i) sums[t][m][i] = 0;
  }

  __device__ int of_rows(int group) const { return row + 8 * group + lane / 4; }
  __device__ int of_columns(int tile) const { return column + 8 * tile + 2 * (lane % 4); }
  __device__ int fibre(int v) const { return Cut::along ? of_rows(v) : of_columns(v); }
  __device__ int result(int j) const { return Cut::along ? of_columns(j) : of_rows(j); }
  __device__ double at(int v, int j, int i) const {
    const int group = Cut::along ? v : j;
    return sums[Cut::along ? j : v][group / 2][group % 2 * 2 + i];
  }

  // As above, but the first products are issued before copy(), so that matrix units work meanwhile.
  template <class Copy>
  __device__ void add(const double* fibres, const double* results, Copy copy) {
    const double* const from_a =
        (Cut::along ? fibres : results) + Rows::place(row + lane / 4, lane % 4);
    const double* const from_b =
        (Cut::along ? results : fibres) + Columns::place(column + lane / 4, lane % 4);
    UNROLLED for (int d = 0; d < Cut::depth; d += 4) {
      double a[2 * blocks], b[tiles];
      UNROLLED for (int h = 0; h < 2 * blocks; ++h) a[h] = from_a[Rows::place(8 * h, d)];
      UNROLLED for (int t = 0; t < tiles; ++t) b[t] = from_b[Columns::place(8 * t, d)];
      UNROLLED for (int t = 0; t < tiles; ++t)
        UNROLLED for (int m = 0; m < blocks; ++m)
          multiply_16_8_4(sums[t][m], a[2 * m], a[2 * m + 1], b[t]);
      if (d == 0) copy();
    }
  }
};

}  // namespace batchkron
