// The passes of conjugate gradients.
//
//   q = A p                                    a product
//   alpha = rho / p* q                         CgCurvature
//   x += alpha p, r -= alpha q                 CgUpdate
//   z = M r                                    a product; without M, z is r
//   rho' = r* z, beta = rho' / rho             CgProduct; without M CgUpdate, which has r* r
//   p = z + beta p                             CgDirection
#pragma once

#include "krylov/common.hpp"

namespace batchkron {
namespace BATCHKRON_PLACE {

struct CgVectors {
  enum { x, r, p, q, z };
};

struct CgPass : PassDefaults, CgVectors {};

namespace cg {
enum Own { kRho = kOwn, kAlpha, kBeta, kLargest };

// rho of the next direction, and the weight beta of the previous one.
template <class T>
void turn(const System<T>& system, double rho) {
  const double previous = system.at(kRho);
  if (!is_finite(rho))
    system.status() = kNotFinite;
  else if (rho <= 0)
    system.status() = rho < 0 ? kIndefinite : kBroken;
  system.at(kRho) = rho;
  system.at(kBeta) = previous > 0 ? rho / previous : 0;
}
}  // namespace cg

// rho = r* z
template <class T>
struct CgProduct : CgPass {
  static constexpr int sums = 1;

  template <class Cursor>
  static void each(const Coefficients&, Cursor& at) {
    at.add_real_product(0, at[r], at[z]);
  }

  static void after(const System<T>& system, const double* sums) { cg::turn(system, sums[0]); }
};

// p = z + beta p
template <class T>
struct CgDirection : CgPass {
  struct Coefficients {
    Real<T> beta;
    explicit Coefficients(const System<T>& system) : beta(Real<T>(system.at(cg::kBeta))) {}
  };

  template <class Cursor>
  static void each(const Coefficients& c, Cursor& at) {
    at.put(p, c.beta == 0 ? at[z] : at[z] + times(c.beta, at[p]));
  }
};

// alpha = rho / p* q. Where p* q is rounding beside the largest that was seen, each relative to
// p* p, A is singular: steps would grow until x is infinite.
template <class T>
struct CgCurvature : CgPass {
  static constexpr int sums = 2;

  template <class Cursor>
  static void each(const Coefficients&, Cursor& at) {
    const auto direction = at[p];
    at.add_real_product(0, direction, at[q]);
    at.add_square(1, direction);
  }

  static void after(const System<T>& system, const double* sums) {
    const double curvature = sums[0], alpha = system.at(cg::kRho) / curvature;
    if (!is_finite(curvature))
      system.status() = kNotFinite;
    else if (curvature < 0)
      system.status() = kIndefinite;
    const double relative = curvature / sums[1];
    if (relative > system.at(cg::kLargest)) system.at(cg::kLargest) = relative;
    const double minimum = 0.01 * rounding<T>() * system.at(cg::kLargest);
    if (system.status() == kRunning && !(is_finite(alpha) && relative > minimum))
      system.status() = kBroken;
    system.at(cg::kAlpha) = alpha;
  }
};

// x += alpha p, r -= alpha q, with x in its own unit; r* r, which without M is the next rho as well
template <class T>
struct CgUpdate : CgPass {
  static constexpr int sums = 1;

  struct Coefficients {
    Real<T> scaled_alpha, alpha;
    explicit Coefficients(const System<T>& system)
        : scaled_alpha(Real<T>(system.at(cg::kAlpha) * system.at(kScale))),
          alpha(Real<T>(system.at(cg::kAlpha))) {}
  };

  template <class Cursor>
  static void each(const Coefficients& c, Cursor& at) {
    const auto solution = at[x] + times(c.scaled_alpha, at[p]);
    const auto residual = at[r] - times(c.alpha, at[q]);
    at.put(x, solution);
    at.put(r, residual);
    at.add_square(0, residual);
  }

  static void after(const System<T>& system, const double* sums) {
    system.record(sqrt(sums[0]));
    if (system.status() == kRunning && !system.has(kPreconditioned)) cg::turn(system, sums[0]);
  }
};

}  // namespace BATCHKRON_PLACE
}  // namespace batchkron
