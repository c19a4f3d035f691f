// For cuda/kron_sparse/tiles.cuh: the sums of a tile on matrix units, and on ordinary cores.
// Each class has sums of `down` rows k and `across` columns of a warp, of each j of an atom. add()
// adds the products of one panel; each() visits runs of neighbours in y: visit(k, column, sums),
// with k and column counted from the tile's, and sums[j][0 ... run - 1] along the columns in kRows
// and along k otherwise.
#pragma once

#include "cuda/common/matrix_units.cuh"
#include "cuda/kron_sparse/panels.cuh"

namespace batchkron {

// Where the thread's warp is in the tile, and the lane.
template <class T, class Cut>
struct SparseWarp {
  using Panels = SparsePanels<T, Cut>;
  // j: of atoms; row = lane / 4 and part = lane % 4, as fragments are divided
  int j, k, column, row, part;

  __device__ SparseWarp() {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    j = warp % Panels::j_warps;
    k = warp / Panels::j_warps % Cut::warps_down * Panels::down;
    column = warp / Panels::j_warps / Cut::warps_down * Panels::across;
    row = lane / 4;
    part = lane % 4;
  }
};

// Sums on matrix units: `tall` x `wide` fragments of 16 x 8. In kRows the 16 are rows k and the 8
// are columns, otherwise the other way around: so the two neighbouring sums of a lane are
// neighbours in y. `together` fragments are interleaved, which makes that 2 together neighbours: of
// 8 together columns fragment q has columns q, q + together, ... .
template <class T, class Cut, int most>
struct SparseFragments {
  using Panels = SparsePanels<T, Cut>;
  static constexpr bool rows = Panels::rows;
  static constexpr int tall = (rows ? Panels::down : Panels::across) / 16;
  static constexpr int wide = (rows ? Panels::across : Panels::down) / 8;
  static constexpr int together = most >= 4 && wide % 4 == 0   ? 4
                                  : most >= 2 && wide % 2 == 0 ? 2
                                                               : 1;
  static constexpr int run = 2 * together, unit = 8 * together;
  static_assert(tall * 16 == (rows ? Panels::down : Panels::across) &&
                    wide * 8 == (rows ? Panels::across : Panels::down),
                "whole fragments");

  // The row of a panel where the values of row k are.
  __device__ static int slot(int k) {
    return rows ? k : k / unit * unit + k % together * 8 + k % unit / together;
  }

  template <class Sum, int atom, class Visit>
  __device__ static void each(const Sum (&sums)[atom][tall][wide][4], Visit visit) {
    const SparseWarp<T, Cut> warp;
    UNROLLED for (int m = 0; m < tall; ++m)
      UNROLLED for (int h = 0; h < 2; ++h)
        UNROLLED for (int first = 0; first < wide; first += together) {
          const int long_side = m * 16 + h * 8 + warp.row;
          const int short_side = first * 8 + warp.part * run;
          Sum own[atom][run];
          UNROLLED for (int j = 0; j < atom; ++j)
            UNROLLED for (int n = 0; n < run; ++n)
              own[j][n] = sums[j][m][first + n % together][2 * h + n / together];
          visit(warp.k + (rows ? long_side : short_side),
                warp.column + (rows ? short_side : long_side), own);
        }
  }
};

// Numbers of 16 bits.
template <class T, class Cut>
class HalfUnits : public SparseFragments<T, Cut, 4 / Cut::atom> {
  using Fragments = SparseFragments<T, Cut, 4 / Cut::atom>;
  using Panels = SparsePanels<T, Cut>;
  static constexpr int atom = Cut::atom, tall = Fragments::tall, wide = Fragments::wide;
  static constexpr int together = Fragments::together;
  static_assert(!Panels::rows || together > 1, "columns are read in pairs");
  float sums[atom][tall][wide][4] = {};

  __device__ static unsigned pair_at(const T* from) {
    return *reinterpret_cast<const unsigned*>(from);
  }
  // The fragment of 16 rows from a panel whose rows are sums' indices.
  __device__ static void load_tall(const T* from, int row, unsigned (&a)[4]) {
    a[0] = pair_at(from), a[1] = pair_at(from + 8 * row);
    a[2] = pair_at(from + 8), a[3] = pair_at(from + 8 * row + 8);
  }
  // The same for the j of atoms: each pair of entries is gathered from two atoms.
  __device__ static void load_atoms(const T* from, int m, unsigned (&a)[atom][tall][4]) {
    constexpr int words = atom / 2, most = atom < 4 ? atom : 4;  // of an atom, read together
    UNROLLED for (int i = 0; i < 4; ++i) {
      const T* const two = from + (i % 2 * 8 * Panels::row + i / 2 * 8) * atom;
      unsigned held[atom];
      UNROLLED for (int n = 0; n < atom; n += most) {
        const auto word = *reinterpret_cast<const Elements<unsigned, most>*>(two + 2 * n);
        UNROLLED for (int q = 0; q < most; ++q) held[n + q] = word.values[q];
      }
      UNROLLED for (int n = 0; n < words; ++n) {
        a[2 * n][m][i] = __byte_perm(held[n], held[words + n], 0x5410);
        a[2 * n + 1][m][i] = __byte_perm(held[n], held[words + n], 0x7632);
      }
    }
  }
  // Of `together` columns the pairs of entries from two rows of x.
  __device__ static void load_columns(const T* from, unsigned (&b)[together]) {
    constexpr int words = together < 2 ? 1 : together / 2;
    const auto first = *reinterpret_cast<const Elements<unsigned, words>*>(from);
    const auto second = *reinterpret_cast<const Elements<unsigned, words>*>(from + Panels::row);
    UNROLLED for (int n = 0; n < words; ++n) {
      b[2 * n] = __byte_perm(first.values[n], second.values[n], 0x5410);
      if constexpr (together > 1)
        b[2 * n + 1] = __byte_perm(first.values[n], second.values[n], 0x7632);
    }
  }

 public:
  __device__ void add(const T* x, const T* values) {
    const SparseWarp<T, Cut> warp;
    const T* const own = values + warp.j * atom * Panels::value_j_row +
                         (warp.k + warp.row) * Panels::value_row + 2 * warp.part;
    UNROLLED for (int s = 0; s < Cut::depth; s += 16) {
      unsigned a[atom][tall][4];
      UNROLLED for (int m = 0; m < tall; ++m) {
        if constexpr (Cut::layout == Layout::kRows)
          load_tall(own + m * 16 * Panels::value_row + s, Panels::value_row, a[0][m]);
        else if constexpr (Cut::layout == Layout::kAlong)
          load_tall(x + (warp.column + m * 16 + warp.row) * Panels::row + 2 * warp.part + s,
                    Panels::row, a[0][m]);
        else
          load_atoms(x + (warp.j * Panels::j_row + (warp.column + m * 16 + warp.row) * Panels::row +
                          2 * warp.part + s) *
                             atom,
                     m, a);
      }
      UNROLLED for (int n = 0; n < wide; n += together) {
        unsigned b[atom][together], b8[atom][together];
        if constexpr (Cut::layout == Layout::kRows) {
          const T* const from = x + (s + 2 * warp.part) * Panels::row + warp.column + n * 8 +
                                warp.row * together;
          load_columns(from, b[0]);
          load_columns(from + 8 * Panels::row, b8[0]);
        } else {
          UNROLLED for (int j = 0; j < atom; ++j)
            UNROLLED for (int q = 0; q < together; ++q) {
              const T* const from =
                  own + j * Panels::value_j_row + (n + q) * 8 * Panels::value_row + s;
              b[j][q] = pair_at(from), b8[j][q] = pair_at(from + 8);
            }
        }
        UNROLLED for (int j = 0; j < atom; ++j)
          UNROLLED for (int q = 0; q < together; ++q)
            UNROLLED for (int m = 0; m < tall; ++m)
              multiply_16_8_16<T>(sums[j][m][n + q], a[j][m], b[j][q], b8[j][q]);
      }
    }
  }

  template <class Visit>
  __device__ void each(Visit visit) const { Fragments::each(sums, visit); }
};

// float64, and float32 in TF32 by one or three products (cuda/common/matrix_units.cuh).
template <class T, class Cut>
class EightUnits
    : public SparseFragments<T, Cut, sizeof(T) == 4 && Cut::layout != Layout::kGroup ? 2 : 1> {
  using Panels = SparsePanels<T, Cut>;
  using Fragments = SparseFragments<T, Cut, sizeof(T) == 4 && !Panels::group ? 2 : 1>;
  static constexpr int atom = Cut::atom;
  static constexpr int tall = Fragments::tall, wide = Fragments::wide;
  static constexpr int together = Fragments::together, products = Cut::products;
  T sums[atom][tall][wide][4] = {};
  T small[atom][products == 3 ? tall : 1][products == 3 ? wide : 1][4] = {};

  // The operands of a panel's 8 entries: numbers themselves, or in TF32 their parts.
  struct Operand {
    T value;
    unsigned high, low;

    __device__ void set(T x) {
      if constexpr (sizeof(T) == 8) {
        value = x;
      } else if constexpr (products == 1) {
        high = nearest_tf32(x);
      } else {
        const Tf32Parts parts(x);
        high = parts.high, low = parts.low;
      }
    }
  };

  // sums of fragments (m, n) of one j for all m
  __device__ void multiply(int j, int n, const Operand (&a)[tall][4], const T (&b)[2]) {
    if constexpr (sizeof(T) == 8) {
      UNROLLED for (int m = 0; m < tall; ++m) {
        const T four[4] = {a[m][0].value, a[m][1].value, a[m][2].value, a[m][3].value};
        multiply_16_8_8(sums[j][m][n], four, b);
      }
    } else {
      Operand b0, b4;
      b0.set(b[0]), b4.set(b[1]);
      UNROLLED for (int m = 0; m < tall; ++m) {
        const unsigned high[4] = {a[m][0].high, a[m][1].high, a[m][2].high, a[m][3].high};
        if constexpr (products == 3) {
          const unsigned low[4] = {a[m][0].low, a[m][1].low, a[m][2].low, a[m][3].low};
          multiply_16_8_8(small[j][m][n], low, b0.high, b4.high);
          multiply_16_8_8(small[j][m][n], high, b0.low, b4.low);
        }
        multiply_16_8_8(sums[j][m][n], high, b0.high, b4.high);
      }
    }
  }

 public:
  __device__ void add(const T* x, const T* values) {
    const SparseWarp<T, Cut> warp;
    const T* const own = values + warp.j * atom * Panels::value_j_row +
                         (warp.k + warp.row) * Panels::value_row + warp.part;
    const T* const along =
        x + (warp.j * Panels::j_row + (warp.column + warp.row) * Panels::row + warp.part) * atom;
    UNROLLED for (int s = 0; s < Cut::depth; s += 8) {
      constexpr int tall_row = Panels::rows ? Panels::value_row : Panels::row;
      Operand a[atom][tall][4];
      UNROLLED for (int m = 0; m < tall; ++m) {
        const T* const from = (Panels::rows ? own : along) + (m * 16 * tall_row + s) * atom;
        UNROLLED for (int i = 0; i < 4; ++i) {
          const auto word = *reinterpret_cast<const Elements<T, atom>*>(
              from + (i % 2 * 8 * tall_row + i / 2 * 4) * atom);
          UNROLLED for (int j = 0; j < atom; ++j) a[j][m][i].set(word.values[j]);
        }
      }
      UNROLLED for (int n = 0; n < wide; n += together) {
        if constexpr (Panels::rows) {
          using Word = Elements<T, together>;
          const T* const from = x + (s + warp.part) * Panels::row + warp.column + n * 8 +
                                warp.row * together;
          const Word first = *reinterpret_cast<const Word*>(from);
          const Word second = *reinterpret_cast<const Word*>(from + 4 * Panels::row);
          UNROLLED for (int q = 0; q < together; ++q) {
            const T b[2] = {first.values[q], second.values[q]};
            multiply(0, n + q, a[0], b);
          }
        } else {
          UNROLLED for (int j = 0; j < atom; ++j)
            UNROLLED for (int q = 0; q < together; ++q) {
              const T* const from =
                  own + j * Panels::value_j_row + (n + q) * 8 * Panels::value_row + s;
              const T b[2] = {from[0], from[4]};
              multiply(j, n + q, a[j], b);
            }
        }
      }
    }
  }

  template <class Visit>
  __device__ void each(Visit visit) {
    if constexpr (products == 3) {
      UNROLLED for (int j = 0; j < atom; ++j)
        UNROLLED for (int m = 0; m < tall; ++m)
          UNROLLED for (int n = 0; n < wide; ++n)
            UNROLLED for (int i = 0; i < 4; ++i) sums[j][m][n][i] += small[j][m][n][i];
    }
    Fragments::each(sums, visit);
  }
};

// float32 on ordinary cores: a lane has `own_rows` rows k of `own_columns` columns.
template <class T, class Cut>
class CoreUnits {
  using Panels = SparsePanels<T, Cut>;
  static constexpr bool rows = Panels::rows;
  static constexpr int atom = Cut::atom;
  static constexpr int lanes_down = rows ? 4 : 8, lanes_across = 32 / lanes_down;
  static constexpr int own_rows = Panels::down / lanes_down;
  static constexpr int own_columns = Panels::across / lanes_across;
  static constexpr bool neighbours = Cut::layout == Layout::kAlong;  // whether rows of a lane are
  static_assert(own_rows * lanes_down == Panels::down &&
                    own_columns * lanes_across == Panels::across &&
                    (!rows || own_columns % 4 == 0),
                "whole lanes");
  using Word = Elements<T, 4>;
  T sums[atom][own_columns][own_rows] = {};

  __device__ static int lane_down() {
    return rows ? threadIdx.x % 32 / lanes_across : threadIdx.x % lanes_down;
  }
  __device__ static int lane_across() {
    return rows ? threadIdx.x % lanes_across : threadIdx.x % 32 / lanes_down;
  }
  __device__ static Word word_at(const T* from) { return *reinterpret_cast<const Word*>(from); }

 public:
  static constexpr int run = rows ? 4 : neighbours ? own_rows : 1;

  __device__ static int slot(int k) {
    if constexpr (!neighbours) return k;
    const int first = k / Panels::down * Panels::down, own = k % Panels::down;
    return first + own % own_rows * lanes_down + own / own_rows;
  }

  __device__ void add(const T* x, const T* values) {
    const SparseWarp<T, Cut> warp;
    const T* const own = values + warp.j * atom * Panels::value_j_row +
                         (warp.k + lane_down()) * Panels::value_row;
    UNROLLED_BY(1) for (int s = 0; s < Cut::depth; s += 4) {
      if constexpr (rows) {
        Word factors[own_rows];
        UNROLLED for (int k = 0; k < own_rows; ++k)
          factors[k] = word_at(own + k * lanes_down * Panels::value_row + s);
        UNROLLED for (int l = 0; l < 4; ++l)
          UNROLLED for (int n = 0; n < own_columns; n += 4) {
            const Word entries = word_at(x + (s + l) * Panels::row + warp.column +
                                         n * lanes_across + lane_across() * 4);
            UNROLLED for (int i = 0; i < 4; ++i)
              UNROLLED for (int k = 0; k < own_rows; ++k)
                sums[0][n + i][k] =
                    multiply_add(sums[0][n + i][k], factors[k].values[l], entries.values[i]);
          }
      } else {
        const T* const from =
            x + (warp.j * Panels::j_row + (warp.column + lane_across()) * Panels::row + s) * atom;
        T entries[own_columns][4 * atom];  // [l][j]
        UNROLLED for (int n = 0; n < own_columns; ++n)
          UNROLLED for (int first = 0; first < 4 * atom; first += 4) {
            const Word word = word_at(from + n * lanes_across * Panels::row * atom + first);
            UNROLLED for (int i = 0; i < 4; ++i) entries[n][first + i] = word.values[i];
          }
        UNROLLED for (int j = 0; j < atom; ++j)
          UNROLLED for (int k = 0; k < own_rows; ++k) {
            const Word factors =
                word_at(own + j * Panels::value_j_row + k * lanes_down * Panels::value_row + s);
            UNROLLED for (int l = 0; l < 4; ++l)
              UNROLLED for (int n = 0; n < own_columns; ++n)
                sums[j][n][k] =
                    multiply_add(sums[j][n][k], factors.values[l], entries[n][l * atom + j]);
          }
      }
    }
  }

  template <class Visit>
  __device__ void each(Visit visit) const {
    const SparseWarp<T, Cut> warp;
    if constexpr (rows) {
      UNROLLED for (int k = 0; k < own_rows; ++k)
        UNROLLED for (int n = 0; n < own_columns; n += 4) {
          T own[1][run];
          UNROLLED for (int i = 0; i < 4; ++i) own[0][i] = sums[0][n + i][k];
          visit(warp.k + lane_down() + k * lanes_down,
                warp.column + n * lanes_across + lane_across() * 4, own);
        }
    } else {
      UNROLLED for (int n = 0; n < own_columns; ++n)
        UNROLLED for (int k = 0; k < own_rows; k += run) {
          T own[atom][run];
          UNROLLED for (int j = 0; j < atom; ++j)
            UNROLLED for (int i = 0; i < run; ++i) own[j][i] = sums[j][n][k + i];
          visit(warp.k + (neighbours ? lane_down() * own_rows : lane_down() + k * lanes_down),
                warp.column + lane_across() + n * lanes_across, own);
        }
    }
  }
};

template <class T, class Cut>
struct SparseUnits {
  using Type = typename Choice<
      sizeof(T) == 2, HalfUnits<T, Cut>,
      typename Choice<sizeof(T) == 8 || Cut::products != 0, EightUnits<T, Cut>,
                      CoreUnits<T, Cut>>::Type>::Type;
};

}  // namespace batchkron
