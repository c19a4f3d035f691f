// Passes that every Krylov method takes: the first residual, and the true one that decides.
#pragma once

#include "krylov/common.hpp"

namespace batchkron {
namespace BATCHKRON_PLACE {

// r = b - r, where r holds A x on entry; finds the unit. Vectors: b, r.
template <class T>
struct StartExtent {
  static constexpr int sums = 2;
  static constexpr bool maxima = true;
  static constexpr Gate gate = Gate::any;
  using Coefficients = NoCoefficients;

  template <class Cursor>
  static void each(const Coefficients&, Cursor& at) {
    const auto b = at.get(0), r = b - at.get(1);
    at.put(1, r);
    at.maximum(0, b);
    at.maximum(1, r);
  }

  static void after(const System<T>& system, const double* sums) {
    for (int k = 0; k < kStateFields; ++k) system.at(k) = 0;
    system.at(kNormB) = sums[0];
    system.at(kUnit) = power_of_two(sums[0] > sums[1] ? sums[0] : sums[1]);
    system.at(kOperator) = 1;
    system.at(kIterationLimit) = system.arguments.max_iterations;
    system.at(kCycleLimit) = system.arguments.max_cycles;
    system.status() = kRunning;
    system.iterations() = 0;
  }
};

// The norms of b and of the first residual. Where b is zero, so is x. Vectors: b, r, x.
template <class T>
struct StartNorms {
  static constexpr int sums = 2;
  static constexpr bool maxima = false;
  static constexpr Gate gate = Gate::any;

  struct Coefficients {
    Real<T> scale;
    bool zero;
    explicit Coefficients(const System<T>& system)
        : scale(Real<T>(1 / system.at(kUnit))), zero(system.at(kNormB) == 0) {}
  };

  template <class Cursor>
  static void each(const Coefficients& c, Cursor& at) {
    const auto b = at.get(0);
    at.add_square(0, times(c.scale, b));
    if (c.zero) {
      at.put(1, b);
      at.put(2, b);
    }
    at.add_square(1, times(c.scale, at.get(1)));
  }

  static void after(const System<T>& system, const double* sums) {
    const double unit = system.at(kUnit);
    const double relative = system.arguments.rtol * (system.at(kNormB) = unit * sqrt(sums[0]));
    const double absolute = system.arguments.atol;
    system.at(kTolerance) = relative > absolute ? relative : absolute;
    const double norm = unit * sqrt(sums[1]);
    system.at(kResidual) = system.at(kEstimate) = system.at(kScale) = norm;
    if (!is_finite(norm) || !is_finite(system.at(kNormB)))
      system.status() = kNotFiniteAtEnd;
    else if (norm <= system.at(kTolerance))
      system.status() = kConverged;
  }
};

// The largest element of the first product with A says in what unit its products are taken: their
// squares stay in range. Vectors: w.
template <class T>
struct OperatorExtent {
  static constexpr int sums = 1;
  static constexpr bool maxima = true;
  static constexpr Gate gate = Gate::running;
  using Coefficients = NoCoefficients;

  template <class Cursor>
  static void each(const Coefficients&, Cursor& at) {
    at.maximum(0, at.get(0));
  }

  static void after(const System<T>& system, const double* sums) {
    system.at(kOperator) = 1 / power_of_two(sums[0]);
  }
};

// What the true residual's norm says of a recursion that stopped.
template <class T>
inline void verdict(const System<T>& system, double norm) {
  const double before = system.at(kResidual);
  const int ended = system.status();
  system.at(kResidual) = norm;
  const bool progress = norm <= 0.5 * before;
  const bool retries = ended == kBroken && ((system.has(kRetries) && progress) ||
                                            (system.has(kPersists) && norm <= 0.9 * before));
  // growth that the recursion tells of is no stagnation
  const bool drifted = ended == kDrifted && (progress || system.at(kEstimate) > 0.1 * before);
  system.at(kReplaced) = 0;
  if (norm <= system.at(kTolerance)) {
    system.status() = kConverged;
  } else if (!is_finite(norm) || ended == kNotFinite) {
    system.status() = kNotFiniteAtEnd;
  } else if (ended == kIndefinite) {
    system.status() = kIndefiniteAtEnd;
  } else if (ended == kBroken && !retries) {
    system.status() = kBreakdown;
  } else if (system.iterations() >= system.at(kIterationLimit)) {
    system.status() = kMaxIterations;
  } else if (drifted) {
    system.status() = kRunning;
    system.at(kReplaced) = 1;
  } else if (!progress && !retries) {
    system.status() = kStagnated;
  } else {
    system.status() = kRunning;
    system.at(kScale) = norm;
    system.at(kRestarts) += 1;
  }
}

// r = b - r, where r holds A x on entry, and what its norm says. Vectors: b, r.
template <class T>
struct TrueResidual {
  static constexpr int sums = 1;
  static constexpr bool maxima = false;
  static constexpr Gate gate = Gate::waiting;

  struct Coefficients {
    Real<T> scale;
    explicit Coefficients(const System<T>& system) : scale(Real<T>(1 / system.at(kUnit))) {}
  };

  template <class Cursor>
  static void each(const Coefficients& c, Cursor& at) {
    const auto r = at.get(0) - at.get(1);
    at.put(1, r);
    at.add_square(0, times(c.scale, r));
  }

  static void after(const System<T>& system, const double* sums) {
    verdict(system, system.at(kUnit) * sqrt(sums[0]));
  }
};

// r in units of its norm. Vectors: r.
template <class T>
struct ScaleResidual {
  static constexpr int sums = 0;
  static constexpr bool maxima = false;
  static constexpr Gate gate = Gate::running;

  struct Coefficients {
    Real<T> unit, scale;
    explicit Coefficients(const System<T>& system)
        : unit(Real<T>(1 / system.at(kUnit))),
          scale(Real<T>(system.at(kUnit) / system.at(kScale))) {}
  };

  template <class Cursor>
  static void each(const Coefficients& c, Cursor& at) {
    at.put(0, times(c.scale, times(c.unit, at.get(0))));
  }

  // Where a recursion begins, what the method keeps from iteration to iteration is void.
  static void after(const System<T>& system, const double*) {
    if (system.at(kReplaced) != 0) return;
    for (int k = kOwn; k < kStateFields; ++k) system.at(k) = 0;
  }
};

}  // namespace BATCHKRON_PLACE
}  // namespace batchkron
