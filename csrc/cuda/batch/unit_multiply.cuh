// For cuda/batch/matrix_units.cuh and unit_slices.cuh: matrices of one or two modes as fragments of
// the matrix units of double precision, and the multiply F_slow X F_fast^T of slices X. Elements of
// single precision are converted when they are multiplied.
#pragma once

#include "cuda/batch/list.cuh"
#include "cuda/common/matrix_units.cuh"

namespace batchkron {

// A lane's place in fragments: row = lane / 4, column = lane % 4 (see multiply_8_8_4).
struct UnitLane {
  int row, column;
};

// Which entries of a mode of n a lane has in fragments, which are filled up with zeros.
//
// As the contracted index of a multiply, entries come in steps of four, two steps at a time: of
// each eight a lane has entries 2 column and 2 column + 1; of a last single step, entry `column`.
// As the free index of the multiply before it, they come in eights: a lane has entry `row` of each
// eight; of a last eight with four entries or less, each entry belongs to two rows. With this
// numbering a lane's results of the first multiply are its operands of the second one.
template <int n>
struct UnitEntries {
  static_assert(n <= 16, "one or two eights");
  static constexpr int steps = (n + 3) / 4, eights = (n + 7) / 8;

  static constexpr bool is_single(int s) { return steps % 2 == 1 && s == steps - 1; }
  static constexpr bool is_half(int eight) { return is_single(2 * eight); }
  // Whether all lanes have an entry of eight i.
  static constexpr bool is_whole(int i) { return n % 4 == 0 || i < n / 8; }

  __device__ static int at_step(int s, UnitLane lane) {
    return s / 2 * 8 + (is_single(s) ? lane.column : 2 * lane.column + s % 2);
  }
  __device__ static int in_eight(int i, UnitLane lane) {
    return i * 8 + (is_half(i) ? lane.row / 2 : lane.row);
  }
  __device__ static bool has_step(int s, UnitLane lane) {
    return is_whole(s / 2) || at_step(s, lane) < n;
  }
  __device__ static bool has_eight(int i, UnitLane lane) {
    return is_whole(i) || in_eight(i, lane) < n;
  }
};

// The matrix of one mode of up to 8 results. entry(h, s): the element for the lane's row of half h,
// which stands for result(h, row), and for the lane's entry of step s. Rows beyond the results
// repeat the last one.
template <class T, int step_, int C, int K>
struct NarrowMode {
  using Entries = UnitEntries<C>;
  static constexpr int step = step_, inputs = C, outputs = K, halves = 1;
  T entries[Entries::steps];

  template <class Factors>
  __device__ void load(const Factors& factors, UnitLane lane) {
    const T* const source = factors.template at<step>();
    UNROLLED for (int s = 0; s < Entries::steps; ++s) {
      entries[s] = 0;
      if (Entries::has_step(s, lane))
        entries[s] = source[Entries::at_step(s, lane) * K + (lane.row < K ? lane.row : K - 1)];
    }
  }
  __device__ double entry(int, int s) const { return entries[s]; }
  __device__ static int result(int, int row) { return row; }
  __device__ static bool has(int, int row) { return row < K; }
};

// The matrix of one mode of 9 to 16 results; half h has results 2 row + h.
template <class T, int step_, int C, int K>
struct WideMode {
  using Entries = UnitEntries<C>;
  static constexpr int step = step_, inputs = C, outputs = K, halves = 2;
  T entries[Entries::steps][2];

  template <class Factors>
  __device__ void load(const Factors& factors, UnitLane lane) {
    load(factors.template at<step>(), K, lane);
  }
  // From a matrix [entry][result] with rows `pitch` elements apart.
  __device__ void load(const T* matrix, int pitch, UnitLane lane) {
    UNROLLED for (int s = 0; s < Entries::steps; ++s) {
      entries[s][0] = entries[s][1] = 0;
      if (!Entries::has_step(s, lane)) continue;
      const T* const entry = matrix + Entries::at_step(s, lane) * pitch;
      if constexpr (K % 2 == 0) {
        load_elements<2>(entry + (2 * lane.row < K ? 2 * lane.row : K - 2), entries[s]);
      } else {
        UNROLLED for (int h = 0; h < 2; ++h)
          entries[s][h] = entry[2 * lane.row + h < K ? 2 * lane.row + h : K - 1];
      }
    }
  }
  __device__ double entry(int h, int s) const { return entries[s][h]; }
  __device__ static int result(int h, int row) { return 2 * row + h; }
  __device__ static bool has(int h, int row) { return 2 * row + h < K; }
};

// Two modes of 4 as their Kronecker product of 16 x 16; half h has results 2 row + h.
template <class T, int slow, int fast>
struct PairedModes {
  static constexpr int inputs = 16, outputs = 16, halves = 2;
  T outer[2], inner[2][2];

  template <class Factors>
  __device__ void load(const Factors& factors, UnitLane lane) {
    const T* const a = factors.template at<slow>();
    const T* const b = factors.template at<fast>();
    UNROLLED for (int j = 0; j < 2; ++j) outer[j] = a[(2 * j + lane.column / 2) * 4 + lane.row / 2];
    UNROLLED for (int j = 0; j < 2; ++j)
      load_elements<2>(b + (lane.column % 2 * 2 + j) * 4 + lane.row % 2 * 2, inner[j]);
  }
  __device__ double entry(int h, int s) const {
    return double(outer[s / 2]) * double(inner[s % 2][h]);
  }
  __device__ static int result(int h, int row) { return 2 * row + h; }
  __device__ static bool has(int, int) { return true; }
};

// Stands for the split mode, or for the mode H, if there is none.
struct NoMode {
  static constexpr int n = 1;
};
template <int step_, int n_>
struct UnitMode {
  static constexpr int step = step_, n = n_;
};

// A lane's elements of `slices` slices (slow entries, fast entries): x[h][n][s] is the element of
// slice h with the lane's slow entry of eight n and its fast entry of step s; zero if there is
// none.
template <class T, class Slow, class Fast, int slices>
struct UnitTile {
  using Rows = UnitEntries<Slow::inputs>;
  using Columns = UnitEntries<Fast::inputs>;
  using Slice = T[Rows::eights][Columns::steps];
  Slice x[slices];

  __device__ static void load_slice(const T* source, UnitLane lane, Slice& x, int h = 0) {
    UNROLLED for (int n = 0; n < Rows::eights; ++n)
      UNROLLED for (int s = 0; s < Columns::steps; s += 2) {
        const T* const pair = source + (h * Slow::inputs + Rows::in_eight(n, lane)) * Fast::inputs +
                              Columns::at_step(s, lane);
        const bool is_single = Columns::is_single(s), has_row = Rows::has_eight(n, lane);
        if (Fast::inputs % 2 == 0 && !is_single) {
          if (has_row && Columns::has_step(s, lane)) load_elements<2>(pair, x[n] + s);
          else x[n][s] = x[n][s + 1] = 0;
        } else {
          UNROLLED for (int j = 0; j < (is_single ? 1 : 2); ++j)
            x[n][s + j] = has_row && Columns::has_step(s + j, lane) ? pair[j] : T(0);
        }
      }
  }
  __device__ void load(const T* source, UnitLane lane) {
    UNROLLED for (int h = 0; h < slices; ++h) load_slice(source, lane, x[h], h);
  }

  // Becomes sum_c shares[c] tiles[c]. Entries beyond the mode stay zero even if a share is not
  // finite.
  template <class From, int split>
  __device__ void mix(const double (&shares)[split], const From (&tiles)[split], UnitLane lane) {
    UNROLLED for (int h = 0; h < slices; ++h)
      UNROLLED for (int n = 0; n < Rows::eights; ++n)
        UNROLLED for (int s = 0; s < Columns::steps; ++s) {
          double sum = shares[0] * tiles[0].x[h][n][s];
          UNROLLED for (int c = 1; c < split; ++c) sum += shares[c] * tiles[c].x[h][n][s];
          x[h][n][s] = Columns::has_step(s, lane) ? sum : 0;
        }
  }
};

// Multiplies slices X by two matrices, F_slow X F_fast^T.
template <class Slow, class Fast>
struct UnitMultiply {
  static constexpr int halves = Slow::halves;
  static_assert(Fast::halves == halves, "matrices of one kind");
  using Rows = UnitEntries<Slow::inputs>;
  using Columns = UnitEntries<Fast::inputs>;
  using Sums = double[halves][2 * halves];
  double slow[Rows::eights][2 * halves];     // [eight of entries][step, half of results]
  double fast[Columns::eights][2 * halves];  // likewise

  __device__ UnitMultiply(const Slow& outer, const Fast& inner) {
    UNROLLED for (int h = 0; h < halves; ++h) {
      UNROLLED for (int s = 0; s < Rows::steps; ++s)
        slow[s / 2][s % 2 * halves + h] = outer.entry(h, s);
      UNROLLED for (int s = 0; s < Columns::steps; ++s)
        fast[s / 2][s % 2 * halves + h] = inner.entry(h, s);
    }
  }
  // Multiplies F_slow by a weight. Entries beyond the mode stay zero even if the weight is not
  // finite.
  __device__ void scale(double weight, UnitLane lane) {
    UNROLLED for (int s = 0; s < Rows::steps; ++s)
      UNROLLED for (int h = 0; h < halves; ++h)
        if (Rows::has_step(s, lane)) slow[s / 2][s % 2 * halves + h] *= weight;
  }

  // Whether sums[i][2 j + p] of a lane is a result, and which element of the slice of results it
  // is.
  __device__ static bool has(int i, int j, int p, UnitLane lane) {
    const int other = 2 * lane.column + p;
    if constexpr (halves == 1) return Slow::has(0, other) && Fast::has(0, lane.row);
    return Slow::has(j, lane.row) && Fast::has(i, other);
  }
  __device__ static int place(int i, int j, int p, UnitLane lane) {
    const int other = 2 * lane.column + p;
    if constexpr (halves == 1) return other * Fast::outputs + lane.row;
    return Slow::result(j, lane.row) * Fast::outputs + Fast::result(i, other);
  }

  // sums += F_slow X F_fast^T for `count` slices at a time. The first multiply is F_fast X^T, whose
  // results are in registers what the second one needs (UnitEntries).
  template <int count, class Slice>
  __device__ void add_to(Sums (&sums)[count], const Slice* x, UnitLane lane) const {
    double first[count][Rows::eights][2 * halves] = {};
    UNROLLED for (int i = 0; i < Columns::eights; ++i)
      UNROLLED for (int n = 0; n < Rows::eights; ++n)
        UNROLLED for (int j = 0; j < count; ++j) multiply_first(first[j][n], i, x[j][n] + 2 * i);
    UNROLLED for (int n = 0; n < Rows::eights; ++n) {
      UNROLLED for (int j = 0; j < count; ++j) clear_padding(first[j][n], n, lane);
      UNROLLED for (int f = 0; f < 2; ++f)
        UNROLLED for (int j = 0; j < count; ++j)
          if constexpr (halves == 2) {
            if (Rows::is_half(n))
              multiply_16_8_4(sums[j][f], slow[n][0], slow[n][1], first[j][n][2 * f]);
            else
              multiply_16_8_8(sums[j][f], slow[n], first[j][n] + 2 * f);
          } else if (f == 0 || !Rows::is_half(n)) {
            multiply_8_8_4(sums[j][0][0], sums[j][0][1], first[j][n][f], slow[n][f]);
          }
    }
  }

  // Multiplies two slices of up to 8 x 8 at once, which fill fragments of 16 rows.
  static constexpr bool takes_two = halves == 1 && Rows::steps == 2 && Columns::steps == 2;
  template <class Slice>
  __device__ void multiply_two(Sums& one, Sums& two, const Slice& x, const Slice& z,
                               UnitLane lane) const {
    double first[2] = {}, second[2] = {}, both[4] = {};
    multiply_first(first, 0, x[0]);
    multiply_first(second, 0, z[0]);
    clear_padding(first, 0, lane);
    clear_padding(second, 0, lane);
    const double a[] = {first[0], second[0], first[1], second[1]};
    multiply_16_8_8(both, a, slow[0]);
    UNROLLED for (int p = 0; p < 2; ++p) one[0][p] = both[p], two[0][p] = both[2 + p];
  }

 private:
  template <class T>
  __device__ void multiply_first(double (&first)[2 * halves], int i, const T* x) const {
    if constexpr (halves == 2) {
      if (Columns::is_half(i)) {
        multiply_16_8_4(first, fast[i][0], fast[i][1], x[0]);
      } else {
        const double pair[] = {x[0], x[1]};
        multiply_16_8_8(first, fast[i], pair);
      }
    } else {
      UNROLLED for (int s = 0; s < (Columns::is_half(i) ? 1 : 2); ++s)
        multiply_8_8_4(first[0], first[1], fast[i][s], x[s]);
    }
  }
  // Sets results of entries beyond the mode to zero. They are zero already unless a factor has an
  // infinity or NaN, which must not reach other results.
  __device__ static void clear_padding(double (&first)[2 * halves], int n, UnitLane lane) {
    UNROLLED for (int i = 0; i < 2 * halves; ++i)
      if (!Rows::has_step(2 * n + i % 2, lane)) first[i] = 0;
  }
};

// The number of elements of each step's matrix.
template <int... elements>
struct UnitLayout {
  static constexpr int steps = int(sizeof...(elements));

  template <class T>
  static constexpr int pitch(int s) {
    constexpr int sizes[] = {elements...};
    return matrix_pitch<T>(sizes[s]);
  }
};

}  // namespace batchkron
