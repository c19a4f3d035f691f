// Numbers on the CPU: the type of sizes, complex arithmetic. cuda/common/scalar.cuh has the same
// for devices.
#pragma once

#include <cstdint>

namespace batchkron {

using Index = std::int64_t;

// A complex number whose product is four multiplies. Unlike std::complex it does not repair
// products with infinities, so that loops have no branches. Its layout is that of NumPy's complex64
// and complex128.
template <class Real>
struct Complex {
  Real real = 0;
  Real imag = 0;

  Complex() = default;
  Complex(Real re, Real im = 0) : real(re), imag(im) {}
};

// Whether multiply-adds are fused: in kernels whose instruction set can. The engine is compiled for the
// baseline of x86-64, which cannot, and does not fuse on other processors either.
#if defined(BATCHKRON_ISA) && (defined(__FMA__) || defined(__ARM_FEATURE_FMA))
#define BATCHKRON_FUSES
#endif

// a * b + c, fused where the instruction set can. It is explicit because a compiler that vectorises
// a loop may fuse in its body and not in its remainder.
inline double fused_scalar(double a, double b, double c) {
#ifdef BATCHKRON_FUSES
  return __builtin_fma(a, b, c);
#else
  return a * b + c;
#endif
}
inline float fused_scalar(float a, float b, float c) {
#ifdef BATCHKRON_FUSES
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

inline double multiply_add(double acc, double a, double b) { return fused_scalar(a, b, acc); }
inline float multiply_add(float acc, float a, float b) { return fused_scalar(a, b, acc); }

// acc + a * b, each component a chain of two fused multiply-adds in a fixed order.
template <class Real>
inline Complex<Real> multiply_add(Complex<Real> acc, Complex<Real> a, Complex<Real> b) {
  acc.real = fused_scalar(-a.imag, b.imag, fused_scalar(a.real, b.real, acc.real));
  acc.imag = fused_scalar(a.imag, b.real, fused_scalar(a.real, b.imag, acc.imag));
  return acc;
}

template <class Real>
inline Complex<Real> operator*(Complex<Real> a, Complex<Real> b) {
  return multiply_add(Complex<Real>{}, a, b);
}

template <class Real>
inline bool operator==(Complex<Real> a, Complex<Real> b) {
  return a.real == b.real && a.imag == b.imag;
}

template <class Real>
inline bool operator!=(Complex<Real> a, Complex<Real> b) {
  return !(a == b);
}

}  // namespace batchkron
