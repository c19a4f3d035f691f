// y = alpha A x, or +=, for a sum A of Kronecker products on a sparse grid, as a sequence of sweeps
// (one mode's multiply along all fibres of the grid). A step of the sequence computes one vector of
// blocks from others, node by node; a node is a cell of the grid with its block.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/aligned.hpp"
#include "engine/steps.hpp"
#include "engine/sweeps/cold_blocks.hpp"
#include "engine/sweeps/matrices.hpp"
#include "engine/sweeps/mode_groups.hpp"
#include "engine/sweeps/node_work.hpp"
#include "engine/sweeps/shape.hpp"
#include "engine/threads.hpp"
#include "engine/workspace.hpp"
#include "simd/sweeps/table.hpp"

namespace batchkron {

// Several threads may run a plan at once, also while another one sets new matrices. One thread
// computes a node, in an order of sums that does not depend on the number of threads.
template <class T>
class SweepPlan {
 public:
  explicit SweepPlan(SweepShape shape);

  const SweepShape& shape() const { return shape_; }
  Index block() const { return block_; }
  Index elements(Index vector) const {
    return checked_product({shape_.vectors[vector].count, vector == 0 ? given_ : block_});
  }
  double multiply_adds() const { return multiply_adds_; }
  // Edges held in memory: fewer than all nodes' edges where nodes share lists.
  Index num_listed() const;

  SweepMatrices<T>& matrices() { return matrices_; }

  // x is (outer, blocks of vector 0, its block, inner), y (outer, blocks of vector 1, block, inner),
  // both contiguous; y does not alias x. accumulate = false overwrites y and never reads it.
  void run(const T* x, T* y, Index outer, Index inner, T alpha, bool accumulate) const;

 private:
  using Group = ModeGroup<T>;

  // Parts of a step that one kernel call computes together.
  struct Pass {
    const Group* group;
    Index begin, end;  // the parts, as entries of PassList::edges
  };
  // The passes of a step.
  struct PassList {
    SweepEdges<T>* edges;
    Pass* passes;
    Index num_edges = 0, num_passes = 0;
  };

  // Where each thread's share of a step begins, and the last one ends.
  struct Shares {
    int threads;
    std::vector<std::vector<Index>> begins;  // [step]
  };

  struct Run {
    const typename SweepMatrices<T>::Values& values;
    const std::vector<Group>& groups;
    Index inner, block, x_block;
    T alpha;
    bool accumulate;
    int threads;
    T* scratch;
    T* sums;
  };

  // The parts of a step, sorted by mode.
  static std::vector<std::size_t> order_of(const SweepStep& step) {
    std::vector<std::size_t> order(step.parts.size());
    std::iota(order.begin(), order.end(), std::size_t(0));
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return step.parts[a].mode < step.parts[b].mode;
    });
    return order;
  }

  const T* begin_of(Index vector, const Run& run, const T* x, const T* y) const {
    if (vector < 2) return vector == 0 ? x : y;
    return run.scratch + shape_.vectors[vector].start * run.block;
  }

  // The number of nodes (a portion) whose parts are added one after another; their blocks of y stay
  // in the L1 cache meanwhile. kBytes is chosen by hand.
  static Index nodes_at_once(const Run& run) {
    constexpr Index kBytes = 8192;
    return std::max<Index>(1, kBytes / (Index(sizeof(T)) * run.block));
  }

  // How many nodes a thread takes at a time: a portion, or several if it prefetches the blocks of its
  // next portion, as the next one could be another thread's. At least about kShares times per step,
  // so that threads finish together. Both are chosen by hand.
  Index nodes_in_range(const Run& run, std::size_t number) const {
    constexpr Index kMaxPortions = 16, kShares = 8;
    const Index portion = nodes_at_once(run);
    if (cold_[number].empty()) return portion;
    const Index portions = (work_[number].nodes() + portion - 1) / portion;
    return portion * std::clamp<Index>(portions / (kShares * run.threads), 1, kMaxPortions);
  }

  // Where the threads' shares of all steps begin. They are kept for the next call.
  std::shared_ptr<const Shares> shares_of(int threads) const {
    auto kept = std::atomic_load(&shares_);
    if (kept && kept->threads == threads) return kept;
    auto made = std::make_shared<Shares>();
    made->threads = threads;
    for (const NodeWork& work : work_) made->begins.push_back(work.begins(threads));
    std::atomic_store(&shares_, std::shared_ptr<const Shares>(made));
    return made;
  }

  // Some nodes of step `number`. Where y is scaled by alpha the parts are summed in `sums` first.
  void add_nodes(const Run& run, std::size_t number, Index start, Index stop, const T* x, T* y,
                 T* sums, const PassList& list) const {
    const SweepStep& step = shape_.steps[number];
    const Index portion = nodes_at_once(run);
    const ColdBlocks& cold = cold_[number];
    T* target = step.target == 1 ? y : run.scratch + shape_.vectors[step.target].start * run.block;
    const bool adds = step.adds || (run.accumulate && step.target == 1);
    const bool scales = step.target == 1 && !(run.alpha == T(1));
    BlockFetches fetches(run.block * Index(sizeof(T)));
    for (Index begin = start; begin < stop; begin += portion) {
      const Index end = std::min(begin + portion, stop);
      if (!cold.empty()) {
        fetches.clear();
        for (auto block = cold.begin_of(end), last = cold.end_of(std::min(end + portion, stop));
             block < last; ++block)
          fetches.add(begin_of(block->vector, run, x, y) +
                      block->number * (block->vector == 0 ? run.x_block : run.block));
      }
      T* made = target + begin * run.block;
      bool adds_now = adds && !scales;
      if (step.adds_x) {
        add(x + begin * run.block, scales ? sums : made, (end - begin) * run.block, adds_now);
        adds_now = true;
      }
      for (Index i = 0; i < list.num_passes; ++i) {
        const Pass& pass = list.passes[i];
        const Group& group = *pass.group;
        group.kernel.add_edges({scales ? sums : made, list.edges + pass.begin,
                                pass.end - pass.begin, group.L, group.n, group.C, group.R,
                                run.block, source_block(pass, run), begin, end, adds_now, &fetches});
        adds_now = true;
      }
      if (scales) scale(sums, made, (end - begin) * run.block, run.alpha, adds);
    }
  }

  // A pass along a mode that is not square reads x alone; in others all blocks have one size.
  static Index source_block(const Pass& pass, const Run& run) {
    return pass.group->n == pass.group->C ? run.block : run.x_block;
  }

  void find_passes(const Run& run, std::size_t number, std::size_t first, const T* x, const T* y,
                   PassList& list) const {
    list.num_edges = list.num_passes = 0;
    for (const std::size_t i : orders_[number]) {
      const SweepPart& part = shape_.steps[number].parts[i];
      const auto& matrices = run.values[first + i];
      const AlignedVector<T>& values =
          run.inner > 1 && !matrices.pool->plain.empty() ? matrices.pool->plain
                                                         : matrices.pool->own;
      const EdgeLists& lists = part.edges;
      const auto& ids = matrices.ids.empty() ? lists.ids() : matrices.ids;
      const Group& group = group_of(run.groups, part.mode);
      if (list.num_passes == 0 || list.passes[list.num_passes - 1].group != &group)
        list.passes[list.num_passes++] = {&group, list.num_edges, list.num_edges};
      list.edges[list.num_edges++] = {begin_of(part.source, run, x, y), values.data(),
                                      lists.rows().data(), lists.starts().data(), ids.data(),
                                      lists.offsets().data(), int(part.mode - group.first)};
      list.passes[list.num_passes - 1].end = list.num_edges;
    }
  }

  static void add(const T* x, T* y, Index count, bool adds) {
    if (adds)
      for (Index i = 0; i < count; ++i) y[i] = plus(y[i], x[i]);
    else
      std::copy_n(x, count, y);
  }
  static T plus(T a, T b) {
    if constexpr (std::is_floating_point_v<T>)
      return a + b;
    else
      return {a.real + b.real, a.imag + b.imag};
  }

  static void scale(const T* sums, T* y, Index count, T alpha, bool adds) {
    if (adds)
      for (Index i = 0; i < count; ++i) y[i] = multiply_add(y[i], sums[i], alpha);
    else
      for (Index i = 0; i < count; ++i) y[i] = sums[i] * alpha;
  }

  SweepShape shape_;
  Index block_ = 1, given_ = 1;  // elements of a block, and of one of x
  Index scratch_ = 0;          // blocks of the scratch array
  std::vector<Group> groups_;  // for inner == 1
  std::vector<std::vector<std::size_t>> orders_;  // [step]: order_of(step)
  std::size_t max_parts_ = 0;                    // most parts of a step
  double multiply_adds_ = 0;
  std::vector<ColdBlocks> cold_;  // [step]
  std::vector<NodeWork> work_;    // [step]
  SweepMatrices<T> matrices_{shape_, groups_};
  mutable std::shared_ptr<const Shares> shares_;  // of the last call
  mutable ThreadGains gains_;
};

// Compiled once, in plan.cpp.
extern template class SweepPlan<float>;
extern template class SweepPlan<double>;
extern template class SweepPlan<Complex<float>>;
extern template class SweepPlan<Complex<double>>;

}  // namespace batchkron
