// The next tile's entries go where the last pass has just read those of this one.
#pragma once

#include "asynchronous_copy.cuh"
#include "fibre_tile.cuh"

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
// after.
template <class T, class Tile, bool only, class Last>
struct Refill {
  static constexpr int most = 16;  // entries of each fibre: whole sectors
  static constexpr int word = Tile::word, fibres = Last::Fibres::size;
  static constexpr bool possible =
      only && sizeof(T) == 4 && Last::products == 0 && word == 4 && Tile::threads == 32 &&
      Tile::stages == 1 && Tile::Direct::step > 0 && Last::C % most == 0 && fibres % word == 0 &&
      IsSame<typename Tile::Inputs, typename Tile::Outputs>::value &&
      (Last::along || Last::across == word);
  static constexpr int piece = possible ? most : 0;
  const T* x;
  Index R;
  const TilePart& next;
  T* buffer;
  int lane;
  bool active;  // else nothing is asked for

  __device__ void operator()(int begin) const {
    constexpr int across = Last::along ? most / word : fibres / word;  // words side by side
    if (!active) return;
#pragma unroll 4
    for (int n = lane; n < most * fibres / word; n += 32) {
      const int fibre = Last::along ? n / across : n % across * word;
      const int c = begin + (Last::along ? n % across * word : n / across);
      if (!holds<Tile>(next, fibre)) continue;
      const Index row = row_of<Tile>(fibre) + c * Tile::Direct::step;
      copy_asynchronously<word * int(sizeof(T)), false>(
          buffer + (Last::Fibres::place(fibre) + c * Last::stride),
          x + (next.x + row * R + fibre % Tile::columns));
    }
  }
};

// Nothing of it.
struct NoRefill {
  static constexpr int piece = 0;
};

}  // namespace batchkron
