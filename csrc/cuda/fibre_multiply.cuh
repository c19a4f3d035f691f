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
  static constexpr int products = 0;  // in single precision: on ordinary cores
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
// is TargetInArray of kron_fibres.cuh, which may add them to what was there: first add() is called
// for all that a thread has, then put().
template <class T, class Pass, class Sync>
struct TargetInTile {
  static constexpr bool in_tile = true;
  static constexpr int piece = 0;
  using Place = int;
  T* tile;
  Sync sync_team;

  __device__ void release() const {}  // all that this warp reads of the tile is read
  __device__ bool words() const { return true; }
  __device__ bool adds() const { return false; }
  __device__ bool has(int) const { return true; }
  __device__ Place place(int fibre) const { return Pass::Fibres::place(fibre); }

  __device__ static Place entry(int k) { return k * Pass::stride; }  // place of result k in a fibre

  // Writes a result: of `count` neighbouring fibres, or `count` neighbouring ones if along.
  template <bool words, bool added, int count>
  __device__ void put(int place, int, const T (&values)[count]) const {
    struct alignas(count * sizeof(T)) Word {
      T values[count];
    };
    Word word;
#pragma unroll
    for (int i = 0; i < count; ++i) word.values[i] = values[i];
    *reinterpret_cast<Word*>(tile + place) = word;
  }
  template <bool words, int count>
  __device__ void add(bool, int, int, T (&)[count]) const {}
};

// Gives all results that a thread has to a target. each(all, use) calls use(present, place, fibre,
// values) for them, and also where there is no such fibre or result if all::value: loads of which
// only some are wanted are under way together, where branches would make them wait for each other.
template <class Target, class Each>
__device__ void write_results(const Target& target, Each each) {
  const auto write = [&](auto words, auto adds) {
    constexpr bool together = decltype(words)::value, added = decltype(adds)::value;
    if constexpr (added)
      each(Truth<true>{}, [&](bool present, auto place, int fibre, auto& values) {
        target.template add<together>(present, place, fibre, values);
      });
    each(Truth<false>{}, [&](bool, auto place, int fibre, const auto& values) {
      target.template put<together, added>(place, fibre, values);
    });
  };
  if (target.adds() && target.words())
    write(Truth<true>{}, Truth<true>{});
  else if (target.adds())
    write(Truth<false>{}, Truth<true>{});
  else if (target.words())
    write(Truth<true>{}, Truth<false>{});
  else
    write(Truth<false>{}, Truth<false>{});
}

// Multiplies the fibres of a tile: `run` is called by all warps of a team, begins after a
// synchronisation of the team and ends before one. Each warp calls release() of the target once. If
// the target has pieces, the only warp of a team calls refill(c) for every one of them before: nobody
// reads entries c to c + piece of any fibre again.
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
    constexpr int piece = Target::piece > 0 ? Target::piece : Pass::C;
    static_assert(Pass::C % piece == 0, "whole pieces");
#pragma unroll 1
    for (int begin = 0; begin < Pass::C; begin += piece) {
      add<piece>(sums, tile, begin, places, first, f);
      if constexpr (Target::piece > 0) {
        __syncwarp();
        if (last) target.refill(begin);
      }
    }
    __syncwarp();
    if (last) target.release();
    write_results(target, [&](auto all, auto use) {
      each_result<decltype(all)::value>(target, first, sums, lane, use);
    });
    __syncwarp();
  }

  // Adds what `piece` entries of each fibre make, from `begin` on.
  template <int piece>
  __device__ static void add(float (&sums)[rows][columns], const float* tile, int begin,
                             const int (&places)[rows / Pass::across], int first,
                             const float* f) {
    constexpr int groups = rows / Pass::across;
    if constexpr (Pass::along) {
#pragma unroll 1
      for (int c = begin; c < begin + piece; c += word) {
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
      for (int c = begin; c < begin + piece; ++c) {
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

  template <bool all, class Target, class Use>
  __device__ static void each_result(const Target& target, int first,
                                     float (&sums)[rows][columns], int lane, Use use) {
    constexpr bool words = Pass::along && Pass::K % word == 0;  // neighbouring results together
    constexpr int count = words ? word : Pass::across;
#pragma unroll
    for (int g = 0; g < rows / Pass::across; ++g) {
      const int fibre = first + g * lanes * Pass::across;
      const bool has = inside(first, g) && target.has(fibre);
      if (!all && !has) continue;
      const auto place = target.place(has ? fibre : 0) + target.entry(result(lane, 0));
#pragma unroll
      for (int j = 0; j < columns; j += words ? word : 1) {
        const bool exists = padded <= Pass::K || result(lane, j) < Pass::K;
        if (!all && !exists) continue;
        const auto sum = [&](int i) -> float& {
          return words ? sums[g][j + i] : sums[g * Pass::across + i][j];
        };
        float values[count];
#pragma unroll
        for (int i = 0; i < count; ++i) values[i] = sum(i);
        use(has && exists, place + target.entry(result(0, j)), fibre, values);
#pragma unroll
        for (int i = 0; i < count; ++i) sum(i) = values[i];
      }
    }
  }
};

}  // namespace batchkron
