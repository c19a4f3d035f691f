// The interface between segmented mode multiplies and their kernels: sums over the edges of a node.
#pragma once

#include "simd/common/scalar.hpp"

namespace batchkron {

// Edges of one node in a segmented mode multiply:
//
//   sums[k, p] = sum over e of sum over c of A_ids[e][c, k] * x[children[e]][c, p]
//
// for the `count` edges e, k in [0, K), p in [0, points). Block `child` of x begins at x + child *
// block; its C rows, and the K rows of `sums`, lie `stride` >= points apart. A_id[c, k] is
// matrices[id * C * K + c * step_c + k * step_k]. sums is overwritten and aliases nothing. Nothing
// needs more than its elements' alignment; nothing outside of the ranges is read or written. The
// order of the sums depends on the sizes and `count` alone.
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
// A matrix is stored as (n, pattern): element (t, p) is A[(c + t) mod n, c], where p = (., c, r) is
// a place of the block. Up to `beyond` elements behind a block are read, and behind the sums
// written. Where x may not be read so far, from block `first_copied` on, blocks are read at copied
// + child * block in place of x. The list is readable kEdgesAhead edges behind the node's, whose
// blocks are prefetched. The order of the sums depends on the sizes and `count` alone.
struct FlatEdge {
  std::int32_t id, child;
};

// Blocks are prefetched so many edges ahead. With it, and with edges of 8 bytes, an edge of (3, 3)
// in float64 took 4.5 ns in place of 6.3, where x exceeds the L2 cache (Zen 5,
// docs/developer/cpu-kernels.md).
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
  Index pattern, beyond;  // in elements, see FlatTask
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
