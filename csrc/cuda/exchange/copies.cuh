// Copies of many rectangles in one launch: what an exchange between ranks packs, unpacks, or writes
// straight to the memory of the ranks that own it.
//   to_r[a, b, c, i] = from_r[a, b, c, i]   for each rectangle r and all a, b, c, i below its sizes.
// The word i is the last axis and contiguous on both sides; the other axes have any strides, in
// words. Each rectangle has addresses of its own, which may be those of other devices' memory that
// is mapped here. All are aligned to a word. No two elements are written to one place, and nothing
// that is written is read.
// Where (l, s) becomes (s, l), memory is to be read along one axis and written along another one.
// With `turned` a tile goes through shared memory for that: axis b is contiguous in `from`, axis c in
// `to`, and a rectangle has one word along i.
#pragma once

#include "cuda/common/launch_order.cuh"
#include "cuda/common/scalar.cuh"

namespace batchkron {

struct alignas(16) Word16 {
  unsigned long long low, high;
};

constexpr int kMaxRectangles = 32;  // MAX_RECTANGLES of backends/cuda/exchange/kernel.py

// Fewer than 2^31 words. The strides of a word are 1.
template <class Word>
struct Rectangle {
  Word* to;
  const Word* from;
  Index sizes[4];         // of a, b, c, i
  Index to_strides[3];    // of a, b, c
  Index from_strides[3];
  Index tiles;            // of this rectangle and those before it
};

template <class Word>
struct CopyArguments {
  Index count;
  Rectangle<Word> rectangles[kMaxRectangles];
};

constexpr int kTileEdge = 32;  // words of a tile along either axis, with `turned`
constexpr int kTileWords = kTileEdge * kTileEdge;

// One tile of kTileWords words that lie one after another in the order (a, b, c, i).
template <int threads, class Word>
__device__ void copy_in_order(const Rectangle<Word>& r, Index tile) {
  using Count = unsigned;
  const Count all = Count(r.sizes[0] * r.sizes[1] * r.sizes[2] * r.sizes[3]);
  const Count run = Count(r.sizes[3]), columns = Count(r.sizes[2]), rows = Count(r.sizes[1]);
  constexpr int held = kTileWords / threads;  // words that a thread loads before it stores the first
  Word words[held];
  Index places[held];
  UNROLLED for (int e = 0; e < held; ++e) {
    const Count word = Count(tile) * kTileWords + e * threads + threadIdx.x;
    places[e] = -1;
    if (word >= all) continue;
    const Count i = word % run, block = word / run;
    const Count c = block % columns, above = block / columns;
    const Count b = above % rows, a = above / rows;
    words[e] = r.from[a * r.from_strides[0] + b * r.from_strides[1] + c * r.from_strides[2] + i];
    places[e] = a * r.to_strides[0] + b * r.to_strides[1] + c * r.to_strides[2] + i;
  }
  UNROLLED for (int e = 0; e < held; ++e)
    if (places[e] >= 0) r.to[places[e]] = words[e];
}

// One tile of kTileEdge b and as many c, of one a.
template <int threads, class Word>
__device__ void copy_turned(const Rectangle<Word>& r, Index tile, Word* room) {
  const Index across = (r.sizes[2] + kTileEdge - 1) / kTileEdge;
  const Index down = (r.sizes[1] + kTileEdge - 1) / kTileEdge;
  const Index a = tile / (across * down), place = tile % (across * down);
  const Index first_b = place / across * kTileEdge, first_c = place % across * kTileEdge;
  constexpr int lines = threads / kTileEdge;
  const int along = int(threadIdx.x) % kTileEdge, line = int(threadIdx.x) / kTileEdge;
  const Word* const from = r.from + a * r.from_strides[0];
  Word* const to = r.to + a * r.to_strides[0];
  __syncthreads();  // the tile before has been read
  UNROLLED for (int e = 0; e < kTileEdge; e += lines) {
    const Index b = first_b + along, c = first_c + line + e;
    if (b < r.sizes[1] && c < r.sizes[2])
      room[(line + e) * (kTileEdge + 1) + along] = from[b + c * r.from_strides[2]];
  }
  __syncthreads();
  UNROLLED for (int e = 0; e < kTileEdge; e += lines) {
    const Index b = first_b + line + e, c = first_c + along;
    if (b < r.sizes[1] && c < r.sizes[2])
      to[b * r.to_strides[1] + c] = room[along * (kTileEdge + 1) + line + e];
  }
}

// Shared memory: with `turned` kTileEdge (kTileEdge + 1) words.
template <class Word, int threads, bool turned>
__global__ void __launch_bounds__(threads) copy_rectangles(CopyArguments<Word> a) {
  wait_for_earlier_kernels();
  extern __shared__ __align__(16) unsigned char shared_memory[];
  Word* const room = reinterpret_cast<Word*>(shared_memory);
  const Index tiles = a.rectangles[a.count - 1].tiles;
  for (Index tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    int number = 0;
    while (tile >= a.rectangles[number].tiles) ++number;
    const Rectangle<Word>& r = a.rectangles[number];
    const Index own = number ? tile - a.rectangles[number - 1].tiles : tile;
    if constexpr (turned) copy_turned<threads>(r, own, room);
    else copy_in_order<threads>(r, own);
  }
}

}  // namespace batchkron
