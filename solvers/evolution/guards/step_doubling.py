"""A guard against unstable steps: some steps are compared with two steps of half the length."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from batchkron.errors import NotPhysicalError

from ...krylov.vectors.ranks import Ranks, any_over, norm_over
from ...products import Vector
from ...steppers.stepper import Stepper
from ..steps.step_control import Step

__all__ = ["StepDoubling"]

_OBJECTION = (
    "A step makes a small perturbation larger, which two steps of half its length do not: dt "
    "is beyond the stability limit."
)
# All numbers were chosen by hand.
_CHECK_INTERVAL = 32  # number of steps from one that is compared to the next
_MAX_GROWTH = 2.0  # factor by which a perturbation may grow in the whole run
# Allowed difference of a step and its two halves, relative to the state; beyond it, the growth of a
# perturbation is compared.
_MAX_DIFFERENCE = 0.1
_PERTURBATION = 1e-3  # norm of the perturbation relative to the state
# A perturbation grows more in a step than in its halves if the ratio of the factors exceeds this.
_GROWTH_RATIO = 1.2
_MAX_PARTS = 64  # largest number of parts into which a step is divided


class StepDoubling:
    """Compares every 32nd step, and the last one, with two steps of half its length.

    If a method treats f, or a part of it, explicitly and is not stable with its step, each step
    amplifies some components, but two half steps do not. If the two results differ by a tenth of
    the state, a small perturbation along the difference is propagated both ways: the step is
    unstable if it enlarges the perturbation, and more than the half steps do. A step that is only
    inaccurate, because the solution grows or oscillates quickly, does not meet this condition.

    Parameters
    ----------
    make : callable
        ``make(dt)`` returns a new stepper of the run's method.
    dt : float
        The step of the run.
    steps : int
        The number of the last step.
    ranks : Ranks, optional
        The ranks that share the state.

    Notes
    -----
    A perturbation grows too much if the same growth in each step of the run would more than double
    it, as in `stability`. The change of the state itself is not a criterion: beyond the stability
    limit it may be slow (R(z) of `rk4` is positive there).

    Storage: one vector, and during a comparison 5 more and the method's own. Cost: two half steps
    for every 32nd step, and six more steps if the results disagree. If the perturbation grows in
    the half steps, too, the step is divided into 4, 8, … up to 64 parts until two results agree:
    half of a step far beyond the stability limit is beyond it as well.
    """

    def __init__(
        self,
        make: Callable[[float], Stepper],
        dt: float,
        steps: int,
        ranks: Ranks | None = None,
    ) -> None:
        self._make, self._dt, self._steps, self._ranks = make, dt, steps, ranks
        self._stable_growth = _MAX_GROWTH ** (1.0 / max(steps, 1))
        self._before: Any = None

    def move(self, problem: Any) -> None:
        """Forget the state before a step: it is on the former grid."""
        self._before = None

    def before_step(self, number: int, u: Vector) -> None:
        """Copy the state before step ``number``, counted from 1, if that step will be compared."""
        self._before = u.copy() if number % _CHECK_INTERVAL == 0 or number == self._steps else None

    def objection(self, step: Step, u: Vector, size: float) -> str:
        """Return an error text if the step that ends with the state u (N,) is unstable, else ""."""
        before, self._before = self._before, None
        if before is None or not self._is_unstable(before, step.t, step.t_next, u):
            return ""
        return _OBJECTION

    def _is_unstable(self, before: Vector, t: float, t_next: float, u: Vector) -> bool:
        """Whether the step from ``before`` to u amplifies a perturbation and half steps do not."""
        size = self._norm(u)
        with np.errstate(all="ignore"):
            halves = self._take(before, t, t_next, 2)
            apart = u - halves
            if any_over(self._ranks, not np.isfinite(apart).all()):
                return False
            if not self._norm(apart) > _MAX_DIFFERENCE * size:
                return False
            return self._grows(before, u, halves, apart, t, t_next)

    def _grows(
        self, before: Vector, u: Vector, halves: Vector, change: Vector, t: float, t_next: float
    ) -> bool:
        """Whether a step enlarges a perturbation, and more than two half steps do."""
        scale = _PERTURBATION * (self._norm(before) or self._norm(u))
        # A power iteration of two steps: the second perturbation is closer to what grows most.
        for is_last in (False, True):
            change *= scale / self._norm(change)
            begin = before + change
            by_step = self._take(begin, t, t_next, 1) - u
            growth = self._norm(by_step) / scale
            by_halves = self._norm(self._take(begin, t, t_next, 2) - halves) / scale
            if growth > self._stable_growth and growth > _GROWTH_RATIO * by_halves:
                return True
            if not (0.0 < growth < np.inf):
                return False
            if is_last and growth > self._stable_growth:
                return self._is_less_in_parts(before, begin, t, t_next, scale, growth, by_halves)
            change = by_step
        return False

    def _is_less_in_parts(
        self,
        before: Vector,
        begin: Vector,
        t: float,
        t_next: float,
        scale: float,
        growth: float,
        last: float,
    ) -> bool:
        """Whether a perturbation grows less if the step is divided into 4, 8, … parts."""
        agreed, count = 0, 4
        while count <= _MAX_PARTS and agreed < 2:
            plain = self._take(before, t, t_next, count)
            now = self._norm(self._take(begin, t, t_next, count) - plain) / scale
            if growth > _GROWTH_RATIO * now:
                return True
            close = last < _GROWTH_RATIO * now and now < _GROWTH_RATIO * last
            agreed, last, count = agreed + 1 if close else 0, now, 2 * count
        return False

    def _norm(self, x: Vector) -> float:
        return norm_over(self._ranks, x)

    def _take(self, u: Vector, t: float, t_next: float, count: int) -> Vector:
        """Return the state at t_next after ``count`` equal steps.

        It is NaN if a linear solve fails or the right-hand side is not defined for a stage.
        """
        end = u.copy()
        stepper = self._make(self._dt / count)
        times = [t + (t_next - t) * (n / count) for n in range(count)] + [t_next]
        for begin, until in pairwise(times):
            try:
                failed = stepper.step(end, begin, until) is not None
            except NotPhysicalError:
                failed = True
            if failed:
                end.fill(np.nan)
                break
        return end
