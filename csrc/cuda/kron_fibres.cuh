// y = alpha (A_g x ... x A_h) x + beta previous for neighbouring factors of any size: a tile stays
// in shared memory, and fibres are multiplied in place. Teams of a thread block have tiles of their
// own, so that one loads while another multiplies.
#pragma once

#include "asynchronous_copy.cuh"
#include "double_fibres.cuh"
#include "fibre_refill.cuh"
#include "fibre_tile.cuh"
#include "kron_arguments.cuh"
#include "shared_barrier.cuh"
#include "tf32_multiply.cuh"

namespace batchkron {

// Lets about so many cycles pass.
__device__ inline void pause(int cycles) {
  const long long begin = clock64();
  while (clock64() - begin < cycles) __nanosleep(200);
}

template <class T, class Tile, class... Pass>
struct FibreKernel {
  using Arguments = KronArguments<T, int(sizeof...(Pass))>;
  using Pieces = Refill<T, Tile, sizeof...(Pass) == 1, typename LastOf<Pass...>::Type>;
  static constexpr int staged = (FibreMultiply<T, Pass>::elements + ... + 0);

  using Part = TilePart;

  // Cycles that half of the warps begin later, where each has a tile of its own and one mode: half of
  // a tile's multiply-adds, so that a scheduler's two warps do not load and write at once.
  static constexpr bool alternate = sizeof(T) == 4 && sizeof...(Pass) == 1 &&
                                    ((Pass::products == 0) && ...) && Tile::threads == 32 &&
                                    Tile::teams >= 8 && Tile::stages == 1;
  static constexpr int late =
      alternate ? Tile::inputs * Tile::columns * Tile::slices / 64 * (Pass::K + ...) : 0;

  __device__ static Index across(const Arguments& a) {
    return (a.R + Tile::columns - 1) / Tile::columns;
  }
  __device__ static Part part(const Arguments& a, Index number) {
    const Index l = number / across(a) * Tile::slices, r = number % across(a) * Tile::columns;
    return {l * Tile::inputs * a.R + r, l * Tile::outputs * a.R + r, a.L - l, a.R - r};
  }

  __device__ static void sync_team(int team) {
    if constexpr (Tile::threads == 32)
      __syncwarp();
    else if constexpr (Tile::teams == 1)
      __syncthreads();
    else
      asm volatile("bar.sync %0, %1;" ::"r"(team + 1), "n"(Tile::threads) : "memory");
  }

  // Calls use(offset in the array from the tile's first element, place in the tile) for the first
  // of every `word` elements.
  template <int word, int size, class Axes, class Use>
  __device__ static void each(const Part& part, Index R, int thread, Use use) {
    constexpr int elements = Tile::slices * size * Tile::columns, step = Tile::threads * word;
    const int rows = int(part.slices < Tile::slices ? part.slices : Tile::slices) * size;
    if constexpr (step % Tile::columns == 0 && Axes::adds(step)) {
      const int first = thread * word, column = first % Tile::columns;
      if (column >= part.columns) return;
      int row = first / Tile::columns;
      Index offset = row * R + column;
      const int place = Axes::place(first);
#pragma unroll 4
      for (int n = 0; n < (elements + step - 1) / step; ++n) {
        if (row < rows) use(offset, place + Axes::place(n * step));
        row += step / Tile::columns;
        offset += step / Tile::columns * R;
      }
    } else {
#pragma unroll 4
      for (int i = thread * word; i < elements; i += step) {
        const int column = i % Tile::columns, row = i / Tile::columns;
        if (column < part.columns && row < rows) use(row * R + column, Axes::place(i));
      }
    }
  }

  template <int word>
  __device__ static void load(const T* x, const Part& part, Index R, T* buffer, int thread) {
    each<word, Tile::inputs, typename Tile::Inputs>(part, R, thread, [&](Index from, int to) {
      copy_asynchronously<word * int(sizeof(T)), false>(buffer + to, x + from);
    });
  }
  __device__ static void load(const Arguments& a, bool words, const Part& part, T* buffer,
                              int thread) {
    if (words)
      load<Tile::word>(a.x + part.x, part, a.R, buffer, thread);
    else
      load<1>(a.x + part.x, part, a.R, buffer, thread);
  }

  // Asks for a tile in the second-level cache.
  __device__ static void prefetch(const Arguments& a, const Part& part, int thread) {
    constexpr int line = 64 / int(sizeof(T));
    constexpr int run = Tile::columns > 1 ? Tile::columns : Tile::slices * Tile::inputs;
    each<(run < line ? run : line), Tile::inputs, typename Tile::Inputs>(
        part, a.R, thread, [&](Index from, int) {
          asm volatile("prefetch.global.L2 [%0];" ::"l"(a.x + part.x + from));
        });
  }

  template <int word>
  __device__ static void store(const Arguments& a, const Part& part, const T* buffer, int thread) {
    struct alignas(word * sizeof(T)) Word {
      T values[word];
    };
    each<word, Tile::outputs, typename Tile::Outputs>(part, a.R, thread, [&](Index to, int from) {
      Word result = *reinterpret_cast<const Word*>(buffer + from);
#pragma unroll
      for (int j = 0; j < word; ++j) result.values[j] = multiply(a.alpha, result.values[j]);
      if (a.previous) {
        const Word previous = *reinterpret_cast<const Word*>(a.previous + part.y + to);
#pragma unroll
        for (int j = 0; j < word; ++j)
          result.values[j] = multiply_add(result.values[j], a.beta, previous.values[j]);
      }
      *reinterpret_cast<Word*>(a.y + part.y + to) = result;
    });
  }

  __device__ static bool is_aligned(const T* first, Index R) {
    constexpr int bytes = Tile::word * int(sizeof(T));
    return reinterpret_cast<unsigned long long>(first) % bytes == 0 &&
           (Tile::columns == 1 || R % Tile::word == 0);
  }

  // The passes, each with what a thread holds of its factor.
  template <class... P>
  struct Passes {
    __device__ Passes(const Factor<T>*, int) {}
    template <class Last>
    __device__ void run(T*, const T*, int, int, const Last&) const {}
  };
  template <class P, class... Rest>
  struct Passes<P, Rest...> {
    using Multiply = FibreMultiply<T, P>;
    typename Multiply::Held held;
    Passes<Rest...> rest;

    __device__ Passes(const Factor<T>* factors, int thread)
        : held(factors[0], thread), rest(factors + 1, thread) {}

    template <class Last>
    __device__ void run(T* buffer, const T* factor, int team, int thread, const Last& last) const {
      if constexpr (Tile::Direct::step > 0 && sizeof...(Rest) == 0) {
        Multiply::run(held, buffer, factor, thread, Tile::threads, last);
      } else {
        const auto sync = [team] { sync_team(team); };
        const TargetInTile<T, P, decltype(sync)> target{buffer, sync};
        Multiply::run(held, buffer, factor, thread, Tile::threads, target);
        sync();
        rest.run(buffer, factor + Multiply::elements, team, thread, last);
      }
    }
  };

  // Where the last pass writes. release: called once all that the team reads of a tile is read.
  template <class Release, class Pieces = NoRefill>
  struct TargetInArray {
    static constexpr bool in_tile = false;
    static constexpr int piece = Pieces::piece;
    using Place = T*;
    const Arguments& a;
    const Part& part;
    bool aligned;  // words in y, and in previous
    Release release;
    Pieces refill;

    __device__ bool has(int fibre) const { return holds<Tile>(part, fibre); }
    __device__ T* place(int fibre) const {
      return a.y + (part.y + row_of<Tile>(fibre) * a.R + fibre % Tile::columns);
    }
    __device__ Index entry(int k) const { return k * (Tile::Direct::step * a.R); }

    __device__ bool words() const { return aligned; }
    __device__ bool adds() const { return a.previous; }
    __device__ bool exists(int fibre, int i) const {
      return Tile::columns == 1 || fibre % Tile::columns + i < part.columns;
    }

    // Makes alpha values + beta previous of values.
    template <bool words, int count>
    __device__ void add(bool present, const T* to, int fibre, T (&values)[count]) const {
      struct alignas(count * sizeof(T)) Word {
        T values[count];
      };
      const T* const from = to + (a.previous - a.y);
      Word old;
      if constexpr (words) {
        old = present ? *reinterpret_cast<const Word*>(from) : Word{};
      } else {
#pragma unroll
        for (int i = 0; i < count; ++i)
          old.values[i] = present && exists(fibre, i) ? from[i] : T{};
      }
#pragma unroll
      for (int i = 0; i < count; ++i)
        values[i] = multiply_add(multiply(a.alpha, values[i]), a.beta, old.values[i]);
    }

    // added: add() was called for the values, which have alpha.
    template <bool words, bool added, int count>
    __device__ void put(T* to, int fibre, const T (&values)[count]) const {
      T results[count];
#pragma unroll
      for (int i = 0; i < count; ++i)
        results[i] = added ? values[i] : multiply(a.alpha, values[i]);
      if constexpr (words && count == 4) {  // in assembly, so that it stays one instruction
        asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(results[0]),
                     "f"(results[1]), "f"(results[2]), "f"(results[3])
                     : "memory");
      } else if constexpr (words && count == 2 && sizeof(T) == 4) {
        asm volatile("st.global.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"(results[0]), "f"(results[1])
                     : "memory");
      } else if constexpr (words && count == 2) {
        asm volatile("st.global.v2.f64 [%0], {%1, %2};" ::"l"(to), "d"(results[0]), "d"(results[1])
                     : "memory");
      } else if constexpr (words) {
        static_assert(count == 1, "pairs, words of 16 bytes, or one element");
        to[0] = results[0];
      } else {
#pragma unroll
        for (int i = 0; i < count; ++i)
          if (exists(fibre, i)) to[i] = results[i];
      }
    }
  };

  __device__ static void stage(const Factor<T>* factors, T* target) {
    int f = 0;
    ((FibreMultiply<T, Pass>::stage(factors[f++], target, Tile::threads * Tile::teams),
      target += FibreMultiply<T, Pass>::elements),
     ...);
    __syncthreads();
  }

  // The tiles of a thread block, every gridDim.x-th one, without a division for each.
  class Walk {
    Index l, r;  // numbers of tiles

   public:
    __device__ Walk(const Arguments& a, Index number)
        : l(number / across(a)), r(Tile::columns == 1 ? 0 : number % across(a)) {}

    // by: where tile gridDim.x is
    __device__ void go_on(const Arguments& a, const Walk& by) {
      l += by.l;
      if constexpr (Tile::columns > 1) {
        r += by.r;
        if (r >= across(a)) {
          r -= across(a);
          ++l;
        }
      }
    }
    __device__ bool ends(const Arguments& a) const { return l * Tile::slices >= a.L; }
    __device__ Part part(const Arguments& a) const {
      const Index slice = l * Tile::slices, column = r * Tile::columns;
      return {slice * Tile::inputs * a.R + column, slice * Tile::outputs * a.R + column,
              a.L - slice, a.R - column};
    }
  };

  // The warps of the only team read all fibres of a tile, each at its own pace, so that some
  // multiply while others write. A warp is at most two tiles ahead of the last one.
  __device__ static void run_in_ring(const Arguments& a, T* shared) {
    constexpr int stages = Tile::stages, ahead = stages - 2, warps = Tile::threads / 32;
    static_assert(Tile::teams == 1 && sizeof...(Pass) == 1 && staged == 0 && Tile::Direct::step > 0,
                  "one team whose registers hold the only factor, and that writes to the array");
    SharedBarrier* const full = reinterpret_cast<SharedBarrier*>(shared + stages * Tile::buffer);
    SharedBarrier* const read = full + stages;
    const int thread = threadIdx.x;
    if (thread < stages) {
      full[thread].begin(Tile::threads);
      read[thread].begin(warps);
    }
    __syncthreads();
    const bool load_words = is_aligned(a.x, a.R);
    const bool store_words = is_aligned(a.y, a.R) && (!a.previous || is_aligned(a.previous, a.R));
    const Walk step(a, gridDim.x);
    Walk here(a, blockIdx.x), next = here;
    const auto ask = [&](int stage) {
      load(a, load_words, next.part(a), shared + stage * Tile::buffer, thread);
      full[stage].arrive_with_copies();
      next.go_on(a, step);
    };
#pragma unroll 1
    for (int n = 0; n < ahead && !next.ends(a); ++n) ask(n);
    const Passes<Pass...> passes(a.factors, thread);
#pragma unroll 1
    for (int n = 0; !here.ends(a); ++n) {
      if (!next.ends(a)) {
        const int stage = (n + ahead) % stages;
        if (n + ahead >= stages) read[stage].wait((n + ahead) / stages - 1);
        ask(stage);
      }
      const int stage = n % stages;
      full[stage].wait(n / stages);
      const Part part = here.part(a);
      const auto release = [&] {
        __syncwarp();
        if (thread % 32 == 0) read[stage].arrive();
      };
      passes.run(shared + stage * Tile::buffer, shared, 0, thread,
                 TargetInArray<decltype(release)>{a, part, store_words, release, {}});
      here.go_on(a, step);
    }
  }

  __device__ static void run(const Arguments& a, T* shared) {
    const int team = threadIdx.x / Tile::threads, thread = threadIdx.x % Tile::threads;
    T* const buffers = shared + staged + team * Tile::stages * Tile::buffer;
    const Index tiles = across(a) * ((a.L + Tile::slices - 1) / Tile::slices);
    const Index stride = Index(Tile::teams) * gridDim.x;
    const bool load_words = is_aligned(a.x, a.R);
    const bool store_words = is_aligned(a.y, a.R) && (!a.previous || is_aligned(a.previous, a.R));
    Index number = blockIdx.x + Index(team) * gridDim.x;
    const auto ask = [&](Index tile, T* buffer) {
      if (tile < tiles) load(a, load_words, part(a, tile), buffer, thread);
      commit_copies();
    };
#pragma unroll
    for (int i = 0; i < Tile::stages; ++i) ask(number + i * stride, buffers + i * Tile::buffer);
    stage(a.factors, shared);
    const Passes<Pass...> passes(a.factors, thread);
    if (late > 0 && team >= Tile::teams / 2 && tiles >= 3 * stride) pause(late);
    int current = 0;
#pragma unroll 1
    for (; number < tiles; number += stride) {
      const Part here = part(a, number);
      T* const buffer = buffers + current * Tile::buffer;
      if constexpr (Tile::stages > 1) current ^= 1;
      wait_for_copies<Tile::stages - 1>();
      sync_team(team);
      const bool has_next = Tile::stages == 1 && number + stride < tiles;
      const Part next = has_next ? part(a, number + stride) : here;
      if (has_next) prefetch(a, next, thread);
      const Pieces pieces{a.x, a.R, next, buffer, thread, has_next && load_words};
      const auto refill = [&] {
        sync_team(team);
        if (Pieces::possible && pieces.active)
          commit_copies();
        else
          ask(number + Tile::stages * stride, buffer);
      };
      passes.run(buffer, shared, team, thread,
                 TargetInArray<decltype(refill), Pieces>{a, here, store_words, refill, pieces});
      if constexpr (Tile::Direct::step == 0) {
        if (store_words)
          store<Tile::word>(a, here, buffer, thread);
        else
          store<1>(a, here, buffer, thread);
        refill();
      }
    }
  }
};

// Factors are in the order of the passes.
template <class T, class Tile, class... Pass>
__global__ void __launch_bounds__(Tile::threads * Tile::teams, 1)
    kron_fibres(const KronArguments<T, int(sizeof...(Pass))> a) {
  extern __shared__ __align__(16) unsigned char shared_memory[];
  using Kernel = FibreKernel<T, Tile, Pass...>;
  if constexpr (Tile::stages > 2)
    Kernel::run_in_ring(a, reinterpret_cast<T*>(shared_memory));
  else
    Kernel::run(a, reinterpret_cast<T*>(shared_memory));
}

}  // namespace batchkron
