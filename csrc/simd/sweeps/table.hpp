// The seam between plans of sweeps and the kernels that are compiled once per instruction set.
#pragma once

#include "simd/common/scalar.hpp"
#include "simd/sweeps/block_fetches.hpp"

namespace batchkron {

// The edges of one of a pass's modes: node i has those of list rows[i], from starts[rows[i]] to
// before starts[rows[i] + 1]. Edge e reads block node + offsets[e] of x.
template <class T>
struct SweepEdges {
  const T* x;
  const T* matrices;  // each as the kernel's `lay_out` has made it
  const std::int32_t* rows;
  const std::int32_t* starts;
  const std::int32_t* ids;
  const std::int32_t* offsets;
  int mode;  // among those of the pass
};

// Multiplies along neighbouring modes of a block (L, n, ..., n, R), summed over the edges of each
// node in [begin, end). Of one mode:
//
//   y[node][l, k, r] = sum over its edges e, sum over c: A_ids[e][k, c] * x[child][l, c, r],
//
// or += if `adds`. Blocks are contiguous, y is block `begin`. Without `adds` y is never read, and a
// node without edges becomes zero. Nothing is read or written outside of the blocks; y does not
// alias x. The order of the sums depends on L, n, R, the modes and the node's edges alone.
template <class T>
struct SweepTask {
  T* y;
  const SweepEdges<T>* edges;  // in the order of their modes; a mode may have several
  Index num_edges;
  Index L, n, R, block;
  Index begin, end;
  bool adds;
  BlockFetches* fetches;  // of blocks that are needed next, done on the way
};

template <class T>
struct SweepKernel {
  void (*add_edges)(const SweepTask<T>&);  // null: there is none
  Index matrix;                              // elements of a laid out matrix
  // Of A (n, n), for a mode among those of the pass.
  void (*lay_out)(const T* a, Index n, int mode, T* target);
};

// The kernel of so many modes of blocks (L, n, ..., n, R); there is one of a single mode for all
// sizes. A `plain` one takes matrices (c, k), n * n elements.
template <class T>
using FindSweepKernel = SweepKernel<T> (*)(Index L, Index n, int modes, Index R, bool plain);

// A kernel has at most so many modes.
constexpr int kMaxSweepModes = 5;

struct SweepKernelTable {
  FindSweepKernel<float> f32;
  FindSweepKernel<double> f64;
  FindSweepKernel<Complex<float>> c64;
  FindSweepKernel<Complex<double>> c128;
};

}  // namespace batchkron
