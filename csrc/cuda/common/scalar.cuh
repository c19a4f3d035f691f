// Numbers on the device: sizes, complex arithmetic, atomic adds. No header of C++ is included, as
// NVRTC finds none but its own.
#pragma once

#include "cuda/common/unrolled.cuh"

namespace batchkron {

using Index = long long;

// The layout of NumPy's complex64 and complex128. It is aligned to one part, as NumPy's are: a view
// of a real array may begin at any real number.
template <class Real>
struct Complex {
  Real real, imag;
};

__device__ inline float multiply_add(float acc, float a, float b) { return acc + a * b; }
__device__ inline double multiply_add(double acc, double a, double b) { return acc + a * b; }

// acc + a * b, each part a chain of fused multiply-adds, as on the CPU.
template <class Real>
__device__ Complex<Real> multiply_add(Complex<Real> acc, Complex<Real> a, Complex<Real> b) {
  acc.real = acc.real + a.real * b.real;
  acc.imag = acc.imag + a.real * b.imag;
  acc.real = acc.real - a.imag * b.imag;
  acc.imag = acc.imag + a.imag * b.real;
  return acc;
}

// a * b. Real numbers are not multiplied by adding to zero, which would turn -0 into 0.
__device__ inline float multiply(float a, float b) { return a * b; }
__device__ inline double multiply(double a, double b) { return a * b; }
template <class Real>
__device__ Complex<Real> multiply(Complex<Real> a, Complex<Real> b) {
  return multiply_add(Complex<Real>{}, a, b);
}

__device__ inline float add(float a, float b) { return a + b; }
__device__ inline double add(double a, double b) { return a + b; }
template <class Real>
__device__ Complex<Real> add(Complex<Real> a, Complex<Real> b) {
  return {a.real + b.real, a.imag + b.imag};
}

// Converts a real number to T.
template <class T>
struct FromReal {
  __device__ static T make(double value) { return T(value); }
};
template <class Real>
struct FromReal<Complex<Real>> {
  __device__ static Complex<Real> make(double value) { return {Real(value), Real(0)}; }
};

template <class Real>
__device__ void atomic_add(Real* target, Real value) { atomicAdd(target, value); }
template <class Real>
__device__ void atomic_add(Complex<Real>* target, Complex<Real> value) {
  atomicAdd(&target->real, value.real);
  atomicAdd(&target->imag, value.imag);
}

// The type of the parts of a complex number, or of a real number itself.
template <class T>
struct RealPart {
  using Type = T;
};
template <class Real>
struct RealPart<Complex<Real>> {
  using Type = Real;
};

// std::conditional, which NVRTC does not have.
template <bool condition, class Yes, class No>
struct Choice {
  using Type = Yes;
};
template <class Yes, class No>
struct Choice<false, Yes, No> {
  using Type = No;
};

// The last one of some types.
template <class First, class... Rest>
struct LastOf {
  using Type = typename LastOf<Rest...>::Type;
};
template <class Only>
struct LastOf<Only> {
  using Type = Only;
};

template <class A, class B>
constexpr bool is_same = false;
template <class A>
constexpr bool is_same<A, A> = true;

// A condition as a type, so that a function argument can be known at compile time.
template <bool condition>
struct Truth {
  static constexpr bool value = condition;
};

}  // namespace batchkron
