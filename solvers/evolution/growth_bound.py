"""Whether the state of a linear problem is larger than any solution can be, seen during a run."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from batchkron.arrays import array_module

from ..products import Vector, norm
from ..protocols import has_operator, known_beside_rhs, operator_of, says_linear
from .linearity import is_linear
from .spectrum import numerical_abscissa, random_start
from .step_control import Step

__all__ = ["GrowthBound"]

_BOUND_FACTOR = 1e3  # a norm may be so many times its bound
_SAMPLES = 9  # times at which the source is sampled since the last look, and in the last step


class GrowthBound:
    """The bound ‖u(t)‖ ≤ 10³ exp(max(0, ω) (t - t0)) (‖u(t0)‖ + ∫‖s‖) of u' = A(t) u + s(t).

    ω is the largest eigenvalue of (A + A^H) / 2, so that no solution exceeds a thousandth of it,
    whatever its transients.

    Parameters
    ----------
    problem : object
        With ``rhs``; one without an operator has no bound.
    t : float
        Where the run begins, or goes on.
    u : ndarray, shape (N,)
        The state there.

    Notes
    -----
    A norm below the bound that is known costs a comparison. Only beyond that the bound is looked
    at anew: the source f(t, 0) is sampled since the last look and in the last step, the largest
    sample standing for the integral; where that is not enough ω is estimated, by Lanczos' method
    from a random vector and from the state itself, whose present growth is then no surprise. A
    problem whose f is not linear after all loses its bound.
    """

    def __init__(self, problem: Any, t: float, u: Vector) -> None:
        self._problem = problem
        self._begin = self._sampled_until = t
        self._size = norm(u)  # ‖u(t0)‖ + ∫‖s‖
        self._rate = 0.0
        self._allowed = _BOUND_FACTOR * self._size if has_operator(problem) else math.inf

    def before_step(self, number: int, u: Vector) -> None:
        """Need nothing of the state before a step."""

    def objection(self, step: Step, u: Vector, size: float) -> str:
        """Return what is wrong with the state u (N,), of norm ``size``, at the end of a step."""
        if size <= self._allowed:
            return ""
        t, t_next = step.t, step.t_next
        zero = np.zeros_like(u)
        if not is_linear(self._problem, t_next, zero, u):
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
        """Set the bound of a time; return whether a norm is beyond it."""
        exponent = self._rate * (t - self._begin)
        self._allowed = math.inf
        if self._size == 0.0:
            self._allowed = 0.0
        elif exponent + math.log(self._size) < 690.0:
            self._allowed = _BOUND_FACTOR * math.exp(exponent) * self._size
        return size > self._allowed

    def _largest_source(self, t: float, t_next: float, zero: Vector) -> float:
        """Return the largest ‖f(t, 0)‖ among samples since the last look."""
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
                size = norm(source)
            largest = size if not size <= largest else largest
        return largest if math.isfinite(largest) else math.inf

    def _raise_rate(self, t: float, u: Vector) -> None:
        """Take the larger of ω and what A says at the beginning, in the middle, and now."""
        varying = getattr(self._problem, "operator_at", None) is not None
        times = (self._begin, 0.5 * (self._begin + t), t) if varying else (t,)
        largest = float(array_module(u).abs(u).max())
        starts = [random_start(u), u / largest]
        for time in times:
            operator = operator_of(self._problem, time)
            for start in starts:
                rate = numerical_abscissa(operator, start)
                self._rate = math.inf if math.isnan(rate) else max(self._rate, rate)
