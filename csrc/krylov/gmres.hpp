// What GMRES does between its passes over the basis (cuda/krylov/basis.cuh, simd/krylov/basis.hpp),
// and those of its passes that are like the other methods'.
//
// The basis is orthogonalised twice, with one reduction a step: the second time is put off to the
// next step, whose inner products serve both. In step j, q_0 … q_(j-1) are orthonormal, u is the
// vector of slot j, orthogonal to them but for rounding, and w = A M u is in slot j + 1. With
//
//   a = Q* u, c = Q* w, |u|^2, u* w, |w|^2     (project: one pass over the basis)
//
// the new basis vector and the next u are
//
//   q_j = (u - Q a) / alpha,  alpha = |u - Q a| = sqrt(|u|^2 - |a|^2)
//   u' = (w - Q c - q_j d) / alpha,  d = q_j* w             (extend: one pass over the basis)
//
// Thus A M (u_j / alpha_j) = Σ_i h_ij q_i, h_ij = c_i / alpha, h_jj = d / alpha, plus u', in which
// the next step finds a_i more of q_i, and alpha of q_(j+1): then the column is complete. Until
// then |u'| stands for alpha, and gives the estimate of the residual. u_j / alpha_j = Q t_j with
// t_j = (a / alpha, 1): the solution is x + M Q T y where y minimises |beta e_1 - H y|.
#pragma once

#include "krylov/common.hpp"

namespace batchkron {
namespace BATCHKRON_PLACE {

struct GmresVectors {
  enum { x, basis, work, corrected, solutions, b };
};

struct GmresPass : PassDefaults, GmresVectors {};

namespace gmres {
enum Own {
  kInverse = kOwn,  // 1 / alpha of the step
  kImage,           // |w| / alpha of the step
  kColumns,         // of the triangle, when a cycle has ended
  kKept,            // those of them that are regular to working precision
  kShare,           // d, a number
  kOwnEnd = kShare + 2,
};
static_assert(int(kOwnEnd) <= int(kStateFields), "a system's state has room for them");

// Who does the small arithmetic of a system: one thread, or on a device a warp
// (cuda/krylov/basis.cuh), whose members share loops and wait for each other where one reads what
// another wrote.
struct Alone {
  static constexpr Index size = 1;
  Index index() const { return 0; }
  bool first() const { return true; }
  void wait() const {}
};

// The small arrays of a system, m = restart.
template <class T>
struct Triangle {
  using N = Number<T>;
  static constexpr Index reals = Field<T>::reals;
  N* triangle;  // (m, m): column k at k m
  N* changes;   // (m, m): the t_j
  N* column;    // (m + 1,): h, the latest column of H
  N* rotated;   // (m + 1,): a copy of it
  N* first;     // (m + 1,): a
  N* second;    // (m + 1,): c
  N* sines;     // (m + 1,)
  N* projected; // (m + 1,): beta e_1, rotated
  N* solution;  // (m + 1,)
  double* cosines;  // (m + 1,)
  double* inverses; // (m + 1,): 1 / alpha_j
  Index m;

  // Where the arrays of m + 1 begin, and how many doubles they are.
  static double* vectors_of(const System<T>& system) {
    const Index m = system.arguments.restart;
    return system.small() + 2 * reals * m * m;
  }
  static Index vectors_size(Index m) { return (7 * reals + 2) * (m + 1); }

  explicit Triangle(const System<T>& system) : Triangle(system, vectors_of(system)) {}

  // With the arrays of m + 1 at another place.
  Triangle(const System<T>& system, double* vectors) : m(system.arguments.restart) {
    triangle = reinterpret_cast<N*>(system.small());
    changes = triangle + m * m;
    column = reinterpret_cast<N*>(vectors);
    rotated = column + (m + 1);
    first = rotated + (m + 1);
    second = first + (m + 1);
    sines = second + (m + 1);
    projected = sines + (m + 1);
    solution = projected + (m + 1);
    cosines = reinterpret_cast<double*>(solution + (m + 1));
    inverses = cosines + m + 1;
  }
};

// Applies the first `count` rotations to a column. What a rotation hands to the next one stays in
// a register, and all loads can be made ahead: one thread does this.
template <class T>
void rotate(const Triangle<T>& t, Number<T>* __restrict__ column, Index count) {
  const double* __restrict__ cosines = t.cosines;
  const Number<T>* __restrict__ sines = t.sines;
  if (count <= 0) return;
  Number<T> upper = column[0];
  for (Index k = 0; k < count; ++k) {
    const Number<T> lower = column[k + 1];
    column[k] = times(cosines[k], upper) + times(sines[k], lower);
    upper = times(cosines[k], lower) - times(conjugate(sines[k]), upper);
  }
  column[count] = upper;
}

// The rotation that takes (upper, lower >= 0) to (length, 0).
template <class N>
void find_rotation(N upper, double lower, double& cosine, N& sine, N& length) {
  const double size = size_of(upper);
  if (size == 0) {
    cosine = 0;
    sine = from_real(1, N{});
    length = from_real(lower, N{});
    return;
  }
  const double all = hypot(size, lower);
  const N phase = times(1 / size, upper);
  cosine = size / all;
  sine = times(lower / all, phase);
  length = times(all, phase);
}

// Completes column k of the triangle from the rotated one; `below` is its entry below the diagonal.
template <class T, class Team>
void close_column(const Triangle<T>& t, Number<T>* column, Index k, double below, Team team) {
  double cosine;
  Number<T> sine, length;
  find_rotation(column[k], below, cosine, sine, length);
  team.wait();
  if (team.first()) {
    t.cosines[k] = cosine;
    t.sines[k] = sine;
    column[k] = length;
    const Number<T> last = t.projected[k];
    t.projected[k] = times(cosine, last);
    t.projected[k + 1] = times(-1.0, times(conjugate(sine), last));
  }
  team.wait();
  for (Index i = team.index(); i <= k; i += Team::size) t.triangle[k * t.m + i] = column[i];
  team.wait();
}

// Solves the triangular system of the first `columns` columns, without the last ones if these are
// singular to working precision, and turns the result into coefficients of the basis.
template <class T, class Team>
void solve(const System<T>& system, const Triangle<T>& t, Index columns, Team team) {
  const Index m = t.m, own = team.index();
  double largest = 0;
  for (Index k = 0; k < columns; ++k)
    largest = fmax(largest, size_of(t.triangle[k * m + k]));
  const double singular = 10 * rounding<T>() * largest;  // a few operations make an entry
  Index kept = columns;
  while (kept > 0 && !(size_of(t.triangle[(kept - 1) * m + kept - 1]) > singular)) --kept;
  Number<T>* const solution = t.solution;
  for (Index k = own; k < kept; k += Team::size) solution[k] = t.projected[k];
  team.wait();
  for (Index k = kept - 1; k >= 0; --k) {
    const Number<T>* __restrict__ column = t.triangle + k * m;
    const Number<T> y = quotient(solution[k], column[k]);
    team.wait();
    if (team.first()) solution[k] = y;
    for (Index i = own; i < k; i += Team::size) solution[i] = solution[i] - times(y, column[i]);
    team.wait();
  }
  if (system.has(kFlexible)) {
    for (Index k = own; k < kept; k += Team::size)
      solution[k] = times(t.inverses[k], solution[k]);
  } else {
    for (Index k = 0; k < kept; ++k) {
      for (Index i = own; i < k; i += Team::size)
        solution[i] = solution[i] + times(solution[k], t.changes[k * m + i]);
      team.wait();
    }
  }
  team.wait();
  const double unit = system.at(kScale) * system.at(kOperator);
  for (Index k = own; k < kept; k += Team::size) solution[k] = times(unit, solution[k]);
  team.wait();
  bool finite = true;
  for (Index k = 0; k < kept; ++k) finite = finite && is_finite(solution[k]);
  if (team.first()) {
    system.at(kColumns) = double(columns);
    system.at(kKept) = finite ? double(kept) : 0;
  }
  team.wait();
}

// After the inner products, which are a_i, c_i in turn for i < j, then |u|^2, u* w, |w|^2.
template <class T, class Team>
void projected(const System<T>& system, const Triangle<T>& t, const double* sums, Team team) {
  constexpr Index reals = Field<T>::reals;
  const Index j = system.arguments.column, own = team.index();
  const double* last = sums + 2 * j * reals;
  const double square = last[0], image = sqrt(last[1 + reals]);
  Number<T> share = number_at<Number<T>>(last + 1);
  double inside = 0;
  for (Index i = 0; i < j; ++i) {
    const Number<T> a = number_at<Number<T>>(sums + 2 * i * reals);
    inside += square_of(a);
    share = share - times(conjugate(a), number_at<Number<T>>(sums + (2 * i + 1) * reals));
  }
  for (Index i = own; i < j; i += Team::size) {
    t.first[i] = number_at<Number<T>>(sums + 2 * i * reals);
    t.second[i] = number_at<Number<T>>(sums + (2 * i + 1) * reals);
    t.column[i] = t.column[i] + t.first[i];
  }
  const double last_image = system.at(kImage);
  team.wait();
  if (j == 0 && team.first()) system.at(kKept) = system.at(kColumns) = 0;
  if (!is_finite(square) || !is_finite(image) || !is_finite(inside) || !is_finite(share)) {
    if (team.first()) system.status() = kNotFinite;
    return;
  }
  const double left = square - inside;
  double alpha = left > 0 ? sqrt(left) : 0;
  if (j > 0) {
    if (alpha <= rounding<T>() * last_image) alpha = 0;
    if (team.first()) rotate(t, t.column, j - 1);
    team.wait();
    close_column(t, t.column, j - 1, alpha, team);
  } else if (team.first()) {
    t.projected[0] = from_real(alpha, Number<T>{});
  }
  if (alpha == 0) {  // the space is exhausted
    solve(system, t, j, team);
    if (team.first()) system.status() = kBroken;
    return;
  }
  const double inverse = 1 / alpha;
  share = times(inverse, share);
  for (Index i = own; i < j; i += Team::size) {
    t.changes[j * t.m + i] = times(inverse, t.first[i]);
    t.column[i] = times(inverse, t.second[i]);
  }
  if (team.first()) {
    t.column[j] = times(inverse, share);
    t.inverses[j] = inverse;
    system.at(kInverse) = inverse;
    system.at(kImage) = image * inverse;
    system.set(kShare, share);
  }
}

// After the next u, of which `square` is the square of the norm.
template <class T, class Team>
void extended(const System<T>& system, const Triangle<T>& t, double square, Team team) {
  const Index j = system.arguments.column;
  double below = sqrt(square);
  const bool exhausted = below <= rounding<T>() * system.at(kImage);
  if (exhausted) below = 0;
  for (Index i = team.index(); i <= j; i += Team::size) t.rotated[i] = t.column[i];
  team.wait();
  // rotation k mixes entries k and k + 1, which up to j are there
  if (team.first()) rotate(t, t.rotated, j);
  team.wait();
  if (team.first()) {
    double cosine;
    Number<T> sine, length;
    find_rotation(t.rotated[j], below, cosine, sine, length);
    system.record(size_of(sine) * size_of(t.projected[j]));
  }
  team.wait();
  const int status = system.status();
  const bool whole = j + 1 == t.m;
  if (status == kNotFinite) return;
  if (status == kRunning && !exhausted && !whole) return;
  close_column(t, t.rotated, j, below, team);
  solve(system, t, j + 1, team);
  if (team.first() && status == kRunning) system.status() = exhausted ? kBroken : kCycleEnd;
}

}  // namespace gmres

// work = x + corrected, the trial solution, where corrected is M times what GmresCombine left.
template <class T>
struct GmresCorrect : GmresPass {
  static constexpr Gate gate = Gate::waiting;

  struct Coefficients {
    bool any;
    explicit Coefficients(const System<T>& system)
        : any(system.status() != kNotFinite && system.at(gmres::kKept) > 0) {}
  };

  template <class Cursor>
  static void each(const Coefficients& c, Cursor& at) {
    const auto solution = at[x];
    at.put(work, c.any ? solution + at[corrected] : solution);
  }
};

// The true residual r = b - A work of the trial solution in the first vector of the basis, where
// A work is on entry; and what its norm says. A trial that does not reduce it is not taken over.
template <class T>
struct GmresResidual : GmresPass {
  static constexpr int sums = 1;
  static constexpr Gate gate = Gate::waiting;

  struct Coefficients {
    Real<T> scale;
    explicit Coefficients(const System<T>& system) : scale(Real<T>(1 / system.at(kUnit))) {}
  };

  template <class Cursor>
  static void each(const Coefficients& c, Cursor& at) {
    const auto residual = at[b] - at[basis];
    at.put(basis, residual);
    at.add_square(0, times(c.scale, residual));
  }

  static void after(const System<T>& system, const double* sums) {
    const double norm = system.at(kUnit) * sqrt(sums[0]), before = system.at(kResidual);
    const int ended = system.status();
    const bool less = norm < before, little = !(norm <= 0.5 * before);
    const bool singular = system.at(gmres::kKept) < system.at(gmres::kColumns);
    int status = kRunning;
    if (ended == kNotFinite || !is_finite(norm))
      status = kNotFiniteAtEnd;
    else if (norm <= system.at(kTolerance))
      status = kConverged;
    else if ((singular || system.at(gmres::kKept) == 0) && little)
      status = kBreakdown;
    else if (!less)
      status = kStagnated;
    else if (system.at(kRestarts) + 1 >= system.at(kCycleLimit) ||
             system.iterations() >= system.at(kIterationLimit))
      status = kMaxIterations;
    else
      system.at(kRestarts) += 1;
    const bool accepted = status != kNotFiniteAtEnd && (less || status == kConverged);
    system.at(kAccepted) = accepted;
    if (accepted) system.at(kResidual) = system.at(kScale) = norm;
    system.status() = status;
  }
};

// x = work where the trial solution is taken over.
template <class T>
struct GmresAccept : GmresPass {
  static constexpr Gate gate = Gate::any;

  struct Coefficients {
    bool accepted;
    explicit Coefficients(const System<T>& system) : accepted(system.at(kAccepted) != 0) {}
  };

  template <class Cursor>
  static void each(const Coefficients& c, Cursor& at) {
    if (c.accepted) at.put(x, at[work]);
  }

  static void after(const System<T>& system, const double*) { system.at(kAccepted) = 0; }
};

}  // namespace BATCHKRON_PLACE
}  // namespace batchkron
