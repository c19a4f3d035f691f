// Passes over a block in shared memory: in each, every thread of a group holds parts of the block in
// registers, whole along several modes.
#pragma once

#include "cuda/batch/held_modes.cuh"

namespace batchkron {

// A pass: thread `rank` of a group reads items rank, rank + group, ... of the block from shared
// memory, multiplies them along the held modes and writes them back.
template <class Held_, class Spread_>
struct RegisterPass {
  using Held = Held_;
  using Spread = Spread_;
};

// The layout of a product in shared memory, in elements: the block, with `gap` elements of padding
// after each `run` elements, then from `area` on the matrices. elements: sizes of all steps'
// matrices. A block that is no whole number of 16-byte words is copied with what else is in its
// first and last word.
template <int input_, int output_, int run_, int gap_, int area_, int... elements>
struct BlockLayout {
  static constexpr int input = input_, output = output_, run = run_, gap = gap_, area = area_;
  static constexpr int steps = int(sizeof...(elements));

  template <class T>
  static constexpr bool whole_words() { return input * int(sizeof(T)) % 16 == 0; }
  template <class T>
  static constexpr int block_chunks() {
    constexpr int bytes = input * int(sizeof(T)), unit = bytes % 8 ? 4 : bytes % 16 ? 8 : 16;
    return (bytes + 16 - unit + 15) / 16;
  }

  static constexpr int matrix(int s) {
    constexpr int sizes[] = {elements...};
    return sizes[s];
  }
  template <class T>
  static constexpr int chunks(int s) { return (matrix(s) * int(sizeof(T)) + 15) / 16; }
  template <class T>
  static constexpr int factor(int s) {
    int offset = area;
    for (int i = 0; i < s; ++i) offset += chunks<T>(i) * 16 / int(sizeof(T));
    return offset;
  }
};

// Applies all passes to the block in `from`, and calls use(result) with the registers of the last
// one. A pass writes to `to` and the one after it to `other`: two buffers, or all one if each
// item's results take the places of its inputs.
template <class T, int group, class Factors, class Pass, class... Rest, class Sync, class Use>
__device__ void run_register_passes(const Factors& factors, T* from, T* to, T* other, int rank,
                                    Sync sync, Use use) {
  using Held = typename Pass::Held;
  using Spread = typename Pass::Spread;
  constexpr int items = (Spread::size + group - 1) / group;
  T registers[items * Held::inputs];
  UNROLLED for (int i = 0; i < items; ++i)
    if ((i + 1) * group <= Spread::size || rank + i * group < Spread::size) {
      load_held<T, Held, Spread>(from, rank + i * group, registers + i * Held::inputs);
    } else {
      UNROLLED for (int j = 0; j < Held::inputs; ++j) registers[i * Held::inputs + j] = T{};
    }
  multiply_held<T, items>(factors, registers, Held{}, [&](const T* results) {
    if constexpr (sizeof...(Rest) == 0) {
      use(results);
    } else {
      UNROLLED for (int i = 0; i < items; ++i)
        if ((i + 1) * group <= Spread::size || rank + i * group < Spread::size)
          store_held<T, Held, Spread>(to, rank + i * group, results + i * Held::outputs);
    }
  });
  if constexpr (sizeof...(Rest) > 0) {
    sync();
    run_register_passes<T, group, Factors, Rest...>(factors, to, other, to, rank, sync, use);
  }
}

}  // namespace batchkron
