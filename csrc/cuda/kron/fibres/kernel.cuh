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
#include "cuda/common/launch_order.cuh"
#include "cuda/common/shared_barrier.cuh"
#include "cuda/kron/arguments.cuh"
#include "cuda/kron/fibres/array.cuh"
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
  using Last = typename LastOf<Pass...>::Type;
  using Array = FibreArray<T, Tile, int(sizeof...(Pass)), Last>;
  using Arguments = typename Array::Arguments;
  using Walk = typename Array::Walk;
  using Pieces = Refill<T, Tile, sizeof...(Pass) == 1, Last>;
  static constexpr int staged = (FibreMultiply<T, Pass>::elements + ... + 0);  // of all factors

  // Where each warp has tiles of its own and there is one pass, half of the warps begin `late`
  // cycles later, so that the two warps of a scheduler do not load and write at the same time. It
  // is half the cycles that a tile's multiply-adds take.
  static constexpr bool alternate = sizeof(T) == 4 && sizeof...(Pass) == 1 &&
                                    ((Pass::products == 0) && ...) && Tile::threads == 32 &&
                                    Tile::groups >= 8 && Tile::stages == 1;
  static constexpr int late =
      alternate ? Tile::inputs * Tile::columns * Tile::slices / 64 * (Pass::K + ...) : 0;

  __device__ static void sync_group(int group) {
    if constexpr (Tile::threads == 32) __syncwarp();
    else if constexpr (Tile::groups == 1) __syncthreads();
    else asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(Tile::threads) : "memory");
  }

  // All passes, each with the part of its factor that a thread keeps in registers.
  template <class... P>
  struct Passes {
    __device__ Passes(const Factor<T>*, int) {}
    template <class Target>
    __device__ void run(T*, const T*, int, int, const Target&) const {}
  };
  template <class P, class... Rest>
  struct Passes<P, Rest...> {
    using Multiply = FibreMultiply<T, P>;
    typename Multiply::Held held;
    Passes<Rest...> rest;

    __device__ Passes(const Factor<T>* factors, int thread)
        : held(factors[0], thread), rest(factors + 1, thread) {}

    template <class Target>
    __device__ void run(T* buffer, const T* factor, int group, int thread,
                        const Target& last) const {
      if constexpr (Tile::Direct::step > 0 && sizeof...(Rest) == 0) {
        Multiply::run(held, buffer, factor, thread, Tile::threads, last);
      } else {
        const auto sync = [group] { sync_group(group); };
        const TargetInTile<T, P, Array::few_warps, decltype(sync)> target{buffer, sync};
        Multiply::run(held, buffer, factor, thread, Tile::threads, target);
        sync();
        rest.run(buffer, factor + Multiply::elements, group, thread, last);
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
    const bool load_words = Array::is_aligned(a.x, a.R);
    const bool store_words = Array::words_in_y(a);
    const Walk step(a, gridDim.x);
    Walk here(a, blockIdx.x), next = here;
    const auto issue_copy = [&](int stage) {
      Array::load(a, load_words, next.part(a), shared + stage * Tile::buffer, thread);
      full[stage].arrive_with_copies();
      next.go_on(a, step);
    };
    UNROLLED_BY(1) for (int n = 0; n < ahead && !next.ends(a); ++n) issue_copy(n);
    const Passes<Pass...> passes(a.factors, thread);
    UNROLLED_BY(1) for (int n = 0; !here.ends(a); ++n) {
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
      using Target = typename Array::template TargetInArray<decltype(release)>;
      passes.run(shared + stage * Tile::buffer, shared, 0, thread,
                 Target{a, part, store_words, release, {}});
      here.go_on(a, step);
    }
  }

  // With one stage or two: each thread group takes tiles in turn.
  __device__ static void run(const Arguments& a, T* shared) {
    const int group = threadIdx.x / Tile::threads, thread = threadIdx.x % Tile::threads;
    T* const tiles = shared + staged + group * Tile::stages * Tile::buffer;  // (stages, buffer)
    const bool load_words = Array::is_aligned(a.x, a.R);
    const bool store_words = Array::words_in_y(a);
    const Walk step(a, Index(Tile::groups) * gridDim.x);
    Walk here(a, blockIdx.x + Index(group) * gridDim.x), next = here;
    const auto issue_copy = [&](T* buffer) {
      if (!next.ends(a)) Array::load(a, load_words, next.part(a), buffer, thread);
      commit_copies();
      next.go_on(a, step);
    };
    if (!here.ends(a)) Array::prefetch(a, load_words, here.part(a), thread);
    stage(a.factors, shared);
    UNROLLED for (int i = 0; i < Tile::stages; ++i) issue_copy(tiles + i * Tile::buffer);
    wait_for_copies<Tile::stages>();
    finish(shared);
    const Passes<Pass...> passes(a.factors, thread);  // of each (K, C), what registers hold
    if (late > 0 && group >= Tile::groups / 2 && Walk::tiles(a) >= 3 * Tile::groups * gridDim.x)
      pause(late);
    int current = 0;
    UNROLLED_BY(1) for (; !here.ends(a); here.go_on(a, step)) {
      const TilePart part = here.part(a);
      T* const tile = tiles + current * Tile::buffer;  // (slices, inputs, columns)
      if constexpr (Tile::stages > 1) current ^= 1;
      // The tile has arrived; with one stage, the next one is asked for to the L2 cache.
      wait_for_copies<Tile::stages - 1>();
      sync_group(group);
      const bool has_next = Tile::stages == 1 && !next.ends(a);
      const TilePart next_part = has_next ? next.part(a) : part;
      if (has_next) Array::prefetch(a, load_words, next_part, thread);
      // Multiply. When a tile has been read, its place takes the next one, by pieces or as a whole.
      const Pieces pieces(a.x, Array::width(a), next_part, tile, thread, has_next && load_words);
      const auto refill = [&] {
        sync_group(group);
        if (pieces.active) {
          commit_copies();
          next.go_on(a, step);
        } else {
          issue_copy(tile);
        }
      };
      using Target = typename Array::template TargetInArray<decltype(refill), Pieces>;
      passes.run(tile, shared, group, thread, Target{a, part, store_words, refill, pieces});
      if constexpr (Tile::Direct::step == 0) {
        if (store_words) Array::template store<Tile::word>(a, part, tile, thread);
        else Array::template store<1>(a, part, tile, thread);
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
  if constexpr (Tile::stages > 2) Kernel::run_in_ring(a, reinterpret_cast<T*>(shared_memory));
  else Kernel::run(a, reinterpret_cast<T*>(shared_memory));
}

}  // namespace batchkron
