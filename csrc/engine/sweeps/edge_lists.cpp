#include "engine/sweeps/edge_lists.hpp"

#include <algorithm>

namespace batchkron {

EdgeLists::EdgeLists(Index nodes, const std::int32_t* starts, const std::int32_t* ids,
                     const std::int32_t* children)
    : count_(nodes ? starts[nodes] : 0), starts_{0} {
  rows_.reserve(std::size_t(nodes));
  Index slots = 16;
  while (slots < 2 * nodes) slots *= 2;
  // Open addressing: the number of a list at the slot of its hash, or behind it; -1: free.
  std::vector<std::int32_t> table(std::size_t(slots), -1);
  std::vector<std::int32_t> offsets;
  for (Index node = 0; node < nodes; ++node) {
    const Index first = starts[node], size = starts[node + 1] - first;
    offsets.resize(std::size_t(size));
    std::uint64_t hash = std::uint64_t(size);
    for (Index e = 0; e < size; ++e) {
      offsets[e] = std::int32_t(children[first + e] - node);
      hash = (hash ^ (std::uint64_t(std::uint32_t(offsets[e])) << 32 |
                      std::uint32_t(ids[first + e]))) * 0x9E3779B97F4A7C15u;
      hash ^= hash >> 29;
    }
    Index slot = Index(hash & std::uint64_t(slots - 1));
    while (table[slot] >= 0 && !is_list(table[slot], size, ids + first, offsets.data()))
      slot = (slot + 1) & (slots - 1);
    if (table[slot] < 0) {
      table[slot] = std::int32_t(starts_.size()) - 1;
      ids_.insert(ids_.end(), ids + first, ids + first + size);
      offsets_.insert(offsets_.end(), offsets.begin(), offsets.end());
      starts_.push_back(std::int32_t(ids_.size()));
    }
    rows_.push_back(table[slot]);
  }
  starts_.shrink_to_fit();
  ids_.shrink_to_fit();
  offsets_.shrink_to_fit();
}

bool EdgeLists::is_list(Index list, Index size, const std::int32_t* ids,
                        const std::int32_t* offsets) const {
  const Index first = starts_[list];
  return starts_[list + 1] - first == size && std::equal(ids, ids + size, ids_.data() + first) &&
         std::equal(offsets, offsets + size, offsets_.data() + first);
}

}  // namespace batchkron
