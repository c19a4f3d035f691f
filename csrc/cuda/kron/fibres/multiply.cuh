// For cuda/kron/fibres/kernel.cuh: one pass over a tile in shared memory. A fibre is the C entries
// of the tile along the mode that is multiplied. A warp takes some fibres, reads them whole, and
// writes the K results of each over them or, in the last pass, elsewhere. This file has single
// precision on ordinary cores; float64.cuh and tf32.cuh have matrix units.
#pragma once

#include "cuda/common/asynchronous_copy.cuh"
#include "cuda/common/elements.cuh"
#include "cuda/common/steps.cuh"

namespace batchkron {

// An axis of a tile: neighbouring entries are `stride` elements apart in shared memory.
template <int size_, int stride_>
struct TileAxis {
  static constexpr int size = size_, stride = stride_;
};

// Several axes, the fastest first.
template <class... Axis>
struct TileAxes {
  static constexpr int size = (Axis::size * ... * 1);

  // The place of element `number` < size, in elements.
  __device__ static int place(int number) {
    if constexpr (size == 1) return 0;
    else return along<Axis...>(number);
  }

  // Whether place(i + n step) = place(i) + place(n step) for all i < step: the addition carries
  // nothing from one axis to the next.
  static constexpr bool adds(int step) {
    constexpr int sizes[] = {Axis::size...};
    for (int axis_size : sizes) {
      if (step % axis_size != 0) return axis_size % step == 0;
      step /= axis_size;
    }
    return true;
  }

 private:
  template <class One, class... Slower>
  __device__ static int along(unsigned number) {
    if constexpr ((Slower::size * ... * 1) == 1) {
      return number * One::stride;
    } else {
      const unsigned turns = quotient<One::size>(number);
      return (number - turns * One::size) * One::stride + along<Slower...>(turns);
    }
  }

  // number / divisor; for numbers below 2^15 by a multiplication and a shift, which is exact there.
  template <unsigned divisor>
  __device__ static unsigned quotient(unsigned number) {
    constexpr int bits = 15, shift = bits + width(divisor);
    if constexpr (size > 1 << bits || (divisor & (divisor - 1)) == 0) return number / divisor;
    return number * ((1u << shift) / divisor + 1) >> shift;
  }
  static constexpr int width(unsigned number) { return number > 0 ? 1 + width(number / 2) : 0; }
};

// A pass: the C entries of each fibre, `stride` elements apart, become K results. Fibres
// (TileAxes): where fibres begin. rows: fibres that a thread holds; columns: results of each that
// it computes at a time. along: entries of a fibre are contiguous, and several are read and written
// together; else `across` neighbouring fibres are. split: for matrix units of double precision, the
// number of warps that share a fibre's results; 0 if a warp computes all.
template <int C_, int K_, int stride_, int rows_, int columns_, int across_, bool along_,
          int split_, class Fibres_>
struct FibrePass {
  static constexpr int C = C_, K = K_, stride = stride_, rows = rows_, columns = columns_;
  static constexpr int across = across_, split = split_;
  static constexpr int products = 0;  // in TF32 for each product in single precision: see Tf32Pass
  static constexpr bool along = along_;
  using Fibres = Fibres_;
};

template <int count>
using Floats = Elements<float, count>;
template <int count>
__device__ Floats<count>& floats_at(float* address) {
  return *reinterpret_cast<Floats<count>*>(address);
}
template <int count>
__device__ const Floats<count>& floats_at(const float* address) {
  return *reinterpret_cast<const Floats<count>*>(address);
}

// An element of a factor: output index k, input index c.
struct Spot {
  int k, c;
};

// Begins to copy a K x C factor to shared memory in patches of 32 elements, one for each lane: the
// element first(patch) + own goes to place(patch), or nowhere if that is null. Elements beyond K or
// C are zero.
template <int K, int C, class T, class First, class Place>
__device__ void stage_patches(const Factor<T>& factor, int patches, int threads, Spot own,
                              First first, Place place) {
  const T* const data = factor.data + (own.k * factor.row + own.c * factor.column);
  UNROLLED_BY(4) for (int patch = threadIdx.x / 32; patch < patches; patch += threads / 32) {
    const Spot begin = first(patch);
    T* const to = place(patch);
    const bool exists = begin.k + own.k < K && begin.c + own.c < C;
    const T* const from = data + (begin.k * factor.row + begin.c * factor.column);
    if (to)
      copy_asynchronously_first<int(sizeof(T))>(to, exists ? from : factor.data,
                                                exists ? int(sizeof(T)) : 0);
  }
}

// The same address, kept in a register: without the shuffle, which changes nothing, compilers
// compute it again from the thread's number in each round of a loop.
template <class T>
__device__ const T* settled(const T* shared) {
  const unsigned address = unsigned(__cvta_generic_to_shared(shared));
  return static_cast<const T*>(
      __cvta_shared_to_generic(__shfl_sync(~0u, address, threadIdx.x % 32)));
}

// 1, which compilers cannot know: a multiplication by it is not removed (used in each_result
// below).
__constant__ float unknown_one = 1;

// For passes whose factor is in shared memory: a thread keeps nothing of it in registers.
struct NothingHeld {
  template <class T>
  __device__ explicit NothingHeld(const Factor<T>&, int) {}
};

// The target of a pass: where results go, and what is done to them before. This one writes them
// over the fibres of the tile. TargetInArray in cuda/kron/fibres/kernel.cuh, for the last pass,
// writes to y, and may scale them by alpha and add beta previous. For all results of a thread
// scale() is called first, then add(), then put().
template <class T, class Pass, bool few_warps_, class Sync>
struct TargetInTile {
  static constexpr bool in_tile = true, few_warps = few_warps_;
  static constexpr int piece = 0;
  using Place = int;
  T* tile;
  Sync sync_group;

  __device__ void release() const {}  // called when this warp has read all its fibres
  __device__ bool words() const { return true; }
  __device__ bool scales() const { return false; }
  __device__ bool adds() const { return false; }
  __device__ bool has(int) const { return true; }
  __device__ Place place(int fibre) const { return Pass::Fibres::place(fibre); }

  __device__ static Place entry(int k) { return k * Pass::stride; }  // from result 0 to result k

  // Writes `count` results: neighbouring ones of a fibre (along), else one of each of `count`
  // neighbouring fibres.
  template <bool words, int count>
  __device__ void put(int place, int, const T (&values)[count]) const {
    Elements<T, count> word;
    UNROLLED for (int i = 0; i < count; ++i) word.values[i] = values[i];
    *reinterpret_cast<Elements<T, count>*>(tile + place) = word;
  }
  template <int count>
  __device__ void scale(T (&)[count]) const {}
  template <bool words, int count>
  __device__ void add(bool, int, int, T (&)[count]) const {}
};

// Hands all results of a thread to a target. each(all, use) calls use(present, place, fibre,
// values) for each of them; if all::value, also for fibres and results that do not exist. That is
// for loads: predicated, all of them are in flight together, where branches would make one wait for
// another.
template <class Target, class Each>
__device__ void write_results(const Target& target, Each each) {
  if (target.scales())
    each(Truth<true>{}, [&](bool, auto, int, auto& values) { target.scale(values); });
  const auto write = [&](auto words, auto adds) {
    constexpr bool together = decltype(words)::value;
    if constexpr (decltype(adds)::value)
      each(Truth<true>{}, [&](bool present, auto place, int fibre, auto& values) {
        target.template add<together>(present, place, fibre, values);
      });
    each(Truth<false>{}, [&](bool, auto place, int fibre, const auto& values) {
      target.template put<together>(place, fibre, values);
    });
  };
  if (target.adds() && target.words()) write(Truth<true>{}, Truth<true>{});
  else if (target.adds()) write(Truth<false>{}, Truth<true>{});
  else if (target.words()) write(Truth<true>{}, Truth<false>{});
  else write(Truth<false>{}, Truth<false>{});
}

// Multiplies the fibres of a tile. stage() begins to copy the factor to shared memory; finish() is
// called when the thread's own copies are complete. run() is called by all warps of a thread group,
// after a synchronisation of the thread group; another one follows it. Each warp calls
// target.release() once. If the target has pieces (Refill), the only warp of a thread group calls
// refill(c) before that for each piece, when nobody reads entries c ... c + piece - 1 of any fibre
// again.
template <class T, class Pass, bool split = (Pass::split > 0)>
struct FibreMultiply;

// Single precision on ordinary cores: a thread computes `rows` fibres by `columns` results, each
// with one accumulator, over c in order. Of a warp, `lanes` lanes are along fibres and `results`
// along results.
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
  static constexpr int fibres = lanes * rows;                 // fibres of a warp
  static constexpr int padded = results * columns;
  static constexpr int elements = Pass::C * padded;  // of shared memory for the factor, [c][k]

  static_assert(columns % word == 0 && padded >= Pass::K, "results of a thread are whole words");
  static_assert(rows % Pass::across == 0, "fibres of a thread are whole words");
  static_assert(!Pass::along || (Pass::stride == 1 && Pass::C % word == 0 && Pass::across == 1),
                "whole words along a fibre");

  // A warp reads patches of eight entries by four results: whole sectors of 32 bytes if the factor
  // is stored by rows, half ones by columns.
  __device__ static void stage(const Factor<float>& factor, float* target, int threads) {
    constexpr int across = padded / 4;
    const int lane = threadIdx.x % 32;
    const auto first = [](int patch) { return Spot{patch % across * 4, patch / across * 8}; };
    stage_patches<Pass::K, Pass::C>(
        factor, (Pass::C + 7) / 8 * across, threads, Spot{lane / 8, lane % 8}, first,
        [&](int patch) {
          const Spot begin = first(patch);
          const int k = begin.k + lane / 8, c = begin.c + lane % 8;
          return c < Pass::C ? target + swapped(c * padded + k) : nullptr;
        });
  }
  __device__ static void finish(float*, int) {}

  // Where element i of a row of the factor is in shared memory. Sums that are stored four at a time
  // would be in the same register banks as the words of the factor that they are computed from, so
  // pairs of these elements change places.
  __device__ static constexpr int swapped(int i) {
    return Pass::along && Pass::K % word == 0 ? i ^ 1 : i;
  }

  // The output index k of result j of a lane.
  __device__ static int result(int lane, int j) {
    return (j / word * results + lane / lanes) * word + j % word;
  }

  template <class Target>
  __device__ static void run(const Held&, const float* tile, const float* factor, int thread,
                             int threads, const Target& target) {
    const int warps = threads / 32;
    if (thread / 32 >= items) target.release();
    UNROLLED_BY(1) for (int item = thread / 32; item < items; item += warps)
      multiply(tile, factor, item, thread % 32, item + warps >= items, target);
  }

 private:
  static constexpr int items = (Pass::Fibres::size + fibres - 1) / fibres;
  static constexpr int groups = rows / Pass::across;
  static constexpr int apart = lanes * Pass::across;  // fibres from a thread's group to its next
  static constexpr bool ragged = Pass::Fibres::size % fibres != 0;
  // Whether the distances between a thread's fibres in shared memory are the same for all threads.
  static constexpr bool steady =
      !ragged && Pass::Fibres::adds(apart) && Pass::Fibres::adds(fibres);

  using X = Floats<Pass::along ? word : Pass::across>[groups];
  using F = Floats<word>[chunks];

  // Reads a thread's fibres and its part of the factor.
  struct Reader {
    const float* x[steady ? 1 : groups];
    const float* f;

    __device__ Reader(const float* tile, const float* factor, int first, int lane)
        : f(settled(factor + lane / lanes * word)) {
      UNROLLED for (int g = 0; g < (steady ? 1 : groups); ++g)
        x[g] = settled(tile + Pass::Fibres::place(inside(first, g) ? first + g * apart
                                                                   : first / fibres * fibres));
    }
    // Reads the entries that are `entries` behind the current ones; for fibres that do not exist,
    // those of the warp's first fibre.
    __device__ void read_x(int entries, X& to) const {
      UNROLLED for (int g = 0; g < groups; ++g) {
        const float* const begin = steady ? x[0] + Pass::Fibres::place(g * apart) : x[g];
        to[g] = floats_at<sizeof(to[0]) / 4>(begin + entries * Pass::stride);
      }
    }
    __device__ void read_f(int entries, F& to) const {
      UNROLLED for (int chunk = 0; chunk < chunks; ++chunk)
        to[chunk] = floats_at<word>(f + entries * padded + chunk * results * word);
    }
    __device__ void go_on(int entries) {
      UNROLLED for (int g = 0; g < (steady ? 1 : groups); ++g) x[g] += entries * Pass::stride;
      f += entries * padded;
    }
  };

  template <class Target>
  __device__ static void multiply(const float* tile, const float* factor, int item, int lane,
                                  bool last, const Target& target) {
    const int first = item * fibres + lane % lanes * Pass::across;
    float sums[rows][columns] = {};
    Reader reader(tile, factor, first, lane);
    constexpr int piece = Target::piece > 0 ? Target::piece : Pass::C;
    static_assert(Pass::C % piece == 0, "whole pieces");
    Operands<Target::few_warps> operands(reader);
    UNROLLED_BY(1) for (int begin = 0; begin < Pass::C; begin += piece) {
      constexpr int block = piece < 4 ? piece : 4, rest = piece % block;
      UNROLLED_BY(1) for (int c = begin; c < begin + piece - rest; c += block)
        operands.template add<block>(sums, reader, c + block < Pass::C);
      if constexpr (rest > 0)
        operands.template add<rest>(sums, reader, begin + piece < Pass::C);
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

  // The operands of a thread's multiply-adds. If `ahead`, they are read while the entry before is
  // multiplied; else when they are needed, and other warps run meanwhile.
  template <bool ahead>
  struct Operands {
    X x;
    F f;

    __device__ explicit Operands(const Reader& reader) {
      if constexpr (ahead) {
        reader.read_x(0, x);
        reader.read_f(0, f);
      }
    }

    // Adds the products of the next `block` entries; more: whether others follow.
    template <int block>
    __device__ void add(float (&sums)[rows][columns], Reader& reader, bool more) {
      X next_x;
      F next_f;
      UNROLLED for (int j = 0; j < block; ++j) {
        constexpr bool each = !Pass::along;  // else all four entries of a fibre are read at once
        if constexpr (!ahead) {
          if (each || j == 0) reader.read_x(j, x);
          reader.read_f(j, f);
        } else if (j + 1 < block) {
          if (each) reader.read_x(j + 1, next_x);
          reader.read_f(j + 1, next_f);
        } else {
          reader.go_on(more ? block : 0);
          reader.read_x(0, next_x);
          reader.read_f(0, next_f);
        }
        multiply(sums, j);
        if constexpr (ahead) {
          if (each || j + 1 == block) copy(next_x, x);
          copy(next_f, f);
        }
      }
      if constexpr (!ahead) reader.go_on(block);
    }

   private:
    // j: which entry, if x holds several (along)
    __device__ void multiply(float (&sums)[rows][columns], int j) const {
      float values[columns];
      UNROLLED for (int k = 0; k < columns; ++k) values[k] = f[k / word].values[swapped(k % word)];
      UNROLLED for (int g = 0; g < rows; ++g)
        UNROLLED for (int k = 0; k < columns; ++k)
          sums[g][k] = multiply_add(
              sums[g][k],
              Pass::along ? x[g].values[j] : x[g / Pass::across].values[g % Pass::across],
              values[k]);
    }
    template <class Words, int count>
    __device__ static void copy(const Words (&from)[count], Words (&to)[count]) {
      UNROLLED for (int i = 0; i < count; ++i) to[i] = from[i];
    }
  };

  __device__ static bool inside(int first, int g) {
    return !ragged || first + g * apart < Pass::Fibres::size;
  }

  // Results that are stored together must be in neighbouring registers, which may be bad places
  // (banks) for the multiply-adds of the loop over entries. So the results that go to y are
  // multiplied by 1, into other registers, and the compiler may choose those of the sums freely. It
  // saves 3 to 11 % of the time, but not with fewer than 32 entries.
  template <bool all, class Target, class Use>
  __device__ static void each_result(const Target& target, int first,
                                     float (&sums)[rows][columns], int lane, Use use) {
    constexpr bool words = Pass::along && Pass::K % word == 0;  // neighbouring results together
    constexpr int count = words ? word : Pass::across;
    const auto begin = target.place(steady ? first : 0) + target.entry(result(lane, 0));
    const float one = Target::in_tile || Pass::C < 32 ? 1 : unknown_one;
    UNROLLED for (int g = 0; g < groups; ++g) {
      const int fibre = first + g * apart;
      const bool has = inside(first, g) && target.has(fibre);
      if (!all && !has) continue;
      const auto place = begin + target.place(steady ? g * apart : has ? fibre : 0);
      UNROLLED for (int j = 0; j < columns; j += words ? word : 1) {
        const bool exists = padded <= Pass::K || result(lane, j) < Pass::K;
        if (!all && !exists) continue;
        const auto sum = [&](int i) -> float& {
          return words ? sums[g][j + i] : sums[g * Pass::across + i][j];
        };
        float values[count];
        UNROLLED for (int i = 0; i < count; ++i) values[i] = all ? sum(i) : sum(i) * one;
        use(has && exists, place + target.entry(result(0, j)), fibre, values);
        UNROLLED for (int i = 0; i < count; ++i) sum(i) = values[i];
      }
    }
  }
};

}  // namespace batchkron
