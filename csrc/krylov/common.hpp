// What the passes of all Krylov methods share: arithmetic, arguments, and the state of a system.
//
// A pass goes once over the vectors of every system that it is for: an update of each element,
// sums over them, and then, for each system, what follows from the sums for its scalars. Passes
// are written once; NVRTC compiles them for the device (cuda/krylov/passes.cuh,
// cuda/krylov/basis.cuh), the host's compiler for the CPU, once for each instruction set
// (simd/krylov/passes.hpp). A pass has, with the defaults of PassDefaults,
//
//   static constexpr int sums;        how many, at most kMaxSums
//   static constexpr bool maxima;     the sums are maxima instead
//   static constexpr Gate gate;       the systems that it is for
//   struct Coefficients;              made from a System once for each system
//   each(coefficients, at)            the elements at a cursor, which may be several at once: at[x]
//                                     is what the vector x has there, at.put(x, ...) overwrites it
//   after(system, sums)               the scalars; one thread calls it
//
// A method names its vectors in a structure, CgVectors { enum { x, r, p, q, z }; }, of which its
// passes are made. The method's Python file has a tuple of the same name with the same vectors in
// the same order, and lists the passes by their names here. In `each`, all vectors are read before
// the first is written: the device then has all its loads under way.
//
// Sums, and all scalars of a system, are in double precision whatever the vectors are.
#pragma once

#ifdef BATCHKRON_ISA
#include "simd/common/scalar.hpp"
#define BATCHKRON_PLACE BATCHKRON_ISA
#else
#include "cuda/common/scalar.cuh"
#define BATCHKRON_PLACE device
#endif

namespace batchkron {
namespace BATCHKRON_PLACE {

#ifndef __CUDACC_RTC__
// Those of C, which NVRTC has built in. <math.h> would bring inline functions of C++'s library.
inline double fabs(double x) { return __builtin_fabs(x); }
inline double fmax(double x, double y) { return __builtin_fmax(x, y); }
inline double sqrt(double x) { return __builtin_sqrt(x); }
inline double hypot(double x, double y) { return __builtin_hypot(x, y); }
inline double frexp(double x, int* exponent) { return __builtin_frexp(x, exponent); }
inline double ldexp(double x, int exponent) { return __builtin_ldexp(x, exponent); }
#endif

constexpr int kMaxSums = 5;
constexpr int kVectors = 10;

// A complex number, or several whose parts lie in two vectors of lanes.
template <class V>
struct Pair {
  V real, imag;
};

template <class V>
inline Pair<V> operator+(Pair<V> a, Pair<V> b) {
  return {a.real + b.real, a.imag + b.imag};
}
template <class V>
inline Pair<V> operator-(Pair<V> a, Pair<V> b) {
  return {a.real - b.real, a.imag - b.imag};
}

// What a dtype is made of: its real type, how many of them, the type of its scalars in double
// precision, and of its coefficients.
template <class T>
struct Field {
  using Real = T;
  using Number = double;
  using Coefficient = T;
  static constexpr int reals = 1;
};
template <class R>
struct Field<Complex<R>> {
  using Real = R;
  using Number = Pair<double>;
  using Coefficient = Pair<R>;
  static constexpr int reals = 2;
};
template <class T>
using Real = typename Field<T>::Real;
template <class T>
using Number = typename Field<T>::Number;
template <class T>
using Coefficient = typename Field<T>::Coefficient;

// c x for real and complex numbers, or vectors of lanes of them.
template <class R, class V>
inline V times(R c, V x) {
  return c * x;
}
template <class R, class V>
inline Pair<V> times(R c, Pair<V> x) {
  return {c * x.real, c * x.imag};
}
template <class R, class V>
inline Pair<V> times(Pair<R> c, Pair<V> x) {
  return {c.real * x.real - c.imag * x.imag, c.real * x.imag + c.imag * x.real};
}

inline double conjugate(double x) { return x; }
inline Pair<double> conjugate(Pair<double> x) { return {x.real, -x.imag}; }
inline double square_of(double x) { return x * x; }
inline double square_of(Pair<double> x) { return x.real * x.real + x.imag * x.imag; }
inline double size_of(double x) { return fabs(x); }
inline double size_of(Pair<double> x) { return hypot(x.real, x.imag); }
inline bool is_finite(double x) { return x - x == 0; }
inline bool is_finite(Pair<double> x) { return is_finite(x.real) && is_finite(x.imag); }
// A sum, which is one double or two.
inline double number_at(const double* p, double) { return *p; }
inline Pair<double> number_at(const double* p, Pair<double>) { return {p[0], p[1]}; }
template <class N>
inline N number_at(const double* p) {
  return number_at(p, N{});
}
inline void put_number(double* p, double x) { *p = x; }
inline void put_number(double* p, Pair<double> x) {
  p[0] = x.real;
  p[1] = x.imag;
}
inline double quotient(double a, double b) { return a / b; }
inline Pair<double> quotient(Pair<double> a, Pair<double> b) {  // of Smith: squares stay in range
  if (fabs(b.real) >= fabs(b.imag)) {
    const double ratio = b.imag / b.real, below = b.real + b.imag * ratio;
    return {(a.real + a.imag * ratio) / below, (a.imag - a.real * ratio) / below};
  }
  const double ratio = b.real / b.imag, below = b.real * ratio + b.imag;
  return {(a.real * ratio + a.imag) / below, (a.imag * ratio - a.real) / below};
}
// The distance of 1 to the next number.
template <class T>
inline double rounding() {
  return sizeof(Real<T>) == 4 ? 0x1p-23 : 0x1p-52;
}
// A scalar as a coefficient of vectors of T.
template <class T>
inline Coefficient<T> coefficient(Number<T> x) {
  if constexpr (Field<T>::reals == 2)
    return {Real<T>(x.real), Real<T>(x.imag)};
  else
    return Real<T>(x);
}
inline double from_real(double x, double) { return x; }
inline Pair<double> from_real(double x, Pair<double>) { return {x, 0}; }

// The power of two next to a size, 1 for sizes that are zero or not finite. It and its reciprocal
// are normal numbers of T's precision.
template <class T>
inline double power_of_two(double size) {
  if (!(size > 0) || !is_finite(size)) return 1;
  constexpr int limit = sizeof(Real<T>) == 4 ? 126 : 1000;
  int exponent;
  frexp(size, &exponent);
  return ldexp(1.0, exponent < -limit ? -limit : exponent > limit ? limit : exponent);
}

// Where a system is. While it is not running its passes leave everything as it is; those from
// kClaimed on wait for the true residual, those from kConverged on are done.
enum Progress {
  kRunning = 0,
  kClaimed = 1,     // the estimate of the residual met the tolerance
  kSpent = 2,       // as many iterations as allowed
  kBroken = 3,      // a breakdown
  kNotFinite = 4,   // NaN or infinity
  kIndefinite = 5,  // A or M is not positive definite
  kCycleEnd = 6,    // a cycle of GMRES, or a recursion of MINRES that rounding has reached
  kDrifted = 7,     // the recursion's residual may have left the true one, which is to replace it
  kConverged = 8,
  kMaxIterations = 9,
  kStagnated = 10,
  kBreakdown = 11,
  kNotFiniteAtEnd = 12,
  kIndefiniteAtEnd = 13,
  kLeastSquares = 14,  // no pass says this: the host does, of MINRES
};

enum class Gate { running, waiting, unfinished, any };

inline bool passes(Gate gate, int status) {
  switch (gate) {
    case Gate::running: return status == kRunning;
    case Gate::waiting: return status != kRunning && status < kConverged;
    case Gate::unfinished: return status < kConverged;
    default: return true;
  }
}

// The scalars of a system; a method's own begin at kOwn.
enum StateField {
  kResidual = 0,   // norm of the true residual when it was last computed
  kEstimate = 1,   // of the residual's norm, by the recursion
  kTolerance = 2,  // what the norm is to be at most
  kNormB = 3,
  kUnit = 4,      // a power of two, near the largest element of b and of the first residual
  kScale = 5,     // norm of the true residual that the recursion began with: its unit
  kOperator = 6,  // a power of two that brings products with A near 1
  kRestarts = 7,
  kAccepted = 8,  // whether the trial solution is to be taken over
  kIterationLimit = 9,
  kCycleLimit = 10,
  kProducts = 11,  // with A, of iterations that a launch does several of
  kReplaced = 12,  // whether the recursion goes on, with the true residual instead of its own
  kOperatorNorm = 13,    // MINRES: of M A in the norm of M⁻¹, as far as it was seen; the solve's
  kEuclideanNorm = 14,   // MINRES: of A in the 2-norm, likewise; both in units of kOperator
  kOwn = 15,
  kStateFields = 32,
};

// Options, in `flags`.
enum Flag : Index {
  kRetries = 1,         // a recursion that broke down begins again where it made progress
  kPreconditioned = 2,  // there is an M
  kFlexible = 4,        // the basis of solutions is kept
  kPersists = 8,        // as kRetries, until a recursion gains less than a tenth
};

// The arguments of all passes. Vectors are (systems, n), C-contiguous; bases (slots, systems, n).
template <class T>
struct KrylovArguments {
  Index n, systems;
  int* progress;      // (2, systems): Progress, iterations
  T* vectors[kVectors];
  double* state;      // (systems, kStateFields)
  double* small;      // (systems, small_size): the triangles of GMRES
  double* history;    // (rows, systems): the last estimates, iteration i in row i % rows
  double* partial;    // the device's sums of parts, (systems, parts, sums)
  unsigned* tickets;  // (systems,): parts that are done; zero between launches
  Index parts, small_size, rows;
  Index column, restart;  // of GMRES: the step in the cycle, and m; `column` is also the most
                          // iterations of a launch that does several
  Index flags;
  double rtol, atol;
  double max_iterations, max_cycles;
};

// One system's scalars.
template <class T>
struct System {
  const KrylovArguments<T>& arguments;
  Index index;

  double* state() const { return arguments.state + index * kStateFields; }
  double& at(int field) const { return state()[field]; }
  double* small() const { return arguments.small + index * arguments.small_size; }
  int& status() const { return arguments.progress[index]; }
  int& iterations() const { return arguments.progress[arguments.systems + index]; }
  bool has(Flag flag) const { return arguments.flags & flag; }
  Number<T> number(int field) const { return number_at<Number<T>>(state() + field); }
  void set(int field, Number<T> value) const { put_number(state() + field, value); }

  // Ends an iteration with an estimate of the residual's norm, in units of the recursion.
  void record(double estimate) const {
    const double norm = estimate * at(kScale);
    at(kEstimate) = norm;
    arguments.history[(iterations() % arguments.rows) * arguments.systems + index] = norm;
    iterations() += 1;
    if (!is_finite(norm))
      status() = kNotFinite;
    else if (norm <= at(kTolerance))
      status() = kClaimed;
    else if (iterations() >= at(kIterationLimit))
      status() = kSpent;
  }
};

struct NoCoefficients {
  template <class T>
  explicit NoCoefficients(const System<T>&) {}
};

// What a pass has unless it says otherwise.
struct PassDefaults {
  static constexpr int sums = 0;
  static constexpr bool maxima = false;
  static constexpr Gate gate = Gate::running;
  using Coefficients = NoCoefficients;

  template <class T>
  static void after(const System<T>&, const double*) {}
};

}  // namespace BATCHKRON_PLACE
}  // namespace batchkron
