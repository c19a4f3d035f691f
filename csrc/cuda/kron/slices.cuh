// kron_slices: y = alpha (A_g (x) ... (x) A_h) x + beta previous for neighbouring square factors of
// real numbers whose tile is larger than shared memory (contract: cuda/kron/arguments.cuh).
//
// A tile is (lead, slice): `lead` entries of the group's first mode, and a slice of all others.
// Slices come to shared memory one after another and are multiplied along all modes but the first,
// on matrix units of double precision. Each thread keeps its results of all slices, in registers
// and in shared memory; they are the same places of all slices, so it multiplies them along the
// first mode without any exchange. x, y and previous are read and written by words of 16 bytes
// where their addresses and R allow it, else by elements. R is a multiple of Inner::columns, which
// is 1 only if R is 1; so tiles have no ragged edge.
#pragma once

#include "cuda/common/asynchronous_copy.cuh"
#include "cuda/common/launch_order.cuh"
#include "cuda/kron/arguments.cuh"
#include "cuda/kron/slice_modes.cuh"

namespace batchkron {

// slots: slices that are in shared memory at a time, coming or being multiplied. held: slices whose
// results stay in registers; those of the other `stashed` ones stay in shared memory. converts: in
// single precision there is a copy of the slice in double precision, between the two multiplies.
template <class T, class Lead, class Outer_, class Inner_, int slots, int held>
struct SliceKernel {
  using Outer = typename Outer_::template Multiply<T, Inner_>;
  using Inner = typename Inner_::template Multiply<T, Outer_>;
  using Arguments = KronArguments<T, Lead::factors + Outer_::factors + Inner_::factors>;
  using Word = FullWord<T>;
  static constexpr int size = int(sizeof(T)), word = 16 / size, lead = Lead::size;
  static constexpr int slice = Outer_::rows * Inner_::entries, columns = Inner_::columns;
  static constexpr int threads = 32 * slice_warps, lines = slice / columns;
  static constexpr int groups = Inner::groups, width = Inner::width, stashed = lead - held;
  static constexpr int some = lead < 8 ? lead : 8;  // results along the first mode at a time
  static constexpr bool converts = size == 4;
  static_assert(groups * width * threads == slice && lead % some == 0);
  static_assert(some % word == 0 || lead == 1, "whole words of its factor");
  using Results = T[groups][width];
  using Group = Elements<T, width>;

  // Begins to copy the slice at x to shared address `to`, `count` elements with each copy.
  template <int count>
  __device__ static void load(const T* x, Index R, unsigned to, int thread) {
    using Places = typename Outer::Places;
    constexpr int words_of_row = Inner_::entries / word, rows = threads / words_of_row;
    constexpr int words_of_line = columns > 1 ? columns / word : 1;
    to += Places::place(thread / words_of_row, thread % words_of_row * 16);
    const Index step = columns > 1 ? threads / words_of_line * R : threads * word;
    x += columns > 1 ? thread / words_of_line * R + thread % words_of_line * word : thread * word;
    UNROLLED_BY(count == word ? Outer_::rows / rows : 1)
    for (int row = 0; row < Outer_::rows; row += rows) {
      const unsigned place = (to ^ Outer_::swap(row) * 16) + row * Places::pitch;
      UNROLLED for (int j = 0; j < word; j += count) {
        T* const target = &in_shared<T>(place + j * size);
        if constexpr (columns > 1 && columns * size < 128 && count == word)
          copy_from_line(target, x + j);
        else
          copy_asynchronously<count * size, false>(target, x + j);
      }
      x += step;
    }
  }

  // Multiplies along the first mode, and writes to y. leading: shared address of that mode's
  // factor, [entry][result]; stash: of the thread's results that are not in registers. first:
  // offset in y of the thread's results; words: whether y is written by words.
  __device__ static void finish(const Arguments& a, unsigned leading, unsigned stash,
                                const Results (&kept)[held], Index first, bool words) {
    const Index line = columns > 1 ? a.R : 1, step = lines * line;
    UNROLLED for (int g = 0; g < groups; ++g) {
      Index to = first + Inner::line(g) * line;
      if constexpr (lead == 1) {
        Group sums[1];
        UNROLLED for (int i = 0; i < width; ++i) sums[0].values[i] = kept[0][g][i];
        if (words) write<true>(a, to, step, sums);
        else write<false>(a, to, step, sums);
        continue;
      }
      UNROLLED for (int begin = 0; begin < lead; begin += some) {
        Group sums[some] = {};
        UNROLLED for (int c = 0; c < lead; ++c) {
          Group entry;
          if (c < stashed) {
            entry = load_again<T, width>(stash + (c * groups + g) * int(sizeof(Group) * threads));
          } else {
            UNROLLED for (int i = 0; i < width; ++i)
              entry.values[i] = kept[c < stashed ? 0 : c - stashed][g][i];
          }
          UNROLLED for (int k = 0; k < some; k += word) {
            const Word factor = load_again<T, word>(leading + (c * lead + begin + k) * size);
            UNROLLED for (int j = 0; j < word; ++j)
              UNROLLED for (int i = 0; i < width; ++i)
                sums[k + j].values[i] =
                    multiply_add(sums[k + j].values[i], factor.values[j], entry.values[i]);
          }
        }
        if (words) write<true>(a, to, step, sums);
        else write<false>(a, to, step, sums);
        to += some * step;
      }
    }
  }

  // y[first + k step ...] = alpha sums[k] + beta previous. Reads previous before it writes y, as
  // both may be one array.
  template <bool words>
  __device__ static void write(const Arguments& a, Index first, Index step, Group (&sums)[some]) {
    T* const to = a.y + first;
    if (a.alpha != 1) {
      UNROLLED for (int k = 0; k < some; ++k)
        UNROLLED for (int i = 0; i < width; ++i)
          sums[k].values[i] = multiply(a.alpha, sums[k].values[i]);
    }
    if (a.previous) {
      const T* const from = a.previous + first;
      UNROLLED for (int k = 0; k < some; ++k) {
        Group old;
        if constexpr (words) old = *reinterpret_cast<const Group*>(from + k * step);
        else UNROLLED for (int i = 0; i < width; ++i) old.values[i] = from[k * step + i];
        UNROLLED for (int i = 0; i < width; ++i)
          sums[k].values[i] = multiply_add(sums[k].values[i], a.beta, old.values[i]);
      }
    }
    UNROLLED for (int k = 0; k < some; ++k) {
      if constexpr (words) put(to + k * step, sums[k]);
      else UNROLLED for (int i = 0; i < width; ++i) to[k * step + i] = sums[k].values[i];
    }
  }

  __device__ static bool is_aligned(const T* first, Index R) {
    return reinterpret_cast<unsigned long long>(first) % 16 == 0 && R % word == 0;
  }

  __device__ static void run(const Arguments& a, T* memory) {
    const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    const unsigned slices = unsigned(__cvta_generic_to_shared(memory));
    const unsigned converted = slices + slots * slice * size;  // a slice in double precision
    const unsigned stash = converted + converts * slice * 8;
    const unsigned own_stash = stash + thread * int(sizeof(Group));
    const unsigned leading = stash + stashed * slice * size;
    const Index R = columns > 1 ? a.R : 1, across = R / columns, tiles = a.L * across;
    const Index row = columns > 1 ? R : word;  // elements between rows, for is_aligned
    const bool load_words = is_aligned(a.x, row);
    const bool store_words = is_aligned(a.y, row) && (!a.previous || is_aligned(a.previous, row));
    const auto begin = [&](Index tile) {
      return tile / across * (lead * lines) * R + tile % across * columns;
    };
    Index next = blockIdx.x;
    const T* from = a.x + begin(next);
    int next_slice = 0, next_slot = 0, slot = 0;
    const auto ask = [&] {
      if (next < tiles) {
        const unsigned to = slices + next_slot * (slice * size);
        if (load_words) load<word>(from, R, to, thread);
        else load<1>(from, R, to, thread);
        from += lines * R;
        if (++next_slice == lead) {
          next_slice = 0;
          next += gridDim.x;
          from = a.x + begin(next);
        }
        if (++next_slot == slots) next_slot = 0;
      }
      commit_copies();
    };
    UNROLLED_BY(1) for (int i = 0; i < slots; ++i) ask();
    const Outer outer(a.factors + Lead::factors, lane);
    const Inner inner(a.factors + Lead::factors + Outer_::factors, lane);
    if constexpr (lead > 1)
      for (int i = thread; i < lead * lead; i += threads)
        in_shared<T>(leading + i * size) = Lead::entry(a.factors, i % lead, i / lead);

    // When a tile's first slice is multiplied, copies to all other slots have begun already. When a
    // later one is, the slot of the slice before it has become free, and a copy to it begins.
    const auto multiply_slice = [&](bool first, Results& results) {
      if (first) wait_for_copies<slots - 1>();
      else wait_for_copies<slots - 2>();
      __syncthreads();
      if (!first) ask();
      const unsigned here = slices + slot * (slice * size), middle = converts ? converted : here;
      if (++slot == slots) slot = 0;
      outer.run(here, middle, warp, lane);
      __syncthreads();
      inner.run(middle, warp, lane, results);
    };
    const Index own = Inner::first_line(warp, lane) * R + Inner::first_column(lane);
    UNROLLED_BY(1) for (Index tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      UNROLLED_BY(1) for (int i = 0; i < stashed; ++i) {
        Results results;
        multiply_slice(i == 0, results);
        UNROLLED for (int g = 0; g < groups; ++g) {
          Group group;
          UNROLLED for (int j = 0; j < width; ++j) group.values[j] = results[g][j];
          in_shared<Group>(own_stash + (i * groups + g) * int(sizeof(Group) * threads)) = group;
        }
      }
      Results kept[held];
      UNROLLED for (int i = 0; i < held; ++i) multiply_slice(stashed == 0 && i == 0, kept[i]);
      __syncthreads();
      ask();
      finish(a, leading, own_stash, kept, begin(tile) + own, store_words);
    }
  }
};

template <class T, class Lead, class Outer, class Inner, int slots, int held>
__global__ void __launch_bounds__(32 * slice_warps, Lead::size == 1 ? 2 : 1)
    kron_slices(const KronArguments<T, Lead::factors + Outer::factors + Inner::factors> a) {
  wait_for_earlier_kernels();
  extern __shared__ __align__(128) unsigned char shared_memory[];
  SliceKernel<T, Lead, Outer, Inner, slots, held>::run(a, reinterpret_cast<T*>(shared_memory));
}

}  // namespace batchkron
