// The passes of conjugate gradients. Vectors: x, r, p, q = A p, z = M r; without M z is r.
#pragma once

#include "krylov/common.hpp"

namespace batchkron {
namespace BATCHKRON_PLACE {

namespace cg {
enum Own { kProduct = kOwn, kStep, kWeight, kLargest };

// The product z* r of the next direction, and the weight of the previous one.
template <class T>
void turn(const System<T>& system, double product) {
  const double previous = system.at(kProduct);
  if (!is_finite(product))
    system.status() = kNotFinite;
  else if (product <= 0)
    system.status() = product < 0 ? kIndefinite : kBroken;
  system.at(kProduct) = product;
  system.at(kWeight) = previous > 0 ? product / previous : 0;
}
}  // namespace cg

template <class T>
struct CgProduct {
  static constexpr int sums = 1;
  static constexpr bool maxima = false;
  static constexpr Gate gate = Gate::running;
  using Coefficients = NoCoefficients;

  template <class Cursor>
  static void each(const Coefficients&, Cursor& at) {
    at.add_real_product(0, at.get(1), at.get(4));
  }

  static void after(const System<T>& system, const double* sums) { cg::turn(system, sums[0]); }
};

// p = z + weight p
template <class T>
struct CgDirection {
  static constexpr int sums = 0;
  static constexpr bool maxima = false;
  static constexpr Gate gate = Gate::running;

  struct Coefficients {
    Real<T> weight;
    explicit Coefficients(const System<T>& system) : weight(Real<T>(system.at(cg::kWeight))) {}
  };

  template <class Cursor>
  static void each(const Coefficients& c, Cursor& at) {
    at.put(2, c.weight == 0 ? at.get(4) : at.get(4) + times(c.weight, at.get(2)));
  }

  static void after(const System<T>&, const double*) {}
};

// step = z* r / p* A p. Where p* A p is rounding beside the largest that was seen, each relative to
// p* p, A is singular: steps would grow until x is infinite.
template <class T>
struct CgCurvature {
  static constexpr int sums = 2;
  static constexpr bool maxima = false;
  static constexpr Gate gate = Gate::running;
  using Coefficients = NoCoefficients;

  template <class Cursor>
  static void each(const Coefficients&, Cursor& at) {
    const auto p = at.get(2);
    at.add_real_product(0, p, at.get(3));
    at.add_square(1, p);
  }

  static void after(const System<T>& system, const double* sums) {
    const double curvature = sums[0], step = system.at(cg::kProduct) / curvature;
    if (!is_finite(curvature))
      system.status() = kNotFinite;
    else if (curvature < 0)
      system.status() = kIndefinite;
    const double relative = curvature / sums[1];
    if (relative > system.at(cg::kLargest)) system.at(cg::kLargest) = relative;
    const double minimum = 0.01 * rounding<T>() * system.at(cg::kLargest);
    if (system.status() == kRunning && !(is_finite(step) && relative > minimum))
      system.status() = kBroken;
    system.at(cg::kStep) = step;
  }
};

// x += step p; r -= step q; its norm, which without M is the next product as well.
template <class T>
struct CgUpdate {
  static constexpr int sums = 1;
  static constexpr bool maxima = false;
  static constexpr Gate gate = Gate::running;

  struct Coefficients {
    Real<T> along, step;
    explicit Coefficients(const System<T>& system)
        : along(Real<T>(system.at(cg::kStep) * system.at(kScale))),
          step(Real<T>(system.at(cg::kStep))) {}
  };

  template <class Cursor>
  static void each(const Coefficients& c, Cursor& at) {
    const auto x = at.get(0) + times(c.along, at.get(2));
    const auto r = at.get(1) - times(c.step, at.get(3));
    at.put(0, x);
    at.put(1, r);
    at.add_square(0, r);
  }

  static void after(const System<T>& system, const double* sums) {
    system.record(sqrt(sums[0]));
    if (system.status() == kRunning && !system.has(kPreconditioned)) cg::turn(system, sums[0]);
  }
};

}  // namespace BATCHKRON_PLACE
}  // namespace batchkron
