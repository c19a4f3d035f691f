// The passes of MINRES: Lanczos' three-term recurrence, and Givens rotations of its tridiagonal
// matrix. Vectors: x, v and the one before it, w = A z, the direction and the one before it,
// z = M v, the next z, r. Each iteration exchanges "and the one before it". Without M z is v, the
// next z is the v that is overwritten, and r is not used.
#pragma once

#include "krylov.cuh"

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
  kNorm,              // of A, as far as it was seen
};

// The square of the first v's norm.
template <class T>
void begin(const System<T>& system, double square) {
  if (!is_finite(square))
    system.status() = kNotFinite;
  else if (square <= 0)
    system.status() = square < 0 ? kIndefinite : kBroken;
  system.at(kBeta) = system.at(kEta) = sqrt(square);
  system.at(kCosine) = system.at(kLastCosine) = 1;
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
  if (!(seen <= system.at(kNorm))) system.at(kNorm) = seen;
  // The norm of A r is this times that of r: where it is rounding, r is in the null space of A.
  // Measured on a singular matrix of 8 unknowns: 17 units of rounding.
  const double gradient = hypot(delta, c * next);
  if (gradient <= 64 * rounding<T>() * system.at(kNorm)) {
    system.status() = kBroken;
    return;
  }
  system.at(kNextBeta) = next;
  system.at(kRho1) = rho;
  system.at(kRho2) = s * alpha + last_c * c * beta;
  system.at(kRho3) = last_s * beta;
  system.at(kLastCosine) = c;
  system.at(kLastSine) = s;
  system.at(kCosine) = delta / rho;
  system.at(kSine) = next / rho;
  system.at(kMove) = system.at(kCosine) * system.at(kEta);
  system.at(kEta) *= -system.at(kSine);
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

// The diagonal entry z* A z.
template <class T>
struct MinresDiagonal {
  static constexpr int sums = 1;
  static constexpr bool maxima = false;
  static constexpr Gate gate = Gate::running;

  struct Coefficients {
    Real<T> unit;
    explicit Coefficients(const System<T>& system) : unit(Real<T>(system.at(kOperator))) {}
  };

  template <class Cursor>
  static void each(const Coefficients& c, Cursor& at) {
    at.add_real_product(0, at.get(minres::Z), times(c.unit, at.get(minres::W)));
  }

  static void after(const System<T>& system, const double* sums) {
    const double beta = system.at(minres::kBeta);
    if (!is_finite(sums[0])) system.status() = kNotFinite;
    system.at(minres::kDiagonal) = sums[0] / beta / beta;
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
  static constexpr int sums = 1;
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
    if (c.preconditioned) {
      const auto r = times(c.shrink, at.get(minres::R)) + times(c.turn, at.get(minres::Previous));
      at.put(minres::R, r);
      at.add_square(0, r);
    }
  }

  static void after(const System<T>& system, const double* sums) {
    system.at(minres::kLastBeta) = system.at(minres::kBeta);
    system.at(minres::kBeta) = system.at(minres::kNextBeta);
    system.record(system.has(kPreconditioned) ? sqrt(sums[0]) : fabs(system.at(minres::kEta)));
    if (system.status() == kRunning && system.at(minres::kBeta) == 0) system.status() = kBroken;
  }
};

}  // namespace BATCHKRON_PLACE
}  // namespace batchkron
