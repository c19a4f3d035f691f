// y = alpha (A_1 (x) ... (x) A_d) x, or +=, for many vectors x: the sliced multiply.
#pragma once

#include <algorithm>
#include <atomic>
#include <vector>

#include "engine/dispatch.hpp"
#include "engine/kron/group_run.hpp"
#include "engine/kron/packed_factors.hpp"
#include "engine/kron/schedule.hpp"
#include "engine/threads.hpp"
#include "engine/workspace.hpp"

namespace batchkron {

// x is (outer, product of inputs, inner) and y is (outer, product of outputs, inner), C-contiguous.
// A row is one of the `outer`. Factor k is outputs[k] x inputs[k]; if skipped[k], it is an identity
// that nobody reads. The first and the last factor are not skipped: their sizes belong to outer and
// inner. A plan never changes, but for what it learns of threads: several threads may run it at
// once. Results have the same bits for any number of threads.
template <class T>
class KronPlan {
 public:
  KronPlan(const std::vector<Index>& inputs, const std::vector<Index>& outputs, Index outer,
           Index inner, const std::vector<bool>& skipped = {});

  Index input_elements() const { return outer_ * input_size_; }
  Index output_elements() const { return outer_ * output_size_; }
  double multiply_adds() const { return schedule_.multiply_adds * double(outer_); }
  const Schedule& schedule() const { return schedule_; }

  // accumulate = false overwrites y and never reads it. y aliases neither x nor a factor.
  void run(const FactorView<T>* factors, const T* x, T alpha, T* y, bool accumulate) const;

  void run(const PackedFactors<T>& factors, const T* x, T alpha, T* y, bool accumulate) const;

 private:
  // Bytes of a chunk of rows at its largest between groups: with its buffers it stays in the L2
  // cache. Chosen by hand.
  static constexpr Index kChunkBytes = 128 << 10;
  // Where x and y together are larger, y is written past the caches: the last-level cache of the
  // Zen 5 machine of docs/results/cpu.md.
  static constexpr Index kLastLevelBytes = 32 << 20;
  // Results of a chunk that are more would leave the L2 cache before they are streamed: of longer
  // rows strips are (A (x) I of 2^23 doubles).
  static constexpr Index kStreamedBytes = 1 << 20;

  struct Call {
    const T* const* factors;
    const T* x;
    T* y;
    T alpha;
    bool accumulate;
    Index rows;  // of x in a chunk
    T* scratch;
    Index per_thread, between;  // elements: a thread's scratch memory, a buffer between groups
    bool streams;         // whether results of chunks are written past the caches
    bool streams_strips;  // whether those of strips are
  };

  bool is_large() const {
    return (input_elements() + output_elements()) * Index(sizeof(T)) > kLastLevelBytes;
  }

  // Rows in a chunk, which goes through all groups before the next chunk. Chunks fit in the cache
  // and are the same number for each thread. Where vector lanes hold different rows, a chunk is a
  // multiple of the lanes.
  Index rows_in_cache(int threads) const {
    const Index largest = std::max({input_size_, output_size_, schedule_.largest_between});
    const Index limit = std::max<Index>(1, kChunkBytes / Index(sizeof(T)) / largest);
    const Index rounds = (outer_ + limit * threads - 1) / (limit * threads);
    Index rows = (outer_ + rounds * threads - 1) / (rounds * threads);
    const Index lanes = kernels_.lanes;
    const Group& first = schedule_.groups.front();
    if (first.layout == Group::Layout::lanes && first.L % lanes != 0)
      rows = (rows + lanes - 1) / lanes * lanes;
    return std::clamp<Index>(rows, 1, outer_);
  }

  // Whether whole chunks keep all threads busy for at least 9/10 of the time.
  bool balanced(Index rows, int threads) const {
    const Index chunks = (outer_ + rows - 1) / rows;
    const Index rounds = (chunks + threads - 1) / threads;
    return 10 * chunks >= 9 * rounds * threads;
  }

  GroupTask<T> task_of(const Call& call, std::size_t g, const T* x, T* y, Index blocks) const {
    const bool last = g + 1 == schedule_.groups.size();
    return {kernels_, schedule_.groups[g], call.factors, x, y, blocks, last ? call.alpha : T(1),
            last && call.accumulate, last && call.streams_strips};
  }

  void run_chunk(const Call& call, Index first, Index rows, T* memory) const {
    const TileBuffers<T> tiles{memory, memory + tile_};
    T* buffers = memory + 2 * tile_;
    const T* x = call.x + first * input_size_;
    T* y = call.y + first * output_size_;
    const std::size_t count = schedule_.groups.size();
    for (std::size_t g = 0; g < count; ++g) {
      T* target = buffers + g % 2 * call.between;
      if (g + 1 == count) target = call.streams ? buffers + 2 * call.between : y;
      const GroupTask<T> task = task_of(call, g, x, target, rows);
      const Index tiles_of_group = task.group.tiles(rows, kernels_.lanes);
      for (Index i = 0; i < tiles_of_group; ++i) run_tile(task, i, tiles);
      x = target;
    }
    if (call.streams) kernels_.stream(y, x, rows * output_size_);
  }

  void run_chunks(const Call& call, const ThreadTeam& team) const {
    const Index chunks = (outer_ + call.rows - 1) / call.rows;
    team.run(chunks, 1, [&](Index begin, Index end, int thread) {
      for (Index i = begin; i < end; ++i)
        run_chunk(call, i * call.rows, std::min(call.rows, outer_ - i * call.rows),
                  call.scratch + call.per_thread * thread);
      if (call.streams || call.streams_strips)
        std::atomic_thread_fence(std::memory_order_seq_cst);
    });
  }

  // For too few rows to give each thread chunks of its own: the threads divide the tiles of each
  // group among them, and wait for each other before the next group.
  void run_shared(const Call& call, const ThreadTeam& team) const {
    T* between = call.scratch + call.per_thread * team.threads();
    const std::size_t count = schedule_.groups.size();
    for (Index first = 0; first < outer_; first += call.rows) {
      const Index rows = std::min(call.rows, outer_ - first);
      const T* x = call.x + first * input_size_;
      for (std::size_t g = 0; g < count; ++g) {
        T* target = g + 1 == count ? call.y + first * output_size_
                                   : between + Index(g % 2) * call.between;
        const GroupTask<T> task = task_of(call, g, x, target, rows);
        team.run(task.group.tiles(rows, kernels_.lanes), [&](Index begin, Index end, int thread) {
          T* memory = call.scratch + call.per_thread * thread;
          for (Index i = begin; i < end; ++i) run_tile(task, i, {memory, memory + tile_});
          if (call.streams_strips) std::atomic_thread_fence(std::memory_order_seq_cst);
        });
        x = target;
      }
    }
  }

  const ModeKernels<T>& kernels_;
  Index outer_, input_size_, output_size_;
  Schedule schedule_;
  Index tile_ = 0;  // elements of a tile buffer, for the largest group
  bool streams_strips_ = false;  // whether the last group's strips may be written past the caches
  mutable ThreadGain gain_;
};

// Compiled once, in plan.cpp.
extern template class KronPlan<float>;
extern template class KronPlan<double>;
extern template class KronPlan<Complex<float>>;
extern template class KronPlan<Complex<double>>;

}  // namespace batchkron
