// How threads divide the nodes of a step among them.
#pragma once

#include <algorithm>
#include <vector>

#include "engine/sweeps/shape.hpp"

namespace batchkron {

// Cuts the nodes of a step into shares of equal work. The work of a node is its edges and one more
// for each part of the step, and for x if that is added.
class NodeWork {
 public:
  NodeWork(const SweepStep& step, Index nodes)
      : nodes_(nodes), grain_(std::max<Index>(1, nodes / kSamples)), before_{0} {
    Index work = 0;
    for (Index node = 0; node < nodes; ++node) {
      work += step.adds_x;
      for (const SweepPart& part : step.parts) {
        const EdgeLists::Range edges = part.edges.of(node);
        work += 1 + edges.stop - edges.first;
      }
      if ((node + 1) % grain_ == 0 || node + 1 == nodes) before_.push_back(work);
    }
  }

  Index nodes() const { return nodes_; }
  // Where the shares of so many threads begin, and the last one ends.
  std::vector<Index> begins(int threads) const {
    std::vector<Index> all;
    for (int i = 0; i < threads; ++i) all.push_back(begin_of(i, threads));
    all.push_back(nodes_);
    return all;
  }

 private:
  // Where share i of `shares` begins.
  Index begin_of(int i, int shares) const {
    const double work = double(before_.back()) * i / shares;
    const auto after = std::upper_bound(before_.begin(), before_.end(), work);
    return std::min((after - before_.begin() - 1) * grain_, nodes_);
  }

  static constexpr Index kSamples = 1024;  // places where a share may begin; chosen by hand

  Index nodes_, grain_;
  std::vector<Index> before_;  // [i]: the work before node i * grain_; the last entry: all work
};

}  // namespace batchkron
