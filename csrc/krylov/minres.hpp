// The passes of MINRES: Lanczos' three-term recurrence, and Givens rotations of its tridiagonal
// matrix. With beta = norm of v, in the inner product of M where there is one:
//
//   w = A z                                                              a product
//   alpha = z* w / beta^2                                                MinresDiagonal
//   v' = w / beta - (alpha / beta) v - (beta / previous beta) previous v       MinresLanczos
//   z' = M v'                                                            a product; else z is v
//   beta' = sqrt(v'* z'): rotates (alpha, beta') to rho, which has rho2
//   and rho3 above it; tau is the step along the next direction          MinresNextNorm
//   d' = (z / beta - rho2 d - rho3 previous d) / rho, x += tau d',
//   with M also r = sine^2 r + (cosine eta / beta') v'                   MinresUpdate
//
// v' is written over the previous v and d' over the previous d, d2: each iteration exchanges them.
// Without M the next z is the v that is overwritten, and r, which is v in the beginning, is not kept;
// MinresLanczos then has beta'.
//
// The recursion knows the residual of an x without rounding. That of a step along d, which rounding
// puts beside x, is eps |A| |d| times the step: where A is singular, d grows into its null space
// without limit, and the residual's recursion goes on to shrink while b - A x grows. Hence a step is
// not taken whose rounding would, with that of all before it, exceed the residual; and the method has
// arrived at a least-squares solution where A r is small and a step's rounding exceeds what it gains.
// Lanczos' vectors lose their orthogonality sooner where rounding keeps A r from becoming that small:
// then a step longer than all before it gains no more than its rounding, and is not taken either.
#pragma once

#include "krylov/common.hpp"

namespace batchkron {
namespace BATCHKRON_PLACE {

struct MinresVectors {
  enum { x, v, previous, w, d, d2, z, next, r };
};

struct MinresPass : PassDefaults, MinresVectors {};

namespace minres {
enum Own {
  kAlpha = kOwn,      // diagonal entry of the tridiagonal matrix
  kBeta,              // the entry beside it: the norm of v
  kLastBeta,
  kNextBeta,
  kCosine,
  kSine,
  kLastCosine,
  kLastSine,
  kRho,
  kRho2,
  kRho3,
  kEta,               // the residual's norm, in the norm of M, with a sign
  kTau,               // the step along the next direction
  kLength,            // 2-norm of z, in units of beta
  kDirection,         // of the latest direction
  kLastDirection,
  kPath,              // sum of the lengths of all steps
  kOwnEnd,
};
// Of the bound of rounding beside the residual; errors of both signs leave a small part of it. With 8,
// float32 systems of condition 1e4 that converge would begin again before (measured).
constexpr double kDrift = 32;
// Steps into the null space that rounding alone makes, where Lanczos' vectors are no longer orthogonal:
// each is longer than all before it together, and longer than kLong |r| / |A|, and seems to take off
// the residual less than kGain times its rounding: 0.4 to 1.8 times, measured on singular systems of
// 30 and 150 unknowns.
constexpr double kLong = 1000;
constexpr double kGain = 2;
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
// `gradient` times r, and the step is `tau` along a direction that is at most `length` long.
template <class T>
Progress judged(const System<T>& system, double gradient, double tau, double length,
                double cosine, double sine) {
  const double norm = system.at(kOperatorNorm);
  // Measured on a singular matrix of 8 unknowns: 17 units of rounding.
  if (gradient <= 64 * rounding<T>() * norm) return kBroken;
  const double residual = system.at(kEstimate) / system.at(kScale);
  const double share = rounding<T>() * system.at(kEuclideanNorm) / residual;  // of a unit of path
  const double gain = cosine * cosine / (1 + fabs(sine));  // 1 - |sine|
  const double step = fabs(tau) * length;
  // Lanczos' vectors stay orthogonal to the root of rounding: A r becomes no smaller.
  if (gradient <= sqrt(rounding<T>()) * norm && share * step >= gain) return kBroken;
  const bool is_long = step > system.at(kPath) && share * step > kLong * rounding<T>();
  if (is_long && kGain * share * step >= gain) return kBroken;
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
  const double alpha = system.at(kAlpha), beta = system.at(kBeta), next = sqrt(square);
  const double c = system.at(kCosine), s = system.at(kSine);
  const double last_c = system.at(kLastCosine), last_s = system.at(kLastSine);
  const double delta = c * alpha - last_c * s * beta;
  const double rho = hypot(delta, next);
  const double seen = hypot(alpha, next);
  if (!(seen <= system.at(kOperatorNorm))) system.at(kOperatorNorm) = seen;
  const double gradient = hypot(delta, c * next);
  const double rho2 = s * alpha + last_c * c * beta, rho3 = last_s * beta;
  const double cosine = delta / rho, sine = next / rho, tau = cosine * system.at(kEta);
  const double length = (system.at(kLength) + fabs(rho2) * system.at(kDirection) +
                         fabs(rho3) * system.at(kLastDirection)) / rho;
  const Progress progress = judged(system, gradient, tau, length, cosine, sine);
  if (progress != kRunning) {
    system.status() = progress;
    return;
  }
  system.at(kNextBeta) = next;
  system.at(kRho) = rho;
  system.at(kRho2) = rho2;
  system.at(kRho3) = rho3;
  system.at(kLastCosine) = c;
  system.at(kLastSine) = s;
  system.at(kCosine) = cosine;
  system.at(kSine) = sine;
  system.at(kTau) = tau;
  system.at(kEta) *= -sine;
}
}  // namespace minres

// v = r
template <class T>
struct MinresBegin : MinresPass {
  template <class Cursor>
  static void each(const Coefficients&, Cursor& at) {
    at.put(v, at[r]);
  }
};

// The first beta^2 = v* z.
template <class T>
struct MinresFirstNorm : MinresPass {
  static constexpr int sums = 1;

  template <class Cursor>
  static void each(const Coefficients&, Cursor& at) {
    at.add_real_product(0, at[v], at[z]);
  }

  static void after(const System<T>& system, const double* sums) {
    minres::begin(system, sums[0]);
  }
};

// alpha = z* w / beta^2, and the lengths of z and w.
template <class T>
struct MinresDiagonal : MinresPass {
  static constexpr int sums = 3;

  struct Coefficients {
    Real<T> unit;
    explicit Coefficients(const System<T>& system) : unit(Real<T>(system.at(kOperator))) {}
  };

  template <class Cursor>
  static void each(const Coefficients& c, Cursor& at) {
    const auto vector = at[z], image = times(c.unit, at[w]);
    at.add_real_product(0, vector, image);
    at.add_square(1, image);
    at.add_square(2, vector);
  }

  static void after(const System<T>& system, const double* sums) {
    const double beta = system.at(minres::kBeta);
    if (!is_finite(sums[0])) system.status() = kNotFinite;
    system.at(minres::kAlpha) = sums[0] / beta / beta;
    system.at(minres::kLength) = sqrt(sums[2]) / beta;
    const double seen = sums[2] > 0 ? sqrt(sums[1] / sums[2]) : 0;
    if (!(seen <= system.at(kEuclideanNorm))) system.at(kEuclideanNorm) = seen;
  }
};

// v' = w / beta - (alpha / beta) v - (beta / previous beta) previous, which it overwrites.
template <class T>
struct MinresLanczos : MinresPass {
  static constexpr int sums = 1;

  struct Coefficients {
    Real<T> image, diagonal, beside;
    explicit Coefficients(const System<T>& system) {
      const double beta = system.at(minres::kBeta), last = system.at(minres::kLastBeta);
      image = Real<T>(system.at(kOperator) / beta);
      diagonal = Real<T>(system.at(minres::kAlpha) / beta);
      beside = Real<T>(last > 0 ? beta / last : 0);
    }
  };

  template <class Cursor>
  static void each(const Coefficients& c, Cursor& at) {
    auto next_v = times(c.image, at[w]) - times(c.diagonal, at[v]);
    if (c.beside != 0) next_v = next_v - times(c.beside, at[previous]);
    at.put(previous, next_v);
    at.add_square(0, next_v);
  }

  static void after(const System<T>& system, const double* sums) {
    if (!system.has(kPreconditioned)) minres::rotate(system, sums[0]);
  }
};

// With M, the next beta^2 = v'* z'.
template <class T>
struct MinresNextNorm : MinresPass {
  static constexpr int sums = 1;

  template <class Cursor>
  static void each(const Coefficients&, Cursor& at) {
    at.add_real_product(0, at[previous], at[next]);
  }

  static void after(const System<T>& system, const double* sums) {
    minres::rotate(system, sums[0]);
  }
};

// d' = (z / beta - rho2 d - rho3 d2) / rho, which overwrites d2, and x += tau d'. With M the residual
// as well, whose norm is not that of M: r = sine^2 r + (cosine eta / beta') v'.
template <class T>
struct MinresUpdate : MinresPass {
  static constexpr int sums = 2;

  struct Coefficients {
    Real<T> along, first, second, tau, shrink, turn;
    bool begun, twice, preconditioned;
    explicit Coefficients(const System<T>& system) {
      const double rho = system.at(minres::kRho), next = system.at(minres::kNextBeta);
      const double sine = system.at(minres::kSine), cosine = system.at(minres::kCosine);
      along = Real<T>(1 / rho / system.at(minres::kBeta));
      first = Real<T>(system.at(minres::kRho2) / rho);
      second = Real<T>(system.at(minres::kRho3) / rho);
      tau = Real<T>(system.at(minres::kTau) * system.at(kScale) * system.at(kOperator));
      begun = system.at(minres::kLastBeta) > 0;
      twice = begun && system.at(minres::kRho3) != 0;
      preconditioned = system.has(kPreconditioned);
      shrink = Real<T>(sine * sine);
      turn = Real<T>(next > 0 ? cosine * system.at(minres::kEta) / next : 0);
    }
  };

  template <class Cursor>
  static void each(const Coefficients& c, Cursor& at) {
    auto direction = times(c.along, at[z]);
    if (c.begun) direction = direction - times(c.first, at[d]);
    if (c.twice) direction = direction - times(c.second, at[d2]);
    const auto solution = at[x] + times(c.tau, direction);
    at.put(d2, direction);
    at.put(x, solution);
    at.add_square(1, direction);
    if (c.preconditioned) {
      const auto residual = times(c.shrink, at[r]) + times(c.turn, at[previous]);
      at.put(r, residual);
      at.add_square(0, residual);
    }
  }

  static void after(const System<T>& system, const double* sums) {
    const double length = sqrt(sums[1]);
    system.at(minres::kLastDirection) = system.at(minres::kDirection);
    system.at(minres::kDirection) = length;
    system.at(minres::kPath) += fabs(system.at(minres::kTau)) * length;
    system.at(minres::kLastBeta) = system.at(minres::kBeta);
    system.at(minres::kBeta) = system.at(minres::kNextBeta);
    system.record(system.has(kPreconditioned) ? sqrt(sums[0]) : fabs(system.at(minres::kEta)));
    if (system.status() == kRunning && system.at(minres::kBeta) == 0) system.status() = kBroken;
  }
};

}  // namespace BATCHKRON_PLACE
}  // namespace batchkron
