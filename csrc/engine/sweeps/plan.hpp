// y = alpha A x, or +=, for a sum A of Kronecker products on a sparse grid, as a sequence of sweeps
// (one mode's multiply along all fibres of the grid). A step of the sequence computes one vector of
// blocks from others, node by node; a node is a cell of the grid with its block.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <type_traits>
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

// Several threads may run a plan at once, also while another one sets new values: a run uses the
// values that were set when it began. One thread computes a node, in an order of sums that does not
// depend on the number of threads.
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
  // Edges held in memory: fewer than all nodes' edges where nodes share lists.
  Index num_listed() const {
    Index count = 0;
    for (const SweepStep& step : shape_.steps)
      for (const SweepPart& part : step.parts) count += Index(part.edges.ids().size());
    return count;
  }

  // matrices[i] are those of part i, counted over all steps: (num_matrices, n, n), contiguous.
  void set_values(const std::vector<const T*>& matrices) {
    auto fresh = std::make_shared<Values>();
    for (const SweepStep& step : shape_.steps)
      for (const SweepPart& part : step.parts)
        fresh->push_back(laid_out(part, matrices[fresh->size()]));
    const std::lock_guard<std::mutex> lock(changes_);
    values_ = std::move(fresh);
  }

  // The matrices of part number `part` as entries of a vector of values: entry e of
  // (num_matrices, n, n) is scale * values[places[e]].
  struct Linked {
    std::size_t part;
    const std::int64_t* places;
    T scale;
  };
  // Prepares `gather` for some parts; places are below 2^31. Matrices that have the same places and
  // scale along a mode are stored once, as where parts have the same 1-D operator.
  void link(const std::vector<Linked>& parts) {
    pools_.clear();
    linked_.clear();
    std::vector<std::map<std::vector<std::int32_t>, std::int32_t>> known;  // [pool]: its matrices
    for (const Linked& given : parts) {
      const SweepPart& part = part_of(given.part);
      const Index size = group_of(groups_, part.mode).n * group_of(groups_, part.mode).n;
      std::size_t number = 0;
      while (number < pools_.size() &&
             !(pools_[number].mode == part.mode && pools_[number].scale == given.scale))
        ++number;
      if (number == pools_.size()) {
        pools_.push_back(pool_of(part.mode, given.scale));
        known.emplace_back();
      }
      LinkedPool& pool = pools_[number];
      auto& ranks = known[number];
      std::vector<std::int32_t> ids(std::size_t(part.num_matrices));
      for (Index i = 0; i < part.num_matrices; ++i) {
        const std::vector<std::int32_t> own(given.places + i * size, given.places + (i + 1) * size);
        const auto [found, is_new] = ranks.try_emplace(own, std::int32_t(ranks.size()));
        ids[std::size_t(i)] = found->second;
        if (is_new)
          for (const std::int32_t entry : pool.entries) pool.places.push_back(own[entry]);
      }
      LinkedPart linked{given.part, number, part.edges.ids()};
      for (std::int32_t& id : linked.ids) id = ids[std::size_t(id)];
      linked_.push_back(std::move(linked));
    }
  }
  // Replaces the matrices of the linked parts, and keeps those of the others. A run that has begun
  // ends with the matrices that it began with; if there is none, these are overwritten.
  void gather(const T* values) {
    const std::lock_guard<std::mutex> lock(changes_);
    if (values_.use_count() > 1) values_ = std::make_shared<Values>(*values_);
    for (LinkedPool& pool : pools_) {
      long own = 1;
      for (const LinkedPart& part : linked_) own += (*values_)[part.number].pool == pool.made;
      if (!pool.made || pool.made.use_count() > own) pool.made = std::make_shared<Pool>();
      fill(pool, values);
    }
    for (const LinkedPart& part : linked_) {
      Matrices& matrices = (*values_)[part.number];
      if (matrices.pool == pools_[part.pool].made) continue;
      matrices = {pools_[part.pool].made, part.ids};
    }
  }

  // x is (outer, blocks of vector 0, block, inner), y (outer, blocks of vector 1, block, inner),
  // both contiguous; y does not alias x. accumulate = false overwrites y and never reads it.
  void run(const T* x, T* y, Index outer, Index inner, T alpha, bool accumulate) const {
    const Index size = elements(1) * inner;
    if (size == 0 || outer == 0) return;
    if (shape_.steps.empty()) {
      if (!accumulate) std::fill_n(y, outer * size, T{});
      return;
    }
    // A multiply-add of a sweep takes as long as so many of a dense product, for which ThreadTeam
    // is made. Chosen by hand.
    constexpr double kWorkPerElement = 4;
    const ThreadTeam team(kWorkPerElement * multiply_adds_ * double(inner), gains_);
    const int threads = team.threads();
    const std::vector<Group> several = inner > 1 ? groups_of(inner) : std::vector<Group>();
    const Held held{*this, present_values(inner)};
    Run run{*held.values, inner > 1 ? several : groups_, inner, block_ * inner,
            alpha, accumulate, threads, nullptr, nullptr};
    const Index scratch = padded<T>(checked_product({scratch_, block_, inner}));
    const Index sums = padded<T>(nodes_at_once(run) * run.block);
    thread_local Workspace workspace;
    run.scratch = static_cast<T*>(
        workspace.reserve(bytes_of<T>(scratch, 1) + bytes_of<T>(sums, threads)));
    run.sums = run.scratch + scratch;
    const std::size_t steps = shape_.steps.size();
    // Steps alternate between two, so that one is refilled while threads still take from the other.
    NodeShares shares[] = {NodeShares(threads), NodeShares(threads)};
    shares[0].refill(work_[0]);
    std::vector<SweepEdges<T>> edges(max_parts_ * std::size_t(threads));
    std::vector<Pass> passes(edges.size());
#pragma omp parallel num_threads(threads) if (threads > 1)
    for (Index i = 0, turn = 0; i < outer; ++i) {
      const std::size_t own = max_parts_ * std::size_t(thread_index());
      PassList list{edges.data() + own, passes.data() + own};
      std::size_t first = 0;  // number of the step's first part among all parts
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
  // Neighbouring modes of equal size n that one kernel takes: blocks are (L, n, ..., n, R).
  struct Group {
    Index first, modes;
    Index L, n, R;
    SweepKernel<T> kernel;
  };

  // Parts of a step that one kernel call computes together.
  struct Pass {
    const Group* group;
    Index begin, end;  // the parts, as entries of PassList::edges
  };
  // The passes of a step, in memory that belongs to one thread.
  struct PassList {
    SweepEdges<T>* edges;
    Pass* passes;
    Index num_edges = 0, num_passes = 0;
  };

  // Matrices in the layouts of the kernels for one vector (own) and for several vectors at once
  // (plain).
  struct Pool {
    AlignedVector<T> own, plain;  // plain is empty if the layouts are the same
  };
  // The matrices of a part, perhaps with others.
  struct Matrices {
    std::shared_ptr<Pool> pool;
    std::vector<std::int32_t> ids;  // [entry of the edge lists]; empty if they are the edges' own
  };
  using Values = std::vector<Matrices>;  // [part], counted over all steps

  // Matrices that are gathered: element targets[k] of each in its layout is
  // scale * values[places[k]], all others are zero.
  struct LinkedPool {
    Index mode;
    T scale;
    std::vector<std::int32_t> entries, targets;  // [k]: entry of a matrix, its place in the layout
    std::vector<std::int32_t> places;            // [matrix][k]
    std::shared_ptr<Pool> made;
  };
  struct LinkedPart {
    std::size_t number, pool;
    std::vector<std::int32_t> ids;
  };

  // The matrices that a run uses. They are let go under the lock, so that a thread which finds that
  // no run uses them may write to them: all reads came before.
  struct Held {
    const SweepPlan& plan;
    std::shared_ptr<const Values> values;

    ~Held() {
      const std::lock_guard<std::mutex> lock(plan.changes_);
      values.reset();
    }
  };

  struct Run {
    const Values& values;
    const std::vector<Group>& groups;
    Index inner, block;
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

  // Divides all modes into groups, from the last mode to the first, each with as many modes as a
  // kernel takes together; returns them in ascending order. This throws for an unknown
  // BATCHKRON_ISA, so it is called before any parallel region, out of which nothing may throw.
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
    const SweepKernel<T> plain = plain_kernel(n);
    Matrices result{std::make_shared<Pool>(), {}};
    result.pool->own = copy(group.kernel);
    if (group.kernel.lay_out != plain.lay_out) result.pool->plain = copy(plain);
    if (distinct.size() == places.size()) return result;
    result.ids = part.edges.ids();
    for (std::int32_t& id : result.ids) id = places[id];
    return result;
  }

  static SweepKernel<T> plain_kernel(Index n) { return sweep_kernels<T>()(1, n, 1, 1, true); }

  LinkedPool pool_of(Index mode, T scale) const {
    const Group& group = group_of(groups_, mode);
    const Index size = group.n * group.n;
    LinkedPool pool{mode, scale, {}, {}, {}, nullptr};
    std::vector<T> unit(std::size_t(size), T{}), laid(std::size_t(group.kernel.matrix));
    for (Index e = 0; e < size; ++e) {
      unit[std::size_t(e)] = T(1);
      group.kernel.lay_out(unit.data(), group.n, int(mode - group.first), laid.data());
      unit[std::size_t(e)] = T{};
      for (Index i = 0; i < group.kernel.matrix; ++i) {
        if (laid[std::size_t(i)] == T{}) continue;
        pool.entries.push_back(std::int32_t(e));
        pool.targets.push_back(std::int32_t(i));
      }
    }
    return pool;
  }

  void fill(const LinkedPool& pool, const T* values) const {
    const Group& group = group_of(groups_, pool.mode);
    const Index stride = group.kernel.matrix, each = Index(pool.targets.size());
    const Index count = Index(pool.places.size()) / std::max<Index>(each, 1);
    pool.made->own.resize(std::size_t(count * stride));
    // the numbers of entries of small matrices at compile time, for loops that are unrolled
    const auto copy = [&](auto size) {
      const std::int32_t* const targets = pool.targets.data();
      for (Index i = 0; i < count; ++i) {
        const std::int32_t* const places = pool.places.data() + i * each;
        T* const own = pool.made->own.data() + i * stride;
        const Index stop = size() > 0 ? size() : each;
        for (Index k = 0; k < stop; ++k) own[targets[k]] = pool.scale * values[places[k]];
      }
    };
    if (each == 4) copy(std::integral_constant<Index, 4>());
    else if (each == 9) copy(std::integral_constant<Index, 9>());
    else if (each == 16) copy(std::integral_constant<Index, 16>());
    else copy(std::integral_constant<Index, 0>());
    if (has_plain_ && group.kernel.lay_out != plain_kernel(group.n).lay_out) fill_plain(pool);
  }

  // Writes the layout for several vectors at once, (c, k), from the other one.
  void fill_plain(const LinkedPool& pool) const {
    const Group& group = group_of(groups_, pool.mode);
    const Index n = group.n, stride = group.kernel.matrix, each = Index(pool.targets.size());
    const Index count = Index(pool.made->own.size()) / stride;
    pool.made->plain.resize(std::size_t(count * n * n));
    for (Index i = 0; i < count; ++i)
      for (Index k = 0; k < each; ++k) {
        const Index e = pool.entries[std::size_t(k)];
        pool.made->plain[std::size_t(i * n * n + e % n * n + e / n)] =
            pool.made->own[std::size_t(i * stride + pool.targets[std::size_t(k)])];
      }
  }

  // The present matrices. Those that are gathered are laid out for several vectors from the first
  // run with several on.
  std::shared_ptr<const Values> present_values(Index inner) const {
    const std::lock_guard<std::mutex> lock(changes_);
    if (inner > 1 && !has_plain_) {
      has_plain_ = true;
      for (const LinkedPool& pool : pools_)
        if (pool.made &&
            group_of(groups_, pool.mode).kernel.lay_out !=
                plain_kernel(group_of(groups_, pool.mode).n).lay_out)
          fill_plain(pool);
    }
    return values_;
  }

  const SweepPart& part_of(std::size_t number) const {
    auto step = shape_.steps.begin();
    for (; number >= step->parts.size(); ++step) number -= step->parts.size();
    return step->parts[number];
  }

  // The numbers of the matrices, of `size` elements each, that do not equal an earlier one bit by
  // bit. places[i] becomes the place of matrix i's equal among them. Operators with constant
  // coefficients have few distinct matrices.
  static std::vector<Index> distinct_of(const T* a, Index size, std::vector<std::int32_t>& places) {
    const std::size_t bytes = std::size_t(size) * sizeof(T);
    std::size_t slots = 16;
    while (slots < 2 * places.size()) slots *= 2;
    // Open addressing: slots hold places among the distinct matrices, -1 if they are free. A map
    // that allocates memory for each matrix takes most of the time of `set_values`.
    std::vector<std::int32_t> table(slots, -1);
    std::vector<Index> distinct;
    for (std::size_t i = 0; i < places.size(); ++i) {
      const T* own = a + Index(i) * size;
      std::size_t slot = hash_of(own, bytes) & (slots - 1);
      while (table[slot] >= 0 &&
             std::memcmp(a + distinct[std::size_t(table[slot])] * size, own, bytes) != 0)
        slot = (slot + 1) & (slots - 1);
      if (table[slot] < 0) {
        table[slot] = std::int32_t(distinct.size());
        distinct.push_back(Index(i));
      }
      places[i] = table[slot];
    }
    return distinct;
  }

  // A hash whose low bits depend on all bits of the data.
  static std::uint64_t hash_of(const void* data, std::size_t bytes) {
    const char* next = static_cast<const char*>(data);
    std::uint64_t hash = bytes;
    while (bytes > 0) {
      const std::size_t taken = std::min<std::size_t>(bytes, 8);
      std::uint64_t word = 0;
      std::memcpy(&word, next, taken);
      hash = (hash ^ word) * 0x9E3779B97F4A7C15u;  // 2^64 over the golden ratio
      hash ^= hash >> 32;
      next += taken;
      bytes -= taken;
    }
    return hash;
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

  // How many portions a thread takes at a time when it prefetches the blocks of its next portion:
  // if it took one at a time, the next one could be another thread's. At least about kShares times
  // per step, so that threads finish together. Both are chosen by hand.
  static Index portions_at_once(const Run& run, Index portions) {
    constexpr Index kMaxPortions = 16, kShares = 8;
    return std::clamp<Index>(portions / (kShares * run.threads), 1, kMaxPortions);
  }

  // One thread's work in step `number`, whose first part is number `first` among all parts. Where
  // y is scaled by alpha the parts are summed in `sums` first.
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
      const Matrices& matrices = run.values[first + i];
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

  static void scale(const T* sums, T* y, Index count, T alpha, bool adds) {
    if (adds)
      for (Index i = 0; i < count; ++i) y[i] = multiply_add(y[i], sums[i], alpha);
    else
      for (Index i = 0; i < count; ++i) y[i] = sums[i] * alpha;
  }

  SweepShape shape_;
  Index block_ = 1;
  Index scratch_ = 0;          // blocks of the scratch array
  std::vector<Group> groups_;  // for inner == 1
  std::vector<std::vector<std::size_t>> orders_;  // [step]: order_of(step)
  std::size_t max_parts_ = 0;                    // most parts of a step
  double multiply_adds_ = 0;
  std::vector<ColdBlocks> cold_;  // [step]
  std::vector<NodeWork> work_;    // [step]
  mutable std::mutex changes_;  // of values_, while it is read or replaced, and of who uses it
  std::shared_ptr<Values> values_;
  mutable bool has_plain_ = false;  // whether gathered matrices are laid out for several vectors
  std::vector<LinkedPool> pools_;
  std::vector<LinkedPart> linked_;
  mutable ThreadGains gains_;
};

}  // namespace batchkron
