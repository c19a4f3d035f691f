// The seam between plans of sweeps and the kernels that are compiled once per instruction set.
#pragma once

#include "engine/batch_kernel_table.hpp"
#include "engine/block_fetches.hpp"

namespace batchkron {

// One mode's multiply, summed over the edges of each node in [begin, end):
//
//   y[node][l, k, r] = sum over its edges e, sum over c: A_ids[e][k, c] * x[child][l, c, r],
//
// child = node + offsets[e], or +=  if `adds`. Blocks of x and y are (L, n, R), contiguous; node i
// has the edges of list rows[i], those from starts[rows[i]] to before starts[rows[i] + 1], and y is
// block `begin`. Without `adds` y is never read, and a node without
// edges becomes zero. Nothing is read or written outside of the blocks; y does not alias x. The
// order of the sums depends on L, n, R and the node's edges alone.
template <class T>
struct SweepTask {
  T* y;
  const T* x;
  Index L, n, R;
  const T* matrices;  // each as the kernel's `lay_out` has made it
  const std::int32_t* rows;
  const std::int32_t* starts;
  const std::int32_t* ids;
  const std::int32_t* offsets;
  Index begin, end;
  bool adds;
  BlockFetches* fetches;  // of blocks that are needed next, done on the way
};

template <class T>
struct SweepKernel {
  void (*add_edges)(const SweepTask<T>&);
  Index matrix;                                     // elements of a laid out matrix
  void (*lay_out)(const T* a, Index n, T* target);  // of A (n, n)
};

// The kernel of blocks (L, n, R); a `plain` one takes matrices (c, k), n * n elements.
template <class T>
using FindSweepKernel = SweepKernel<T> (*)(Index L, Index n, Index R, bool plain);

struct SweepKernelTable {
  FindSweepKernel<float> f32;
  FindSweepKernel<double> f64;
  FindSweepKernel<Complex<float>> c64;
  FindSweepKernel<Complex<double>> c128;
};

template <class T>
SweepKernel<T> find_sweep_kernel(Index L, Index n, Index R, bool plain);
template <>
inline SweepKernel<float> find_sweep_kernel(Index L, Index n, Index R, bool plain) {
  return kernels().sweeps->f32(L, n, R, plain);
}
template <>
inline SweepKernel<double> find_sweep_kernel(Index L, Index n, Index R, bool plain) {
  return kernels().sweeps->f64(L, n, R, plain);
}
template <>
inline SweepKernel<Complex<float>> find_sweep_kernel(Index L, Index n, Index R, bool plain) {
  return kernels().sweeps->c64(L, n, R, plain);
}
template <>
inline SweepKernel<Complex<double>> find_sweep_kernel(Index L, Index n, Index R, bool plain) {
  return kernels().sweeps->c128(L, n, R, plain);
}

}  // namespace batchkron
