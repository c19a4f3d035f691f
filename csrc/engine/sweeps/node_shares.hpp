// How threads divide the nodes of a step among them. A thread begins with the same share in every
// run, so that it finds in its own caches what it read and wrote in the run before.
#pragma once

#include <algorithm>
#include <atomic>
#include <vector>

#include "engine/sweeps/shape.hpp"

namespace batchkron {

// Cuts the nodes of a step into shares of equal work. The work of a node is its edges and one more
// for each part of the step.
class NodeWork {
 public:
  NodeWork(const SweepStep& step, Index nodes)
      : nodes_(nodes), grain_(std::max<Index>(1, nodes / kSamples)), before_{0} {
    Index work = 0;
    for (Index node = 0; node < nodes; ++node) {
      for (const SweepPart& part : step.parts) {
        const EdgeLists::Range edges = part.edges.of(node);
        work += 1 + edges.stop - edges.first;
      }
      if ((node + 1) % grain_ == 0 || node + 1 == nodes) before_.push_back(work);
    }
  }

  Index nodes() const { return nodes_; }
  // Where share i of `shares` begins.
  Index begin_of(int i, int shares) const {
    const double work = double(before_.back()) * i / shares;
    const auto after = std::upper_bound(before_.begin(), before_.end(), work);
    return std::min((after - before_.begin() - 1) * grain_, nodes_);
  }

 private:
  static constexpr Index kSamples = 1024;  // places where a share may begin; chosen by hand

  Index nodes_, grain_;
  std::vector<Index> before_;  // [i]: the work before node i * grain_; the last entry: all work
};

// The nodes of each thread's share that nobody has taken yet. A thread that has finished its own
// share takes nodes from the others'.
class NodeShares {
 public:
  explicit NodeShares(int threads) : shares_(std::size_t(threads)) {}

  void refill(const NodeWork& work) {
    const int count = int(shares_.size());
    for (int i = 0; i < count; ++i) {
      shares_[i].next.store(work.begin_of(i, count), std::memory_order_relaxed);
      shares_[i].end = i + 1 < count ? work.begin_of(i + 1, count) : work.nodes();
    }
  }

  // Calls do_nodes(begin, end) with ranges of up to `range` nodes until none are left.
  template <class DoNodes>
  void take(int thread, Index range, DoNodes do_nodes) {
    for (std::size_t turn = 0; turn < shares_.size(); ++turn) {
      Share& share = shares_[(std::size_t(thread) + turn) % shares_.size()];
      for (;;) {
        const Index begin = share.next.fetch_add(range, std::memory_order_relaxed);
        if (begin >= share.end) break;
        do_nodes(begin, std::min(begin + range, share.end));
      }
    }
  }

 private:
  struct alignas(64) Share {
    std::atomic<Index> next{0};
    Index end = 0;
  };

  std::vector<Share> shares_;
};

}  // namespace batchkron
