"""Backward differentiation of orders 1 to 5, with orders and steps chosen by errors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..krylov.systems.result import KrylovResult
from ..products import ranks_of_problem
from ..protocols import TimeProblem
from .embedded import EmbeddedStepper
from .error_scale import ErrorScale
from .implicit_equation import equation_of
from .runge_kutta import combine

__all__ = ["Bdf"]

_MAX_ORDER = 5
# κ of the numerical differentiation formulas, by the order; 0 is plain backward differentiation.
_KAPPA = np.array([0.0, -0.1850, -1.0 / 9.0, -0.0823, -0.0415, 0.0])
_GAMMA = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, _MAX_ORDER + 1))])
_ALPHA = (1.0 - _KAPPA) * _GAMMA
_ERROR = _KAPPA * _GAMMA + 1.0 / np.arange(1, _MAX_ORDER + 2)  # error / (k + 1)-th difference
_SAFETY = 0.9  # of the longest step by the estimate
# The next step could be this much longer before it and the order change: a new c costs a new
# preconditioner or factorisation, and k + 1 equal steps before the next change.
_MIN_GROWTH = 1.2
_MAX_GROWTH = 10.0
_ROUNDING = 1e-10  # relative difference of steps that are the same but for rounding of their ends


class Bdf(EmbeddedStepper):
    """Σ_{m=1..k} ∇ᵐ u_next / m - κ γ_k (u_next - p) = dt f(t_next, u_next); orders k = 1 to 5.

    p is the prediction by the backward differences of the last k + 1 states, ∇ᵐ, which are computed
    anew for another step: p = Σ_{m=0..k} ∇ᵐ u. With d = u_next - p and α = (1 - κ) γ_k,
    d = dt/α f(t_next, p + d) - Σ_m γ_m ∇ᵐ u / α, and the error is (κ γ_k + 1/(k + 1)) d.

    Parameters
    ----------
    problem : TimeProblem
        With ``operator`` or ``operator_at(t)`` for f = A(t) u + s(t): then a step evaluates f once
        and solves one linear system, to a tenth of the tolerance. Any other f is solved by Newton's
        method with the Jacobian ``jacobian``, a matrix, an operator or a function of (t, u) that
        returns one, or with difference quotients.
    dt : float
        A step, for which a preconditioner is built first.
    t0 : float
        The time at which the run begins, for which a preconditioner is built.
    solver, preconditioner : object
        See `StageSolver`; M ≈ (I - c J)⁻¹ with c = dt / α.

    Attributes
    ----------
    scale : ErrorScale
        The tolerance of a step; set before the first one.
    next_order : int
        The order of the step after the last attempt, if it is accepted.

    Notes
    -----
    Storage: 8 differences, and as many in runs whose step changes, 4 vectors and those of the
    solver. Orders 1 and 2 are A-stable, all damp stiff components. A preconditioner that is a
    function of a nonlinear problem's J and c is made when c changes; resumed runs repeat the bits
    if it depends on c alone. Source: L. F. Shampine,
    M. W. Reichelt, The MATLAB ODE Suite, SIAM J. Sci. Comput. 18 (1997).
    """

    name = "bdf"
    order = _MAX_ORDER
    stages = 1
    implicit = True
    nonlinear = True
    linear_by_operator = True
    preconditions = True
    chooses_order = True
    error_order = 1
    works_on_ranks = True
    real_limit = np.inf
    imaginary_limit = 0.0

    def __init__(
        self,
        problem: TimeProblem,
        dt: float,
        *,
        t0: float = 0.0,
        solver: Any = None,
        preconditioner: Any = None,
    ) -> None:
        super().__init__(problem, dt)
        self._differences = [self._vector() for _ in range(_MAX_ORDER + 3)]
        self._rescaled: list[NDArray[Any]] = []
        self._psi, self._change, self._work = (self._vector() for _ in range(3))
        self.error = self._vector()
        self.scale = ErrorScale(1e-3, 1e-6, ranks_of_problem(problem))
        self._equation = equation_of(
            problem,
            self._change,
            self.products,
            t0,
            self.dt,
            solver=solver,
            preconditioner=preconditioner,
        )
        self.next_order = self._order = 1
        self._equal = 0  # accepted steps of this length and order
        self._length = self._end = math.nan
        self._used = self._differences  # those of the last attempt
        self._tried, self._tried_end = math.nan, math.nan
        self._kept = self._equation.memory()  # at the beginning of the step

    @property
    def first_order(self) -> int:
        """The order of the first step, 1."""
        return 1

    def restart(self) -> None:
        """Forget the states before: the next step is one of order 1."""
        self._end = math.nan

    def attempt(
        self, u: NDArray[Any], t: float, t_next: float, dt: float, out: NDArray[Any]
    ) -> KrylovResult | None:
        """Compute the state at t_next into ``out`` (N,), and set `error`."""
        if self._end != t:
            self._begin(u, t, dt)
        if abs(dt - self._length) <= _ROUNDING * dt:
            dt = self._length
        used, k = self._differences_for(dt), self._order
        combine(None, [1.0] * (k + 1), used, out, self._work)
        combine(None, _GAMMA[1 : k + 1] / _ALPHA[k], used[1:], self._psi, self._work)
        self.scale.set(u, out)
        c = dt / float(_ALPHA[k])
        failed = self._equation.solve(t_next, c, out, self._psi, self.scale, self._change)
        self.last_solve = self._equation.last_solve
        if failed is not None:
            return failed
        np.add(out, self._change, out=out)
        assert self.error is not None
        np.multiply(self._change, float(_ERROR[k]), out=self.error)
        self.scale.set(u, out)
        self._tried, self._tried_end = dt, t_next
        return None

    def _begin(self, u: NDArray[Any], t: float, dt: float) -> None:
        """Begin with order 1 at a state."""
        np.copyto(self._differences[0], u)
        self._evaluate(t, u, self._differences[1])
        np.multiply(self._differences[1], dt, out=self._differences[1])
        self.next_order = self._order = 1
        self._equal, self._length, self._end = 0, dt, t

    def _differences_for(self, dt: float) -> list[NDArray[Any]]:
        """Return the differences of states dt apart, which are on the same polynomial."""
        if dt == self._length:
            self._used = self._differences
            return self._used
        if not self._rescaled:
            self._rescaled = [self._vector() for _ in self._differences]
        k = self._order
        weights = _change(k, dt / self._length)
        for m in range(k + 1):
            combine(None, weights[:, m], self._differences, self._rescaled[m], self._work)
        self._used = self._rescaled
        return self._used

    def error_ratio(self) -> float:
        """Return the estimated error of the last attempt relative to the tolerance."""
        return float(_ERROR[self._order]) * self.scale.size(self._change)

    def choose(self) -> float:
        """Choose `next_order`; return the factor of the next step, 1 for none.

        The last attempt is going to be accepted. Orders and steps change after k + 1 equal steps,
        when the differences of order k + 2 are known.
        """
        k, used, change = self._order, self._used, self._change
        self.next_order = k
        equal = 1 + (self._equal if used is self._differences else 0)
        if equal < k + 1:
            return 1.0
        errors = {k: self.error_ratio()}
        if k > 1:
            combine(None, [1.0, 1.0], [used[k], change], self._work, self._psi)
            errors[k - 1] = float(_ERROR[k - 1]) * self.scale.size(self._work)
        if k < _MAX_ORDER:
            combine(None, [1.0, -1.0], [change, used[k + 1]], self._work, self._psi)
            errors[k + 1] = float(_ERROR[k + 1]) * self.scale.size(self._work)
        factors = {q: max(error, 1e-10) ** (-1.0 / (q + 1)) for q, error in errors.items()}
        best = max(factors, key=factors.__getitem__)
        factor = float(min(_MAX_GROWTH, _SAFETY * factors[best]))
        if factor < _MIN_GROWTH:
            return 1.0
        self.next_order = best
        return factor

    def accept(self) -> None:
        """Accept the last attempt: its differences are those of the next one."""
        k, used = self._order, self._used
        if used is self._rescaled:
            self._differences, self._rescaled = used, self._differences
            self._used, self._equal = self._differences, 0
        np.subtract(self._change, used[k + 1], out=used[k + 2])
        np.copyto(used[k + 1], self._change)
        for m in range(k, -1, -1):
            np.add(used[m], used[m + 1], out=used[m])
        self._equal += 1
        self._length, self._end = self._tried, self._tried_end
        self._kept = self._equation.memory()
        if self.next_order != k:
            self._order, self._equal = self.next_order, 0

    @property
    def dense_degree(self) -> int:
        """The order of the last attempt."""
        return self._order

    def interpolate(self, u: NDArray[Any], theta: float, out: NDArray[Any]) -> bool:
        """Write the state at t + θ dt of the polynomial through the last k + 1 states."""
        k = self._order
        factors = np.cumprod([1.0, *((theta - 1.0 + m) / (m + 1.0) for m in range(k))])
        sums = np.cumsum(factors)
        # the differences at the end are ∇ᵐ = d + the sum of those from m on at the beginning
        combine(None, [*sums, sums[-1]], [*self._used[: k + 1], self._change], out, self._work)
        return True

    # What a checkpoint needs.

    def memory(self) -> tuple[list[NDArray[Any]], list[float]]:
        """Return the vectors and numbers of a run besides its state, none before its first step."""
        if math.isnan(self._end):
            return [], []
        vectors, numbers = self._kept
        own = self._differences[: self._order + 2]
        return [*own, *vectors], [self._order, self._equal, self._length, *numbers]

    def remember(self, t: float, vectors: list[NDArray[Any]], numbers: list[float]) -> None:
        """Continue from time t with what `memory` has returned; ValueError if it is not that."""
        order = numbers[0] if len(numbers) > 2 else 0
        if order not in range(1, _MAX_ORDER + 1) or len(vectors) < order + 2 or not numbers[2] > 0:
            raise ValueError(
                f"the checkpoint holds {len(vectors)} vectors and the numbers {numbers[:3]}; "
                "expected those of a run with bdf: an order k, and k + 2 differences"
            )
        self.next_order = self._order = int(order)
        self._equal, self._length = int(numbers[1]), numbers[2]
        self._end, count = t, self._order + 2
        for own, vector in zip(self._differences, vectors[:count], strict=False):
            np.copyto(own, vector)
        self._equation.remember(vectors[count:], numbers[3:])
        self._kept = self._equation.memory()


def _change(order: int, factor: float) -> NDArray[np.float64]:
    """Return W with ∇ᵐ of states ``factor`` as far apart = Σ_i W[i, m] ∇ⁱ, (k + 1, k + 1)."""
    return _at_multiples(order, factor) @ _at_multiples(order, 1.0)


def _at_multiples(order: int, factor: float) -> NDArray[np.float64]:
    """Return Π_{m<i} (m - j factor) / (m + 1) for i, j ≤ k: the polynomials of ∇ⁱ at -j factor."""
    i, j = np.arange(order)[:, None], np.arange(order + 1)[None, :]
    return np.cumprod(np.vstack([np.ones((1, order + 1)), (i - factor * j) / (i + 1.0)]), axis=0)
