// Which blocks a step of sweeps finds in no second-level cache when it comes to them.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/sweeps/shape.hpp"

namespace batchkron {

// A block is taken to be there if less than a cache was brought in since its last use; several
// threads have a cache each. None where blocks are so small that they come quickly enough by
// themselves, or vectors so small that fetching them ahead of their use costs more than it spares.
class ColdBlocks {
 public:
  struct Block {
    std::int32_t vector, number;
  };

  ColdBlocks(const SweepShape& shape, const SweepStep& step, Index bytes) {
    std::vector<Index> first;  // of each vector's blocks among all
    Index blocks = 0;
    for (const SweepVector& vector : shape.vectors) {
      first.push_back(blocks);
      blocks += vector.count;
    }
    if (bytes < kMinBlockBytes || double(blocks) * double(bytes) < kMinVectorBytes) return;

    constexpr Index kLongAgo = -(Index(1) << 60);
    const Index held = kCache / bytes, nodes = shape.vectors[step.target].count;
    std::vector<Index> last_use(std::size_t(blocks), kLongAgo);
    Index brought = 0;  // the clock: blocks from beyond the cache
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
  // Those of the nodes begin ... end - 1.
  const Block* begin_of(Index begin) const { return blocks_.data() + starts_[begin]; }
  const Block* end_of(Index end) const { return blocks_.data() + starts_[end]; }

 private:
  static constexpr Index kCache = 700 << 10, kMinBlockBytes = 512;
  static constexpr double kMinVectorBytes = 8 << 20;  // all of a plan

  std::vector<Index> starts_;  // of each node; none if there are no blocks
  std::vector<Block> blocks_;
};

}  // namespace batchkron
