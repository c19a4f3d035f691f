// Passes that all Krylov methods share: the first residual, its unit, and the true one that decides.
#pragma once

#include "krylov/common.hpp"

namespace batchkron {
namespace BATCHKRON_PLACE {

struct SharedVectors {
  enum { b, r, x, w };
};

struct SharedPass : PassDefaults, SharedVectors {};

// r = b - r, where r holds A x on entry; the largest elements of b and r, near which the unit is.
template <class T>
struct StartExtent : SharedPass {
  static constexpr int sums = 2;
  static constexpr bool maxima = true;
  static constexpr Gate gate = Gate::any;

  template <class Cursor>
  static void each(const Coefficients&, Cursor& at) {
    const auto given = at[b], residual = given - at[r];
    at.put(r, residual);
    at.maximum(0, given);
    at.maximum(1, residual);
  }

  static void after(const System<T>& system, const double* sums) {
    for (int k = 0; k < kStateFields; ++k) system.at(k) = 0;
    system.at(kNormB) = sums[0];
    system.at(kUnit) = power_of_two<T>(sums[0] > sums[1] ? sums[0] : sums[1]);
    system.at(kOperator) = 1;
    system.at(kIterationLimit) = system.arguments.max_iterations;
    system.at(kCycleLimit) = system.arguments.max_cycles;
    system.status() = kRunning;
    system.iterations() = 0;
  }
};

// The norms of b and r, in their unit. Where b is zero, so is x: r = x = b.
template <class T>
struct StartNorms : SharedPass {
  static constexpr int sums = 2;
  static constexpr Gate gate = Gate::any;

  struct Coefficients {
    Real<T> scale;
    bool zero;
    explicit Coefficients(const System<T>& system)
        : scale(Real<T>(1 / system.at(kUnit))), zero(system.at(kNormB) == 0) {}
  };

  template <class Cursor>
  static void each(const Coefficients& c, Cursor& at) {
    const auto given = at[b];
    at.add_square(0, times(c.scale, given));
    if (c.zero) {
      at.put(r, given);
      at.put(x, given);
    }
    at.add_square(1, times(c.scale, at[r]));
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

// The largest element of w, the first product with A, says in what unit products are taken: their
// squares stay in range.
template <class T>
struct OperatorExtent : SharedPass {
  static constexpr int sums = 1;
  static constexpr bool maxima = true;

  template <class Cursor>
  static void each(const Coefficients&, Cursor& at) {
    at.maximum(0, at[w]);
  }

  static void after(const System<T>& system, const double* sums) {
    system.at(kOperator) = 1 / power_of_two<T>(sums[0]);
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

// r = b - r, where r holds A x on entry, and what its norm says.
template <class T>
struct TrueResidual : SharedPass {
  static constexpr int sums = 1;
  static constexpr Gate gate = Gate::waiting;

  struct Coefficients {
    Real<T> scale;
    explicit Coefficients(const System<T>& system) : scale(Real<T>(1 / system.at(kUnit))) {}
  };

  template <class Cursor>
  static void each(const Coefficients& c, Cursor& at) {
    const auto residual = at[b] - at[r];
    at.put(r, residual);
    at.add_square(0, times(c.scale, residual));
  }

  static void after(const System<T>& system, const double* sums) {
    verdict(system, system.at(kUnit) * sqrt(sums[0]));
  }
};

// The inner product b* r: its real and its imaginary part in the places of two norms.
template <class T>
struct InnerProduct : SharedPass {
  static constexpr int sums = Field<T>::reals;
  static constexpr Gate gate = Gate::any;

  template <class Cursor>
  static void each(const Coefficients&, Cursor& at) {
    at.add_product(0, at[b], at[r]);
  }

  static void after(const System<T>& system, const double* sums) {
    system.at(kResidual) = sums[0];
    system.at(kEstimate) = Field<T>::reals == 2 ? sums[Field<T>::reals - 1] : 0;
  }
};

// r in units of its norm: r / |r|.
template <class T>
struct ScaleResidual : SharedPass {
  struct Coefficients {
    Real<T> unit, scale;
    explicit Coefficients(const System<T>& system)
        : Coefficients(system.at(kScale), power_of_two<T>(system.at(kScale))) {}
    Coefficients(double norm, double near) : unit(Real<T>(1 / near)), scale(Real<T>(near / norm)) {}
  };

  template <class Cursor>
  static void each(const Coefficients& c, Cursor& at) {
    at.put(r, times(c.scale, times(c.unit, at[r])));
  }

  // Where a recursion begins, what the method keeps from iteration to iteration is void.
  static void after(const System<T>& system, const double*) {
    if (system.at(kReplaced) != 0) return;
    for (int k = kOwn; k < kStateFields; ++k) system.at(k) = 0;
  }
};

}  // namespace BATCHKRON_PLACE
}  // namespace batchkron
