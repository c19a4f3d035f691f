// The passes of BiCGSTAB.
//
// Each update of the residual adds rounding in proportion to what it adds to the residual: their sum
// bounds how far the recursion has drifted from b - A x. Where that is more than the root of rounding
// of the residual, and may count beside the tolerance, the true residual takes the place of the
// recursion's, whose directions go on.
//
// Vectors: x, r, shadow residual, p, v = A y, t = A y, y = M p or M r.
#pragma once

#include "krylov/common.hpp"

namespace batchkron {
namespace BATCHKRON_PLACE {

namespace bicgstab {
enum Vectors { X, R, Shadow, P, V, S, Y };
enum Own {
  kProduct = kOwn,
  kStep = kOwn + 2,
  kSmoothing = kOwn + 4,
  kWeight = kOwn + 6,
  kDrift = kOwn + 8,  // in units of the recursion
};
constexpr double kRoundings = 10;  // of a product with A and its update, relative to what it adds
constexpr double kShare = 0.1;     // of the tolerance

// The weight of the previous direction in the next one, from the product of the new residual.
template <class T>
void turn(const System<T>& system, Number<T> product) {
  const Number<T> ratio = quotient(product, system.number(kProduct));
  const Number<T> weight =
      times(ratio, quotient(system.number(kStep), system.number(kSmoothing)));
  if (system.status() == kRunning && !(is_finite(weight) && size_of(weight) > 0))
    system.status() = kBroken;
  system.set(kWeight, weight);
}

template <class T>
void drift(const System<T>& system, Number<T> step, double square) {
  system.at(kDrift) += kRoundings * rounding<T>() * size_of(step) * sqrt(square);
}
}  // namespace bicgstab

// The shadow residual is the first one, and stays where the true residual replaces another.
template <class T>
struct BicgstabBegin {
  static constexpr int sums = 2;
  static constexpr bool maxima = false;
  static constexpr Gate gate = Gate::running;

  struct Coefficients {
    bool replaced;
    explicit Coefficients(const System<T>& system) : replaced(system.at(kReplaced) != 0) {}
  };

  template <class Cursor>
  static void each(const Coefficients& c, Cursor& at) {
    const auto r = at.get(bicgstab::R);
    if (!c.replaced) at.put(bicgstab::Shadow, r);
    at.add_product(0, at.get(bicgstab::Shadow), r);
  }

  static void after(const System<T>& system, const double* sums) {
    const Number<T> product = number_at<Number<T>>(sums);
    if (system.at(kReplaced) != 0) bicgstab::turn(system, product);
    system.set(bicgstab::kProduct, product);
    system.at(bicgstab::kDrift) = 0;
  }
};

// step = product / shadow* v
template <class T>
struct BicgstabProject {
  static constexpr int sums = 3;
  static constexpr bool maxima = false;
  static constexpr Gate gate = Gate::running;

  struct Coefficients {
    Real<T> unit;
    explicit Coefficients(const System<T>& system) : unit(Real<T>(system.at(kOperator))) {}
  };

  template <class Cursor>
  static void each(const Coefficients& c, Cursor& at) {
    const auto v = times(c.unit, at.get(bicgstab::V));
    at.add_product(0, at.get(bicgstab::Shadow), v);
    at.add_square(2, v);
  }

  // Where v is orthogonal to the shadow residual, what a sum leaves of 0 is rounding.
  static void after(const System<T>& system, const double* sums) {
    const Number<T> projection = number_at<Number<T>>(sums);
    const Number<T> step = quotient(system.number(bicgstab::kProduct), projection);
    if (!is_finite(projection) || !is_finite(sums[2]))
      system.status() = kNotFinite;
    else if (size_of(projection) <= rounding<T>() * sqrt(sums[2]) ||
             !is_finite(step) || size_of(step) == 0)
      system.status() = kBroken;
    system.set(bicgstab::kStep, step);
    bicgstab::drift(system, step, sums[2]);
  }
};

// x += step y; r -= step v. Ends the iteration only where that is enough.
template <class T>
struct BicgstabHalf {
  static constexpr int sums = 1;
  static constexpr bool maxima = false;
  static constexpr Gate gate = Gate::running;

  struct Coefficients {
    Coefficient<T> along, step;
    explicit Coefficients(const System<T>& system) {
      const Number<T> unscaled = system.number(bicgstab::kStep);
      const Number<T> scaled = times(system.at(kOperator), unscaled);
      along = coefficient<T>(times(system.at(kScale), scaled));
      step = coefficient<T>(scaled);
    }
  };

  template <class Cursor>
  static void each(const Coefficients& c, Cursor& at) {
    const auto x = at.get(bicgstab::X) + times(c.along, at.get(bicgstab::Y));
    const auto r = at.get(bicgstab::R) - times(c.step, at.get(bicgstab::V));
    at.put(bicgstab::X, x);
    at.put(bicgstab::R, r);
    at.add_square(0, r);
  }

  static void after(const System<T>& system, const double* sums) {
    const double estimate = sqrt(sums[0]);
    if (!(estimate * system.at(kScale) > system.at(kTolerance))) system.record(estimate);
  }
};

// smoothing = t* r / t* t
template <class T>
struct BicgstabSmoothing {
  static constexpr int sums = 3;
  static constexpr bool maxima = false;
  static constexpr Gate gate = Gate::running;

  struct Coefficients {
    Real<T> unit;
    explicit Coefficients(const System<T>& system) : unit(Real<T>(system.at(kOperator))) {}
  };

  template <class Cursor>
  static void each(const Coefficients& c, Cursor& at) {
    const auto t = times(c.unit, at.get(bicgstab::S));
    at.add_product(0, t, at.get(bicgstab::R));
    at.add_square(2, t);
  }

  static void after(const System<T>& system, const double* sums) {
    const Number<T> product = number_at<Number<T>>(sums);
    const Number<T> smoothing = times(1 / sums[2], product);
    if (!is_finite(product) || !is_finite(sums[2]))
      system.status() = kNotFinite;
    else if (!is_finite(smoothing))
      system.status() = kBroken;
    system.set(bicgstab::kSmoothing, smoothing);
    bicgstab::drift(system, smoothing, sums[2]);
  }
};

// x += smoothing y; r -= smoothing t; the weight of the previous direction in the next one.
template <class T>
struct BicgstabSmooth {
  static constexpr int sums = 3;
  static constexpr bool maxima = false;
  static constexpr Gate gate = Gate::running;

  struct Coefficients {
    Coefficient<T> along, step;
    explicit Coefficients(const System<T>& system) {
      const Number<T> scaled =
          times(system.at(kOperator), system.number(bicgstab::kSmoothing));
      along = coefficient<T>(times(system.at(kScale), scaled));
      step = coefficient<T>(scaled);
    }
  };

  template <class Cursor>
  static void each(const Coefficients& c, Cursor& at) {
    const auto x = at.get(bicgstab::X) + times(c.along, at.get(bicgstab::Y));
    const auto r = at.get(bicgstab::R) - times(c.step, at.get(bicgstab::S));
    const auto shadow = at.get(bicgstab::Shadow);
    at.put(bicgstab::X, x);
    at.put(bicgstab::R, r);
    at.add_product(0, shadow, r);
    at.add_square(2, r);
  }

  static void after(const System<T>& system, const double* sums) {
    const double norm = sqrt(sums[2]), drift = system.at(bicgstab::kDrift);
    system.record(norm);
    if (system.status() == kRunning && drift > sqrt(rounding<T>()) * norm &&
        drift * system.at(kScale) > bicgstab::kShare * system.at(kTolerance)) {
      system.status() = kDrifted;  // the weight is found with the true residual
      return;
    }
    const Number<T> product = number_at<Number<T>>(sums);
    bicgstab::turn(system, product);
    system.set(bicgstab::kProduct, product);
  }
};

// p = r + weight (p - smoothing v); r where the weight is 0, for then v may be anything
template <class T>
struct BicgstabTurn {
  static constexpr int sums = 0;
  static constexpr bool maxima = false;
  static constexpr Gate gate = Gate::running;

  struct Coefficients {
    Coefficient<T> weight, smoothing;
    bool first;
    explicit Coefficients(const System<T>& system)
        : weight(coefficient<T>(system.number(bicgstab::kWeight))),
          smoothing(coefficient<T>(
              times(system.at(kOperator), system.number(bicgstab::kSmoothing)))),
          first(size_of(system.number(bicgstab::kWeight)) == 0) {}
  };

  template <class Cursor>
  static void each(const Coefficients& c, Cursor& at) {
    const auto turned = at.get(bicgstab::P) - times(c.smoothing, at.get(bicgstab::V));
    const auto r = at.get(bicgstab::R);
    at.put(bicgstab::P, c.first ? r : r + times(c.weight, turned));
  }

  static void after(const System<T>&, const double*) {}
};

}  // namespace BATCHKRON_PLACE
}  // namespace batchkron
