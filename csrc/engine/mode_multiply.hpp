// The single-mode multiply (contract: kernel_table.hpp), written once and compiled for each
// instruction set. Included by isa/kernels.cpp only, which defines BATCHKRON_ISA and
// BATCHKRON_VECTOR_BYTES. It uses no library code: an inline function of the standard library
// compiled here could be linked into code that runs on older processors.
#pragma once

#include "engine/kernel_table.hpp"

namespace batchkron {
namespace BATCHKRON_ISA {

template <class T, int lanes>
struct Vector {
  typedef T type __attribute__((vector_size(lanes * sizeof(T)), aligned(alignof(T)), may_alias));
};
template <class T>
struct Vector<T, 1> {
  typedef T type;
};

template <class T, int lanes>
using Pack = typename Vector<T, lanes>::type;

template <class T>
constexpr int widest = BATCHKRON_VECTOR_BYTES / int(sizeof(T));
template <>
constexpr int widest<Complex<float>> = 1;
template <>
constexpr int widest<Complex<double>> = 1;

template <class V, class T>
inline V load(const T* p) {
  return *reinterpret_cast<const V*>(p);
}

template <class V, class T>
inline void store(T* p, V v) {
  *reinterpret_cast<V*>(p) = v;
}

// acc + a * b with a scalar b; the compiler contracts it to one fused multiply-add.
template <class V, class T>
inline V fused(V acc, V a, T b) {
  return acc + a * b;
}
template <class Real>
inline Complex<Real> fused(Complex<Real> acc, Complex<Real> a, Complex<Real> b) {
  return multiply_add(acc, a, b);
}

// The same where the factor is the vector: for complex numbers the order of the operands, and with
// it the order of the sums, stays that of `fused`.
template <class V, class T>
inline V fused_factor(V acc, V f, T x) {
  return fused(acc, f, x);
}
template <class Real>
inline Complex<Real> fused_factor(Complex<Real> acc, Complex<Real> f, Complex<Real> x) {
  return fused(acc, x, f);
}

template <bool accumulates, class V, class T>
inline V finish(V previous, V sum, T alpha) {
  if constexpr (accumulates) return fused(previous, sum, alpha);
  return sum * alpha;
}

constexpr Index smaller(Index a, Index b) { return a < b ? a : b; }

// rows x vectors accumulators over one stretch of r: y, x, f point at the tile's first element.
template <class T, int fixed, bool accumulates, int lanes, int vectors, int rows>
inline void tile(T* y, const T* x, const T* f, Index C, Index R, Index stride, T alpha) {
  using V = Pack<T, lanes>;
  V sum[rows][vectors];
  for (int k = 0; k < rows; ++k)
    for (int v = 0; v < vectors; ++v) sum[k][v] = V{};
  const Index terms = fixed ? fixed : C;
  for (Index c = 0; c < terms; ++c) {
    V xs[vectors];
    for (int v = 0; v < vectors; ++v) xs[v] = load<V>(x + c * R + v * lanes);
    for (int k = 0; k < rows; ++k)
      for (int v = 0; v < vectors; ++v) sum[k][v] = fused(sum[k][v], xs[v], f[c * stride + k]);
  }
  for (int k = 0; k < rows; ++k)
    for (int v = 0; v < vectors; ++v) {
      T* target = y + k * R + v * lanes;
      V previous{};
      if constexpr (accumulates) previous = load<V>(target);
      store<V>(target, finish<accumulates>(previous, sum[k][v], alpha));
    }
}

// All k for one stretch of lanes * vectors elements of r.
template <class T, int fixed, bool accumulates, int lanes, int vectors>
inline void all_rows(const ModeTask<T>& t, T* y, const T* x) {
  constexpr int most = fixed && fixed <= 6 ? fixed : 4;
  const Index K = fixed ? fixed : t.K;
  const Index stride = packed_stride<T>(K);
  Index k = 0;
  for (; k + most <= K; k += most)
    tile<T, fixed, accumulates, lanes, vectors, most>(y + k * t.R, x, t.f + k, t.C, t.R, stride,
                                                      t.alpha);
  if (fixed && fixed % most == 0) return;
  y += k * t.R;
  const T* f = t.f + k;
  switch (K - k) {
    case 3:
      tile<T, fixed, accumulates, lanes, vectors, 3>(y, x, f, t.C, t.R, stride, t.alpha);
      break;
    case 2:
      tile<T, fixed, accumulates, lanes, vectors, 2>(y, x, f, t.C, t.R, stride, t.alpha);
      break;
    case 1:
      tile<T, fixed, accumulates, lanes, vectors, 1>(y, x, f, t.C, t.R, stride, t.alpha);
      break;
    default:
      break;
  }
}

// The rest of r, shorter than 2 * lanes: by vectors of halving width.
template <class T, int fixed, bool accumulates, int lanes>
inline void remainder(const ModeTask<T>& t, T* y, const T* x, Index r) {
  if (r + lanes <= t.r_end) {
    all_rows<T, fixed, accumulates, lanes, 1>(t, y + r, x + r);
    r += lanes;
  }
  if constexpr (lanes > 1) remainder<T, fixed, accumulates, lanes / 2>(t, y, x, r);
}

template <class T, int fixed, bool accumulates>
void inner_mode(const ModeTask<T>& t) {
  constexpr int lanes = widest<T>;
  const Index C = fixed ? fixed : t.C, K = fixed ? fixed : t.K;
  for (Index l = t.l_begin; l < t.l_end; ++l) {
    const T* x = t.x + l * C * t.R;
    T* y = t.y + l * K * t.R;
    Index r = t.r_begin;
    for (; r + 2 * lanes <= t.r_end; r += 2 * lanes)
      all_rows<T, fixed, accumulates, lanes, 2>(t, y + r, x + r);
    remainder<T, fixed, accumulates, lanes>(t, y, x, r);
  }
}

// R = 1: vectors run over k, `rows` values of l at a time.
template <class T, int fixed, bool accumulates, int lanes, int rows>
inline void last_mode_rows(const ModeTask<T>& t, T* y, const T* x) {
  using V = Pack<T, lanes>;
  const Index C = fixed ? fixed : t.C, K = fixed ? fixed : t.K;
  const Index stride = packed_stride<T>(K);
  for (Index k = 0; k < K; k += lanes) {
    V sum[rows];
    for (int i = 0; i < rows; ++i) sum[i] = V{};
    for (Index c = 0; c < C; ++c) {
      const V fs = load<V>(t.f + c * stride + k);
      for (int i = 0; i < rows; ++i) sum[i] = fused_factor(sum[i], fs, x[i * C + c]);
    }
    const Index count = smaller(lanes, K - k);
    for (int i = 0; i < rows; ++i) {
      T* target = y + i * K + k;
      T values[lanes];
      store<V>(values, sum[i]);
      for (Index j = 0; j < count; ++j)
        target[j] = finish<accumulates>(accumulates ? target[j] : T{}, values[j], t.alpha);
    }
  }
}

template <class T, int fixed, bool accumulates, int lanes>
void last_mode_lanes(const ModeTask<T>& t) {
  const Index C = fixed ? fixed : t.C, K = fixed ? fixed : t.K;
  Index l = t.l_begin;
  for (; l + 4 <= t.l_end; l += 4)
    last_mode_rows<T, fixed, accumulates, lanes, 4>(t, t.y + l * K, t.x + l * C);
  for (; l < t.l_end; ++l)
    last_mode_rows<T, fixed, accumulates, lanes, 1>(t, t.y + l * K, t.x + l * C);
}

template <class T, int fixed, bool accumulates, int lanes>
void last_mode(const ModeTask<T>& t) {
  if constexpr (lanes > 1) {
    if (packed_stride<T>(fixed ? fixed : t.K) < lanes)
      return last_mode<T, fixed, accumulates, lanes / 2>(t);
  }
  last_mode_lanes<T, fixed, accumulates, lanes>(t);
}

template <class T, int fixed, bool accumulates>
void multiply(const ModeTask<T>& t) {
  if (t.R == 1)
    last_mode<T, fixed, accumulates, widest<T>>(t);
  else
    inner_mode<T, fixed, accumulates>(t);
}

template <class T>
constexpr ModeKernels<T> mode_kernels_of() {
  return {
      {multiply<T, 0, false>, multiply<T, 1, false>, multiply<T, 2, false>, multiply<T, 3, false>,
       multiply<T, 4, false>, multiply<T, 5, false>, multiply<T, 6, false>, multiply<T, 7, false>,
       multiply<T, 8, false>},
      {multiply<T, 0, true>, multiply<T, 1, true>, multiply<T, 2, true>, multiply<T, 3, true>,
       multiply<T, 4, true>, multiply<T, 5, true>, multiply<T, 6, true>, multiply<T, 7, true>,
       multiply<T, 8, true>},
  };
}

}  // namespace BATCHKRON_ISA
}  // namespace batchkron
