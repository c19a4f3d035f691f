// For cuda/kron/slices.cuh: the layout of slices in shared memory, and their multiplies along all
// of their modes on matrix units of double precision. A slice is a matrix: its rows are the indices
// of the outer modes, its columns those of the inner modes and of neighbouring columns of x.
// Elements of single precision are converted when they are read for the first multiply, and rounded
// once after the last one.
#pragma once

#include "cuda/common/elements.cuh"
#include "cuda/common/matrix_units.cuh"
#include "cuda/common/steps.cuh"

namespace batchkron {

constexpr int slice_warps = 8;  // of a thread block

template <class T>
using FullWord = Elements<T, 16 / int(sizeof(T))>;
using Pair = FullWord<double>;

// The value at an address of shared memory.
template <class W>
__device__ W& in_shared(unsigned address) {
  return *static_cast<W*>(__cvta_shared_to_generic(address));
}

// Loads from shared memory with an instruction that the compiler does not merge with an earlier
// one: values kept from one use to the next would push results out of the registers (8^5 in float64
// then spilled 150 to 400 bytes; docs/results/gpu-history.md).
template <class T, int count>
__device__ Elements<T, count> load_again(unsigned address) {
  constexpr int bytes = count * int(sizeof(T));
  static_assert(bytes == 8 || bytes == 16, "a word, or half of one");
  unsigned parts[4];
  if constexpr (bytes == 16)
    asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(parts[0]), "=r"(parts[1]), "=r"(parts[2]), "=r"(parts[3])
                 : "r"(address));
  else
    asm volatile("ld.volatile.shared.v2.u32 {%0, %1}, [%2];"
                 : "=r"(parts[0]), "=r"(parts[1])
                 : "r"(address));
  Elements<T, count> word;
  memcpy(word.values, parts, bytes);
  return word;
}

// The Kronecker product of some neighbouring square factors of these sizes, taken as one matrix.
template <int... sizes>
struct Composite {
  static constexpr int factors = int(sizeof...(sizes)), size = (sizes * ...);

  template <class T>
  __device__ static double entry(const Factor<T>* f, int k, int c) {
    constexpr int each[] = {sizes...};
    double product = 1;
    UNROLLED for (int i = factors - 1; i >= 0; --i) {
      product *= f[i].data[k % each[i] * f[i].row + c % each[i] * f[i].column];
      k /= each[i];
      c /= each[i];
    }
    return product;
  }
};

// Stands for the first mode where a slice is a whole tile.
struct NoLead {
  static constexpr int factors = 0, size = 1;
};

// Where elements of a slice lie in shared memory, in bytes. Padding would take too much of it;
// instead the words of 16 bytes of each window of 128 are permuted (XOR with a number that depends
// on the row and window), so that what lanes access together lies in different banks.
template <class T, class Outer, class Inner>
struct SlicePlaces {
  static constexpr int size = int(sizeof(T)), pitch = Inner::entries * size;

  // The part of that number that depends on the window; Outer::swap is the part that depends on the
  // row.
  __device__ static constexpr int swap(int window) {
    return size == 8 ? window % 2 * Inner::swap : 0;
  }
  __device__ static int place(int row, int byte) {
    return row * pitch + (byte ^ (swap(byte / 128) ^ Outer::swap(row)) * 16);
  }
};

// A lane's part of a 16 x 16 matrix as fragments: rows result(0) and result(1), columns entry(0)
// ... entry(3).
struct Sixteen {
  double parts[2][4];

  template <class Matrix, class T, class Result, class Entry>
  __device__ void load(const Factor<T>* f, Result result, Entry entry) {
    UNROLLED for (int s = 0; s < 4; ++s)
      UNROLLED for (int h = 0; h < 2; ++h)
        parts[s / 2][s % 2 * 2 + h] = Matrix::entry(f, result(h), entry(s));
  }
};

// Two matrices of 8 x 8 that multiply a block along two modes, first one mode, then the other. Of a
// block, a lane has the elements with index lane % 4 + 4 s, s < 2, along the first matrix's mode
// and lane / 4 along the second one's. Of the result it has index lane / 4 along the first one's
// mode, and 2 (lane % 4) and the one behind it along the second one's.
struct TwoEights {
  double first[2], second[2];

  template <class First, class Second, class T>
  __device__ void load(const Factor<T>* of_first, const Factor<T>* of_second, int lane) {
    UNROLLED for (int i = 0; i < 2; ++i) {
      first[i] = First::entry(of_first, lane / 4, lane % 4 + 4 * i);
      second[i] = Second::entry(of_second, lane / 4, 2 * (lane % 4) + i);
    }
  }
  // Multiplies blocks x and z at once, because two of them fill a fragment of 16 rows. The first
  // multiply computes the transposed result: what a lane then has in registers is exactly its part
  // of the fragment for the second multiply, so that lanes exchange nothing.
  __device__ void multiply(double (&d)[4], const double (&x)[2], const double (&z)[2]) const {
    double one[2] = {}, two[2] = {};
    UNROLLED for (int s = 0; s < 2; ++s) {
      multiply_8_8_4(one[0], one[1], first[s], x[s]);
      multiply_8_8_4(two[0], two[1], first[s], z[s]);
    }
    const double a[] = {one[0], two[0], one[1], two[1]};
    multiply_16_8_8(d, a, second);
  }
};

// Outer modes, two of 8 (64 rows). Each warp takes some neighbouring columns of all rows,
// multiplies them along the rows, and writes the results in double precision to `results`, which
// may be the slice's own place. swap(row) is for SlicePlaces: its bits are sums (XOR) of bits of
// the row.
template <class Slow, class Fast>
struct OuterEights {
  static constexpr int rows = 64, factors = Slow::factors + Fast::factors;

  __device__ static constexpr int swap(int row) {
    const int a = row / 8, b = row % 8;
    return (b & 1) | ((a ^ b) & 2) | ((a << 2 ^ a) & 4);
  }

  template <class T, class Inner>
  struct Multiply {
    using Places = SlicePlaces<T, OuterEights, Inner>;
    using Targets = SlicePlaces<double, OuterEights, Inner>;
    static constexpr int word = 16 / Places::size, own = Inner::entries / slice_warps;
    static constexpr int words = own / word;
    static_assert(own * Targets::size <= 128, "in one window");
    TwoEights modes;

    __device__ Multiply(const Factor<T>* f, int lane) {
      modes.load<Fast, Slow>(f + Slow::factors, f, lane);
    }

    __device__ void run(unsigned slice, unsigned results, int warp, int lane) const {
      const unsigned from =
          slice + Places::place(lane / 4 * 8 + lane % 4, warp * own * Places::size);
      const unsigned to =
          results + Targets::place(lane % 4 * 16 + lane / 4, warp * own * Targets::size);
      FullWord<T> x[words][2];
      UNROLLED for (int j = 0; j < words; ++j)
        UNROLLED for (int s = 0; s < 2; ++s)
          x[j][s] = in_shared<FullWord<T>>((from ^ j * 16) + s * 4 * Places::pitch);
      __syncwarp();
      UNROLLED for (int n = 0; n < own; n += 2) {
        const auto block = [&](int i, int s) { return x[i / word][s].values[i % word]; };
        const double one[] = {block(n, 0), block(n, 1)};
        const double two[] = {block(n + 1, 0), block(n + 1, 1)};
        double d[4] = {};
        modes.multiply(d, one, two);
        UNROLLED for (int p = 0; p < 2; ++p)
          in_shared<Pair>((to ^ (n / 2 ^ swap(8 * p)) * 16) + p * 8 * Targets::pitch) = {d[p],
                                                                                          d[2 + p]};
      }
    }
  };
};

// Outer modes of 16 rows: one mode, or several whose Kronecker product is the matrix.
template <class Matrix>
struct OuterSixteen {
  static constexpr int rows = 16, factors = Matrix::factors;

  __device__ static constexpr int swap(int row) { return (row & 1) * 3 | (row & 2) << 1; }

  template <class T, class Inner>
  struct Multiply {
    using Places = SlicePlaces<T, OuterSixteen, Inner>;
    using Targets = SlicePlaces<double, OuterSixteen, Inner>;
    static constexpr int word = 16 / Places::size, own = Inner::entries / slice_warps;
    static constexpr int windows = own * Places::size / 128, wider = Targets::size / Places::size;
    static_assert(own * Places::size % 128 == 0, "whole windows");
    Sixteen mode;

    __device__ Multiply(const Factor<T>* f, int lane) {
      mode.template load<Matrix>(
          f, [=](int h) { return lane / 4 + 8 * h; }, [=](int s) { return lane % 4 + 4 * s; });
    }

    __device__ void run(unsigned slice, unsigned results, int warp, int lane) const {
      const unsigned from =
          slice + Places::place(lane % 4, warp * own * Places::size + lane / 4 * 16);
      const unsigned to =
          results +
          Targets::place(lane / 4, (warp * own + lane % 4 * 2 * word) * Targets::size);
      UNROLLED for (int j = 0; j < windows; ++j) {
        FullWord<T> x[4];
        UNROLLED for (int s = 0; s < 4; ++s)
          x[s] = in_shared<FullWord<T>>((from ^ Places::swap(j) * 16) +
                                        (s * 4 * Places::pitch + j * 128));
        __syncwarp();
        double d[word][4] = {};
        UNROLLED for (int t = 0; t < word; ++t)
          UNROLLED for (int s = 0; s < 4; s += 2) {
            const double b[] = {x[s].values[t], x[s + 1].values[t]};
            multiply_16_8_8(d[t], mode.parts[s / 2], b);
          }
        UNROLLED for (int i = 0; i < 4; ++i)
          UNROLLED for (int t = 0; t < word; t += 2)
            in_shared<Pair>((to ^ (Targets::swap(wider * j) ^ (i % 2 * word + t) / 2) * 16) +
                            (i / 2 * 8 * Targets::pitch + wider * j * 128)) = {d[t][i],
                                                                               d[t + 1][i]};
      }
    }
  };
};

// Inner modes, two of 8 (64 entries). Each warp takes some whole rows, and ends with results in
// registers: a lane has `groups` of `width` neighbouring ones. Group g is in line first_line +
// line(g) of the slice, from first_column on; a line is the columns of one entry, so a single
// element where x has no columns.
template <class Slow, class Fast>
struct InnerEights {
  static constexpr int entries = 64, columns = 1, swap = 2;
  static constexpr int factors = Slow::factors + Fast::factors;

  template <class T, class Outer>
  struct Multiply {
    using Places = SlicePlaces<double, Outer, InnerEights>;
    static constexpr int blocks = Outer::rows / slice_warps, groups = blocks, width = 2;
    TwoEights modes;

    __device__ Multiply(const Factor<T>* f, int lane) {
      modes.load<Slow, Fast>(f, f + Slow::factors, lane);
    }

    __device__ static int first_line(int warp, int lane) { return warp * (blocks * 64) + lane * 2; }
    __device__ static int first_column(int) { return 0; }
    __device__ static constexpr int line(int group) { return group * 64; }

    __device__ void run(unsigned slice, int warp, int lane, T (&results)[groups][width]) const {
      const unsigned from =
          slice + Places::place(warp * blocks, (lane % 4 * 8 + lane / 4) * Places::size);
      double x[blocks][2];
      UNROLLED for (int u = 0; u < blocks; ++u)
        UNROLLED for (int s = 0; s < 2; ++s)
          x[u][s] = in_shared<double>((from ^ Outer::swap(u) * 16) +
                                      (u * Places::pitch + s * 32 * Places::size));
      UNROLLED for (int u = 0; u < blocks; u += 2) {
        double d[4] = {};
        modes.multiply(d, x[u], x[u + 1]);
        UNROLLED for (int i = 0; i < 4; ++i) results[u + i / 2][i % 2] = d[i];
      }
    }
  };
};

// Inner modes, two of 16 (256 entries). The mode that is faster in memory is multiplied first, and
// its results are in registers what the second multiply needs, as in TwoEights.
template <class Slow, class Fast>
struct InnerSixteens {
  static constexpr int entries = 256, columns = 1, swap = 1;
  static constexpr int factors = Slow::factors + Fast::factors;

  template <class T, class Outer>
  struct Multiply {
    using Places = SlicePlaces<double, Outer, InnerSixteens>;
    static constexpr int blocks = Outer::rows / slice_warps, width = 16 / int(sizeof(T));
    static constexpr int groups = blocks * 8 / width;
    Sixteen slow, fast;

    __device__ Multiply(const Factor<T>* f, int lane) {
      fast.load<Fast>(
          f + Slow::factors,
          [=](int h) { return width == 4 ? lane / 4 * 2 + h : lane / 4 + 8 * h; },
          [=](int s) { return 4 * (lane % 4) + s; });
      slow.load<Slow>(
          f, [=](int h) { return lane / 4 + 8 * h; },
          [=](int s) { return s / 2 * 8 + 2 * (lane % 4) + s % 2; });
    }

    __device__ static int first_line(int warp, int lane) {
      return warp * (blocks * 256) + lane / 4 * 16 + lane % 4 * width;
    }
    __device__ static int first_column(int) { return 0; }
    __device__ static constexpr int line(int group) {
      return width == 4 ? group * 128 : group / 2 * 128 + group % 2 * 8;
    }

    __device__ void run(unsigned slice, int warp, int lane, T (&results)[groups][width]) const {
      const unsigned from =
          slice + Places::place(warp * blocks, (lane / 4 * 16 + lane % 4 * 4) * Places::size);
      UNROLLED for (int u = 0; u < blocks; ++u) {
        Pair x[2][2];
        UNROLLED for (int n = 0; n < 2; ++n)
          UNROLLED for (int e = 0; e < 2; ++e)
            x[n][e] = in_shared<Pair>((from ^ (Outer::swap(u) ^ e) * 16) +
                                      (u * Places::pitch + n * 128 * Places::size));
        double sums[2][4] = {};
        UNROLLED for (int n = 0; n < 2; ++n) {
          double first[4] = {};
          UNROLLED for (int e = 0; e < 2; ++e)
            multiply_16_8_8(first, fast.parts[e], x[n][e].values);
          UNROLLED for (int h = 0; h < 2; ++h)
            multiply_16_8_8(sums[h], slow.parts[n], first + 2 * h);
        }
        UNROLLED for (int g = 0; g < 2; ++g)
          UNROLLED for (int h = 0; h < 2; ++h)
            UNROLLED for (int p = 0; p < 2; ++p) {
              const int own = width == 4 ? 2 * p + h : 2 * h + p;  // place among a lane's four
              results[(u * 8 + g * 4 + own) / width][own % width] = sums[h][2 * g + p];
            }
      }
    }
  };
};

// No inner mode, but 64 neighbouring columns of x: warps pick up whole rows of what others
// computed.
struct InnerLines {
  static constexpr int columns = 64, entries = columns, swap = 2, factors = 0;

  template <class T, class Outer>
  struct Multiply {
    using Places = SlicePlaces<double, Outer, InnerLines>;
    static constexpr int groups = Outer::rows / slice_warps, width = 2;

    __device__ Multiply(const Factor<T>*, int) {}

    __device__ static int first_line(int warp, int) { return warp * groups; }
    __device__ static int first_column(int lane) { return lane * width; }
    __device__ static constexpr int line(int group) { return group; }

    __device__ void run(unsigned slice, int warp, int lane, T (&results)[groups][width]) const {
      const unsigned from = slice + Places::place(warp * groups, lane * 16);
      UNROLLED for (int g = 0; g < groups; ++g) {
        const Pair pair = in_shared<Pair>((from ^ Outer::swap(g) * 16) + g * Places::pitch);
        UNROLLED for (int i = 0; i < 2; ++i) results[g][i] = pair.values[i];
      }
    }
  };
};

// One inner mode of 16, with 8 neighbouring columns of x: at least 32 bytes, a sector of memory.
template <class Matrix>
struct InnerColumns {
  static constexpr int columns = 8, entries = 16 * columns, swap = 2, factors = Matrix::factors;

  template <class T, class Outer>
  struct Multiply {
    using Places = SlicePlaces<double, Outer, InnerColumns>;
    static constexpr int blocks = Outer::rows / slice_warps, groups = 2 * blocks, width = 2;
    Sixteen mode;

    __device__ Multiply(const Factor<T>* f, int lane) {
      mode.template load<Matrix>(
          f, [=](int h) { return lane / 4 + 8 * h; }, [=](int s) { return lane % 4 + 4 * s; });
    }

    __device__ static int first_line(int warp, int lane) { return warp * (blocks * 16) + lane / 4; }
    __device__ static int first_column(int lane) { return lane % 4 * 2; }
    __device__ static constexpr int line(int group) { return group * 8; }

    __device__ void run(unsigned slice, int warp, int lane, T (&results)[groups][width]) const {
      const unsigned from =
          slice + Places::place(warp * blocks, (lane % 4 * 8 + lane / 4) * Places::size);
      UNROLLED for (int u = 0; u < blocks; ++u) {
        double x[4], d[4] = {};
        UNROLLED for (int s = 0; s < 4; ++s)
          x[s] = in_shared<double>((from ^ Outer::swap(u) * 16) +
                                   (u * Places::pitch + s * 32 * Places::size));
        UNROLLED for (int s = 0; s < 4; s += 2) multiply_16_8_8(d, mode.parts[s / 2], x + s);
        UNROLLED for (int i = 0; i < 4; ++i) results[2 * u + i / 2][i % 2] = d[i];
      }
    }
  };
};

}  // namespace batchkron
