// One mode of a tile in shared memory: a warp takes some fibres, reads all of them, and overwrites
// them with the results, or writes these to another place.
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

// Stores value(i) by store(i, value) for all i below count, eight values on their way at a time.
template <class T, class Value, class Store>
__device__ void stage_values(int count, int threads, Value value, Store store) {
  constexpr int together = 8;
#pragma unroll 1
  for (int first = threadIdx.x; first < count; first += together * threads) {
    T values[together];
#pragma unroll
    for (int j = 0; j < together; ++j) {
      const int i = first + j * threads;
      values[j] = i < count ? value(i) : T(0);
    }
#pragma unroll
    for (int j = 0; j < together; ++j) {
      const int i = first + j * threads;
      if (i < count) store(i, values[j]);
    }
  }
}

// What a thread keeps of a factor from tile to tile: nothing.
struct NothingHeld {
  template <class T>
  __device__ explicit NothingHeld(const Factor<T>&, int) {}
};

// Where the results of a pass go: over what the tile had there. Another target, for the last pass,
// is TargetInArray of kron_fibres.cuh.
template <class T, class Pass, class Sync>
struct TargetInTile {
  static constexpr bool in_tile = true;
  using Place = int;
  T* tile;
  Sync sync_team;

  __device__ void release() const {}  // all that this warp reads of the tile is read
  __device__ bool plain() const { return true; }
  __device__ bool has(int) const { return true; }
  __device__ Place place(int fibre) const { return Pass::Fibres::place(fibre); }

  __device__ static Place entry(int k) { return k * Pass::stride; }  // place of result k in a fibre

  // Writes a result: of `count` neighbouring fibres, or `count` neighbouring ones if along.
  template <bool plain, int count>
  __device__ void put(int place, int, const T (&values)[count]) const {
    struct alignas(count * sizeof(T)) Word {
      T values[count];
    };
    Word word;
#pragma unroll
    for (int i = 0; i < count; ++i) word.values[i] = values[i];
    *reinterpret_cast<Word*>(tile + place) = word;
  }
};

// Multiplies the fibres of a tile: `run` is called by all warps of a team, begins after a
// synchronisation of the team and ends before one. Each warp calls release() of the target once.
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

  // A warp reads patches of eight entries by four results: whole sectors of rows or of columns.
  __device__ static void stage(const Factor<float>& factor, float* target, int threads) {
    const auto entry = [](int i) { return i / 32 / (padded / 4) * 8 + i % 8; };
    const auto result = [](int i) { return i / 32 % (padded / 4) * 4 + i % 32 / 8; };
    stage_values<float>(
        (Pass::C + 7) / 8 * 8 * padded, threads,
        [&](int i) {
          const int c = entry(i), k = result(i);
          return c < Pass::C && k < Pass::K ? factor.data[k * factor.row + c * factor.column] : 0;
        },
        [&](int i, float value) {
          if (entry(i) < Pass::C) target[swapped(entry(i) * padded + result(i))] = value;
        });
  }

  // Sums that are stored four at a time lie in registers of the same banks as the words of the
  // factor they are made of, unless pairs of these change places.
  __device__ static constexpr int swapped(int i) {
    return Pass::along && Pass::K % word == 0 ? i ^ 1 : i;
  }

  // The k of result j of a lane.
  __device__ static int result(int lane, int j) {
    return (j / word * results + lane / lanes) * word + j % word;
  }

  template <class Target>
  __device__ static void run(const Held&, const float* tile, const float* factor, int thread,
                             int threads, const Target& target) {
    const int warps = threads / 32;
    if (thread / 32 >= items) target.release();
#pragma unroll 1
    for (int item = thread / 32; item < items; item += warps)
      multiply(tile, factor, item, thread % 32, item + warps >= items, target);
  }

 private:
  static constexpr int items = (Pass::Fibres::size + fibres - 1) / fibres;

  template <class Target>
  __device__ static void multiply(const float* tile, const float* factor, int item, int lane,
                                  bool last, const Target& target) {
    constexpr int groups = rows / Pass::across;
    const int first = item * fibres + lane % lanes * Pass::across;
    const float* const f = factor + lane / lanes * word;
    int places[groups];
#pragma unroll
    for (int g = 0; g < groups; ++g)
      places[g] = inside(first, g) ? Pass::Fibres::place(first + g * lanes * Pass::across) : 0;
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
    if (last) target.release();
    if (target.plain())
      store<true>(target, first, sums, lane);
    else
      store<false>(target, first, sums, lane);
    __syncwarp();
  }

  static constexpr bool ragged = Pass::Fibres::size % fibres != 0;

  __device__ static bool inside(int first, int g) {
    return !ragged || first + g * lanes * Pass::across < Pass::Fibres::size;
  }

  __device__ static void add(float (&sums)[rows][columns], const float (&x)[rows],
                             const float* factor) {
    float f[columns];
#pragma unroll
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const Floats<word> read = floats_at<word>(factor + chunk * results * word);
#pragma unroll
      for (int j = 0; j < word; ++j) f[chunk * word + j] = read.values[swapped(j)];
    }
#pragma unroll
    for (int g = 0; g < rows; ++g)
#pragma unroll
      for (int j = 0; j < columns; ++j) sums[g][j] = multiply_add(sums[g][j], x[g], f[j]);
  }

  template <bool plain, class Target>
  __device__ static void store(const Target& target, int first, const float (&sums)[rows][columns],
                               int lane) {
    constexpr bool words = Pass::along && Pass::K % word == 0;  // neighbouring results together
    constexpr int count = words ? word : Pass::across;
#pragma unroll
    for (int g = 0; g < rows / Pass::across; ++g) {
      const int fibre = first + g * lanes * Pass::across;
      if (!inside(first, g) || !target.has(fibre)) continue;
      const auto place = target.place(fibre) + target.entry(result(lane, 0));
#pragma unroll
      for (int j = 0; j < columns; j += words ? word : 1) {
        if (padded > Pass::K && result(lane, j) >= Pass::K) continue;
        float values[count];
#pragma unroll
        for (int i = 0; i < count; ++i)
          values[i] = words ? sums[g][j + i] : sums[g * Pass::across + i][j];
        target.template put<plain>(place + target.entry(result(0, j)), fibre, values);
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

// What lanes have of a fragment of 16 fibres by 8 results by 4 entries; rows of a are fibres.
template <class Pass>
struct Fragments {
  static constexpr int halves = Pass::rows, blocks = halves / 2, fibres = 8 * halves;
  static constexpr int steps = (Pass::C + 3) / 4, tiles = (Pass::K + 7) / 8;
  static constexpr bool ragged = Pass::Fibres::size % fibres != 0;
  static_assert(halves % 2 == 0 && Pass::across <= 2, "whole fragments");

  // The result of column n of b: a warp writes words, or to different banks.
  __device__ static int result(int n) { return Pass::along ? n : n / 2 + n % 2 * 4; }

  __device__ static double staged(const Factor<double>& factor, int tile, int step, int lane) {
    const int c = 4 * step + lane % 4, k = 8 * tile + result(lane / 4);
    return c < Pass::C && k < Pass::K ? factor.data[k * factor.row + c * factor.column] : 0;
  }

  // The fibre of row lane / 4 + 8 h.
  __device__ static int fibre(int lane, int h) {
    return Pass::across == 2 ? h / 2 * 16 + lane / 4 * 2 + h % 2 : lane / 4 + 8 * h;
  }
  __device__ static bool inside(int first, int lane, int h) {
    return !ragged || first + fibre(lane, h) < Pass::Fibres::size;
  }

  // Where a warp's fibres lie in a tile.
  struct Rows {
    const double* begin[halves];
    int column;
    bool inside[halves];

    __device__ Rows(const double* tile, int first, int lane) : column(lane % 4) {
#pragma unroll
      for (int h = 0; h < halves; ++h) {
        inside[h] = Fragments::inside(first, lane, h);
        begin[h] = tile + (inside[h] ? Pass::Fibres::place(first + fibre(lane, h)) : 0);
      }
    }

    // Reads four entries of each fibre, one a lane.
    __device__ void read(int step, double (&a)[halves]) const {
      struct alignas(8 * Pass::across) Word {
        double values[Pass::across];
      };
      const int c = 4 * step + column;
#pragma unroll
      for (int h = 0; h < halves; h += Pass::across) {
        Word word{};
        if (inside[h] && (4 * step + 3 < Pass::C || c < Pass::C))
          word = *reinterpret_cast<const Word*>(begin[h] + c * Pass::stride);
#pragma unroll
        for (int j = 0; j < Pass::across; ++j) a[h + j] = word.values[j];
      }
    }
  };

  // Where results of a warp's fibres go.
  template <class Target>
  struct Writer {
    const Target& target;
    typename Target::Place places[halves];
    int first, lane;
    bool has[halves];

    // k: the first tile's first result
    __device__ Writer(const Target& to, int first_fibre, int own_lane, int k)
        : target(to), first(first_fibre), lane(own_lane) {
#pragma unroll
      for (int h = 0; h < halves; ++h) {
        has[h] = inside(first, lane, h) && target.has(first + fibre(lane, h));
        places[h] = target.place(has[h] ? first + fibre(lane, h) : 0) +
                    target.entry(k + result(2 * (lane % 4)));
      }
    }

    // Writes `count` tiles that begin `tile` after the first; k: the first result there.
    template <int count>
    __device__ void write(const double (&sums)[count][blocks][4], int tile, int k) const {
      if (target.plain())
        write_as<true>(sums, tile, k);
      else
        write_as<false>(sums, tile, k);
    }

   private:
    template <bool plain, int count>
    __device__ void write_as(const double (&sums)[count][blocks][4], int tile, int k) const {
      const int column = lane % 4;
#pragma unroll
      for (int u = 0; u < count; ++u)
#pragma unroll
        for (int h = 0; h < halves; ++h) {
          const double(&four)[4] = sums[u][h / 2];
          if (!has[h]) continue;
          const int fibre_number = first + fibre(lane, h);
          if constexpr (Pass::along) {
            if (!exists(k + 8 * u + 2 * column)) continue;
            const double values[] = {four[h % 2 * 2], four[h % 2 * 2 + 1]};
            target.template put<plain>(places[h] + target.entry(tile + 8 * u), fibre_number, values);
          } else {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              if (!exists(k + 8 * u + column + 4 * i)) continue;
              const auto place = places[h] + target.entry(tile + 8 * u + 4 * i);
              if constexpr (Pass::across == 2) {
                const double values[] = {four[i], four[2 + i]};
                if (h % 2 == 0) target.template put<plain>(place, fibre_number, values);
              } else {
                const double values[] = {four[h % 2 * 2 + i]};
                target.template put<plain>(place, fibre_number, values);
              }
            }
          }
        }
    }
    __device__ static bool exists(int k) { return Pass::K % 8 == 0 || k < Pass::K; }
  };
};

// Double precision, on matrix units: a warp holds all of its fibres, and works on Pass::columns
// tiles of eight results at a time.
template <class Pass>
struct FibreMultiply<double, Pass, false> {
  using Held = NothingHeld;
  using F = Fragments<Pass>;
  static constexpr int together = Pass::columns;
  static constexpr int elements = F::tiles * F::steps * 32;  // of the staged factor
  static_assert(F::tiles % together == 0, "whole fragments");

  __device__ static void stage(const Factor<double>& factor, double* target, int threads) {
    stage_values<double>(
        elements, threads,
        [&](int i) { return F::staged(factor, i / 32 / F::steps, i / 32 % F::steps, i % 32); },
        [&](int i, double value) { target[i] = value; });
  }

  template <class Target>
  __device__ static void run(const Held&, const double* tile, const double* factor, int thread,
                             int threads, const Target& target) {
    const int warps = threads / 32;
    if (thread / 32 >= items) target.release();
#pragma unroll 1
    for (int item = thread / 32; item < items; item += warps)
      multiply(tile, factor, item * F::fibres, thread % 32, item + warps >= items, target);
  }

 private:
  static constexpr int items = (Pass::Fibres::size + F::fibres - 1) / F::fibres;

  template <class Target>
  __device__ static void multiply(const double* tile, const double* factor, int first, int lane,
                                  bool last, const Target& target) {
    double a[F::steps][F::halves];
    const typename F::Rows rows(tile, first, lane);
#pragma unroll
    for (int s = 0; s < F::steps; ++s) rows.read(s, a[s]);
    __syncwarp();
    if (last) target.release();
    typename F::template Writer<Target> writer(target, first, lane, 0);
#pragma unroll 1
    for (int t = 0; t < F::tiles; t += together) {
      double sums[together][F::blocks][4] = {};
#pragma unroll
      for (int s = 0; s < F::steps; ++s)
#pragma unroll
        for (int u = 0; u < together; ++u) {
          const double b = factor[((t + u) * F::steps + s) * 32 + lane];
#pragma unroll
          for (int m = 0; m < F::blocks; ++m)
            multiply_16_8_4(sums[u][m], a[s][2 * m], a[s][2 * m + 1], b);
        }
      writer.write(sums, 0, 8 * t);
#pragma unroll
      for (int h = 0; h < F::halves; ++h) writer.places[h] += target.entry(8 * together);
    }
    __syncwarp();
  }
};

// The same where the factor is too large for shared memory: each warp of a team keeps its part of
// the factor in registers, and all of them read all fibres, `rows` × 8 at a time.
template <class Pass>
struct FibreMultiply<double, Pass, true> {
  using F = Fragments<Pass>;
  static constexpr int mine = (F::tiles + Pass::split - 1) / Pass::split;  // tiles of a warp
  static constexpr int elements = 0;                                       // in shared memory

  struct Held {
    double b[mine][F::steps];

    __device__ Held(const Factor<double>& factor, int thread) {
#pragma unroll
      for (int u = 0; u < mine; ++u)
#pragma unroll
        for (int s = 0; s < F::steps; ++s)
          b[u][s] = F::staged(factor, thread / 32 * mine + u, s, thread % 32);
    }
  };

  __device__ static void stage(const Factor<double>&, double*, int) {}

  template <class Target>
  __device__ static void run(const Held& held, const double* tile, const double*, int thread, int,
                             const Target& target) {
    const int lane = thread % 32, k = 8 * (thread / 32 * mine);
#pragma unroll 1
    for (int first = 0; first < Pass::Fibres::size; first += F::fibres) {
      const typename F::Rows rows(tile, first, lane);
      double sums[mine][F::blocks][4] = {};
#pragma unroll
      for (int s = 0; s < F::steps; ++s) {
        double a[F::halves];
        rows.read(s, a);
#pragma unroll
        for (int u = 0; u < mine; ++u)
#pragma unroll
          for (int m = 0; m < F::blocks; ++m)
            multiply_16_8_4(sums[u][m], a[2 * m], a[2 * m + 1], held.b[u][s]);
      }
      if constexpr (Target::in_tile) target.sync_team();
      if (first + F::fibres >= Pass::Fibres::size) target.release();
      typename F::template Writer<Target>(target, first, lane, k).write(sums, 0, k);
    }
  }
};

}  // namespace batchkron
