// A sequence of sweeps along fibres: y = alpha A x, or +=, for a sum of Kronecker products on a
// sparse grid. Each step makes one vector of blocks from others, node by node.
#pragma once

#include <algorithm>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/aligned.hpp"
#include "engine/cold_blocks.hpp"
#include "engine/node_shares.hpp"
#include "engine/steps.hpp"
#include "engine/sweep_kernel_table.hpp"
#include "engine/sweep_shape.hpp"
#include "engine/threads.hpp"
#include "engine/workspace.hpp"

namespace batchkron {

// Safe to run from several threads at once, also while another one sets new values: each run has
// the values of its beginning. One thread owns a node; what it adds in which order does not depend
// on the number of threads.
template <class T>
class SweepPlan {
 public:
  explicit SweepPlan(SweepShape shape) : shape_(std::move(shape)) {
    block_ = checked_product(shape_.sizes);
    for (std::size_t v = 2; v < shape_.vectors.size(); ++v)
      scratch_ = std::max(scratch_, shape_.vectors[v].start + shape_.vectors[v].count);
    for (SweepStep& step : shape_.steps) {
      for (SweepPart& part : step.parts) {
        const auto mode = shape_.sizes.begin() + part.mode;
        part.L = checked_product({shape_.sizes.begin(), mode});
        part.R = checked_product({mode + 1, shape_.sizes.end()});
        multiply_adds_ += double(part.edges.count()) * double(block_) * double(*mode);
      }
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
    kernels();  // throws for an unknown instruction set, which no thread of a region may
    constexpr double kEffort = 4;  // a multiply-add takes as long as so many of dense products
    const int threads = threads_for(kEffort * multiply_adds_ * double(inner));
    Run run{std::atomic_load(&values_), inner, block_ * inner, alpha, accumulate, threads, nullptr,
            nullptr};
    const Index scratch = padded<T>(checked_product({scratch_, block_, inner}));
    const Index sums = padded<T>(nodes_at_once(run) * run.block);
    thread_local Workspace workspace;
    run.scratch = static_cast<T*>(
        workspace.reserve(bytes_of<T>(scratch, 1) + bytes_of<T>(sums, threads)));
    run.sums = run.scratch + scratch;
    const std::size_t steps = shape_.steps.size();
    NodeShares shares[] = {NodeShares(threads), NodeShares(threads)};  // of every other step
    shares[0].refill(work_[0]);
#pragma omp parallel num_threads(threads) if (threads > 1)
    for (Index i = 0, turn = 0; i < outer; ++i) {
      std::size_t first = 0;
      for (std::size_t s = 0; s < steps; ++s, ++turn) {
#pragma omp master
        shares[(turn + 1) % 2].refill(work_[(s + 1) % steps]);
        take(run, shape_.steps[s], first, x + i * size, y + i * size,
             run.sums + sums * thread_index(), shares[turn % 2]);
        first += shape_.steps[s].parts.size();
#pragma omp barrier
      }
    }
  }

 private:
  // Distinct ones as the kernels take them: for one vector, and for several at once.
  struct Matrices {
    AlignedVector<T> own, plain;    // the latter empty if it is the same
    std::vector<std::int32_t> ids;  // of the lists' edges; empty if they are the part's
  };

  struct Run {
    std::shared_ptr<const std::vector<Matrices>> values;
    Index inner, block;
    T alpha;
    bool accumulate;
    int threads;
    T* scratch;
    T* sums;
  };

  SweepKernel<T> kernel_of(const SweepPart& part, Index inner) const {
    return find_sweep_kernel<T>(part.L, shape_.sizes[part.mode], part.R * inner, inner > 1);
  }

  Matrices laid_out(const SweepPart& part, const T* a) const {
    const Index n = shape_.sizes[part.mode];
    std::vector<std::int32_t> places(std::size_t(part.num_matrices));
    const std::vector<Index> distinct = distinct_of(a, n * n, places);
    const auto copy = [&](const SweepKernel<T>& kernel) {
      AlignedVector<T> result(distinct.size() * std::size_t(kernel.matrix));
      T* target = result.data();
      for (const Index i : distinct) {
        kernel.lay_out(a + i * n * n, n, target);
        target += kernel.matrix;
      }
      return result;
    };
    const SweepKernel<T> own = kernel_of(part, 1), plain = find_sweep_kernel<T>(1, n, 1, true);
    Matrices result{copy(own), {}, {}};
    if (own.lay_out != plain.lay_out) result.plain = copy(plain);
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
    constexpr Index kMost = 16, kShares = 8;  // of each thread
    return std::clamp<Index>(portions / (kShares * run.threads), 1, kMost);
  }

  // A thread's part of one step.
  void take(const Run& run, const SweepStep& step, std::size_t first, const T* x, T* y, T* sums,
            NodeShares& shares) const {
    const Index count = shape_.vectors[step.target].count, portion = nodes_at_once(run);
    const ColdBlocks& cold = cold_[&step - shape_.steps.data()];
    const Index range =
        cold.empty() ? portion : portion * portions_at_once(run, (count + portion - 1) / portion);
    T* target = step.target == 1 ? y : run.scratch + shape_.vectors[step.target].start * run.block;
    const bool adds = step.adds || (run.accumulate && step.target == 1);
    const bool scales = step.target == 1 && !(run.alpha == T(1));
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
        add_parts(run, step, first, x, scales ? sums : made, begin, end, adds && !scales, fetches);
        if (scales) scale(sums, made, (end - begin) * run.block, run.alpha, adds);
      }
    });
  }

  void add_parts(const Run& run, const SweepStep& step, std::size_t first, const T* x, T* y,
                 Index begin, Index end, bool adds, BlockFetches& fetches) const {
    for (const SweepPart& part : step.parts) {
      const Matrices& matrices = (*run.values)[first++];
      const SweepKernel<T> kernel = kernel_of(part, run.inner);
      const AlignedVector<T>& values =
          run.inner > 1 && !matrices.plain.empty() ? matrices.plain : matrices.own;
      const EdgeLists& edges = part.edges;
      const auto& ids = matrices.ids.empty() ? edges.ids() : matrices.ids;
      kernel.add_edges({y, begin_of(part.source, run, x, y), part.L, shape_.sizes[part.mode],
                        part.R * run.inner, values.data(), edges.rows().data(),
                        edges.starts().data(), ids.data(), edges.offsets().data(), begin, end, adds,
                        &fetches});
      adds = true;
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
  Index scratch_ = 0;  // blocks
  double multiply_adds_ = 0;
  std::vector<ColdBlocks> cold_;  // of each step
  std::vector<NodeWork> work_;    // of each step
  std::shared_ptr<const std::vector<Matrices>> values_;
};

}  // namespace batchkron
