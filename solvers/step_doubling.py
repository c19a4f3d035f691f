"""Whether a step of a nonlinear problem is stable, told by taking it in two halves as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from batchkron.solvers.products import Vector, norm
from batchkron.solvers.steppers.stepper import Stepper

__all__ = ["StepDoubling"]

_EVERY = 32  # steps
_AMPLIFIED = 2.0  # of a perturbation in the whole run, which is no instability yet
_DISAGREEMENT = 0.1  # of the state
_PERTURBATION = 1e-3  # of the state
_MORE_THAN_HALVES = 1.2


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
    as large: so does `batchkron.solvers.stability` judge a step. Beyond its limit the state itself
    may change slowly (R(z) of `rk4` is positive there), so that its change tells nothing.

    Storage: one vector, and while two steps are compared 5 and the method's own. Evaluations of f:
    those of two steps in 32, and of at most six more where these disagree.
    """

    text = (
        "A step makes a small perturbation larger, which two steps of half its length do not: dt "
        "is beyond the stability limit."
    )

    def __init__(self, make: Callable[[float], Stepper], dt: float, steps: int) -> None:
        self._make, self._dt, self._steps = make, dt, steps
        self._stable_growth = _AMPLIFIED ** (1.0 / max(steps, 1))
        self._before: Any = None

    def prepare(self, step: int, u: Vector) -> None:
        """Keep the state before step number ``step`` (from 1 on), if that is to be compared."""
        self._before = u.copy() if step % _EVERY == 0 or step == self._steps else None

    def is_unstable(self, t: float, t_next: float, u: Vector) -> bool:
        """Return whether the step from the state that was kept to ``u`` (N,) is unstable."""
        before, self._before = self._before, None
        if before is None:
            return False
        size = norm(u)
        with np.errstate(all="ignore"):
            halves = self._take(before, t, t_next, 2)
            apart = u - halves
            if not (np.isfinite(apart).all() and norm(apart) > _DISAGREEMENT * size):
                return False
            return self._grows(before, u, halves, apart, t, t_next)

    def _grows(
        self, before: Vector, u: Vector, halves: Vector, change: Vector, t: float, t_next: float
    ) -> bool:
        """Whether a step makes a perturbation larger, and larger than two halves make it."""
        scale = _PERTURBATION * (norm(before) or norm(u))
        for _ in range(2):  # the second one is along what grows most
            change *= scale / norm(change)
            begin = before + change
            by_step = self._take(begin, t, t_next, 1) - u
            growth = norm(by_step) / scale
            by_halves = norm(self._take(begin, t, t_next, 2) - halves) / scale
            if growth > self._stable_growth and growth > _MORE_THAN_HALVES * by_halves:
                return True
            if not (0.0 < growth < np.inf):
                return False
            change = by_step
        return False

    def _take(self, u: Vector, t: float, t_next: float, count: int) -> Vector:
        """Return the state at t_next by ``count`` equal steps; NaN where a solve fails."""
        end = u.copy()
        stepper = self._make(self._dt / count)
        middle = 0.5 * (t + t_next)
        for begin, until in ((t, t_next),) if count == 1 else ((t, middle), (middle, t_next)):
            if stepper.step(end, begin, until) is not None:
                end.fill(np.nan)
                break
        return end
