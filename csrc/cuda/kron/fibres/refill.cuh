// The next tile's entries go where the last pass has just read those of this one.
#pragma once

#include "cuda/common/asynchronous_copy.cuh"
#include "cuda/kron/fibres/tile.cuh"

namespace batchkron {

template <class A, class B>
struct IsSame {
  static constexpr bool value = false;
};
template <class A>
struct IsSame<A, A> {
  static constexpr bool value = true;
};

template <class First, class... Rest>
struct LastOf {
  using Type = typename LastOf<Rest...>::Type;
};
template <class Only>
struct LastOf<Only> {
  using Type = Only;
};

// Asks for the next tile in pieces of the last pass's entries, if it is the only one. Single
// precision, where a warp is a team and tiles consist of words and have the same places before and
// after. A copy takes two instructions but for itself: each lane's words are as far apart in all
// pieces, along fibres of neighbouring lanes, else from entry to entry.
template <class T, class Tile, bool only, class Last>
class Refill {
  static constexpr int limit = 16;  // entries of each fibre: whole sectors
  static constexpr int word = Tile::word, fibres = Last::Fibres::size;
  static constexpr int across = Last::along ? limit / word : fibres / word;  // words side by side
  static constexpr int rows = across <= 32 ? 32 / across : 1;  // of them, at a time
  static constexpr int times = Last::along ? fibres / rows : limit / rows;
  using Rows = typename Tile::Direct::Rows;

 public:
  static constexpr bool possible =
      only && sizeof(T) == 4 && Last::products == 0 && Last::split == 0 && word == 4 &&
      Tile::threads == 32 && Tile::stages == 1 && Tile::Direct::step > 0 && Last::C % limit == 0 &&
      fibres % word == 0 &&
      IsSame<typename Tile::Inputs, typename Tile::Outputs>::value &&
      (Last::along ? fibres % rows == 0 && Last::Fibres::adds(rows) && Rows::adds(rows)
                   : Last::across == word && across <= 32 && limit % rows == 0);
  static constexpr int piece = possible ? limit : 0;

 private:
  const T* from;
  T* to;
  Index entry;  // from one entry to the next in the array
  int count;    // of copies

 public:
  bool active;  // else nothing is asked for

  __device__ Refill(const T* x, Index width, const TilePart& next, T* buffer, int lane, bool asks)
      : entry(Tile::Direct::step * width), active(possible && asks) {
    if constexpr (possible) {
      const int row = lane / across, fibre = Last::along ? row : lane % across * word;
      const int c = Last::along ? lane % across * word : row;
      to = buffer + (Last::Fibres::place(fibre) + c * Last::stride);
      from = x + (next.x + row_of<Tile>(fibre) * width + fibre % Tile::columns + c * entry);
      const bool own = lane < rows * across && holds<Tile>(next, fibre);
      constexpr int of_slice = Rows::size / Tile::slices;
      const int whole = Last::along ? (next.slices * of_slice - row + rows - 1) / rows : times;
      count = own && active ? whole : 0;
    }
  }

  // Entries begin to begin + piece.
  __device__ void operator()(int begin) const {
    const T* source = from + begin * entry;
#pragma unroll
    for (int n = 0; n < times; ++n) {
      const int place = Last::along ? Last::Fibres::place(n * rows) : n * rows * Last::stride;
      if (n < count)
        copy_asynchronously<word * int(sizeof(T)), false>(
            to + begin * Last::stride + place,
            Last::along ? source + Rows::place(n * rows) : source + n * rows * entry);
    }
  }
};

// Nothing of it.
struct NoRefill {
  static constexpr int piece = 0;
};

}  // namespace batchkron
