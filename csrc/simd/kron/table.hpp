// The interface between plans of Kronecker products and their kernels: single-mode multiplies, and
// copies to and from tiles.
#pragma once

#include "simd/common/packed_factor.hpp"
#include "simd/common/scalar.hpp"

namespace batchkron {

// One single-mode multiply, the primitive of the engine:
//
//   y[l * y_l + k * y_k + r]  =  alpha * sum_c f[c, k] * x[l * x_l + c * x_c + r]
//   (or += with `accumulate`)       for l in [0, count), k in [0, K), r in [0, width).
//
// f is packed, f[c * packed_stride(K) + k], readable over the padding. Strides are in elements;
// nothing is aligned beyond an element; nothing outside of the ranges is read or written. The sum
// runs over c in order with one accumulator, so that the result depends neither on how l and r are
// split nor on the vector width. Without `accumulate` y is never read, and an element may be
// written twice. y aliases neither x nor f. C >= 1.
template <class T>
struct PassTask {
  T* y;
  const T* x;
  const T* f;
  Index C, K;
  Index count, width;
  Index x_l, x_c, y_l, y_k;
  T alpha;
  bool accumulate;
  // Where several modes are multiplied at once: the packed factors of the modes before f's, the
  // nearest first.
  const T* earlier[2] = {nullptr, nullptr};
};

// The multiply of a contiguous (L, C, R) tensor to a contiguous (L, K, R) one.
template <class T>
PassTask<T> contiguous_pass(T* y, const T* x, const T* f, Index C, Index K, Index L, Index R,
                            T alpha, bool accumulate) {
  return {y, x, f, C, K, L, R, C * R, R, K * R, R, alpha, accumulate};
}

// Sums over all indices but those of one mode, of contiguous x (L, P, R) and y (L, Q, R):
//
//   sums[p * Q + q] += sum over l < L and r < R of x[l, p, r] * y[l, q, r].
//
// The order of the additions depends on the sizes and the vector width alone. Sizes are at least 1;
// nothing outside of the tensors is read; sums aliases neither.
template <class T>
struct GramTask {
  T* sums;
  const T* x;
  const T* y;
  Index L, P, Q, R;
};

// The largest square factor with kernels of its own; beyond, those for any size are within a few
// percent (docs/developer/cpu-kernels.md).
constexpr int kMaxFixed = 8;
constexpr int kMaxModes = 3;  // modes that a kernel multiplies at once, at most

template <class T>
struct ModeKernels {
  using Pass = void (*)(const PassTask<T>&);

  // [n]: for n x n factors, with the size known at compile time; [0]: for any size.
  //
  // Vectors run along r.
  Pass panel[kMaxFixed + 1];
  // Vectors run along k, for width = x_c = y_k = 1, x_l = C and y_l = K.
  Pass rows[kMaxFixed + 1];

  // Several neighbouring modes with n x n factors at once, whose tensors stay in registers; C and K
  // are n^modes. Null if there is no such kernel.
  //
  // [n][modes]: the last modes; x_l = y_l = C, and width = x_c = y_k = 1 as for `rows`.
  Pass last_modes[kMaxFixed + 1][kMaxModes + 1];
  // [n]: any two neighbouring modes; width is a multiple of the lanes.
  Pass mode_pair[kMaxFixed + 1];

  // Elements in a vector.
  Index lanes;
  // tile[s * lanes + i] = x[i * size + s] for s in [0, size), i in [0, count), count <= lanes. The
  // tile is aligned to a vector. Its other lanes get unspecified numbers, maybe not finite ones.
  void (*to_lanes)(T* tile, const T* x, Index count, Index size);
  // y[i * size + s] = alpha * tile[s * lanes + i], or += with `accumulate`.
  void (*from_lanes)(T* y, const T* tile, Index count, Index size, T alpha, bool accumulate);
  // to[i * width + r] = from[i * stride + r] for i in [0, count), r in [0, width).
  void (*copy_rows)(T* to, const T* from, Index count, Index width, Index stride);
  // to[j * width + l] = scales[j] * row[l] for j in [0, count), l in [0, width).
  void (*scale)(T* to, const T* scales, Index count, const T* row, Index width);
  // The same past the caches, see `stream`. width is a multiple of the lanes, to + head is aligned
  // to a vector, and turned is the row rotated by head: turned[l] = row[(l + head) % width].
  void (*scale_past)(T* to, const T* scales, Index count, const T* turned, Index width, Index head);
  // to[i] = x[i] * pattern[i % (period * lanes)] for i in [0, count).
  void (*multiply_periodic)(T* to, const T* x, Index count, const T* pattern, Index period);
  // to[i] = from[i], past the caches (non-temporal stores) where the processor can. These stores
  // are not ordered with others: the caller ends many copies with one atomic_thread_fence, which
  // waits for all.
  void (*stream)(T* to, const T* from, Index elements);
  // Null for complex numbers.
  void (*gram)(const GramTask<T>&);

  static int size_class(Index C, Index K) {
    return C == K && C >= 1 && C <= kMaxFixed ? int(C) : 0;
  }
  // Picks the kernel for a task of `modes` modes; with several, `size` is that of each one.
  void multiply(const PassTask<T>& task, int modes, Index size) const {
    if (modes > 1) return (task.width == 1 ? last_modes[size][modes] : mode_pair[size])(task);
    (task.width == 1 && task.x_c == 1 && task.y_k == 1 ? rows : panel)[size_class(task.C, task.K)](
        task);
  }
};

}  // namespace batchkron
