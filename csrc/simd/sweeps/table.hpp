// The interface between plans of sweeps and their kernels, which are compiled once for each
// instruction set.
#pragma once

#include "simd/common/scalar.hpp"
#include "simd/sweeps/block_fetches.hpp"

namespace batchkron {

// Edges along one mode of a pass. Node i has list r = rows[i]: the edges e = starts[r] ... starts[r
// + 1] - 1. Edge e multiplies block i + offsets[e] of x by matrix ids[e].
template <class T>
struct SweepEdges {
  const T* x;
  const T* matrices;  // each as the kernel's `lay_out` has made it
  const std::int32_t* rows;
  const std::int32_t* starts;
  const std::int32_t* ids;
  const std::int32_t* offsets;
  int mode;  // 0 for the first mode of the pass
};

// A pass: multiplies along neighbouring modes of blocks (L, n, ..., n, R), summed over the edges of
// each node in [begin, end). For one mode:
//
//   y[node][l, k, r] = sum over its edges e, sum over c: A_ids[e][k, c] * x[child][l, c, r],
//
// or += if `adds`, with k < n and c < C; edges along several modes are added, for which C = n. Blocks
// of y have `block` elements, those of x `x_block`. Blocks are contiguous and aligned to an
// element; y points at block `begin`. Without `adds` y is never read, and a node without edges
// becomes zero. Nothing is read or written outside of the blocks; y does not alias x. The order of
// the sums depends on L, n, R, the modes and the node's edges alone.
template <class T>
struct SweepTask {
  T* y;
  const SweepEdges<T>* edges;  // num_edges lists, sorted by mode; a mode may have several
  Index num_edges;
  Index L, n, C, R, block, x_block;
  Index begin, end;
  bool adds;
  BlockFetches* fetches;  // prefetches of blocks that are needed next, done between tiles
};

template <class T>
struct SweepKernel {
  void (*add_edges)(const SweepTask<T>&);  // null if there is no such kernel
  Index matrix;                              // elements of a matrix in the kernel's layout
  // Writes A (n, C) to target in the kernel's layout for mode number `mode` of the pass.
  void (*lay_out)(const T* a, Index n, Index C, int mode, T* target);
};

// Finds the kernel for `modes` neighbouring modes of blocks (L, n, ..., n, R), of x (L, C, R) if C is
// not n. For a single mode there is one for all sizes. A `plain` one reads matrices as (c, k), n * C
// elements.
template <class T>
using FindSweepKernel = SweepKernel<T> (*)(Index L, Index n, Index C, int modes, Index R,
                                           bool plain);

// The most modes that a kernel multiplies along together.
constexpr int kMaxSweepModes = 5;

struct SweepKernelTable {
  FindSweepKernel<float> f32;
  FindSweepKernel<double> f64;
  FindSweepKernel<Complex<float>> c64;
  FindSweepKernel<Complex<double>> c128;
};

}  // namespace batchkron
