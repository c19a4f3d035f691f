// A sequence of sweeps along fibres: y = alpha A x, or +=, for a sum of Kronecker products on a
// sparse grid. Each step makes one vector of blocks from others, node by node.
#pragma once

#include <algorithm>
#include <memory>
#include <numeric>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/aligned.hpp"
#include "engine/dispatch.hpp"
#include "engine/steps.hpp"
#include "engine/sweeps/cold_blocks.hpp"
#include "engine/sweeps/node_shares.hpp"
#include "engine/sweeps/shape.hpp"
#include "engine/threads.hpp"
#include "engine/workspace.hpp"
#include "simd/sweeps/table.hpp"

namespace batchkron {

// Safe to run from several threads at once, also while another one sets new values: each run has
// the values of its beginning. One thread owns a node; what it adds in which order does not depend
// on the number of threads.
template <class T>
class SweepPlan {
 public:
  explicit SweepPlan(SweepShape shape) : shape_(std::move(shape)) {
    block_ = checked_product(shape_.sizes);
    groups_ = groups_of(1);
    for (std::size_t v = 2; v < shape_.vectors.size(); ++v)
      scratch_ = std::max(scratch_, shape_.vectors[v].start + shape_.vectors[v].count);
    for (SweepStep& step : shape_.steps) {
      for (const SweepPart& part : step.parts)
        multiply_adds_ += double(part.edges.count()) * double(block_) *
                          double(shape_.sizes[std::size_t(part.mode)]);
      orders_.push_back(order_of(step));
      max_parts_ = std::max(max_parts_, step.parts.size());
      cold_.emplace_back(shape_, step, block_ * Index(sizeof(T)));
      work_.emplace_back(step, shape_.vectors[step.target].count);
    }
    elements(0);
    elements(1);
  }

  const SweepShape& shape() const { return shape_; }
  Index block() const { return block_; }
  Index elements(Index vector) const {
    return checked_product({shape_.vectors[vector].count, block_});
  }
  double multiply_adds() const { return multiply_adds_; }
  // Edges in memory: nodes share lists.
  Index num_listed() const {
    Index count = 0;
    for (const SweepStep& step : shape_.steps)
      for (const SweepPart& part : step.parts) count += Index(part.edges.ids().size());
    return count;
  }

  // Of each part of each step the matrices, (num_matrices, n, n).
  void set_values(const std::vector<const T*>& matrices) {
    auto fresh = std::make_shared<std::vector<Matrices>>();
    for (const SweepStep& step : shape_.steps)
      for (const SweepPart& part : step.parts)
        fresh->push_back(laid_out(part, matrices[fresh->size()]));
    std::atomic_store(&values_, std::shared_ptr<const std::vector<Matrices>>(std::move(fresh)));
  }

  // Maps x (outer, cells, block, inner) to y of the same shape. y does not alias x.
  void run(const T* x, T* y, Index outer, Index inner, T alpha, bool accumulate) const {
    const Index size = elements(1) * inner;
    if (size == 0 || outer == 0) return;
    if (shape_.steps.empty()) {
      if (!accumulate) std::fill_n(y, outer * size, T{});
      return;
    }
    constexpr double kWorkPerElement = 4;  // a multiply-add here takes as long as 4 dense ones
    const int threads = threads_for(kWorkPerElement * multiply_adds_ * double(inner));
    const std::vector<Group> several = inner > 1 ? groups_of(inner) : std::vector<Group>();
    Run run{std::atomic_load(&values_), inner > 1 ? several : groups_, inner, block_ * inner,
            alpha, accumulate, threads, nullptr, nullptr};
    const Index scratch = padded<T>(checked_product({scratch_, block_, inner}));
    const Index sums = padded<T>(nodes_at_once(run) * run.block);
    thread_local Workspace workspace;
    run.scratch = static_cast<T*>(
        workspace.reserve(bytes_of<T>(scratch, 1) + bytes_of<T>(sums, threads)));
    run.sums = run.scratch + scratch;
    const std::size_t steps = shape_.steps.size();
    NodeShares shares[] = {NodeShares(threads), NodeShares(threads)};  // of every other step
    shares[0].refill(work_[0]);
    std::vector<SweepEdges<T>> edges(max_parts_ * std::size_t(threads));
    std::vector<Pass> passes(edges.size());
#pragma omp parallel num_threads(threads) if (threads > 1)
    for (Index i = 0, turn = 0; i < outer; ++i) {
      const std::size_t own = max_parts_ * std::size_t(thread_index());
      PassList list{edges.data() + own, passes.data() + own};
      std::size_t first = 0;  // part
      for (std::size_t s = 0; s < steps; ++s, ++turn) {
#pragma omp master
        shares[(turn + 1) % 2].refill(work_[(s + 1) % steps]);
        take(run, s, first, x + i * size, y + i * size, run.sums + sums * thread_index(), list,
             shares[turn % 2]);
        first += shape_.steps[s].parts.size();
#pragma omp barrier
      }
    }
  }

 private:
  // Neighbouring modes of one kernel, of blocks (L, n, ..., n, R).
  struct Group {
    Index first, modes;
    Index L, n, R;
    SweepKernel<T> kernel;
  };

  // Parts of a step that one kernel takes together.
  struct Pass {
    const Group* group;
    Index begin, end;  // of the edges
  };
  // A step's passes, in memory of one thread.
  struct PassList {
    SweepEdges<T>* edges;
    Pass* passes;
    Index num_edges = 0, num_passes = 0;
  };

  // Distinct ones as the kernels take them: for one vector, and for several at once.
  struct Matrices {
    AlignedVector<T> own, plain;    // the latter empty if it is the same
    std::vector<std::int32_t> ids;  // of the lists' edges; empty if they are the part's
  };

  struct Run {
    std::shared_ptr<const std::vector<Matrices>> values;
    const std::vector<Group>& groups;
    Index inner, block;
    T alpha;
    bool accumulate;
    int threads;
    T* scratch;
    T* sums;
  };

  // The parts of a step by their modes.
  static std::vector<std::size_t> order_of(const SweepStep& step) {
    std::vector<std::size_t> order(step.parts.size());
    std::iota(order.begin(), order.end(), std::size_t(0));
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return step.parts[a].mode < step.parts[b].mode;
    });
    return order;
  }

  // All modes, from the first to the last: as many as a kernel takes together, the last ones first.
  // Throws for an unknown instruction set, which no thread of a region may.
  std::vector<Group> groups_of(Index inner) const {
    std::vector<Group> groups;
    const FindSweepKernel<T> find = sweep_kernels<T>();
    Index L = block_, R = inner;
    for (Index stop = Index(shape_.sizes.size()); stop > 0;) {
      const Index n = shape_.sizes[std::size_t(stop - 1)];
      Index alike = 1;
      while (alike < std::min<Index>(stop, kMaxSweepModes) &&
             shape_.sizes[std::size_t(stop - alike - 1)] == n)
        ++alike;
      for (Index modes = alike;; --modes) {
        Index rows = 1;
        for (Index i = 0; i < modes; ++i) rows *= n;
        const SweepKernel<T> kernel = find(L / rows, n, int(modes), R, inner > 1);
        if (!kernel.add_edges) continue;
        stop -= modes;
        L /= rows;
        groups.push_back({stop, modes, L, n, R, kernel});
        R *= rows;
        break;
      }
    }
    std::reverse(groups.begin(), groups.end());
    return groups;
  }

  static const Group& group_of(const std::vector<Group>& groups, Index mode) {
    auto group = groups.begin();
    while (group->first + group->modes <= mode) ++group;
    return *group;
  }

  Matrices laid_out(const SweepPart& part, const T* a) const {
    const Group& group = group_of(groups_, part.mode);
    const Index n = group.n;
    std::vector<std::int32_t> places(std::size_t(part.num_matrices));
    const std::vector<Index> distinct = distinct_of(a, n * n, places);
    const auto copy = [&](const SweepKernel<T>& kernel) {
      AlignedVector<T> result(distinct.size() * std::size_t(kernel.matrix));
      T* target = result.data();
      for (const Index i : distinct) {
        kernel.lay_out(a + i * n * n, n, int(part.mode - group.first), target);
        target += kernel.matrix;
      }
      return result;
    };
    const SweepKernel<T> plain = sweep_kernels<T>()(1, n, 1, 1, true);
    Matrices result{copy(group.kernel), {}, {}};
    if (group.kernel.lay_out != plain.lay_out) result.plain = copy(plain);
    if (distinct.size() == places.size()) return result;
    result.ids = part.edges.ids();
    for (std::int32_t& id : result.ids) id = places[id];
    return result;
  }

  // Which of the matrices, `size` elements each, are not equal to an earlier one bit by bit; place
  // i becomes that of matrix i among these. Operators with constant coefficients have few.
  static std::vector<Index> distinct_of(const T* a, Index size, std::vector<std::int32_t>& places) {
    const std::size_t bytes = std::size_t(size) * sizeof(T);
    std::unordered_map<std::string_view, std::int32_t> found;
    std::vector<Index> distinct;
    for (std::size_t i = 0; i < places.size(); ++i) {
      const std::string_view bits(reinterpret_cast<const char*>(a + Index(i) * size), bytes);
      const auto [entry, is_new] = found.emplace(bits, std::int32_t(distinct.size()));
      if (is_new) distinct.push_back(Index(i));
      places[i] = entry->second;
    }
    return distinct;
  }

  const T* begin_of(Index vector, const Run& run, const T* x, const T* y) const {
    if (vector < 2) return vector == 0 ? x : y;
    return run.scratch + shape_.vectors[vector].start * run.block;
  }

  // So many blocks of y are written part by part that they stay in the fastest cache.
  static Index nodes_at_once(const Run& run) {
    constexpr Index kBytes = 8192;
    return std::max<Index>(1, kBytes / (Index(sizeof(T)) * run.block));
  }

  // A thread that fetches blocks for its next portion takes several one after another.
  static Index portions_at_once(const Run& run, Index portions) {
    constexpr Index kMaxPortions = 16, kShares = 8;  // of each thread
    return std::clamp<Index>(portions / (kShares * run.threads), 1, kMaxPortions);
  }

  // A thread's part of one step, whose first part is number `first` of all.
  void take(const Run& run, std::size_t number, std::size_t first, const T* x, T* y, T* sums,
            PassList& list, NodeShares& shares) const {
    const SweepStep& step = shape_.steps[number];
    const Index count = shape_.vectors[step.target].count, portion = nodes_at_once(run);
    const ColdBlocks& cold = cold_[number];
    const Index range =
        cold.empty() ? portion : portion * portions_at_once(run, (count + portion - 1) / portion);
    T* target = step.target == 1 ? y : run.scratch + shape_.vectors[step.target].start * run.block;
    const bool adds = step.adds || (run.accumulate && step.target == 1);
    const bool scales = step.target == 1 && !(run.alpha == T(1));
    find_passes(run, number, first, x, y, list);
    BlockFetches fetches(run.block * Index(sizeof(T)));
    shares.take(thread_index(), range, [&](Index start, Index stop) {
      for (Index begin = start; begin < stop; begin += portion) {
        const Index end = std::min(begin + portion, stop);
        if (!cold.empty()) {
          fetches.clear();
          for (auto block = cold.begin_of(end), last = cold.end_of(std::min(end + portion, stop));
               block < last; ++block)
            fetches.add(begin_of(block->vector, run, x, y) + block->number * run.block);
        }
        T* made = target + begin * run.block;
        bool adds_now = adds && !scales;
        for (Index i = 0; i < list.num_passes; ++i) {
          const Pass& pass = list.passes[i];
          const Group& group = *pass.group;
          group.kernel.add_edges({scales ? sums : made, list.edges + pass.begin,
                                  pass.end - pass.begin, group.L, group.n, group.R,
                                  run.block, begin, end, adds_now, &fetches});
          adds_now = true;
        }
        if (scales) scale(sums, made, (end - begin) * run.block, run.alpha, adds);
      }
    });
  }

  void find_passes(const Run& run, std::size_t number, std::size_t first, const T* x, const T* y,
                   PassList& list) const {
    list.num_edges = list.num_passes = 0;
    for (const std::size_t i : orders_[number]) {
      const SweepPart& part = shape_.steps[number].parts[i];
      const Matrices& matrices = (*run.values)[first + i];
      const AlignedVector<T>& values =
          run.inner > 1 && !matrices.plain.empty() ? matrices.plain : matrices.own;
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

  static void scale(const T* sums, T* y, Index count, T alpha, bool adds) {
    if (adds)
      for (Index i = 0; i < count; ++i) y[i] = multiply_add(y[i], sums[i], alpha);
    else
      for (Index i = 0; i < count; ++i) y[i] = sums[i] * alpha;
  }

  SweepShape shape_;
  Index block_ = 1;
  Index scratch_ = 0;          // blocks
  std::vector<Group> groups_;  // for one vector at a time
  std::vector<std::vector<std::size_t>> orders_;  // of each step
  std::size_t max_parts_ = 0;                    // of a step
  double multiply_adds_ = 0;
  std::vector<ColdBlocks> cold_;  // of each step
  std::vector<NodeWork> work_;    // of each step
  std::shared_ptr<const std::vector<Matrices>> values_;
};

}  // namespace batchkron
