// The seam between plans and the kernels that are compiled once per instruction set.
#pragma once

#include <cstdint>

#include "engine/complex.hpp"

namespace batchkron {

using Index = std::int64_t;

// The widest vector of any instruction set, in bytes: packed factors are padded for it, so that a
// packed factor does not depend on the instruction set.
constexpr Index kPaddingBytes = 64;

// Leading dimension of a packed factor with `outputs` output indices.
template <class T>
constexpr Index packed_stride(Index outputs) {
  constexpr Index lanes = kPaddingBytes / Index(sizeof(T));
  if (outputs > lanes) return (outputs + lanes - 1) / lanes * lanes;
  Index stride = 1;
  while (stride < outputs) stride *= 2;
  return stride;
}

// One single-mode multiply, the primitive of the engine:
//
//   y[l, k, r] = alpha * sum_c f[c, k] * x[l, c, r]      (store)
//   y[l, k, r] += alpha * sum_c f[c, k] * x[l, c, r]     (accumulate)
//
// for l in [l_begin, l_end), all k in [0, K), r in [r_begin, r_end). x is (L, C, R) and y is
// (L, K, R), both contiguous; f is packed, f[c * packed_stride(K) + k], readable over the padding.
// The sum runs over c in order with one accumulator, so that the result depends neither on how
// l and r are split nor on the vector width. `store` never reads y. y aliases neither x nor f.
template <class T>
struct ModeTask {
  T* y;
  const T* x;
  const T* f;
  Index C, K, R;
  Index l_begin, l_end;
  Index r_begin, r_end;
  T alpha;
};

constexpr int kLargestFixed = 8;

template <class T>
struct ModeKernels {
  using Multiply = void (*)(const ModeTask<T>&);
  // [n] for square n x n factors with the size known at compile time, [0] for any size.
  Multiply store[kLargestFixed + 1];
  Multiply accumulate[kLargestFixed + 1];

  Multiply pick(bool accumulates, Index C, Index K) const {
    const int size = C == K && C >= 1 && C <= kLargestFixed ? int(C) : 0;
    return accumulates ? accumulate[size] : store[size];
  }
};

struct BatchKernelTable;  // batch_kernel_table.hpp

struct KernelTable {
  const char* name;
  ModeKernels<float> f32;
  ModeKernels<double> f64;
  ModeKernels<Complex<float>> c64;
  ModeKernels<Complex<double>> c128;
  const BatchKernelTable* batch;
};

// The table of the best instruction set that this machine has, or of the one that the environment
// variable BATCHKRON_ISA names (baseline, avx2, avx512). Chosen once.
const KernelTable& kernels();

template <class T>
const ModeKernels<T>& mode_kernels();
template <>
inline const ModeKernels<float>& mode_kernels() { return kernels().f32; }
template <>
inline const ModeKernels<double>& mode_kernels() { return kernels().f64; }
template <>
inline const ModeKernels<Complex<float>>& mode_kernels() { return kernels().c64; }
template <>
inline const ModeKernels<Complex<double>>& mode_kernels() { return kernels().c128; }

}  // namespace batchkron
