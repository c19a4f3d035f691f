// The interface between plans of batch lists and their kernels, which are compiled once for each
// instruction set.
#pragma once

#include "simd/common/packed_factor.hpp"
#include "simd/common/scalar.hpp"
#include "simd/common/step.hpp"
#include "simd/segmented/table.hpp"

namespace batchkron {

// Products of one output block, one in each vector lane; all multiply the same modes (steps):
//
//   sums[element, lane] += (weights[i] * A_last ... A_first) x[inputs[i]],   lane = i mod lanes
//
// for i in [0, count). A block of x has `input_size` elements. No lane's value reaches another
// lane, not even an infinity or NaN. Lanes beyond `count` read `zeros`, which is as long as a block
// of x and as any matrix. The weight multiplies the last step's matrix. Element (k, c) of matrix
// `id` of a step is pools[mode][id * C * K + c * K + k], or with `by_row` [... + k * C + c]. `sums`
// is (output_size, lanes). `tiles` is two buffers of `tile` elements each, the largest step's input
// or output times lanes; `matrix` has the largest matrix times lanes. These three are aligned to 64 bytes, all else to an element.
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
  bool by_row;
  const T* zeros;
  T* tiles;
  Index tile;
  T* matrix;
};

// Products of one output block, which stays in registers over all of them:
//
//   y = alpha * sum over i of weights[i] * (A_1 (x) ... (x) A_d) x[inputs[i]],  or  +=
//
// for i in [0, count). The matrix of a mode is number ids[i, mode] of its pool, in a layout that
// depends on the kernel (below). Modes that are not `active` are identities and are skipped. It is
// += with `accumulate`; otherwise y is not read. y does not alias x. The order of the sums depends
// on the sizes and `count` alone.
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

// Pairs: two n x n matrices in the packed layout, both active.
constexpr Index kMinPair = 3, kMaxPair = 8;

// Tensors: d matrices n x n, n = 2 for d = 2 to 6 or n = 4 for d = 2. With R elements between
// neighbours of a mode and W = min(lanes, n^d), a matrix is stored as (j, k, r): element (j, k, r)
// is A[k, k xor j], for r in [0, R) if R < W, else for r = 0 only. If n^d = W, it is A[k xor j, k]
// in the first mode.
constexpr Index kMinTensor = 2, kMaxTensor = 6;

// y[element] = alpha * sum over lanes of sums[element, lane], or += if `accumulate`; otherwise y is
// not read. `sums` is readable up to a multiple of four elements.
template <class T>
struct LaneSum {
  T* y;
  const T* sums;
  Index size;
  T alpha;
  bool accumulate;
};

template <class T>
struct BatchKernels {
  Index lanes;
  void (*add_products)(const LaneTask<T>&);
  void (*add_lanes)(const LaneSum<T>&);
  BlockKernel<T> add_vectors;                                  // one mode, packed matrices, active
  BlockKernel<T> add_pairs[kMaxPair - kMinPair + 1];  // [n - kMinPair]
  // Tensors: with n = 2, [d - kMinTensor]; with n = 4 and d = 2. Null if there is none.
  BlockKernel<T> add_twos[kMaxTensor - kMinTensor + 1];
  BlockKernel<T> add_fours;
};

struct BatchKernelTable {
  BatchKernels<float> f32;
  BatchKernels<double> f64;
  SegmentKernelTable segments;
};

}  // namespace batchkron
