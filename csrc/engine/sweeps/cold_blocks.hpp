// Which blocks a step of sweeps is expected not to find in the L2 cache, so that they can be
// prefetched. docs/results/sparse-grids.md ("Fetching ahead") has the measurements.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/dispatch.hpp"
#include "engine/sweeps/shape.hpp"

namespace batchkron {

// A block counts as cached if fewer than kCache bytes were loaded since its last use, in the order
// of the nodes. There are no cold blocks where blocks are so small that the processor's own
// prefetcher suffices, or vectors so small that they stay in the caches.
class ColdBlocks {
 public:
  struct Block {
    std::int32_t vector, number;
  };

  ColdBlocks(const SweepShape& shape, const SweepStep& step, Index bytes) {
    std::vector<Index> first;  // [v]: number of vector v's first block among those of all vectors
    Index blocks = 0;
    for (const SweepVector& vector : shape.vectors) {
      first.push_back(blocks);
      blocks += vector.count;
    }
    const bool are_small = bytes < kMinBlockBytes || double(blocks) * double(bytes) < kMinVectorBytes;
    if (are_small || without("cold_blocks")) return;

    constexpr Index kLongAgo = -(Index(1) << 60);
    const Index held = kCache / bytes, nodes = shape.vectors[step.target].count;
    std::vector<Index> last_use(std::size_t(blocks), kLongAgo);
    Index brought = 0;  // blocks loaded into the cache so far: the time of last_use
    starts_.push_back(0);
    for (Index node = 0; node < nodes; ++node) {
      for (const SweepPart& part : step.parts) {
        const EdgeLists::Range edges = part.edges.of(node);
        for (Index e = edges.first; e < edges.stop; ++e) {
          const Index child = node + part.edges.offsets()[e];
          Index& last = last_use[first[part.source] + child];
          if (brought - last > held) {
            blocks_.push_back({std::int32_t(part.source), std::int32_t(child)});
            ++brought;
          }
          last = brought;
        }
      }
      blocks_.push_back({std::int32_t(step.target), std::int32_t(node)});
      ++brought;
      starts_.push_back(Index(blocks_.size()));
    }
  }

  bool empty() const { return blocks_.empty(); }
  // The cold blocks of nodes begin ... end - 1 go from begin_of(begin) up to, but not including,
  // end_of(end).
  const Block* begin_of(Index begin) const { return blocks_.data() + starts_[begin]; }
  const Block* end_of(Index end) const { return blocks_.data() + starts_[end]; }

 private:
  // Bytes: what is taken to stay in an L2 cache, the smallest block that is prefetched, and the
  // smallest sum over all of a plan's vectors. Measured on a Zen 5
  // (docs/results/sparse-grids.md, docs/results/cpu-kernels.md).
  static constexpr Index kCache = 700 << 10, kMinBlockBytes = 640;
  static constexpr double kMinVectorBytes = 8 << 20;

  std::vector<Index> starts_;  // [node]: its first block; empty if there are no cold blocks
  std::vector<Block> blocks_;
};

}  // namespace batchkron
