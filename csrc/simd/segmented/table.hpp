// The seam between segmented mode multiplies and their kernels: sums over the edges of a node.
#pragma once

#include "simd/common/scalar.hpp"

namespace batchkron {

// Edges of one node in a segmented mode multiply:
//
//   sums[k, p] = sum over e of sum over c of A_ids[e][c, k] * x[children[e]][c, p]
//
// for k in [0, K), p in [0, points). A block of x begins at x + child * block; its rows and those of
// `sums` lie `stride` >= points apart. A_id[c, k] is matrices[id * C * K + c * step_c + k * step_k].
// The order of the sums depends on the sizes alone.
template <class T>
struct SegmentTask {
  T* sums;
  const T* x;
  Index block, stride, points;
  Index C, K;
  const T* matrices;
  Index step_c, step_k;
  const Index* ids;
  const Index* children;
  Index count;
};

// Edges of one node in a segmented mode multiply by n x n matrices, of whole blocks in their own
// order, (., n, R):
//
//   sums[l, k, r] = sum over e of sum over c of A_e.id[k, c] * x[e.child][l, c, r]
//
// A matrix is (n, pattern): element (turns, p) is A[(c + turns) mod n, c] for p = (., c, r). The
// kernel's `beyond` elements are read beyond a block, and written beyond the sums. Blocks from
// `first_copied` on are read from `copied` in place of x, where x may not be read beyond. The list
// can be read kEdgesAhead edges beyond the node's, to fetch their blocks. The order of the sums
// depends on the sizes alone.
struct FlatEdge {
  std::int32_t id, child;
};

constexpr Index kEdgesAhead = 8;

template <class T>
struct FlatTask {
  T* sums;
  const T* x;
  const T* copied;
  Index first_copied;
  Index block;
  const T* matrices;
  const FlatEdge* edges;
  Index count;
};

template <class T>
struct FlatKernel {
  Index pattern, beyond;
  void (*add_edges)(const FlatTask<T>&);
};

template <class T>
struct SegmentKernels {
  Index width;  // elements of a vector
  void (*add_edges)(const SegmentTask<T>&);
  FlatKernel<T> (*find_flat)(Index n, Index R);  // add_edges is null if there is none
};

struct SegmentKernelTable {
  SegmentKernels<float> f32;
  SegmentKernels<double> f64;
  SegmentKernels<Complex<float>> c64;
  SegmentKernels<Complex<double>> c128;
};

}  // namespace batchkron
