// A complex number with plain arithmetic: four multiplies, no recovery of infinities, so that
// loops stay branch-free. Its layout is NumPy's complex64 and complex128.
#pragma once

namespace batchkron {

template <class Real>
struct Complex {
  Real real = 0;
  Real imag = 0;

  Complex() = default;
  Complex(Real re, Real im = 0) : real(re), imag(im) {}
};

// acc + a * b, written so that each component is a chain of unambiguous fused multiply-adds.
template <class Real>
inline Complex<Real> multiply_add(Complex<Real> acc, Complex<Real> a, Complex<Real> b) {
  acc.real = acc.real + a.real * b.real;
  acc.imag = acc.imag + a.real * b.imag;
  acc.real = acc.real - a.imag * b.imag;
  acc.imag = acc.imag + a.imag * b.real;
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
