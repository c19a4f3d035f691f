// What a plan of sweeps consists of: vectors of blocks, and steps that each compute one vector from
// others. docs/background/sparse-sweeps.md explains sweeps.
#pragma once

#include <vector>

#include "engine/sweeps/edge_lists.hpp"

namespace batchkron {

// One summand of a step: target[node] += sum over the node's edges of A ._mode source[child].
struct SweepPart {
  Index source;  // number of the vector that is read
  Index mode;
  Index num_matrices;
  EdgeLists edges;
};

struct SweepStep {
  Index target;  // number of the vector that is written
  bool adds;     // whether the target keeps its values and the parts are added to them
  bool adds_x;   // whether x is added, too, which then has blocks as the target
  std::vector<SweepPart> parts;
};

// Vector 0 is x and 1 is y. The others lie in one scratch array; those that are not needed at the
// same time may overlap there.
struct SweepVector {
  Index start, count;  // in blocks; x and y ignore start
};

struct SweepShape {
  std::vector<Index> sizes;  // of a block's modes
  // Those of a block of x; they differ along one mode at most, and then all parts read x along it.
  std::vector<Index> given;
  std::vector<SweepVector> vectors;
  std::vector<SweepStep> steps;
};

}  // namespace batchkron
