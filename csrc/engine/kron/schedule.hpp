// How a Kronecker product is applied on a CPU: which factors are merged, in which order the modes
// are multiplied, and which consecutive ones share one pass over memory (a group).
// docs/developer/cpu-kernels.md explains it.
#pragma once

#include <type_traits>
#include <vector>

#include "engine/steps.hpp"
#include "simd/kron/table.hpp"

namespace batchkron {

// Neighbouring factors whose Kronecker product is formed and applied as one K x C factor.
struct MergedFactor {
  int first, last;  // the user's factors, both inclusive
  Index C, K;
  bool skipped = false;  // an identity, which no pass multiplies
};

// Merges pairs of 2 x 2 factors to 4 x 4 ones, which takes the same multiplications in half the
// passes, and 1 x 1 factors with a neighbour. Depends on the factors' sizes only, so that packed
// factors serve any number of vectors. `skipped` says which factors are identities that are not
// multiplied; if empty, none.
std::vector<MergedFactor> merge_factors(const std::vector<Index>& inputs,
                                        const std::vector<Index>& outputs,
                                        const std::vector<bool>& skipped = {});

// One kernel call over a group's tile, which multiplies one mode, or `modes` neighbouring ones with
// factors of one size: (before, C, inside * r) -> (before, K, inside * r). `before` and `inside`
// are products of the sizes of the group's other modes, and of skipped ones between them; r is the
// part of R in the tile.
struct Pass {
  int factor;  // number of the merged factor of the last of the modes
  Index before, C, K, inside;
  int modes = 1;
  Index size = 0;  // C of a single one of the modes
};

// Which kernels of several modes there are (ModeKernels without its functions).
struct KernelSizes {
  Index lanes;  // elements in a vector
  Index item;   // bytes in an element
  bool complex;
  int last_modes[kMaxFixed + 1];  // [n]: how many last modes of size n one kernel takes, at least 1
  bool mode_pair[kMaxFixed + 1];  // [n]: whether a kernel takes two modes of size n

  template <class T>
  static KernelSizes of(const ModeKernels<T>& kernels) {
    KernelSizes sizes{kernels.lanes, Index(sizeof(T)), !std::is_floating_point_v<T>, {}, {}};
    for (int n = 0; n <= kMaxFixed; ++n) {
      sizes.last_modes[n] = 1;
      for (int modes = 2; modes <= kMaxModes; ++modes)
        if (kernels.last_modes[n][modes]) sizes.last_modes[n] = modes;
      sizes.mode_pair[n] = kernels.mode_pair[n];
    }
    return sizes;
  }
};

// Consecutive modes, all multiplied while a tile of the data stays in the L1 cache. The group maps
// (L, input, R) -> (L, output, R): L and R are the products of the sizes of the modes before and
// behind it, R times the number of columns. Its passes go from its last mode to its first.
struct Group {
  enum class Layout {
    lanes,       // a tile is one (input, R) block in each vector lane, transposed in and out
    contiguous,  // a tile is `rows` whole (input, R) blocks
    strips,      // a tile is `strip` consecutive r of one (input, R) block
  };
  Layout layout;
  std::vector<Pass> passes;
  Index L, R;
  Index input, output;  // products of the sizes of the group's modes and of what lies between them
  Index largest;        // the largest such product before, between and behind the passes
  Index rows, strip;
  bool copies_input;    // whether a strip is first copied to contiguous memory: large factors read
                        // it several times

  // Elements of one of a tile's two buffers; 0 if the only pass goes from x to y directly.
  Index tile_elements(Index lanes) const;
  // The number of tiles for `blocks` rows of x.
  Index tiles(Index blocks, Index lanes) const;
};

struct Schedule {
  std::vector<MergedFactor> factors;
  std::vector<int> order;  // the user's factors as they are applied
  std::vector<Group> groups;
  Index largest_between = 0;  // elements of one row between groups, at most
  double multiply_adds = 0;   // of one row; merging does not change it
};

// For factors outputs[k] x inputs[k] and x of shape (outer, product of inputs, inner). `skipped` as
// in merge_factors.
Schedule schedule_product(const std::vector<Index>& inputs, const std::vector<Index>& outputs,
                          Index outer, Index inner, const KernelSizes& kernels,
                          const std::vector<bool>& skipped = {});

}  // namespace batchkron
