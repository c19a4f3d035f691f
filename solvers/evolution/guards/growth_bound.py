"""A guard for linear problems: the state's norm against an a-priori bound of all solutions."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from batchkron.attributes import attribute

from ...krylov.vectors.ranks import Ranks, max_over, norm_over
from ...products import Vector
from ...protocols import has_operator, known_beside_rhs, operator_of, says_linear
from ...spectrum import numerical_abscissa, random_start
from ...steppers.step_runner import StepTimes
from ..operator_checks.linearity import is_linear

__all__ = ["GrowthBound"]

# A state is unstable if its norm exceeds the bound by this factor; chosen by hand.
_BOUND_FACTOR = 1e3
# Number of times at which the source is sampled: since the last evaluation of the bound, and again
# in the last step; chosen by hand.
_SAMPLES = 9


class GrowthBound:
    """The bound ‖u(t)‖ ≤ 10³ exp(max(0, ω) (t - t0)) (‖u(t0)‖ + ∫‖s‖) of u' = A(t) u + s(t).

    ω is the largest eigenvalue of (A + A^H) / 2. Without the factor 10³ it bounds every exact
    solution, including transient growth.

    ``problem``: the problem with ``rhs``; without an operator it has no bound.
    ``t``: the time at which the run begins or continues.
    ``u`` (ndarray, shape (N,)): the state at that time.
    ``ranks``: the ranks that share the state.

    As long as the norm is below the bound computed last, a step costs one comparison. Otherwise the
    bound is updated: the source f(t, 0) is sampled since the last update and in the last step, and
    the integral is estimated by its largest value. If the norm is still beyond the bound, ω is
    estimated by Lanczos' method, from a random vector and from the state itself, so that ω is at
    least the state's present growth rate. If f turns out not to be linear, the bound is dropped.
    """

    def __init__(self, problem: Any, t: float, u: Vector, ranks: Ranks | None = None) -> None:
        self._problem, self._ranks = problem, ranks
        self._begin = self._sampled_until = t
        self._rate, self._size, self._allowed = 0.0, 0.0, math.inf
        if has_operator(problem):
            self._size = norm_over(ranks, u)  # ‖u(t0)‖ + ∫‖s‖
            self._allowed = _BOUND_FACTOR * self._size

    def move(self, problem: Any) -> None:
        """Continue with the problem on another grid.

        The bound stays: cells that are removed make the state smaller, and new ones are 0.
        """
        self._problem = problem

    def unwatched(self, number: int) -> int:
        """Return that the norms at their ends are enough of all steps, once there is a bound."""
        return sys.maxsize if self._allowed > 0.0 else 0

    def allows(self, sizes: Sequence[float]) -> bool:
        """Return whether no norm exceeds the bound as far as it is known."""
        return all(size <= self._allowed for size in sizes)

    def objection(self, step: StepTimes, u: Vector, size: float) -> str:
        """Return a text if the state u (N,), of norm ``size``, exceeds the bound, else ""."""
        if size <= self._allowed:
            return ""
        t, t_next = step.t, step.t_next
        zero = np.zeros_like(u)
        if not is_linear(self._problem, t_next, zero, u, self._ranks):
            self._allowed = math.inf
            return ""
        self._size += (t_next - self._sampled_until) * self._largest_source(t, t_next, zero)
        if not self._exceeds(t_next, size):
            return ""
        self._raise_rate(t_next, u)
        if not self._exceeds(t_next, size):
            return ""
        return (
            f"The norm of the state is {size:.4g}, and that of no solution is beyond "
            f"{self._allowed / _BOUND_FACTOR:.4g} = exp(ω (t - t0)) (‖u(t0)‖ + ∫‖s‖), "
            f"ω = {self._rate:.4g}."
        )

    def _exceeds(self, t: float, size: float) -> bool:
        """Compute the bound at a time; return whether a norm exceeds it."""
        exponent = self._rate * (t - self._begin)
        self._allowed = math.inf
        if self._size == 0.0:
            self._allowed = 0.0
        elif exponent + math.log(self._size) < 690.0:
            self._allowed = _BOUND_FACTOR * math.exp(exponent) * self._size
        return size > self._allowed

    def _largest_source(self, t: float, t_next: float, zero: Vector) -> float:
        """Return the largest ‖f(t, 0)‖ among samples since the last update."""
        times = np.concatenate(
            [np.linspace(self._sampled_until, t_next, _SAMPLES), np.linspace(t, t_next, _SAMPLES)]
        )
        self._sampled_until = t_next
        source = np.full_like(zero, np.nan)
        known = says_linear(self._problem)
        write = known_beside_rhs(self._problem, "source") if known else None
        largest = 0.0
        for time in sorted({float(time) for time in times}):
            with np.errstate(all="ignore"):
                if write is None:
                    self._problem.rhs(time, zero, source)
                else:
                    write(time, source)
                size = norm_over(self._ranks, source)
            largest = size if not size <= largest else largest
        return largest if math.isfinite(largest) else math.inf

    def _raise_rate(self, t: float, u: Vector) -> None:
        """Raise ω to the estimates at the run's beginning, in the middle, and now, if larger."""
        varying = attribute(self._problem, "operator_at") is not None
        times = (self._begin, 0.5 * (self._begin + t), t) if varying else (t,)
        largest = max_over(self._ranks, float(abs(u).max()) if u.size else 0.0)
        starts = [random_start(u, self._ranks), u / largest]
        for time in times:
            operator = operator_of(self._problem, time)
            for start in starts:
                rate = numerical_abscissa(operator, start, self._ranks)
                self._rate = math.inf if math.isnan(rate) else max(self._rate, rate)
