// The seam between batch plans and the kernels that compute one product in each vector lane.
#pragma once

#include "simd/common/step.hpp"

namespace batchkron {

// Products of one output block that multiply the same modes:
//
//   sums[element, lane] += (weights[i] * A_last ... A_first) x[inputs[i]],   lane = i mod lanes
//
// for i in [0, count). A block of x has `input_size` elements. Every lane computes its products
// alone, so nothing passes from one to another, be it an infinity or NaN; lanes beyond `count` read
// `zeros`, as long as a block of x and as any matrix. The weight multiplies the last step's matrix.
// Matrix `id` of a step is pools[mode][id * C * K + c * K + k], contracted over c.
// `sums` is (output_size, lanes). `tiles` is two buffers of `tile` elements, each as large as the
// largest step's input or output times lanes; `matrix` is as large as the largest matrix times
// lanes. All three are aligned to 64 bytes.
template <class T>
struct LaneTask {
  T* sums;
  const T* x;
  Index input_size;
  const std::int32_t* inputs;
  const std::int32_t* ids;  // (count, modes)
  Index modes;
  const T* weights;
  Index weight_step;  // 0 if all weights are weights[0], or 1
  Index count;
  const Step* steps;  // at least one
  int num_steps;
  const T* const* pools;
  const T* zeros;
  T* tiles;
  Index tile;
  T* matrix;
};

// Products of one output block, which stays in registers:
//
//   y = alpha * sum over i of weights[i] * (A_1 x ... x A_d) x[inputs[i]]   or  +=  if `accumulate`
//
// for i in [0, count). The matrix of a mode is number ids[i, mode] of its pool, in a layout that
// depends on the kernel. Modes that are not `active` are skipped.
// The order of the sums depends on the sizes and `count` alone.
template <class T>
struct BlockTask {
  T* y;
  const T* x;
  const std::int32_t* inputs;
  const std::int32_t* ids;  // (count, d)
  const T* weights;
  Index weight_step;  // 0 if all weights are weights[0], or 1
  Index count;
  const T* const* pools;
  const char* active;
  Index C, K;  // of the first mode
  T alpha;
  bool accumulate;
};

template <class T>
using BlockKernel = void (*)(const BlockTask<T>&);

// Pairs: two packed n x n matrices, both active.
constexpr Index kSmallestPair = 3, kLargestPair = 8;

// Tensors: d matrices n x n, n = 2 for d = 2 to 6 or n = 4 for d = 2, of modes with R elements
// between neighbours. For W = min(lanes, n^d), element (j, k, r) of a matrix is A[k, k xor j], for
// r in [0, R) if R < W, else for r = 0 only. If n^d = W, it is A[k xor j, k] in the first mode.
constexpr Index kSmallestTensor = 2, kLargestTensor = 6;

// y[element] = alpha * sum over lanes of sums[element, lane], or += if `accumulate`. `sums` is
// readable up to a multiple of four elements.
template <class T>
struct LaneSum {
  T* y;
  const T* sums;
  Index size;
  T alpha;
  bool accumulate;
};

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

template <class T>
struct BatchKernels {
  Index lanes;
  void (*add_products)(const LaneTask<T>&);
  void (*add_lanes)(const LaneSum<T>&);
  BlockKernel<T> add_vectors;                                  // one packed matrix, active
  BlockKernel<T> add_pairs[kLargestPair - kSmallestPair + 1];  // by n
  // tensors with n = 2, by d, and with n = 4 and d = 2, or null
  BlockKernel<T> add_twos[kLargestTensor - kSmallestTensor + 1];
  BlockKernel<T> add_fours;
};

struct BatchKernelTable {
  BatchKernels<float> f32;
  BatchKernels<double> f64;
  SegmentKernels<float> segment_f32;
  SegmentKernels<double> segment_f64;
  SegmentKernels<Complex<float>> segment_c64;
  SegmentKernels<Complex<double>> segment_c128;
};

// The kernels for T; null for complex numbers, which have none.
template <class T>
const BatchKernels<T>* batch_kernels() { return nullptr; }
template <>
inline const BatchKernels<float>* batch_kernels() { return &kernels().batch->f32; }
template <>
inline const BatchKernels<double>* batch_kernels() { return &kernels().batch->f64; }

template <class T>
const SegmentKernels<T>& segment_kernels();
template <>
inline const SegmentKernels<float>& segment_kernels() { return kernels().batch->segment_f32; }
template <>
inline const SegmentKernels<double>& segment_kernels() { return kernels().batch->segment_f64; }
template <>
inline const SegmentKernels<Complex<float>>& segment_kernels() {
  return kernels().batch->segment_c64;
}
template <>
inline const SegmentKernels<Complex<double>>& segment_kernels() {
  return kernels().batch->segment_c128;
}

}  // namespace batchkron
