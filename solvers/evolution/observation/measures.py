"""Measures of quantities that belong to the grid of a problem: moments, and what flows out."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from batchkron.attributes import has_attribute
from batchkron.callers import users_level

from ...products import Vector

__all__ = ["MomentWeights", "Outflow"]

_NODES = 4  # rates through which a polynomial is laid: its integral over a step has error O(dt⁵)


class MomentWeights:
    """The weights w of a moment, ∫ v_1^k_1 v_2^k_2 … f dV = Σ w_i u_i.

    ``problem``: with ``moment_weights(powers)``.
    ``powers``: the powers, as the problem's method takes them.
    ``weights`` (ndarray, shape (N,)): w on the problem's grid.
    """

    def __init__(self, problem: Any, powers: Any) -> None:
        self._problem, self._powers = problem, powers
        self.weights = problem.moment_weights(powers)

    def for_problem(self, problem: Any) -> MomentWeights:
        """Return the weights for the same problem on another grid; these, if it has no moments."""
        if problem is self._problem or not has_attribute(problem, "moment_weights"):
            return self
        return MomentWeights(problem, self._powers)


class Outflow:
    """∫ rate dt, the integral of a problem's outflow over the states that it is called with.

    ``problem``: with ``outflow_rate(t, u)`` and ``integral(u)``.
    ``warn_at``: a UserWarning is given once when this share of ∫ f at the beginning has flowed out.

    The rates of the last four states are interpolated by a polynomial, whose integral over the last
    step is added. As long as there are fewer states, its integral from the first of them is taken.
    The error is O(dt⁴), as in the formulas of Adams and Moulton, and no state inside a step is
    needed. A change of the grid bends the rate over time: interpolation begins anew there, and the
    first two totals have an error of O(dt³).
    """

    def __init__(self, problem: Any, warn_at: float) -> None:
        self._problem, self._warn_at = problem, warn_at
        self.begin()

    def begin(self) -> None:
        """Forget all states: a run begins."""
        self._rates: list[tuple[float, float]] = []  # (t, rate) of the last states
        self._total = 0.0  # ∫ rate dt until the last state
        self._before = 0.0  # ∫ rate dt until interpolation began
        self._whole = 0.0  # |∫ f| at the beginning of the run

    def resume(self, total: float) -> None:
        """Go on from what had flowed out at the next state, at which the run is resumed."""
        self._total = self._before = total

    def __call__(self, t: float, u: Vector) -> float:
        """Return what has flowed out until t."""
        rate = float(self._problem.outflow_rate(t, u))
        if self._rates and t <= self._rates[-1][0]:
            self.begin()
        if not self._rates:
            self._whole = abs(float(self._problem.integral(u)))
        self._rates.append((t, rate))
        if len(self._rates) > _NODES:
            del self._rates[0]
            self._total += _integral(self._rates, self._rates[-2][0])
        else:
            self._total = self._before + _integral(self._rates, self._rates[0][0])
        if abs(self._total) > self._warn_at * self._whole:
            warnings.warn(
                f"{self._total / (self._whole or math.nan):.1e} of ∫ f has flowed out at the ends "
                f"of the axes by t = {t:.6g}; take a larger domain if nothing should",
                UserWarning,
                stacklevel=users_level(),
            )
            self._warn_at = math.inf
        return self._total

    def for_problem(self, problem: Any) -> Outflow:
        """Return the measure for the same problem on another grid, with the integral so far.

        Its first state is ``problem.initial``, the last state on the new grid.
        """
        if problem is self._problem or not has_attribute(problem, "outflow_rate"):
            return self
        moved = Outflow(problem, self._warn_at)
        moved._before = moved._total = self._total
        moved._whole = self._whole
        if self._rates:
            t = self._rates[-1][0]
            moved._rates = [(t, float(problem.outflow_rate(t, problem.initial)))]
        return moved

    def save(self) -> tuple[Any, ...]:
        """Return what `restore` needs to forget the states that follow."""
        return list(self._rates), self._total, self._before, self._whole

    def restore(self, saved: tuple[Any, ...]) -> None:
        """Return to the integral at the time of `save`."""
        rates, self._total, self._before, self._whole = saved
        self._rates = list(rates)


def _integral(values: Sequence[tuple[float, float]], begin: float) -> float:
    """Return the integral from ``begin`` to the last time of the polynomial through values."""
    times, heights = np.array(values).T
    length = times[-1] - begin
    if length == 0.0:
        return 0.0
    powers = np.arange(len(times))
    monomials = ((times - begin) / length) ** powers[:, None]  # (power, time)
    weights = np.linalg.solve(monomials, 1.0 / (powers + 1.0))  # integrate each power on [0, 1]
    return float(length * (weights @ heights))
