// For cuda/kron/fibres/kernel.cuh: a tile (slices, inputs, columns) and the array (L, inputs, R) or
// (L, outputs, R): where tiles are, copies of them to shared memory and back, and results that the
// last pass writes to the array.
#pragma once

#include "cuda/common/asynchronous_copy.cuh"
#include "cuda/common/elements.cuh"
#include "cuda/kron/fibres/refill.cuh"
#include "cuda/kron/fibres/tile.cuh"

namespace batchkron {

// Last: the last pass, of `passes` ones.
template <class T, class Tile, int passes, class Last>
struct FibreArray {
  using Arguments = ArgumentsOf<T, Tile, passes>;

  // Whether each of the four schedulers of a multiprocessor has at most two warps. These then have
  // registers enough to load operands ahead of their use.
  static constexpr bool few_warps = Tile::threads * Tile::groups <= 256;

  static constexpr int parts = Tile::Direct::parts;
  static constexpr int own = parts > 0 ? Last::K / (parts > 0 ? parts : 1) : 0;
  static_assert(parts == 0 || (Tile::slices == 1 && Tile::Direct::step > 0 &&
                               own * parts == Last::K),
                "results are spread by the last pass, equally");

  __device__ static Index width(const Arguments& a) { return row_length<Tile>(a.R); }

  // Elements between rows of y, or of an owner's memory.
  __device__ static Index pitch(const Arguments& a) {
    if constexpr (parts > 0) return a.row;
    else return width(a);
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
    if constexpr (parts > 0) return a.aligned;
    else return is_aligned(a.y, a.R) && (!a.previous || is_aligned(a.previous, a.R));
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
      UNROLLED_BY(together > 1 ? 1 : 4) for (int n = 0; n < steps; n += together) {
        const int place = Axes::place(own) + Axes::place(n * step), left = rows - row - n * jump;
        UNROLLED for (int i = 0; i < together; ++i) {
          if (i * jump < left) use(at, place + Axes::place(i * step));
          at += jump * width;
        }
      }
    } else {
      UNROLLED_BY(4) for (int i = thread * word; i < elements; i += step) {
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
    if (words) load<Tile::word>(a, part, buffer, thread);
    else load<1>(a, part, buffer, thread);
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
    using Word = Elements<T, word>;
    each<word, Tile::outputs, typename Tile::Outputs>(
        a.y + part.y, part, width(a), thread, [&](T* to, int from) {
          Word result = *reinterpret_cast<const Word*>(buffer + from);
          UNROLLED for (int j = 0; j < word; ++j)
            result.values[j] = multiply(a.alpha, result.values[j]);
          if (a.previous) {
            const Word previous = *reinterpret_cast<const Word*>(a.previous + (to - a.y));
            UNROLLED for (int j = 0; j < word; ++j)
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

  // Where the last pass writes: to the array (see TargetInTile for the interface). release: called
  // when the calling warp has read all that it reads of the tile.
  template <class Release, class Pieces = NoRefill>
  struct TargetInArray {
    static constexpr bool in_tile = false, few_warps = FibreArray::few_warps;
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
      if constexpr (parts > 0) return {at, 0};
      else return at;
    }
    __device__ Place entry(int k) const {
      if constexpr (parts > 0) return {0, k};
      else return k * (Tile::Direct::step * width(a));
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
      UNROLLED for (int i = 0; i < count; ++i) values[i] = multiply(a.alpha, values[i]);
    }

    // values += beta previous
    template <bool words, int count>
    __device__ void add(bool present, Place place, int fibre, T (&values)[count]) const {
      using Word = Elements<T, count>;
      const T* from = a.previous;
      if constexpr (parts == 0) from += part.y + place;
      Word old;
      if constexpr (words) {
        old = present ? *reinterpret_cast<const Word*>(from) : Word{};
      } else {
        UNROLLED for (int i = 0; i < count; ++i)
          old.values[i] = present && exists(fibre, i) ? from[i] : T{};
      }
      UNROLLED for (int i = 0; i < count; ++i)
        values[i] = multiply_add(values[i], a.beta, old.values[i]);
    }

    template <bool words, int count>
    __device__ void put(Place place, int fibre, const T (&results)[count]) const {
      T* const to = address(place);
      if constexpr (words && count > 1) {
        Elements<T, count> word;
        UNROLLED for (int i = 0; i < count; ++i) word.values[i] = results[i];
        batchkron::put(to, word);
      } else if constexpr (words) {
        static_assert(count == 1, "pairs, words of 16 bytes, or one element");
        to[0] = results[0];
      } else {
        UNROLLED for (int i = 0; i < count; ++i)
          if (exists(fibre, i)) to[i] = results[i];
      }
    }
  };

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
};

}  // namespace batchkron
