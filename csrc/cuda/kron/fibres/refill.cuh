// For cuda/kron/fibres/kernel.cuh, where a tile has one pass only: copies entries of the next tile
// to the places in shared memory whose entries of this tile have just been read.
#pragma once

#include "cuda/common/asynchronous_copy.cuh"
#include "cuda/kron/fibres/tile.cuh"

namespace batchkron {

// Copies the next tile piece by piece; a piece is `limit` entries of all fibres. It is possible in
// single precision, where a thread group is one warp, tiles consist of words of 16 bytes, and a
// tile has the same layout before and after the pass. A lane's words lie at the same distances in
// all pieces, so a copy takes two instructions besides itself.
template <class T, class Tile, bool only, class Last>
class Refill {
  static constexpr int limit = 16;  // entries of each fibre: 64 bytes, two sectors of memory
  static constexpr int word = Tile::word, fibres = Last::Fibres::size;
  // Lanes copy `across` neighbouring words of `rows` rows at a time; a row is a piece of a fibre
  // (along), else an entry of all fibres.
  static constexpr int across = Last::along ? limit / word : fibres / word;
  static constexpr int rows = across <= 32 ? 32 / across : 1;
  static constexpr int times = Last::along ? fibres / rows : limit / rows;
  using Rows = typename Tile::Direct::Rows;

 public:
  static constexpr bool possible =
      only && sizeof(T) == 4 && Last::products == 0 && Last::split == 0 && word == 4 &&
      Tile::threads == 32 && Tile::stages == 1 && Tile::Direct::step > 0 && Last::C % limit == 0 &&
      fibres % word == 0 &&
      is_same<typename Tile::Inputs, typename Tile::Outputs> &&
      (Last::along ? fibres % rows == 0 && Last::Fibres::adds(rows) && Rows::adds(rows)
                   : Last::across == word && across <= 32 && limit % rows == 0);
  static constexpr int piece = possible ? limit : 0;

 private:
  const T* from;
  T* to;
  Index entry;  // elements from one entry of a fibre to the next, in the array
  int count;    // copies of this lane for each piece

 public:
  bool active;  // whether anything is copied

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

  // Copies entries begin ... begin + piece - 1.
  __device__ void operator()(int begin) const {
    const T* source = from + begin * entry;
    UNROLLED for (int n = 0; n < times; ++n) {
      const int place = Last::along ? Last::Fibres::place(n * rows) : n * rows * Last::stride;
      if (n < count)
        copy_asynchronously<word * int(sizeof(T)), false>(
            to + begin * Last::stride + place,
            Last::along ? source + Rows::place(n * rows) : source + n * rows * entry);
    }
  }
};

// Stands for Refill where the next tile is not copied in pieces.
struct NoRefill {
  static constexpr int piece = 0;
};

}  // namespace batchkron
