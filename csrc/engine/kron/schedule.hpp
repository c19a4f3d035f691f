// How a Kronecker product is applied: which factors are merged, in which order their modes go, and
// which of them share one pass over memory.
#pragma once

#include <vector>

#include "engine/steps.hpp"
#include "simd/kron/table.hpp"

namespace batchkron {

// Neighbouring factors that are multiplied out and applied as one K x C factor.
struct MergedFactor {
  int first, last;  // the user's factors, both inclusive
  Index C, K;
};

// A 2 x 2 pair as one 4 x 4 factor costs the same multiplications and half the passes; a 1 x 1
// factor costs none. Depends on the sizes only, so that packed factors serve any layout.
std::vector<MergedFactor> merge_factors(const std::vector<Index>& inputs,
                                        const std::vector<Index>& outputs);

// One mode of a group's tile, or `modes` of them with factors of one size in one kernel:
// (before, C, inside * r) -> (before, K, inside * r), where r is what the tile holds of the modes
// behind the group.
struct Pass {
  int factor;  // of the last mode
  Index before, C, K, inside;
  int modes = 1;
  Index size = 0;  // of each of several modes
};

// What the kernels can do: ModeKernels without the kernels.
struct KernelSizes {
  Index lanes;  // elements in a vector
  Index item;   // bytes in an element
  int last_modes[kMaxFixed + 1];  // how many last modes of size n go in one pass, 1 if alone
  bool mode_pair[kMaxFixed + 1];  // whether two modes of size n do

  template <class T>
  static KernelSizes of(const ModeKernels<T>& kernels) {
    KernelSizes sizes{kernels.lanes, Index(sizeof(T)), {}, {}};
    for (int n = 0; n <= kMaxFixed; ++n) {
      sizes.last_modes[n] = 1;
      for (int modes = 2; modes <= kMaxModes; ++modes)
        if (kernels.last_modes[n][modes]) sizes.last_modes[n] = modes;
      sizes.mode_pair[n] = kernels.mode_pair[n];
    }
    return sizes;
  }
};

// Consecutive modes that a tile goes through while it stays in the L1 cache. The group maps
// (L, input, R) -> (L, output, R); its passes go from its last mode to its first.
struct Group {
  enum class Layout {
    lanes,       // R and the group together are transposed: one l in each vector lane
    contiguous,  // a tile is `rows` whole (input, R) blocks
    strips,      // a tile is a stretch of r, `strip` wide, of one block
  };
  Layout layout;
  std::vector<Pass> passes;
  Index L, R;
  Index input, output;  // sizes of the group's modes
  Index largest;        // the largest size between passes, input and output
  Index rows, strip;
  bool copies_input;    // a strip is copied together first, because it is read several times

  // Elements of one of a tile's two buffers.
  Index tile_elements(Index lanes) const;
  // Tiles of `blocks` rows of the product.
  Index tiles(Index blocks, Index lanes) const;
};

struct Schedule {
  std::vector<MergedFactor> factors;
  std::vector<int> order;  // the user's factors as they are applied
  std::vector<Group> groups;
  Index largest_between = 0;  // elements of one row between groups
  double multiply_adds = 0;   // of one row, as if nothing were merged
};

Schedule schedule_product(const std::vector<Index>& inputs, const std::vector<Index>& outputs,
                          Index outer, Index inner, const KernelSizes& kernels);

}  // namespace batchkron
