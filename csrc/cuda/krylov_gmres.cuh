// What GMRES does between its passes over the basis (krylov_basis.cuh, engine/krylov_basis.hpp),
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

#include "krylov.cuh"

namespace batchkron {
namespace BATCHKRON_PLACE {

namespace gmres {
enum Vectors { X, Basis, Work, Corrected, Solutions, B };
enum Own {
  kInverse = kOwn,  // 1 / alpha of the step
  kImage,           // |w| / alpha of the step
  kColumns,         // of the triangle, when a cycle has ended
  kKept,            // those of them that are regular to working precision
  kShare,           // d, a number
  kOwnEnd = kShare + 2,
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

  explicit Triangle(const System<T>& system) : m(system.arguments.restart) {
    N* p = reinterpret_cast<N*>(system.small());
    triangle = p;
    changes = p + m * m;
    p = changes + m * m;
    N** const parts[] = {&column, &rotated, &first, &second, &sines, &projected, &solution};
    for (N** part : parts) {
      *part = p;
      p += m + 1;
    }
    cosines = reinterpret_cast<double*>(p);
    inverses = cosines + m + 1;
  }
};

// Applies the first `count` rotations to a column. What a rotation hands to the next one stays in
// a register, and all loads can be made ahead: on a device one thread does this.
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
template <class T>
void close_column(const Triangle<T>& t, Number<T>* column, Index k, double below) {
  Number<T> length;
  find_rotation(column[k], below, t.cosines[k], t.sines[k], length);
  column[k] = length;
  for (Index i = 0; i <= k; ++i) t.triangle[k * t.m + i] = column[i];
  const Number<T> last = t.projected[k];
  t.projected[k] = times(t.cosines[k], last);
  t.projected[k + 1] = times(-1.0, times(conjugate(t.sines[k]), last));
}

// Solves the triangular system of the first `columns` columns, without the last ones if these are
// singular to working precision, and turns the result into coefficients of the basis.
template <class T>
void solve(const System<T>& system, const Triangle<T>& t, Index columns) {
  const Index m = t.m;
  double largest = 0;
  for (Index k = 0; k < columns; ++k)
    largest = fmax(largest, size_of(t.triangle[k * m + k]));
  const double singular = 10 * rounding<T>() * largest;  // a few operations make an entry
  Index kept = columns;
  while (kept > 0 && !(size_of(t.triangle[(kept - 1) * m + kept - 1]) > singular)) --kept;
  for (Index k = 0; k < kept; ++k) t.solution[k] = t.projected[k];
  Number<T>* __restrict__ solution = t.solution;
  for (Index k = kept - 1; k >= 0; --k) {
    const Number<T>* __restrict__ column = t.triangle + k * m;
    const Number<T> y = solution[k] = quotient(solution[k], column[k]);
    for (Index i = 0; i < k; ++i) solution[i] = solution[i] - times(y, column[i]);
  }
  const double unit = system.at(kScale) * system.at(kOperator);
  bool finite = true;
  for (Index k = 0; k < kept; ++k) {
    if (system.has(kFlexible)) {
      t.solution[k] = times(t.inverses[k], t.solution[k]);
    } else {
      for (Index i = 0; i < k; ++i)
        t.solution[i] = t.solution[i] + times(t.solution[k], t.changes[k * m + i]);
    }
  }
  for (Index k = 0; k < kept; ++k) {
    t.solution[k] = times(unit, t.solution[k]);
    finite = finite && is_finite(t.solution[k]);
  }
  system.at(kColumns) = double(columns);
  system.at(kKept) = finite ? double(kept) : 0;
}

// After the inner products, which are a_i, c_i in turn for i < j, then |u|^2, u* w, |w|^2.
template <class T>
void projected(const System<T>& system, const double* sums) {
  constexpr Index reals = Field<T>::reals;
  const Triangle<T> t(system);
  const Index j = system.arguments.column;
  const double* last = sums + 2 * j * reals;
  const double square = last[0], image = sqrt(last[1 + reals]);
  Number<T> share = number_at<Number<T>>(last + 1);
  double inside = 0;
  for (Index i = 0; i < j; ++i) {
    const Number<T> a = t.first[i] = number_at<Number<T>>(sums + 2 * i * reals);
    const Number<T> c = t.second[i] = number_at<Number<T>>(sums + (2 * i + 1) * reals);
    inside += square_of(a);
    share = share - times(conjugate(a), c);
  }
  if (j == 0) system.at(kKept) = system.at(kColumns) = 0;
  if (!is_finite(square) || !is_finite(image) || !is_finite(inside) || !is_finite(share)) {
    system.status() = kNotFinite;
    return;
  }
  const double left = square - inside;
  double alpha = left > 0 ? sqrt(left) : 0;
  if (j > 0) {
    for (Index i = 0; i < j; ++i) t.column[i] = t.column[i] + t.first[i];
    if (alpha <= rounding<T>() * system.at(kImage)) alpha = 0;
    rotate(t, t.column, j - 1);
    close_column(t, t.column, j - 1, alpha);
  } else {
    t.projected[0] = from_real(alpha, Number<T>{});
  }
  if (alpha == 0) {  // the space is exhausted
    solve(system, t, j);
    system.status() = kBroken;
    return;
  }
  const double inverse = 1 / alpha;
  share = times(inverse, share);
  for (Index i = 0; i < j; ++i) {
    t.changes[j * t.m + i] = times(inverse, t.first[i]);
    t.column[i] = times(inverse, t.second[i]);
  }
  t.column[j] = times(inverse, share);
  t.inverses[j] = inverse;
  system.at(kInverse) = inverse;
  system.at(kImage) = image * inverse;
  system.set(kShare, share);
}

// After the next u, of which `square` is the square of the norm.
template <class T>
void extended(const System<T>& system, double square) {
  const Triangle<T> t(system);
  const Index j = system.arguments.column;
  double below = sqrt(square);
  const bool exhausted = below <= rounding<T>() * system.at(kImage);
  if (exhausted) below = 0;
  for (Index i = 0; i <= j; ++i) t.rotated[i] = t.column[i];
  // rotation k mixes entries k and k + 1, which up to j are there
  rotate(t, t.rotated, j);
  double cosine;
  Number<T> sine, length;
  find_rotation(t.rotated[j], below, cosine, sine, length);
  system.record(size_of(sine) * size_of(t.projected[j]));
  const bool whole = j + 1 == t.m;
  if (system.status() == kNotFinite) return;
  if (system.status() == kRunning && !exhausted && !whole) return;
  close_column(t, t.rotated, j, below);
  solve(system, t, j + 1);
  if (system.status() == kRunning) system.status() = exhausted ? kBroken : kCycleEnd;
}

}  // namespace gmres

// x + (the correction): after M. Vectors: as in gmres::Vectors.
template <class T>
struct GmresCorrect {
  static constexpr int sums = 0;
  static constexpr bool maxima = false;
  static constexpr Gate gate = Gate::waiting;

  struct Coefficients {
    bool any;
    explicit Coefficients(const System<T>& system)
        : any(system.status() != kNotFinite && system.at(gmres::kKept) > 0) {}
  };

  template <class Cursor>
  static void each(const Coefficients& c, Cursor& at) {
    const auto x = at.get(gmres::X);
    at.put(gmres::Work, c.any ? x + at.get(gmres::Corrected) : x);
  }

  static void after(const System<T>&, const double*) {}
};

// The true residual of the trial solution, in the first slot of the basis, where A times it is on
// entry; and what its norm says. A trial that does not reduce it is not taken over.
template <class T>
struct GmresResidual {
  static constexpr int sums = 1;
  static constexpr bool maxima = false;
  static constexpr Gate gate = Gate::waiting;

  struct Coefficients {
    Real<T> scale;
    explicit Coefficients(const System<T>& system) : scale(Real<T>(1 / system.at(kUnit))) {}
  };

  template <class Cursor>
  static void each(const Coefficients& c, Cursor& at) {
    const auto r = at.get(gmres::B) - at.get(gmres::Basis);
    at.put(gmres::Basis, r);
    at.add_square(0, times(c.scale, r));
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
    else if (system.at(kRestarts) + 1 >= system.at(kMostCycles) ||
             system.iterations() >= system.at(kMostIterations))
      status = kMaxIterations;
    else
      system.at(kRestarts) += 1;
    const bool accepted = status != kNotFiniteAtEnd && (less || status == kConverged);
    system.at(kAccepted) = accepted;
    if (accepted) system.at(kResidual) = system.at(kScale) = norm;
    system.status() = status;
  }
};

// Takes the trial solution over.
template <class T>
struct GmresAccept {
  static constexpr int sums = 0;
  static constexpr bool maxima = false;
  static constexpr Gate gate = Gate::any;

  struct Coefficients {
    bool accepted;
    explicit Coefficients(const System<T>& system) : accepted(system.at(kAccepted) != 0) {}
  };

  template <class Cursor>
  static void each(const Coefficients& c, Cursor& at) {
    if (c.accepted) at.put(gmres::X, at.get(gmres::Work));
  }

  static void after(const System<T>& system, const double*) { system.at(kAccepted) = 0; }
};

}  // namespace BATCHKRON_PLACE
}  // namespace batchkron
