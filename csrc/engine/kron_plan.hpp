// y (+)= alpha * (A_1 x ... x A_d) x for one product and many vectors: the sliced multiply engine.
#pragma once

#include <algorithm>
#include <vector>

#include "engine/pack.hpp"
#include "engine/steps.hpp"
#include "engine/threads.hpp"
#include "engine/workspace.hpp"

namespace batchkron {

// Blocks are (outer, prod inputs, inner) -> (outer, prod outputs, inner), all contiguous.
// Immutable; safe to run from several threads at once.
class KronPlan {
 public:
  KronPlan(const std::vector<Index>& inputs, const std::vector<Index>& outputs, Index outer,
           Index inner)
      : outer_(outer),
        inner_(inner),
        input_size_(checked_product(inputs, inner)),
        output_size_(checked_product(outputs, inner)),
        steps_(plan_steps(inputs, outputs, std::vector<bool>(inputs.size(), true), inner)) {
    checked_product({outer, std::max(input_size_, output_size_)});
  }

  Index input_elements() const { return outer_ * input_size_; }
  Index output_elements() const { return outer_ * output_size_; }
  const Steps& steps() const { return steps_; }

  // accumulate = false overwrites y and never reads it. y aliases neither x nor a factor.
  template <class T>
  void run(const std::vector<FactorView<T>>& factors, const T* x, T alpha, T* y,
           bool accumulate) const {
    if (output_elements() == 0) return;
    if (input_elements() == 0) {
      if (!accumulate) std::fill_n(y, output_elements(), T{});
      return;
    }
    kernels();  // throws for an unknown instruction set, which no thread of a region may
    const int threads = threads_for(steps_.multiply_adds * double(outer_));
    const Index row_bytes = std::max<Index>(1, row_elements() * Index(sizeof(T)));
    const Index chunk = std::clamp<Index>(kChunkBytes / row_bytes, 1, outer_);
    const bool by_rows = row_bytes <= kCacheBytes && (outer_ + chunk - 1) / chunk >= threads;
    const Index rows = by_rows ? chunk : std::clamp<Index>(kPassBytes / row_bytes, 1, outer_);
    const Index buffer = padded<T>(rows * steps_.largest_intermediate);
    const Index buffers = 2 * (by_rows ? threads : 1);

    thread_local Workspace workspace;
    T* memory = static_cast<T*>(
        workspace.reserve(bytes_of<T>(packed_total(factors), 1) + bytes_of<T>(buffer, buffers)));
    const std::vector<const T*> packed = pack_all(factors, memory);
    T* scratch = memory + packed_total(factors);
    const Call<T> call{packed, x, y, alpha, accumulate, scratch, buffer};
    if (by_rows)
      run_by_rows(call, rows, threads);
    else
      run_by_modes(call, rows, threads);
  }

 private:
  static constexpr Index kChunkBytes = 128 << 10;  // a chunk and its two buffers stay in L2
  static constexpr Index kCacheBytes = 1 << 20;    // beyond, threads share one row
  static constexpr Index kPassBytes = 4 << 20;

  template <class T>
  struct Call {
    const std::vector<const T*>& packed;
    const T* x;
    T* y;
    T alpha;
    bool accumulate;
    T* scratch;
    Index buffer;
  };

  template <class T>
  static Index padded(Index elements) {
    constexpr Index unit = kPaddingBytes / Index(sizeof(T));
    return (elements + unit - 1) / unit * unit;
  }

  Index row_elements() const {
    return std::max({input_size_, output_size_, steps_.largest_intermediate});
  }

  template <class T>
  static Index packed_total(const std::vector<FactorView<T>>& factors) {
    Index total = 0;
    for (const auto& factor : factors) total += padded<T>(packed_size<T>(factor.K, factor.C));
    return total;
  }

  template <class T>
  static std::vector<const T*> pack_all(const std::vector<FactorView<T>>& factors, T* memory) {
    std::vector<const T*> packed;
    for (const auto& factor : factors) {
      pack(factor, memory);
      packed.push_back(memory);
      memory += padded<T>(packed_size<T>(factor.K, factor.C));
    }
    return packed;
  }

  // Runs all steps on `rows` rows from x to y through two buffers; `multiply` does one step.
  template <class T, class Multiply>
  void chain(const Call<T>& call, Index first, Index rows, T* buffers, Multiply multiply) const {
    const T* source = call.x + first * input_size_;
    const int last = int(steps_.list.size()) - 1;
    for (int s = 0; s <= last; ++s) {
      const Step& step = steps_.list[s];
      T* target = s == last ? call.y + first * output_size_ : buffers + (s % 2) * call.buffer;
      const bool accumulates = s == last && call.accumulate;
      const T alpha = s == last ? call.alpha : T(1);
      const ModeTask<T> task{target, source, call.packed[step.mode], step.C, step.K, step.R,
                             0,      rows * step.L, 0, step.R, alpha};
      multiply(task, mode_kernels<T>().pick(accumulates, step.C, step.K));
      source = target;
    }
  }

  template <class T>
  void run_by_rows(const Call<T>& call, Index rows, int threads) const {
    const Index chunks = (outer_ + rows - 1) / rows;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
      T* buffers = call.scratch + 2 * call.buffer * thread_index();
#pragma omp for schedule(static)
      for (Index i = 0; i < chunks; ++i)
        chain(call, i * rows, std::min(rows, outer_ - i * rows), buffers,
              [](const ModeTask<T>& task, typename ModeKernels<T>::Multiply kernel) {
                kernel(task);
              });
    }
  }

  template <class T>
  void run_by_modes(const Call<T>& call, Index rows, int threads) const {
    for (Index first = 0; first < outer_; first += rows)
      chain(call, first, std::min(rows, outer_ - first), call.scratch,
            [threads](const ModeTask<T>& task, typename ModeKernels<T>::Multiply kernel) {
              split_mode(task, kernel, threads);
            });
  }

  // One step with all threads: the (l, r) plane cut into tiles of a fixed size.
  template <class T>
  static void split_mode(const ModeTask<T>& whole, typename ModeKernels<T>::Multiply kernel,
                         int threads) {
    constexpr Index kTileR = 1024, kTileElements = 16384;
    const Index tile_r = std::clamp<Index>(whole.R, 1, kTileR);
    const Index tile_l =
        std::max<Index>(1, kTileElements / (tile_r * std::max<Index>({whole.C, whole.K, 1})));
    const Index tiles_r = (whole.R + tile_r - 1) / tile_r;
    const Index tiles = (whole.l_end + tile_l - 1) / tile_l * tiles_r;
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (Index i = 0; i < tiles; ++i) {
      ModeTask<T> task = whole;
      task.l_begin = i / tiles_r * tile_l;
      task.l_end = std::min(whole.l_end, task.l_begin + tile_l);
      task.r_begin = i % tiles_r * tile_r;
      task.r_end = std::min(whole.R, task.r_begin + tile_r);
      kernel(task);
    }
  }

  Index outer_, inner_, input_size_, output_size_;
  Steps steps_;
};

}  // namespace batchkron
