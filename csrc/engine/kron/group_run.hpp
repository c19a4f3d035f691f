// Runs one tile of one group of modes through all its passes. A group is some neighbouring modes, a
// tile the part of the data that stays in the L1 cache meanwhile, a pass one mode's multiply of the
// tile. engine/kron/schedule.hpp has the layouts of tiles.
#pragma once

#include <algorithm>

#include "engine/kron/schedule.hpp"
#include "simd/kron/table.hpp"

namespace batchkron {

template <class T>
struct GroupTask {
  const ModeKernels<T>& kernels;
  const Group& group;
  const T* const* factors;  // packed; [i] is merged factor i
  const T* x;               // (blocks, L, input, R)
  T* y;                     // (blocks, L, output, R)
  Index blocks;
  T alpha;
  bool accumulate;
  bool streams;  // whether strips are written to y past the caches
};

// Two buffers of one thread, of group.tile_elements() elements each: a pass reads one and writes
// the other.
template <class T>
struct TileBuffers {
  T* first;
  T* second;
};

template <class T>
void multiply(const GroupTask<T>& task, const Pass& pass, PassTask<T>& step) {
  for (int i = 1; i < pass.modes; ++i) step.earlier[i - 1] = task.factors[pass.factor - i];
  task.kernels.multiply(step, pass.modes, pass.size);
}

// The passes of a tile that is contiguous throughout: (rows, input, r) -> (rows, output, r).
template <class T>
void run_passes(const GroupTask<T>& task, const T* x, T* y, Index rows, Index r, T alpha,
                bool accumulate, TileBuffers<T> buffers) {
  const auto& passes = task.group.passes;
  for (std::size_t p = 0; p < passes.size(); ++p) {
    const Pass& pass = passes[p];
    const bool last = p + 1 == passes.size();
    T* target = last ? y : buffers.first;
    const Index width = pass.inside * r;
    PassTask<T> step = contiguous_pass(target, x, task.factors[pass.factor], pass.C, pass.K,
                                       rows * pass.before, width, last ? alpha : T(1),
                                       last && accumulate);
    multiply(task, pass, step);
    x = target;
    std::swap(buffers.first, buffers.second);
  }
}

template <class T>
void run_lanes(const GroupTask<T>& task, Index index, TileBuffers<T> buffers) {
  const Group& group = task.group;
  const ModeKernels<T>& kernels = task.kernels;
  const Index first = index * kernels.lanes;
  const Index count = std::min(kernels.lanes, task.blocks * group.L - first);
  const Index input = group.input * group.R, output = group.output * group.R;
  kernels.to_lanes(buffers.first, task.x + first * input, count, input);
  // The tile is in buffers.first now. Passes alternate between the buffers, so that an even number
  // of them ends where it began.
  T* result = group.passes.size() % 2 ? buffers.second : buffers.first;
  std::swap(buffers.first, buffers.second);
  run_passes(task, buffers.second, result, 1, group.R * kernels.lanes, T(1), false, buffers);
  kernels.from_lanes(task.y + first * output, result, count, output, task.alpha, task.accumulate);
}

template <class T>
void run_contiguous(const GroupTask<T>& task, Index index, TileBuffers<T> buffers) {
  const Group& group = task.group;
  const Index first = index * group.rows;
  const Index count = std::min(group.rows, task.blocks * group.L - first);
  run_passes(task, task.x + first * group.input * group.R, task.y + first * group.output * group.R,
             count, group.R, task.alpha, task.accumulate, buffers);
}

// A strip is `width` consecutive r of one block. In x and y its rows lie R elements apart, so the
// first pass reads with that stride and the last one writes with it; in between the tile is
// contiguous.
template <class T>
void run_strip(const GroupTask<T>& task, Index index, TileBuffers<T> buffers) {
  const Group& group = task.group;
  const Index R = group.R, strips = (R + group.strip - 1) / group.strip;
  const Index l = index / strips, r = index % strips * group.strip;
  const Index width = std::min(group.strip, R - r);
  const T* x = task.x + l * group.input * R + r;
  Index x_r = R;  // elements between two rows of x
  if (group.copies_input) {
    task.kernels.copy_rows(buffers.first, x, group.input, width, R);
    x = buffers.first;
    x_r = width;
    std::swap(buffers.first, buffers.second);
  }
  T* y = task.y + l * group.output * R + r;
  for (std::size_t p = 0; p < group.passes.size(); ++p) {
    const Pass& pass = group.passes[p];
    const bool last = p + 1 == group.passes.size(), writes = last && !task.streams;
    T* target = writes ? y : buffers.first;
    const Index y_r = writes ? R : width;
    PassTask<T> step{target, x, task.factors[pass.factor], pass.C, pass.K, 0, 0, 0, 0, 0, 0,
                     last ? task.alpha : T(1), last && task.accumulate};
    // A kernel has one strided index, l, besides the contracted one. The group's other modes lie
    // before or inside of this pass's mode. The first pass has none inside and the last one none
    // before, so that l is enough for what is strided.
    if (last) {  // l runs over the modes inside
      step.count = pass.inside;
      step.width = width;
      step.x_l = x_r;
      step.y_l = y_r;
    } else {  // l runs over the modes before
      step.count = pass.before;
      step.width = pass.inside * width;
      step.x_l = pass.C * pass.inside * x_r;
      step.y_l = pass.K * pass.inside * y_r;
    }
    step.x_c = pass.inside * x_r;
    step.y_k = pass.inside * y_r;
    multiply(task, pass, step);
    x = target;
    x_r = width;
    std::swap(buffers.first, buffers.second);
  }
  if (!task.streams) return;
  for (Index k = 0; k < group.output; ++k) task.kernels.stream(y + k * R, x + k * width, width);
}

template <class T>
void run_tile(const GroupTask<T>& task, Index index, TileBuffers<T> buffers) {
  switch (task.group.layout) {
    case Group::Layout::lanes:
      return run_lanes(task, index, buffers);
    case Group::Layout::contiguous:
      return run_contiguous(task, index, buffers);
    case Group::Layout::strips:
      return run_strip(task, index, buffers);
  }
}

}  // namespace batchkron
