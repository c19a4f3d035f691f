// One mode of a tile in shared memory, multiplied in place: a warp takes some fibres, reads all of
// them, and overwrites them with the results.
#pragma once

#include "steps.cuh"

namespace batchkron {

// An axis of a tile, the fastest first: places of neighbouring entries are `stride` apart.
template <int size_, int stride_>
struct TileAxis {
  static constexpr int size = size_, stride = stride_;
};

template <class... Axis>
struct TileAxes {
  static constexpr int size = (Axis::size * ... * 1);

  __device__ static int place(int number) {
    int sum = 0;
    ((sum += number % Axis::size * Axis::stride, number /= Axis::size), ...);
    return sum;
  }

  // Whether place(i + n step) is place(i) + place(n step) for all i < step: nothing is carried.
  static constexpr bool adds(int step) {
    constexpr int sizes[] = {Axis::size...};
    for (int axis_size : sizes) {
      if (step % axis_size != 0) return axis_size % step == 0;
      step /= axis_size;
    }
    return true;
  }
};

// What a pass does: C entries `stride` apart become K, for all Fibres (TileAxes). rows: fibres that
// a thread holds; columns: results of each. along: neighbouring entries of a fibre, else `across`
// neighbouring fibres, are read and written together. split: warps that share a fibre's results, 0
// where a warp has all of them.
template <int C_, int K_, int stride_, int rows_, int columns_, int across_, bool along_,
          int split_, class Fibres_>
struct FibrePass {
  static constexpr int C = C_, K = K_, stride = stride_, rows = rows_, columns = columns_;
  static constexpr int across = across_, split = split_;
  static constexpr bool along = along_;
  using Fibres = Fibres_;
};

template <int count>
struct alignas(4 * count) Floats {
  float values[count];
};
template <int count>
__device__ Floats<count>& floats_at(float* address) {
  return *reinterpret_cast<Floats<count>*>(address);
}
template <int count>
__device__ const Floats<count>& floats_at(const float* address) {
  return *reinterpret_cast<const Floats<count>*>(address);
}

// What a thread keeps of a factor from tile to tile: nothing.
struct NothingHeld {
  template <class T>
  __device__ explicit NothingHeld(const Factor<T>&, int) {}
};

// Multiplies the fibres of a tile: `run` is called by all warps of a team, begins after a
// synchronisation of the team and ends before one.
template <class T, class Pass, bool split = (Pass::split > 0)>
struct FibreMultiply;

// Single precision: a thread has sums of `rows` fibres by `columns` results. Lanes are fibres
// first.
template <class Pass>
struct FibreMultiply<float, Pass, false> {
  using Held = NothingHeld;
  static constexpr int word = 4, rows = Pass::rows, columns = Pass::columns;
  static constexpr int chunks = columns / word;
  static constexpr int across_results = (Pass::K + columns - 1) / columns;
  static constexpr int results = across_results <= 1   ? 1
                                 : across_results <= 2 ? 2
                                 : across_results <= 4 ? 4
                                 : across_results <= 8 ? 8
                                                       : 16;  // lanes along results
  static constexpr int lanes = 32 / results;                  // lanes along fibres
  static constexpr int fibres = lanes * rows;                 // of a warp
  static constexpr int padded = results * columns;
  static constexpr int elements = Pass::C * padded;  // of the staged factor, [c][k]

  static_assert(columns % word == 0 && padded >= Pass::K, "results of a thread are whole words");
  static_assert(rows % Pass::across == 0, "fibres of a thread are whole words");
  static_assert(!Pass::along || (Pass::stride == 1 && Pass::C % word == 0 && Pass::across == 1),
                "whole words along a fibre");

  __device__ static void stage(const Factor<float>& factor, float* target, int threads) {
    for (int i = threadIdx.x; i < elements; i += threads) {
      const int c = i / padded, k = i % padded;
      target[i] = k < Pass::K ? factor.data[k * factor.row + c * factor.column] : 0;
    }
  }

  // The k of result j of a lane.
  __device__ static int result(int lane, int j) {
    return (j / word * results + lane / lanes) * word + j % word;
  }

  template <class Sync>
  __device__ static void run(const Held&, float* tile, const float* factor, int thread, int threads,
                             Sync) {
#pragma unroll 1
    for (int item = thread / 32; item < items; item += threads / 32)
      multiply(tile, factor, item, thread % 32);
  }

 private:
  static constexpr int items = (Pass::Fibres::size + fibres - 1) / fibres;

  __device__ static void multiply(float* tile, const float* factor, int item, int lane) {
    constexpr int groups = rows / Pass::across;
    const int first = item * fibres + lane % lanes * Pass::across;
    const float* const f = factor + lane / lanes * word;
    int places[groups];
#pragma unroll
    for (int g = 0; g < groups; ++g) places[g] = place(first, g);
    float sums[rows][columns] = {};
    if constexpr (Pass::along) {
#pragma unroll 1
      for (int c = 0; c < Pass::C; c += word) {
        Floats<word> x[rows];
#pragma unroll
        for (int g = 0; g < rows; ++g)
          x[g] = inside(first, g) ? floats_at<word>(tile + places[g] + c) : Floats<word>{};
#pragma unroll
        for (int j = 0; j < word; ++j) {
          float values[rows];
#pragma unroll
          for (int g = 0; g < rows; ++g) values[g] = x[g].values[j];
          add(sums, values, f + (c + j) * padded);
        }
      }
    } else {
#pragma unroll 4
      for (int c = 0; c < Pass::C; ++c) {
        float values[rows];
#pragma unroll
        for (int g = 0; g < groups; ++g) {
          Floats<Pass::across> x{};
          if (inside(first, g))
            x = floats_at<Pass::across>(tile + places[g] + c * Pass::stride);
#pragma unroll
          for (int j = 0; j < Pass::across; ++j) values[g * Pass::across + j] = x.values[j];
        }
        add(sums, values, f + c * padded);
      }
    }
    __syncwarp();
#pragma unroll
    for (int g = 0; g < groups; ++g)
      if (inside(first, g)) store(tile + places[g], sums, g, lane);
    __syncwarp();
  }

  static constexpr bool ragged = Pass::Fibres::size % fibres != 0;

  __device__ static bool inside(int first, int g) {
    return !ragged || first + g * lanes * Pass::across < Pass::Fibres::size;
  }
  __device__ static int place(int first, int g) {
    return inside(first, g) ? Pass::Fibres::place(first + g * lanes * Pass::across) : 0;
  }

  __device__ static void add(float (&sums)[rows][columns], const float (&x)[rows],
                             const float* factor) {
#pragma unroll
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const Floats<word> f = floats_at<word>(factor + chunk * results * word);
#pragma unroll
      for (int g = 0; g < rows; ++g)
#pragma unroll
        for (int j = 0; j < word; ++j)
          sums[g][chunk * word + j] = multiply_add(sums[g][chunk * word + j], x[g], f.values[j]);
    }
  }

  __device__ static void store(float* target, const float (&sums)[rows][columns], int g, int lane) {
    if constexpr (Pass::along && Pass::K % word == 0) {
#pragma unroll
      for (int j = 0; j < columns; j += word) {
        const int k = result(lane, j);
        if (padded > Pass::K && k >= Pass::K) continue;
        floats_at<word>(target + k) =
            Floats<word>{sums[g][j], sums[g][j + 1], sums[g][j + 2], sums[g][j + 3]};
      }
    } else {
#pragma unroll
      for (int j = 0; j < columns; ++j) {
        const int k = result(lane, j);
        if (padded > Pass::K && k >= Pass::K) continue;
        Floats<Pass::across> values;
#pragma unroll
        for (int i = 0; i < Pass::across; ++i) values.values[i] = sums[g * Pass::across + i][j];
        floats_at<Pass::across>(target + k * Pass::stride) = values;
      }
    }
  }
};

// d += a b on the matrix units of double precision. A lane has of a: row lane / 4 (and + 8) of
// column lane % 4; of b: row lane % 4 of column lane / 4; of d: rows as of a, columns 2 (lane % 4)
// and + 1.
__device__ inline void multiply_16_8_4(double (&d)[4], double a, double a8, double b) {
#if __CUDA_ARCH__ >= 900
  asm("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
      "{%0, %1, %2, %3};"
      : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
      : "d"(a), "d"(a8), "d"(b));
#else
  asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
      : "+d"(d[0]), "+d"(d[1])
      : "d"(a), "d"(b));
  asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
      : "+d"(d[2]), "+d"(d[3])
      : "d"(a8), "d"(b));
#endif
}

// Double precision, on matrix units: fibres are the rows of a, the factor is b. A warp holds all of
// `rows` × 8 fibres. Pass::columns is how many tiles of eight results it works on at a time.
template <class Pass>
struct FibreMultiply<double, Pass, false> {
  using Held = NothingHeld;
  static constexpr int halves = Pass::rows, blocks = halves / 2, fibres = 8 * halves;
  static constexpr int steps = (Pass::C + 3) / 4, tiles = (Pass::K + 7) / 8;
  static constexpr int together = Pass::columns;
  static constexpr int elements = tiles * steps * 32;  // of the staged factor, by tile, step, lane
  static_assert(halves % 2 == 0 && tiles % together == 0, "whole fragments");

  // Column n of a tile is its result n / 2, + 4 where n is odd: a warp writes to different banks.
  __device__ static void stage(const Factor<double>& factor, double* target, int threads) {
    for (int i = threadIdx.x; i < elements; i += threads) {
      const int lane = i % 32, step = i / 32 % steps, tile = i / 32 / steps, n = lane / 4;
      const int c = 4 * step + lane % 4, k = 8 * tile + n / 2 + n % 2 * 4;
      target[i] = c < Pass::C && k < Pass::K
                      ? factor.data[k * factor.row + c * factor.column] : 0;
    }
  }

  template <class Sync>
  __device__ static void run(const Held&, double* tile, const double* factor, int thread,
                             int threads, Sync) {
#pragma unroll 1
    for (int item = thread / 32; item < items; item += threads / 32)
      multiply(tile, factor, item, thread % 32);
  }

 private:
  static constexpr int items = (Pass::Fibres::size + fibres - 1) / fibres;

  __device__ static void multiply(double* tile, const double* factor, int item, int lane) {
    const int first = item * fibres + lane / 4, column = lane % 4;
    double* fibre[halves];
    double a[halves][steps];
#pragma unroll
    for (int h = 0; h < halves; ++h) {
      fibre[h] = tile + (inside(first, h) ? Pass::Fibres::place(first + 8 * h) : 0);
#pragma unroll
      for (int s = 0; s < steps; ++s) {
        const bool read = inside(first, h) && (4 * s + 3 < Pass::C || 4 * s + column < Pass::C);
        a[h][s] = read ? fibre[h][(4 * s + column) * Pass::stride] : 0;
      }
    }
    __syncwarp();
#pragma unroll 1
    for (int t = 0; t < tiles; t += together) {
      double sums[together][blocks][4] = {};
#pragma unroll
      for (int s = 0; s < steps; ++s)
#pragma unroll
        for (int u = 0; u < together; ++u) {
          const double b = factor[((t + u) * steps + s) * 32 + lane];
#pragma unroll
          for (int m = 0; m < blocks; ++m)
            multiply_16_8_4(sums[u][m], a[2 * m][s], a[2 * m + 1][s], b);
        }
#pragma unroll
      for (int u = 0; u < together; ++u)
#pragma unroll
        for (int m = 0; m < blocks; ++m)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int k = 8 * (t + u) + column + i % 2 * 4, h = 2 * m + i / 2;
            if (inside(first, h) && (Pass::K % 8 == 0 || k < Pass::K))
              fibre[h][k * Pass::stride] = sums[u][m][i];
          }
    }
    __syncwarp();
  }

  __device__ static bool inside(int first, int h) {
    return Pass::Fibres::size % fibres == 0 || first + 8 * h < Pass::Fibres::size;
  }
};

// The same where the factor is too large for shared memory: each warp of a team keeps its part of
// the factor in registers, and all of them read all fibres, `rows` × 8 at a time.
template <class Pass>
struct FibreMultiply<double, Pass, true> {
  static constexpr int halves = Pass::rows, blocks = halves / 2, fibres = 8 * halves;
  static constexpr int steps = (Pass::C + 3) / 4, tiles = (Pass::K + 7) / 8;
  static constexpr int mine = (tiles + Pass::split - 1) / Pass::split;  // tiles of a warp
  static constexpr int elements = 0;                                    // in shared memory
  static_assert(halves % 2 == 0, "whole fragments");

  struct Held {
    double b[mine][steps];

    __device__ Held(const Factor<double>& factor, int thread) {
      const int lane = thread % 32, n = lane / 4;
#pragma unroll
      for (int u = 0; u < mine; ++u)
#pragma unroll
        for (int s = 0; s < steps; ++s) {
          const int c = 4 * s + lane % 4, k = 8 * (thread / 32 * mine + u) + n / 2 + n % 2 * 4;
          b[u][s] = c < Pass::C && k < Pass::K
                        ? factor.data[k * factor.row + c * factor.column] : 0;
        }
    }
  };

  __device__ static void stage(const Factor<double>&, double*, int) {}

  template <class Sync>
  __device__ static void run(const Held& held, double* tile, const double*, int thread, int,
                             Sync sync) {
    const int column = thread % 4, k0 = 8 * (thread / 32 * mine) + column;
#pragma unroll 1
    for (int begin = 0; begin < Pass::Fibres::size; begin += fibres) {
      const int first = begin + thread % 32 / 4;
      double* fibre[halves];
#pragma unroll
      for (int h = 0; h < halves; ++h)
        fibre[h] = tile + (inside(first, h) ? Pass::Fibres::place(first + 8 * h) : 0);
      double sums[mine][blocks][4] = {};
#pragma unroll
      for (int s = 0; s < steps; ++s) {
        double a[halves];
#pragma unroll
        for (int h = 0; h < halves; ++h) {
          const bool read = inside(first, h) && (4 * s + 3 < Pass::C || 4 * s + column < Pass::C);
          a[h] = read ? fibre[h][(4 * s + column) * Pass::stride] : 0;
        }
#pragma unroll
        for (int u = 0; u < mine; ++u)
#pragma unroll
          for (int m = 0; m < blocks; ++m)
            multiply_16_8_4(sums[u][m], a[2 * m], a[2 * m + 1], held.b[u][s]);
      }
      sync();
#pragma unroll
      for (int u = 0; u < mine; ++u)
#pragma unroll
        for (int m = 0; m < blocks; ++m)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int k = k0 + 8 * u + i % 2 * 4, h = 2 * m + i / 2;
            if (inside(first, h) && k < Pass::K) fibre[h][k * Pass::stride] = sums[u][m][i];
          }
    }
  }

 private:
  __device__ static bool inside(int first, int h) {
    return Pass::Fibres::size % fibres == 0 || first + 8 * h < Pass::Fibres::size;
  }
};

}  // namespace batchkron
