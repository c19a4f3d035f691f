// kron_fibres: y = alpha (A_g (x) ... (x) A_h) x + beta previous for neighbouring factors of real
// numbers, up to 128 x 128 (contract: cuda/kron/arguments.cuh).
//
// x is (L, inputs, R), y and previous are (L, outputs, R), a factor is (K, C). A tile (slices,
// inputs, columns) of x is loaded to shared memory and multiplied there along one mode after
// another. A fibre is the entries of a tile along the mode; a warp reads some fibres and writes the
// results over them. The last pass writes to y where that fills whole sectors of memory. A thread
// group is some warps of a thread block; each thread group has tiles of its own, so that one loads
// while another multiplies. x, y and previous are read and written by words where addresses and
// sizes allow it, else element by element.
#pragma once

#include "cuda/common/asynchronous_copy.cuh"
#include "cuda/common/elements.cuh"
#include "cuda/common/launch_order.cuh"
#include "cuda/common/shared_barrier.cuh"
#include "cuda/kron/arguments.cuh"
#include "cuda/kron/fibres/float64.cuh"
#include "cuda/kron/fibres/refill.cuh"
#include "cuda/kron/fibres/tf32.cuh"
#include "cuda/kron/fibres/tile.cuh"

namespace batchkron {

// Waits for about so many cycles.
__device__ inline void pause(int cycles) {
  const long long begin = clock64();
  while (clock64() - begin < cycles) __nanosleep(200);
}

template <class T, class Tile, class... Pass>
struct FibreKernel {
  using Arguments = ArgumentsOf<T, Tile, int(sizeof...(Pass))>;
  using Pieces = Refill<T, Tile, sizeof...(Pass) == 1, typename LastOf<Pass...>::Type>;
  static constexpr int staged = (FibreMultiply<T, Pass>::elements + ... + 0);  // of all factors

  // Whether each of the four schedulers of a multiprocessor has at most two warps. These then have
  // registers enough to load operands ahead of their use.
  static constexpr bool few_warps = Tile::threads * Tile::groups <= 256;

  // Where each warp has tiles of its own and there is one pass, half of the warps begin `late`
  // cycles later, so that the two warps of a scheduler do not load and write at the same time. It
  // is half the cycles that a tile's multiply-adds take.
  static constexpr bool alternate = sizeof(T) == 4 && sizeof...(Pass) == 1 &&
                                    ((Pass::products == 0) && ...) && Tile::threads == 32 &&
                                    Tile::groups >= 8 && Tile::stages == 1;
  static constexpr int late =
      alternate ? Tile::inputs * Tile::columns * Tile::slices / 64 * (Pass::K + ...) : 0;

  static constexpr int parts = Tile::Direct::parts;
  static constexpr int own = parts > 0 ? LastOf<Pass...>::Type::K / (parts > 0 ? parts : 1) : 0;
  static_assert(parts == 0 || (Tile::slices == 1 && Tile::Direct::step > 0 &&
                               own * parts == LastOf<Pass...>::Type::K),
                "results are spread by the last pass, equally");

  __device__ static Index width(const Arguments& a) { return row_length<Tile>(a.R); }

  // Elements between rows of y, or of an owner's memory.
  __device__ static Index pitch(const Arguments& a) {
    if constexpr (parts > 0)
      return a.row;
    else
      return width(a);
  }

  // The offset in y of a tile, or of its part in an owner's memory.
  __device__ static Index first_result(const Arguments& a, Index slice, Index column) {
    if constexpr (parts > 0) {
      const Index vector = unsigned(slice) / unsigned(a.group);
      return vector * a.vector + (slice - vector * a.group) * a.slice + column;
    } else {
      return slice * Tile::outputs * width(a) + column;
    }
  }

  // Whether results are written by words.
  __device__ static bool words_in_y(const Arguments& a) {
    if constexpr (parts > 0)
      return a.aligned;
    else
      return is_aligned(a.y, a.R) && (!a.previous || is_aligned(a.previous, a.R));
  }

  __device__ static void sync_group(int group) {
    if constexpr (Tile::threads == 32)
      __syncwarp();
    else if constexpr (Tile::groups == 1)
      __syncthreads();
    else
      asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(Tile::threads) : "memory");
  }

  // Calls use(address in the array, place in the tile) for the first of every `word` elements of a
  // tile that begins at `first` in the array.
  template <int word, int size, class Axes, class Element, class Use>
  __device__ static void each(Element* first, const TilePart& part, Index width, int thread,
                              Use use) {
    constexpr int elements = Tile::slices * size * Tile::columns, step = Tile::threads * word;
    const int rows = part.slices * size;
    if constexpr (step % Tile::columns == 0 && Axes::adds(step)) {
      constexpr int steps = (elements + step - 1) / step, jump = step / Tile::columns;
      constexpr int together = steps % 8 == 0 && Axes::adds(8 * step) ? 8 : 1;
      const int own = thread * word, column = own % Tile::columns, row = own / Tile::columns;
      if (column >= part.columns) return;
      Element* at = first + (row * width + column);
#pragma unroll(together > 1 ? 1 : 4)
      for (int n = 0; n < steps; n += together) {
        const int place = Axes::place(own) + Axes::place(n * step), left = rows - row - n * jump;
#pragma unroll
        for (int i = 0; i < together; ++i) {
          if (i * jump < left) use(at, place + Axes::place(i * step));
          at += jump * width;
        }
      }
    } else {
#pragma unroll 4
      for (int i = thread * word; i < elements; i += step) {
        const int column = i % Tile::columns, row = i / Tile::columns;
        if (column < part.columns && row < rows)
          use(first + (row * width + column), Axes::place(i));
      }
    }
  }

  template <int word>
  __device__ static void load(const Arguments& a, const TilePart& part, T* buffer, int thread) {
    each<word, Tile::inputs, typename Tile::Inputs>(
        a.x + part.x, part, width(a), thread, [&](const T* from, int to) {
          copy_asynchronously<word * int(sizeof(T)), false>(buffer + to, from);
        });
  }
  __device__ static void load(const Arguments& a, bool words, const TilePart& part, T* buffer,
                              int thread) {
    if (words)
      load<Tile::word>(a, part, buffer, thread);
    else
      load<1>(a, part, buffer, thread);
  }

  // Prefetches a tile to the L2 cache.
  __device__ static void prefetch(const Arguments& a, bool words, const TilePart& part,
                                  int thread) {
    if (can_prefetch_bulk && in_a_row<Tile> && Tile::word * sizeof(T) == 16 && words) {
      constexpr int bytes = Tile::inputs * Tile::columns * int(sizeof(T));  // of a slice
      if (thread == 0) prefetch_bulk(a.x + part.x, part.slices * bytes);
      return;
    }
    constexpr int line = 64 / int(sizeof(T));
    constexpr int run = Tile::columns > 1 ? Tile::columns : Tile::slices * Tile::inputs;
    each<(run < line ? run : line), Tile::inputs, typename Tile::Inputs>(
        a.x + part.x, part, width(a), thread,
        [&](const T* from, int) { asm volatile("prefetch.global.L2 [%0];" ::"l"(from)); });
  }

  template <int word>
  __device__ static void store(const Arguments& a, const TilePart& part, const T* buffer,
                               int thread) {
    struct alignas(word * sizeof(T)) Word {
      T values[word];
    };
    each<word, Tile::outputs, typename Tile::Outputs>(
        a.y + part.y, part, width(a), thread, [&](T* to, int from) {
          Word result = *reinterpret_cast<const Word*>(buffer + from);
#pragma unroll
          for (int j = 0; j < word; ++j) result.values[j] = multiply(a.alpha, result.values[j]);
          if (a.previous) {
            const Word previous = *reinterpret_cast<const Word*>(a.previous + (to - a.y));
#pragma unroll
            for (int j = 0; j < word; ++j)
              result.values[j] = multiply_add(result.values[j], a.beta, previous.values[j]);
          }
          *reinterpret_cast<Word*>(to) = result;
        });
  }

  __device__ static bool is_aligned(const T* first, Index R) {
    constexpr int bytes = Tile::word * int(sizeof(T));
    return reinterpret_cast<unsigned long long>(first) % bytes == 0 &&
           (Tile::columns == 1 || R % Tile::word == 0);
  }

  // All passes, each with the part of its factor that a thread keeps in registers.
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
    __device__ void run(T* buffer, const T* factor, int group, int thread, const Last& last) const {
      if constexpr (Tile::Direct::step > 0 && sizeof...(Rest) == 0) {
        Multiply::run(held, buffer, factor, thread, Tile::threads, last);
      } else {
        const auto sync = [group] { sync_group(group); };
        const TargetInTile<T, P, few_warps, decltype(sync)> target{buffer, sync};
        Multiply::run(held, buffer, factor, thread, Tile::threads, target);
        sync();
        rest.run(buffer, factor + Multiply::elements, group, thread, last);
      }
    }
  };

  // Where the last pass writes: to the array (see TargetInTile for the interface). release: called
  // when the calling warp has read all that it reads of the tile.
  template <class Release, class Pieces = NoRefill>
  struct TargetInArray {
    static constexpr bool in_tile = false, few_warps = FibreKernel::few_warps;
    static constexpr int piece = Pieces::piece;
    // Elements from the tile's first result, in y.
    using Place = typename Choice<(parts > 0), SpreadPlace, Index>::Type;
    const Arguments& a;
    const TilePart& part;
    bool aligned;  // whether words in y, and in previous, are aligned
    Release release;
    Pieces refill;

    __device__ bool has(int fibre) const { return holds<Tile>(part, fibre); }
    // The remainder is computed in 64 bits: of one in 32 bits NVRTC 13.0 to 13.5 may move a
    // constant to the address of the store, and extend what is left, which can be negative, by
    // zeros, so that results went 16 GiB beyond y.
    __device__ Place place(int fibre) const {
      const Index row = fibre / Tile::columns;
      const Index at = row_of<Tile>(fibre) * pitch(a) + (fibre - row * Tile::columns);
      if constexpr (parts > 0)
        return {at, 0};
      else
        return at;
    }
    __device__ Place entry(int k) const {
      if constexpr (parts > 0)
        return {0, k};
      else
        return k * (Tile::Direct::step * width(a));
    }
    __device__ T* address(Place place) const {
      if constexpr (parts > 0) {
        const int owner = place.k / own;
        return a.to[owner] + part.y + place.at +
               (place.k - owner * own) * (Tile::Direct::step * pitch(a));
      } else {
        return a.y + part.y + place;
      }
    }

    __device__ bool words() const { return aligned; }
    __device__ bool scales() const { return a.alpha != 1; }
    __device__ bool adds() const { return parts == 0 && a.previous; }
    __device__ bool exists(int fibre, int i) const {
      return Tile::columns == 1 || fibre % Tile::columns + i < part.columns;
    }

    template <int count>
    __device__ void scale(T (&values)[count]) const {
#pragma unroll
      for (int i = 0; i < count; ++i) values[i] = multiply(a.alpha, values[i]);
    }

    // values += beta previous
    template <bool words, int count>
    __device__ void add(bool present, Place place, int fibre, T (&values)[count]) const {
      struct alignas(count * sizeof(T)) Word {
        T values[count];
      };
      const T* from = a.previous;
      if constexpr (parts == 0) from += part.y + place;
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
        values[i] = multiply_add(values[i], a.beta, old.values[i]);
    }

    template <bool words, int count>
    __device__ void put(Place place, int fibre, const T (&results)[count]) const {
      T* const to = address(place);
      if constexpr (words && count > 1) {
        Elements<T, count> word;
#pragma unroll
        for (int i = 0; i < count; ++i) word.values[i] = results[i];
        batchkron::put(to, word);
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
    ((FibreMultiply<T, Pass>::stage(factors[f++], target, Tile::threads * Tile::groups),
      target += FibreMultiply<T, Pass>::elements),
     ...);
    commit_copies();
  }
  // Called when the thread's own copies of factors are complete; on return those of all threads
  // are.
  __device__ static void finish(T* target) {
    ((FibreMultiply<T, Pass>::finish(target, Tile::threads * Tile::groups),
      target += FibreMultiply<T, Pass>::elements),
     ...);
    __syncthreads();
  }

  // A tile's number along l and along r. A walk goes from tile to tile by additions, in place of a
  // 64-bit division for each.
  class Walk {
    Index l, r;

   public:
    __device__ static Index across(const Arguments& a) {
      return (width(a) + Tile::columns - 1) / Tile::columns;
    }
    __device__ static Index tiles(const Arguments& a) {
      return (a.L + Tile::slices - 1) / Tile::slices * across(a);
    }

    __device__ Walk(const Arguments& a, Index number)
        : l(number / across(a)), r(number % across(a)) {}

    // Goes on by as many tiles as `by` is behind the first one.
    __device__ void go_on(const Arguments& a, const Walk& by) {
      l += by.l;
      r += by.r;
      if (r >= across(a)) {
        r -= across(a);
        ++l;
      }
    }
    __device__ bool ends(const Arguments& a) const { return l * Tile::slices >= a.L; }
    __device__ TilePart part(const Arguments& a) const {
      const Index slice = l * Tile::slices, column = r * Tile::columns;
      const Index slices = a.L - slice, columns = width(a) - column;
      return {slice * Tile::inputs * width(a) + column, first_result(a, slice, column),
              int(slices < Tile::slices ? slices : Tile::slices),
              int(columns < Tile::columns ? columns : Tile::columns)};
    }
  };

  // For a factor that lies in the registers of the only thread group: all warps read all fibres of
  // a tile, each at its own pace, so that some multiply while others write. The tiles in shared
  // memory are a ring. Barrier full[s] says that all copies to stage s have arrived, read[s] that
  // all warps have read it; a warp is therefore at most two tiles ahead of the last one.
  __device__ static void run_in_ring(const Arguments& a, T* shared) {
    constexpr int stages = Tile::stages, ahead = stages - 2, warps = Tile::threads / 32;
    static_assert(Tile::groups == 1 && sizeof...(Pass) == 1 && staged == 0,
                  "one thread group whose registers hold the only factor");
    static_assert(Tile::Direct::step > 0, "it writes to the array");
    // shared: tiles (stages, buffer), then barriers full (stages) and read (stages)
    SharedBarrier* const full = reinterpret_cast<SharedBarrier*>(shared + stages * Tile::buffer);
    SharedBarrier* const read = full + stages;
    const int thread = threadIdx.x;
    if (thread < stages) {
      full[thread].begin(Tile::threads);
      read[thread].begin(warps);
    }
    __syncthreads();
    const bool load_words = is_aligned(a.x, a.R);
    const bool store_words = words_in_y(a);
    const Walk step(a, gridDim.x);
    Walk here(a, blockIdx.x), next = here;
    const auto issue_copy = [&](int stage) {
      load(a, load_words, next.part(a), shared + stage * Tile::buffer, thread);
      full[stage].arrive_with_copies();
      next.go_on(a, step);
    };
#pragma unroll 1
    for (int n = 0; n < ahead && !next.ends(a); ++n) issue_copy(n);
    const Passes<Pass...> passes(a.factors, thread);
#pragma unroll 1
    for (int n = 0; !here.ends(a); ++n) {
      if (!next.ends(a)) {
        const int stage = (n + ahead) % stages;
        if (n + ahead >= stages) read[stage].wait((n + ahead) / stages - 1);
        issue_copy(stage);
      }
      const int stage = n % stages;
      full[stage].wait(n / stages);
      const TilePart part = here.part(a);
      const auto release = [&] {
        __syncwarp();
        if (thread % 32 == 0) read[stage].arrive();
      };
      passes.run(shared + stage * Tile::buffer, shared, 0, thread,
                 TargetInArray<decltype(release)>{a, part, store_words, release, {}});
      here.go_on(a, step);
    }
  }

  // With one stage or two: each thread group takes tiles in turn.
  __device__ static void run(const Arguments& a, T* shared) {
    const int group = threadIdx.x / Tile::threads, thread = threadIdx.x % Tile::threads;
    T* const tiles = shared + staged + group * Tile::stages * Tile::buffer;  // (stages, buffer)
    const bool load_words = is_aligned(a.x, a.R);
    const bool store_words = words_in_y(a);
    const Walk step(a, Index(Tile::groups) * gridDim.x);
    Walk here(a, blockIdx.x + Index(group) * gridDim.x), next = here;
    const auto issue_copy = [&](T* buffer) {
      if (!next.ends(a)) load(a, load_words, next.part(a), buffer, thread);
      commit_copies();
      next.go_on(a, step);
    };
    if (!here.ends(a)) prefetch(a, load_words, here.part(a), thread);
    stage(a.factors, shared);
#pragma unroll
    for (int i = 0; i < Tile::stages; ++i) issue_copy(tiles + i * Tile::buffer);
    wait_for_copies<Tile::stages>();
    finish(shared);
    const Passes<Pass...> passes(a.factors, thread);  // of each (K, C), what registers hold
    if (late > 0 && group >= Tile::groups / 2 && Walk::tiles(a) >= 3 * Tile::groups * gridDim.x)
      pause(late);
    int current = 0;
#pragma unroll 1
    for (; !here.ends(a); here.go_on(a, step)) {
      const TilePart part = here.part(a);
      T* const tile = tiles + current * Tile::buffer;  // (slices, inputs, columns)
      if constexpr (Tile::stages > 1) current ^= 1;
      // The tile has arrived; with one stage, the next one is asked for to the L2 cache.
      wait_for_copies<Tile::stages - 1>();
      sync_group(group);
      const bool has_next = Tile::stages == 1 && !next.ends(a);
      const TilePart next_part = has_next ? next.part(a) : part;
      if (has_next) prefetch(a, load_words, next_part, thread);
      // Multiply. When a tile has been read, its place takes the next one, by pieces or as a whole.
      const Pieces pieces(a.x, width(a), next_part, tile, thread, has_next && load_words);
      const auto refill = [&] {
        sync_group(group);
        if (pieces.active) {
          commit_copies();
          next.go_on(a, step);
        } else {
          issue_copy(tile);
        }
      };
      passes.run(tile, shared, group, thread,
                 TargetInArray<decltype(refill), Pieces>{a, part, store_words, refill, pieces});
      if constexpr (Tile::Direct::step == 0) {
        if (store_words)
          store<Tile::word>(a, part, tile, thread);
        else
          store<1>(a, part, tile, thread);
        refill();
      }
    }
  }
};

// The factors of the arguments are in the order of the passes.
template <class T, class Tile, class... Pass>
__global__ void __launch_bounds__(Tile::threads * Tile::groups, 1)
    kron_fibres(const ArgumentsOf<T, Tile, int(sizeof...(Pass))> a) {
  wait_for_earlier_kernels();
  extern __shared__ __align__(16) unsigned char shared_memory[];
  using Kernel = FibreKernel<T, Tile, Pass...>;
  if constexpr (Tile::stages > 2)
    Kernel::run_in_ring(a, reinterpret_cast<T*>(shared_memory));
  else
    Kernel::run(a, reinterpret_cast<T*>(shared_memory));
}

}  // namespace batchkron
