// The passes of MINRES: Lanczos' three-term recurrence, and Givens rotations of its tridiagonal
// matrix. Vectors: x, v and the one before it, w = A z, the direction and the one before it,
// z = M v, the next z, r. Each iteration exchanges "and the one before it". Without M z is v, the
// next z is the v that is overwritten, and r is not used.
//
// The recursion knows the residual of an x without rounding. That of a step along d, which rounding
// puts beside x, is eps |A| |d| times the step: where A is singular, d grows into its null space
// without limit, and the residual's recursion goes on to shrink while b - A x grows. Hence a step is
// not taken whose rounding would, with that of all before it, exceed the residual; and the method has
// arrived at a least-squares solution where A r is small and a step's rounding exceeds what it gains.
#pragma once

#include "krylov/common.hpp"

namespace batchkron {
namespace BATCHKRON_PLACE {

namespace minres {
enum Vectors { X, V, Previous, W, D, D2, Z, Next, R };
enum Own {
  kDiagonal = kOwn,   // of the tridiagonal matrix
  kBeta,              // beside it: the norm of v
  kLastBeta,
  kNextBeta,
  kCosine,
  kSine,
  kLastCosine,
  kLastSine,
  kRho1,
  kRho2,
  kRho3,
  kEta,               // the residual's norm, in the norm of M, with a sign
  kMove,              // along the next direction
  kLength,            // 2-norm of z, in units of beta
  kDirection,         // of the latest direction
  kLastDirection,
  kPath,              // sum of the lengths of all steps
  kOwnEnd,
};
// Of the bound of rounding beside the residual; errors of both signs leave a small part of it. With 8,
// float32 systems of condition 1e4 that converge would begin again before (measured).
constexpr double kDrift = 32;
static_assert(int(kOwnEnd) <= int(kStateFields), "a system's state has room for them");

// The square of the first v's norm.
template <class T>
void begin(const System<T>& system, double square) {
  if (!is_finite(square))
    system.status() = kNotFinite;
  else if (square <= 0)
    system.status() = square < 0 ? kIndefinite : kBroken;
  system.at(kBeta) = system.at(kEta) = sqrt(square);
  system.at(kCosine) = system.at(kLastCosine) = 1;
  system.at(kEstimate) = system.at(kScale);
}

// How a recursion ends whose next step rounding spoils; kRunning where it does not. A r is
// `gradient` times r, and the step is `move` along a direction that is at most `length` long.
template <class T>
Progress judged(const System<T>& system, double gradient, double move, double length,
                double cosine, double sine) {
  const double norm = system.at(kOperatorNorm);
  // Measured on a singular matrix of 8 unknowns: 17 units of rounding.
  if (gradient <= 64 * rounding<T>() * norm) return kBroken;
  const double residual = system.at(kEstimate) / system.at(kScale);
  const double share = rounding<T>() * system.at(kEuclideanNorm) / residual;  // of a unit of path
  const double gain = cosine * cosine / (1 + fabs(sine));  // 1 - |sine|
  const double step = fabs(move) * length;
  // Lanczos' vectors stay orthogonal to the root of rounding: A r becomes no smaller.
  if (gradient <= sqrt(rounding<T>()) * norm && share * step >= gain) return kBroken;
  return share * (system.at(kPath) + step) > kDrift ? kCycleEnd : kRunning;
}

// The square of the next v's norm completes a column of the tridiagonal matrix: rotate it.
template <class T>
void rotate(const System<T>& system, double square) {
  if (!is_finite(square)) {
    system.status() = kNotFinite;
    return;
  }
  if (square < 0) {
    system.status() = kIndefinite;
    return;
  }
  const double alpha = system.at(kDiagonal), beta = system.at(kBeta), next = sqrt(square);
  const double c = system.at(kCosine), s = system.at(kSine);
  const double last_c = system.at(kLastCosine), last_s = system.at(kLastSine);
  const double delta = c * alpha - last_c * s * beta;
  const double rho = hypot(delta, next);
  const double seen = hypot(alpha, next);
  if (!(seen <= system.at(kOperatorNorm))) system.at(kOperatorNorm) = seen;
  const double gradient = hypot(delta, c * next);
  const double rho2 = s * alpha + last_c * c * beta, rho3 = last_s * beta;
  const double cosine = delta / rho, sine = next / rho, move = cosine * system.at(kEta);
  const double length = (system.at(kLength) + fabs(rho2) * system.at(kDirection) +
                         fabs(rho3) * system.at(kLastDirection)) / rho;
  const Progress progress = judged(system, gradient, move, length, cosine, sine);
  if (progress != kRunning) {
    system.status() = progress;
    return;
  }
  system.at(kNextBeta) = next;
  system.at(kRho1) = rho;
  system.at(kRho2) = rho2;
  system.at(kRho3) = rho3;
  system.at(kLastCosine) = c;
  system.at(kLastSine) = s;
  system.at(kCosine) = cosine;
  system.at(kSine) = sine;
  system.at(kMove) = move;
  system.at(kEta) *= -sine;
}
}  // namespace minres

// v = r
template <class T>
struct MinresBegin {
  static constexpr int sums = 0;
  static constexpr bool maxima = false;
  static constexpr Gate gate = Gate::running;
  using Coefficients = NoCoefficients;

  template <class Cursor>
  static void each(const Coefficients&, Cursor& at) {
    at.put(minres::V, at.get(minres::R));
  }

  static void after(const System<T>&, const double*) {}
};

// The norm of the first v.
template <class T>
struct MinresFirst {
  static constexpr int sums = 1;
  static constexpr bool maxima = false;
  static constexpr Gate gate = Gate::running;
  using Coefficients = NoCoefficients;

  template <class Cursor>
  static void each(const Coefficients&, Cursor& at) {
    at.add_real_product(0, at.get(minres::V), at.get(minres::Z));
  }

  static void after(const System<T>& system, const double* sums) {
    minres::begin(system, sums[0]);
  }
};

// The diagonal entry z* A z, and the lengths of z and A z.
template <class T>
struct MinresDiagonal {
  static constexpr int sums = 3;
  static constexpr bool maxima = false;
  static constexpr Gate gate = Gate::running;

  struct Coefficients {
    Real<T> unit;
    explicit Coefficients(const System<T>& system) : unit(Real<T>(system.at(kOperator))) {}
  };

  template <class Cursor>
  static void each(const Coefficients& c, Cursor& at) {
    const auto z = at.get(minres::Z), w = times(c.unit, at.get(minres::W));
    at.add_real_product(0, z, w);
    at.add_square(1, w);
    at.add_square(2, z);
  }

  static void after(const System<T>& system, const double* sums) {
    const double beta = system.at(minres::kBeta);
    if (!is_finite(sums[0])) system.status() = kNotFinite;
    system.at(minres::kDiagonal) = sums[0] / beta / beta;
    system.at(minres::kLength) = sqrt(sums[2]) / beta;
    const double seen = sums[2] > 0 ? sqrt(sums[1] / sums[2]) : 0;
    if (!(seen <= system.at(kEuclideanNorm))) system.at(kEuclideanNorm) = seen;
  }
};

// The next v, where the one before was.
template <class T>
struct MinresLanczos {
  static constexpr int sums = 1;
  static constexpr bool maxima = false;
  static constexpr Gate gate = Gate::running;

  struct Coefficients {
    Real<T> image, diagonal, beside;
    explicit Coefficients(const System<T>& system) {
      const double beta = system.at(minres::kBeta), last = system.at(minres::kLastBeta);
      image = Real<T>(system.at(kOperator) / beta);
      diagonal = Real<T>(system.at(minres::kDiagonal) / beta);
      beside = Real<T>(last > 0 ? beta / last : 0);
    }
  };

  template <class Cursor>
  static void each(const Coefficients& c, Cursor& at) {
    auto v = times(c.image, at.get(minres::W)) - times(c.diagonal, at.get(minres::V));
    if (c.beside != 0) v = v - times(c.beside, at.get(minres::Previous));
    at.put(minres::Previous, v);
    at.add_square(0, v);
  }

  static void after(const System<T>& system, const double* sums) {
    if (!system.has(kPreconditioned)) minres::rotate(system, sums[0]);
  }
};

// The norm of the next v, with M.
template <class T>
struct MinresNorm {
  static constexpr int sums = 1;
  static constexpr bool maxima = false;
  static constexpr Gate gate = Gate::running;
  using Coefficients = NoCoefficients;

  template <class Cursor>
  static void each(const Coefficients&, Cursor& at) {
    at.add_real_product(0, at.get(minres::Previous), at.get(minres::Next));
  }

  static void after(const System<T>& system, const double* sums) {
    minres::rotate(system, sums[0]);
  }
};

// The next direction and x; with M the residual as well, whose norm is not that of M.
template <class T>
struct MinresUpdate {
  static constexpr int sums = 2;
  static constexpr bool maxima = false;
  static constexpr Gate gate = Gate::running;

  struct Coefficients {
    Real<T> z, first, second, move, shrink, turn;
    bool begun, twice, preconditioned;
    explicit Coefficients(const System<T>& system) {
      const double rho = system.at(minres::kRho1), next = system.at(minres::kNextBeta);
      const double sine = system.at(minres::kSine), cosine = system.at(minres::kCosine);
      z = Real<T>(1 / rho / system.at(minres::kBeta));
      first = Real<T>(system.at(minres::kRho2) / rho);
      second = Real<T>(system.at(minres::kRho3) / rho);
      move = Real<T>(system.at(minres::kMove) * system.at(kScale) * system.at(kOperator));
      begun = system.at(minres::kLastBeta) > 0;
      twice = begun && system.at(minres::kRho3) != 0;
      preconditioned = system.has(kPreconditioned);
      shrink = Real<T>(sine * sine);
      turn = Real<T>(next > 0 ? cosine * system.at(minres::kEta) / next : 0);
    }
  };

  template <class Cursor>
  static void each(const Coefficients& c, Cursor& at) {
    auto d = times(c.z, at.get(minres::Z));
    if (c.begun) d = d - times(c.first, at.get(minres::D));
    if (c.twice) d = d - times(c.second, at.get(minres::D2));
    const auto x = at.get(minres::X) + times(c.move, d);
    at.put(minres::D2, d);
    at.put(minres::X, x);
    at.add_square(1, d);
    if (c.preconditioned) {
      const auto r = times(c.shrink, at.get(minres::R)) + times(c.turn, at.get(minres::Previous));
      at.put(minres::R, r);
      at.add_square(0, r);
    }
  }

  static void after(const System<T>& system, const double* sums) {
    const double length = sqrt(sums[1]);
    system.at(minres::kLastDirection) = system.at(minres::kDirection);
    system.at(minres::kDirection) = length;
    system.at(minres::kPath) += fabs(system.at(minres::kMove)) * length;
    system.at(minres::kLastBeta) = system.at(minres::kBeta);
    system.at(minres::kBeta) = system.at(minres::kNextBeta);
    system.record(system.has(kPreconditioned) ? sqrt(sums[0]) : fabs(system.at(minres::kEta)));
    if (system.status() == kRunning && system.at(minres::kBeta) == 0) system.status() = kBroken;
  }
};

}  // namespace BATCHKRON_PLACE
}  // namespace batchkron
