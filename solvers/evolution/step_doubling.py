"""Whether a step of a nonlinear problem is stable, told by taking it in two halves as well."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from ..products import Vector, norm
from ..steppers.stepper import Stepper
from .step_control import Step

__all__ = ["StepDoubling"]

_OBJECTION = (
    "A step makes a small perturbation larger, which two steps of half its length do not: dt "
    "is beyond the stability limit."
)
_CHECK_INTERVAL = 32  # steps from one that is compared to the next
_MAX_GROWTH = 2.0  # growth of a perturbation in the whole run that is no instability yet
_MAX_DIFFERENCE = 0.1  # share of the state by which a step and its halves may be apart
_PERTURBATION = 1e-3  # its norm beside the state's
_GROWTH_RATIO = 1.2  # growth in a step beside that in its halves: more tells them apart
_MAX_PARTS = 64  # that a step is divided into


class StepDoubling:
    """Compares every 32nd step, and the last one, with two steps of half its length.

    A method that treats f, or a part of it, explicitly and is not stable with its step multiplies
    some components in each step, where two halves do not. Where the two disagree by a tenth of the
    state, a small perturbation along the difference is carried through both: a step that makes it
    larger, and larger than the halves do, is unstable. A step that is merely long, in a solution
    that grows or oscillates quickly, is none.

    Parameters
    ----------
    make : callable
        ``make(dt)`` returns a new stepper of the run's method.
    dt : float
        The step of the run.
    steps : int
        The number of the last step.

    Notes
    -----
    A perturbation grows too much if that growth, in each step of the run, makes it more than twice
    as large: so does `stability` judge a step. Beyond its limit the state itself
    may change slowly (R(z) of `rk4` is positive there), so that its change tells nothing.

    Storage: one vector, and while two steps are compared 5 and the method's own. Evaluations of f:
    those of two steps in 32, and of six more where these disagree. Where the perturbation grows in
    the halves too, 4, 8, … up to 64 parts of the step are taken until they agree with each other: a
    step far beyond the limit has halves that are beyond it as well.
    """

    def __init__(self, make: Callable[[float], Stepper], dt: float, steps: int) -> None:
        self._make, self._dt, self._steps = make, dt, steps
        self._stable_growth = _MAX_GROWTH ** (1.0 / max(steps, 1))
        self._before: Any = None

    def before_step(self, number: int, u: Vector) -> None:
        """Keep the state before step number ``number`` (from 1 on), if that is to be compared."""
        self._before = u.copy() if number % _CHECK_INTERVAL == 0 or number == self._steps else None

    def objection(self, step: Step, u: Vector, size: float) -> str:
        """Return what is wrong with a step that ends with the state u (N,), if it is unstable."""
        before, self._before = self._before, None
        if before is None or not self._is_unstable(before, step.t, step.t_next, u):
            return ""
        return _OBJECTION

    def _is_unstable(self, before: Vector, t: float, t_next: float, u: Vector) -> bool:
        """Whether the step from ``before`` to u grows what its halves do not."""
        size = norm(u)
        with np.errstate(all="ignore"):
            halves = self._take(before, t, t_next, 2)
            apart = u - halves
            if not (np.isfinite(apart).all() and norm(apart) > _MAX_DIFFERENCE * size):
                return False
            return self._grows(before, u, halves, apart, t, t_next)

    def _grows(
        self, before: Vector, u: Vector, halves: Vector, change: Vector, t: float, t_next: float
    ) -> bool:
        """Whether a step makes a perturbation larger, and larger than two halves make it."""
        scale = _PERTURBATION * (norm(before) or norm(u))
        for is_last in (False, True):  # the last one is along what grows most
            change *= scale / norm(change)
            begin = before + change
            by_step = self._take(begin, t, t_next, 1) - u
            growth = norm(by_step) / scale
            by_halves = norm(self._take(begin, t, t_next, 2) - halves) / scale
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
        """Whether a perturbation grows less in 4, 8, … parts of a step, until they agree."""
        agreed, count = 0, 4
        while count <= _MAX_PARTS and agreed < 2:
            plain = self._take(before, t, t_next, count)
            now = norm(self._take(begin, t, t_next, count) - plain) / scale
            if growth > _GROWTH_RATIO * now:
                return True
            close = last < _GROWTH_RATIO * now and now < _GROWTH_RATIO * last
            agreed, last, count = agreed + 1 if close else 0, now, 2 * count
        return False

    def _take(self, u: Vector, t: float, t_next: float, count: int) -> Vector:
        """Return the state at t_next by ``count`` equal steps; NaN where a solve fails."""
        end = u.copy()
        stepper = self._make(self._dt / count)
        times = [t + (t_next - t) * (n / count) for n in range(count)] + [t_next]
        for begin, until in pairwise(times):
            if stepper.step(end, begin, until) is not None:
                end.fill(np.nan)
                break
        return end
