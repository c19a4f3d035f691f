// The passes of BiCGSTAB. Vectors: x, r, shadow residual, p, v = A y, t = A y, y = M p or M r.
#pragma once

#include "krylov.cuh"

namespace batchkron {
namespace BATCHKRON_PLACE {

namespace bicgstab {
enum Vectors { X, R, Shadow, P, V, S, Y };
enum Own { kProduct = kOwn, kStep = kOwn + 2, kSmoothing = kOwn + 4, kWeight = kOwn + 6 };
}  // namespace bicgstab

// The shadow residual is the first one.
template <class T>
struct BicgstabBegin {
  static constexpr int sums = 1;
  static constexpr bool maxima = false;
  static constexpr Gate gate = Gate::running;
  using Coefficients = NoCoefficients;

  template <class Cursor>
  static void each(const Coefficients&, Cursor& at) {
    const auto r = at.get(bicgstab::R);
    at.put(bicgstab::Shadow, r);
    at.put(bicgstab::P, r);
    at.add_square(0, r);
  }

  static void after(const System<T>& system, const double* sums) {
    system.set(bicgstab::kProduct, from_real(sums[0], Number<T>{}));
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
    at.put(bicgstab::X, at.get(bicgstab::X) + times(c.along, at.get(bicgstab::Y)));
    const auto r = at.get(bicgstab::R) - times(c.step, at.get(bicgstab::V));
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
    at.put(bicgstab::X, at.get(bicgstab::X) + times(c.along, at.get(bicgstab::Y)));
    const auto r = at.get(bicgstab::R) - times(c.step, at.get(bicgstab::S));
    at.put(bicgstab::R, r);
    at.add_product(0, at.get(bicgstab::Shadow), r);
    at.add_square(2, r);
  }

  static void after(const System<T>& system, const double* sums) {
    system.record(sqrt(sums[2]));
    const Number<T> product = number_at<Number<T>>(sums);
    const Number<T> ratio = quotient(product, system.number(bicgstab::kProduct));
    const Number<T> weight = times(
        ratio, quotient(system.number(bicgstab::kStep), system.number(bicgstab::kSmoothing)));
    if (system.status() == kRunning && !(is_finite(weight) && size_of(weight) > 0))
      system.status() = kBroken;
    system.set(bicgstab::kProduct, product);
    system.set(bicgstab::kWeight, weight);
  }
};

// p = r + weight (p - smoothing v)
template <class T>
struct BicgstabTurn {
  static constexpr int sums = 0;
  static constexpr bool maxima = false;
  static constexpr Gate gate = Gate::running;

  struct Coefficients {
    Coefficient<T> weight, smoothing;
    explicit Coefficients(const System<T>& system)
        : weight(coefficient<T>(system.number(bicgstab::kWeight))),
          smoothing(coefficient<T>(
              times(system.at(kOperator), system.number(bicgstab::kSmoothing)))) {}
  };

  template <class Cursor>
  static void each(const Coefficients& c, Cursor& at) {
    const auto turned = at.get(bicgstab::P) - times(c.smoothing, at.get(bicgstab::V));
    at.put(bicgstab::P, at.get(bicgstab::R) + times(c.weight, turned));
  }

  static void after(const System<T>&, const double*) {}
};

}  // namespace BATCHKRON_PLACE
}  // namespace batchkron
