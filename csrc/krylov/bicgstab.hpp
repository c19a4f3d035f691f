// The passes of BiCGSTAB, with M from the right.
//
//   y = M p, v = A y                               products; without M, y is p
//   alpha = rho / shadow* v                        BicgstabProject
//   x += alpha y, r -= alpha v                     BicgstabFirstUpdate
//   y = M r, t = A y                               products; without M, y is r
//   omega = t* r / t* t                            BicgstabSmoothing
//   x += omega y, r -= omega t                     BicgstabSecondUpdate
//   rho' = shadow* r, beta = (rho' / rho) (alpha / omega)    BicgstabSecondUpdate
//   p = r + beta (p - omega v)                     BicgstabDirection
//
// Each update of the residual adds rounding in proportion to what it adds to the residual: their sum
// bounds how far the recursion has drifted from b - A x. Where that is more than the root of rounding
// of the residual, and may count beside the tolerance, the true residual takes the place of the
// recursion's, whose directions go on.
#pragma once

#include "krylov/common.hpp"

namespace batchkron {
namespace BATCHKRON_PLACE {

struct BicgstabVectors {
  enum { x, r, shadow, p, v, t, y };
};

struct BicgstabPass : PassDefaults, BicgstabVectors {};

namespace bicgstab {
enum Own {  // the first four may be complex: two doubles
  kRho = kOwn,
  kAlpha = kOwn + 2,
  kOmega = kOwn + 4,
  kBeta = kOwn + 6,
  kDrift = kOwn + 8,  // in units of the recursion
};
constexpr double kRoundings = 10;  // of a product with A and its update, relative to what it adds
constexpr double kShare = 0.1;     // of the tolerance

// beta, the weight of the previous direction in the next one, from rho of the new residual.
template <class T>
void turn(const System<T>& system, Number<T> rho) {
  const Number<T> ratio = quotient(rho, system.number(kRho));
  const Number<T> beta = times(ratio, quotient(system.number(kAlpha), system.number(kOmega)));
  if (system.status() == kRunning && !(is_finite(beta) && size_of(beta) > 0))
    system.status() = kBroken;
  system.set(kBeta, beta);
}

template <class T>
void drift(const System<T>& system, Number<T> step, double square) {
  system.at(kDrift) += kRoundings * rounding<T>() * size_of(step) * sqrt(square);
}
}  // namespace bicgstab

// rho = shadow* r. The shadow residual is the first one, and stays where the true residual replaces
// another.
template <class T>
struct BicgstabBegin : BicgstabPass {
  static constexpr int sums = 2;

  struct Coefficients {
    bool replaced;
    explicit Coefficients(const System<T>& system) : replaced(system.at(kReplaced) != 0) {}
  };

  template <class Cursor>
  static void each(const Coefficients& c, Cursor& at) {
    const auto residual = at[r];
    if (!c.replaced) at.put(shadow, residual);
    at.add_product(0, at[shadow], residual);
  }

  static void after(const System<T>& system, const double* sums) {
    const Number<T> rho = number_at<Number<T>>(sums);
    if (system.at(kReplaced) != 0) bicgstab::turn(system, rho);
    system.set(bicgstab::kRho, rho);
    system.at(bicgstab::kDrift) = 0;
  }
};

// alpha = rho / shadow* v
template <class T>
struct BicgstabProject : BicgstabPass {
  static constexpr int sums = 3;

  struct Coefficients {
    Real<T> unit;
    explicit Coefficients(const System<T>& system) : unit(Real<T>(system.at(kOperator))) {}
  };

  template <class Cursor>
  static void each(const Coefficients& c, Cursor& at) {
    const auto image = times(c.unit, at[v]);
    at.add_product(0, at[shadow], image);
    at.add_square(2, image);
  }

  // Where v is orthogonal to the shadow residual, what a sum leaves of 0 is rounding.
  static void after(const System<T>& system, const double* sums) {
    const Number<T> projection = number_at<Number<T>>(sums);
    const Number<T> alpha = quotient(system.number(bicgstab::kRho), projection);
    if (!is_finite(projection) || !is_finite(sums[2]))
      system.status() = kNotFinite;
    else if (size_of(projection) <= rounding<T>() * sqrt(sums[2]) ||
             !is_finite(alpha) || size_of(alpha) == 0)
      system.status() = kBroken;
    system.set(bicgstab::kAlpha, alpha);
    bicgstab::drift(system, alpha, sums[2]);
  }
};

// x += alpha y, r -= alpha v; r* r. Ends the iteration only where that is enough.
template <class T>
struct BicgstabFirstUpdate : BicgstabPass {
  static constexpr int sums = 1;

  struct Coefficients {
    Coefficient<T> scaled_alpha, alpha;
    explicit Coefficients(const System<T>& system) {
      const Number<T> unscaled = system.number(bicgstab::kAlpha);
      const Number<T> scaled = times(system.at(kOperator), unscaled);
      scaled_alpha = coefficient<T>(times(system.at(kScale), scaled));
      alpha = coefficient<T>(scaled);
    }
  };

  template <class Cursor>
  static void each(const Coefficients& c, Cursor& at) {
    const auto solution = at[x] + times(c.scaled_alpha, at[y]);
    const auto residual = at[r] - times(c.alpha, at[v]);
    at.put(x, solution);
    at.put(r, residual);
    at.add_square(0, residual);
  }

  static void after(const System<T>& system, const double* sums) {
    const double estimate = sqrt(sums[0]);
    if (!(estimate * system.at(kScale) > system.at(kTolerance))) system.record(estimate);
  }
};

// omega = t* r / t* t
template <class T>
struct BicgstabSmoothing : BicgstabPass {
  static constexpr int sums = 3;

  struct Coefficients {
    Real<T> unit;
    explicit Coefficients(const System<T>& system) : unit(Real<T>(system.at(kOperator))) {}
  };

  template <class Cursor>
  static void each(const Coefficients& c, Cursor& at) {
    const auto image = times(c.unit, at[t]);
    at.add_product(0, image, at[r]);
    at.add_square(2, image);
  }

  static void after(const System<T>& system, const double* sums) {
    const Number<T> product = number_at<Number<T>>(sums);
    const Number<T> omega = times(1 / sums[2], product);
    if (!is_finite(product) || !is_finite(sums[2]))
      system.status() = kNotFinite;
    else if (!is_finite(omega))
      system.status() = kBroken;
    system.set(bicgstab::kOmega, omega);
    bicgstab::drift(system, omega, sums[2]);
  }
};

// x += omega y, r -= omega t; rho = shadow* r, r* r, and with rho the next beta
template <class T>
struct BicgstabSecondUpdate : BicgstabPass {
  static constexpr int sums = 3;

  struct Coefficients {
    Coefficient<T> scaled_omega, omega;
    explicit Coefficients(const System<T>& system) {
      const Number<T> scaled = times(system.at(kOperator), system.number(bicgstab::kOmega));
      scaled_omega = coefficient<T>(times(system.at(kScale), scaled));
      omega = coefficient<T>(scaled);
    }
  };

  template <class Cursor>
  static void each(const Coefficients& c, Cursor& at) {
    const auto solution = at[x] + times(c.scaled_omega, at[y]);
    const auto residual = at[r] - times(c.omega, at[t]);
    const auto first = at[shadow];
    at.put(x, solution);
    at.put(r, residual);
    at.add_product(0, first, residual);
    at.add_square(2, residual);
  }

  static void after(const System<T>& system, const double* sums) {
    const double norm = sqrt(sums[2]), drift = system.at(bicgstab::kDrift);
    system.record(norm);
    if (system.status() == kRunning && drift > sqrt(rounding<T>()) * norm &&
        drift * system.at(kScale) > bicgstab::kShare * system.at(kTolerance)) {
      system.status() = kDrifted;  // beta is found with the true residual
      return;
    }
    const Number<T> rho = number_at<Number<T>>(sums);
    bicgstab::turn(system, rho);
    system.set(bicgstab::kRho, rho);
  }
};

// p = r + beta (p - omega v); r where beta is 0, for then v may be anything
template <class T>
struct BicgstabDirection : BicgstabPass {
  struct Coefficients {
    Coefficient<T> beta, omega;
    bool first;
    explicit Coefficients(const System<T>& system)
        : beta(coefficient<T>(system.number(bicgstab::kBeta))),
          omega(coefficient<T>(times(system.at(kOperator), system.number(bicgstab::kOmega)))),
          first(size_of(system.number(bicgstab::kBeta)) == 0) {}
  };

  template <class Cursor>
  static void each(const Coefficients& c, Cursor& at) {
    const auto turned = at[p] - times(c.omega, at[v]);
    const auto residual = at[r];
    at.put(p, c.first ? residual : residual + times(c.beta, turned));
  }
};

}  // namespace BATCHKRON_PLACE
}  // namespace batchkron
