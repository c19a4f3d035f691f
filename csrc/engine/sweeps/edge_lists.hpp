// The edges of the nodes of a sweep. An edge is a matrix and a child, the node that the matrix
// multiplies. Nodes with the same matrices and the same differences child - node share one list in
// memory: along the fibres of a sparse grid most nodes do.
#pragma once

#include <cstdint>
#include <vector>

#include "simd/common/scalar.hpp"

namespace batchkron {

class EdgeLists {
 public:
  // Node i has the edges e = starts[i] ... starts[i + 1] - 1 with matrix ids[e] and child
  // children[e]. The caller has checked that all indices are in range.
  EdgeLists(Index nodes, const std::int32_t* starts, const std::int32_t* ids,
            const std::int32_t* children);

  // Edges of all nodes, shared ones counted for each node.
  Index count() const { return count_; }
  // The entries of ids() and offsets() that belong to a node.
  struct Range {
    Index first, stop;
  };
  Range of(Index node) const {
    const std::int32_t* list = starts_.data() + rows_[node];
    return {list[0], list[1]};
  }

  // [node]: the number of its list.
  const std::vector<std::int32_t>& rows() const { return rows_; }
  // List i has the entries starts[i] ... starts[i + 1] - 1 of ids and offsets.
  const std::vector<std::int32_t>& starts() const { return starts_; }
  const std::vector<std::int32_t>& ids() const { return ids_; }
  // [entry]: child - node.
  const std::vector<std::int32_t>& offsets() const { return offsets_; }

 private:
  bool is_list(Index list, Index size, const std::int32_t* ids,
               const std::int32_t* offsets) const;

  Index count_;
  std::vector<std::int32_t> rows_, starts_, ids_, offsets_;
};

}  // namespace batchkron
