// What batch lists on the matrix units of double precision share: matrices of one or two modes as
// fragments, and the multiply of slices by two of them.
#pragma once

#include "batch_list.cuh"
#include "double_units.cuh"

namespace batchkron {

// A lane's place in fragments, see `UnitEntries`.
struct UnitLane {
  int row, column;
};

// How the n entries of a mode, a multiple of 4, are numbered in fragments. As columns of a matrix
// they are steps of four, in pairs: a lane has entries 2 `column` and + 1 of each eight, of a single
// last step one each. As columns of other fragments each eight is one, in which four that remain come
// twice: so results of those are columns of a matrix as they lie in the lanes.
template <int n>
struct UnitEntries {
  static_assert(n % 4 == 0 && n <= 16, "fragments of one or two halves");
  static constexpr int steps = n / 4, eights = (n + 7) / 8;

  // Whether step s, or eight s, has four entries.
  static constexpr bool is_single(int s) { return n % 8 == 4 && s == steps - 1; }
  static constexpr bool is_half(int eight) { return n % 8 == 4 && eight == eights - 1; }

  __device__ static int at_step(int s, UnitLane lane) {
    return s / 2 * 8 + (is_single(s) ? lane.column : 2 * lane.column + s % 2);
  }
  __device__ static int in_eight(int eight, UnitLane lane) {
    return eight * 8 + (is_half(eight) ? lane.row / 2 : lane.row);
  }
};

// One mode of 8 as a matrix. entry(h, s): of the result that row `row` of half h stands for, and of
// the lane's entry of step s.
template <int step>
struct SingleMode {
  static constexpr int size = 8, halves = 1, steps = 2;
  double entries[2];

  template <class Factors>
  __device__ void load(const Factors& factors, UnitLane lane) {
    const double* const source = factors.template at<step>();
#pragma unroll
    for (int j = 0; j < 2; ++j) entries[j] = source[(2 * lane.column + j) * 8 + lane.row];
  }
  __device__ void scale(double weight) { entries[0] *= weight, entries[1] *= weight; }
  __device__ double entry(int, int s) const { return entries[s]; }
  __device__ static int result(int, int row) { return row; }
  __device__ static bool has(int) { return true; }
};

// One mode of 12 or 16 as a matrix; half h has results 2 row + h. Those of 12 are in six rows, and the
// last ones again in two more, which nobody uses.
template <int step_, int n>
struct WideMode {
  static constexpr int step = step_, size = n, halves = 2, steps = n / 4;
  double entries[steps][2];

  template <class Factors>
  __device__ void load(const Factors& factors, UnitLane lane) {
    load(factors.template at<step>(), n, lane);
  }
  // From a matrix whose entries are `pitch` elements apart.
  __device__ void load(const double* matrix, int pitch, UnitLane lane) {
#pragma unroll
    for (int s = 0; s < steps; ++s) {
      const double* const entry = matrix + UnitEntries<n>::at_step(s, lane) * pitch;
      load_elements<2>(entry + result(0, has(lane.row) ? lane.row : n / 2 - 1), entries[s]);
    }
  }
  __device__ void scale(double weight) {
#pragma unroll
    for (int s = 0; s < steps; ++s) entries[s][0] *= weight, entries[s][1] *= weight;
  }
  __device__ double entry(int h, int s) const { return entries[s][h]; }
  __device__ static int result(int h, int row) { return 2 * row + h; }
  __device__ static bool has(int row) { return 2 * row < n; }
};

// Two modes of 4 as one matrix of 16; half h has results 2 row + h.
template <int slow, int fast>
struct PairedModes {
  static constexpr int size = 16, halves = 2, steps = 4;
  double outer[2], inner[2][2];

  template <class Factors>
  __device__ void load(const Factors& factors, UnitLane lane) {
    const double* const a = factors.template at<slow>();
    const double* const b = factors.template at<fast>();
#pragma unroll
    for (int j = 0; j < 2; ++j) outer[j] = a[(2 * j + lane.column / 2) * 4 + lane.row / 2];
#pragma unroll
    for (int j = 0; j < 2; ++j)
      load_elements<2>(b + (lane.column % 2 * 2 + j) * 4 + lane.row % 2 * 2, inner[j]);
  }
  __device__ void scale(double weight) { outer[0] *= weight, outer[1] *= weight; }
  __device__ double entry(int h, int s) const { return outer[s / 2] * inner[s % 2][h]; }
  __device__ static int result(int h, int row) { return 2 * row + h; }
  __device__ static bool has(int) { return true; }
};

// No split mode, or none that lanes multiply.
struct NoMode {
  static constexpr int n = 1;
};
template <int step_, int n_>
struct UnitMode {
  static constexpr int step = step_, n = n_;
};

// Of `slices` slices (slow entries, fast entries), the elements of one lane: x[h][n][s] has the slow
// entry of `row` in eight n and the fast one of step s.
template <class Slow, class Fast, int slices>
struct UnitTile {
  using Rows = UnitEntries<Slow::size>;
  using Columns = UnitEntries<Fast::size>;
  using Slice = double[Rows::eights][Columns::steps];
  Slice x[slices];

  __device__ static void load_slice(const double* source, UnitLane lane, Slice& x, int h = 0) {
#pragma unroll
    for (int n = 0; n < Rows::eights; ++n)
#pragma unroll
      for (int s = 0; s < Columns::steps; s += 2) {
        const double* const pair =
            source + (h * Slow::size + Rows::in_eight(n, lane)) * Fast::size + Columns::at_step(s, lane);
        if (Columns::is_single(s))
          x[n][s] = *pair;
        else
          load_elements<2>(pair, x[n] + s);
      }
  }
  __device__ void load(const double* source, UnitLane lane) {
#pragma unroll
    for (int h = 0; h < slices; ++h) load_slice(source, lane, x[h], h);
  }

  // Becomes sum_c shares[c] tiles[c].
  template <int split>
  __device__ void mix(const double (&shares)[split], const UnitTile (&tiles)[split]) {
#pragma unroll
    for (int h = 0; h < slices; ++h)
#pragma unroll
      for (int n = 0; n < Rows::eights; ++n)
#pragma unroll
        for (int s = 0; s < Columns::steps; ++s) {
          double sum = shares[0] * tiles[0].x[h][n][s];
#pragma unroll
          for (int c = 1; c < split; ++c) sum += shares[c] * tiles[c].x[h][n][s];
          x[h][n][s] = sum;
        }
  }
};

// Multiplies by F_slow and F_fast.
template <class Slow, class Fast>
struct UnitMultiply {
  static constexpr int halves = Slow::halves;
  static_assert(Fast::halves == halves, "matrices of one kind");
  using Rows = UnitEntries<Slow::size>;
  using Columns = UnitEntries<Fast::size>;
  using Slice = typename UnitTile<Slow, Fast, 1>::Slice;
  using Sums = double[halves][2 * halves];
  double slow[Rows::eights][2 * halves];     // of each eight of entries, halves of results fastest
  double fast[Columns::eights][2 * halves];  // likewise

  __device__ UnitMultiply(const Slow& outer, const Fast& inner) {
#pragma unroll
    for (int h = 0; h < halves; ++h) {
#pragma unroll
      for (int s = 0; s < Rows::steps; ++s) slow[s / 2][s % 2 * halves + h] = outer.entry(h, s);
#pragma unroll
      for (int s = 0; s < Columns::steps; ++s) fast[s / 2][s % 2 * halves + h] = inner.entry(h, s);
    }
  }

  // Whether a lane has sums[i][2 j + p], and its place in the slice of results.
  __device__ static bool has(int p, UnitLane lane) {
    return Slow::has(lane.row) && Fast::has(2 * lane.column + p);
  }
  __device__ static int place(int i, int j, int p, UnitLane lane) {
    const int other = 2 * lane.column + p;
    if constexpr (halves == 1) return other * Fast::size + lane.row;
    return Slow::result(j, lane.row) * Fast::size + Fast::result(i, other);
  }

  // sums += F_slow X F_fast^T for some slices at a time. First F_fast X^T: what a lane has of its
  // results is, as it lies in registers, what it should have of the other multiply's columns.
  template <int count>
  __device__ void add_to(Sums (&sums)[count], const Slice* x) const {
    double first[count][Rows::eights][2 * halves] = {};
#pragma unroll
    for (int i = 0; i < Columns::eights; ++i)
#pragma unroll
      for (int n = 0; n < Rows::eights; ++n)
#pragma unroll
        for (int j = 0; j < count; ++j) multiply_first(first[j][n], i, x[j][n] + 2 * i);
#pragma unroll
    for (int n = 0; n < Rows::eights; ++n)
#pragma unroll
      for (int f = 0; f < 2; ++f)
#pragma unroll
        for (int j = 0; j < count; ++j)
          if constexpr (halves == 1)
            multiply_8_8_4(sums[j][0][0], sums[j][0][1], first[j][n][f], slow[n][f]);
          else if (Rows::is_half(n))
            multiply_16_8_4(sums[j][f], slow[n][0], slow[n][1], first[j][n][2 * f]);
          else
            multiply_16_8_8(sums[j][f], slow[n], first[j][n] + 2 * f);
  }

  // Of two slices of 8 x 8 at once, which fill larger fragments.
  __device__ void multiply_two(Sums& one, Sums& two, const Slice& x, const Slice& z) const {
    double first[2] = {}, second[2] = {}, both[4] = {};
    multiply_first(first, 0, x[0]);
    multiply_first(second, 0, z[0]);
    const double a[] = {first[0], second[0], first[1], second[1]};
    multiply_16_8_8(both, a, slow[0]);
#pragma unroll
    for (int p = 0; p < 2; ++p) one[0][p] = both[p], two[0][p] = both[2 + p];
  }

 private:
  __device__ void multiply_first(double (&first)[2 * halves], int i, const double* x) const {
    if constexpr (halves == 2) {
      if (Columns::is_half(i))
        multiply_16_8_4(first, fast[i][0], fast[i][1], x[0]);
      else
        multiply_16_8_8(first, fast[i], x);
    } else {
#pragma unroll
      for (int s = 0; s < 2; ++s) multiply_8_8_4(first[0], first[1], fast[i][s], x[s]);
    }
  }
};

// The matrices' elements of each step.
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
