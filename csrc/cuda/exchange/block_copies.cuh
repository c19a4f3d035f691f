// Copies of blocks of vectors to where ranks need them, all in one launch: to pack what is sent, or
// straight to other devices' memory that is mapped here.
//   to_r[v, k, i] = from[v, chosen[first_r + k], i]   for each rank r, 0 <= k < count_r
// The blocks of a rank are one run of words in a vector of its memory. Thread blocks copy pieces of
// it that begin at lines of 128 bytes there, as stores to another device go in lines; they take a
// piece for each rank in turn, so that all links are busy.
#pragma once

#include "cuda/common/launch_order.cuh"
#include "cuda/common/scalar.cuh"
#include "cuda/exchange/copies.cuh"

namespace batchkron {

constexpr int kMaxRanks = 32;  // MAX_RANKS of backends/cuda/exchange/block_copies.py

template <class Word>
struct BlockTarget {
  Word* to;
  Index stride;  // words from a vector to the next
  Index first;   // among the chosen blocks
  Index count;   // blocks
  Index pieces;  // of a vector
};

template <class Word>
struct BlockCopyArguments {
  const Word* from;
  Index stride;         // words from a vector to the next
  const Index* chosen;  // [blocks that are sent]
  Index words;          // of a block, fewer than 2^31
  Index vectors;
  Index ranks;
  Index most;           // pieces of all vectors of a rank
  BlockTarget<Word> targets[kMaxRanks];
};

template <class Word, int threads>
__global__ void __launch_bounds__(threads) copy_blocks(BlockCopyArguments<Word> a) {
  wait_for_earlier_kernels();
  constexpr int held = 4, piece = threads * held;  // words of a thread, of a thread block
  constexpr int line = 128 / int(sizeof(Word));
  for (Index turn = blockIdx.x; turn < a.ranks * a.most; turn += gridDim.x) {
    const BlockTarget<Word>& target = a.targets[turn % a.ranks];
    const Index number = turn / a.ranks;
    if (number >= target.pieces * a.vectors) continue;
    const Index v = number / target.pieces, all = target.count * a.words;
    Word* const to = target.to + v * target.stride;
    const Word* const from = a.from + v * a.stride;
    const Index before = Index(reinterpret_cast<unsigned long long>(to) / sizeof(Word) % line);
    const Index begin = number % target.pieces * piece - before;
    const Index block = (begin > 0 ? begin : 0) / a.words;  // the first of the piece
    Word words[held];
    UNROLLED for (int e = 0; e < held; ++e) {
      const Index word = begin + e * threads + int(threadIdx.x);
      if (word < 0 || word >= all) continue;
      const unsigned behind = unsigned(word - block * a.words), size = unsigned(a.words);
      const Index source = a.chosen[target.first + block + behind / size];
      words[e] = from[source * a.words + behind % size];
    }
    UNROLLED for (int e = 0; e < held; ++e) {
      const Index word = begin + e * threads + int(threadIdx.x);
      if (word >= 0 && word < all) to[word] = words[e];
    }
  }
}

}  // namespace batchkron
