// What a plan of sweeps is made of: vectors of blocks, and steps that make one from others.
#pragma once

#include <vector>

#include "engine/sweeps/edge_lists.hpp"

namespace batchkron {

// What one mode's multiply adds to each block of a step's target.
struct SweepPart {
  Index source;  // vector
  Index mode;
  Index num_matrices;
  EdgeLists edges;
};

struct SweepStep {
  Index target;  // vector
  bool adds;     // to what the target has, which is overwritten otherwise
  std::vector<SweepPart> parts;
};

// Vector 0 is x, 1 is y; the others lie in scratch memory, where they may share room.
struct SweepVector {
  Index start, count;  // in blocks
};

struct SweepShape {
  std::vector<Index> sizes;  // of a block's modes
  std::vector<SweepVector> vectors;
  std::vector<SweepStep> steps;
};

}  // namespace batchkron
