"""Dense output: the solution between the ends of a step."""

from __future__ import annotations

from typing import Any

import numpy as np

from batchkron.errors import NotPhysicalError

from ...products import Ranks, Vector, norm_over
from ...protocols import TimeProblem
from ...steppers.embedded import EmbeddedStepper
from ...steppers.stepper import Stepper

# If dt times a slope exceeds this multiple of the states' norms, dt does not resolve the slope, and
# the solution is interpolated linearly. Chosen by hand: a resolved slope, from state 0 under a
# source t^p, exceeds the step's change by up to the factor p.
_MAX_REACH = 8.0


class StepInterpolant:
    """u(t) for t in the step that was computed last.

    It is interpolated with the method's continuous weights if its tableau has them, and computed by
    a shorter step for exponential methods. Otherwise it is the cubic Hermite polynomial of the
    values and slopes f(t, u) at both ends, with error O(dt⁴). If dt times a slope is many times
    larger than the states, dt does not resolve f, and the interpolation is linear.

    ``stepper``: the method that computes the steps.
    ``like`` (ndarray, shape (N,)): a vector of the run.
    ``ranks``: the ranks that share it.

    Storage: 4 vectors. Slopes that the method does not provide are evaluated on the first request
    in a step; one at its beginning is that at the end of the step before, if it was evaluated.
    """

    def __init__(
        self, problem: TimeProblem, stepper: Stepper, like: Vector, ranks: Ranks | None = None
    ) -> None:
        self._problem, self._stepper, self._ranks = problem, stepper, ranks
        self._slopes = [np.empty_like(like), np.empty_like(like)]
        self._state, self._begin = np.empty_like(like), np.empty_like(like)
        self._end: Any = None
        self._t = self._t_next = 0.0
        self._sloped = self._resolved = False
        self._has_first = self._has_last = False  # whether slopes are f at the step's ends

    def begin(self, t: float, u: Vector) -> None:
        """Set the state at the beginning of a step; it is copied."""
        self._has_first = self._has_last and t == self._t_next
        if self._has_first:
            self._slopes.reverse()
        self._t, self._has_last = t, False
        np.copyto(self._begin, u)

    def complete(self, t_next: float, u: Vector) -> None:
        """Set the state at the end of the step; it is not copied."""
        self._t_next, self._end, self._sloped = t_next, u, False

    @property
    def degree(self) -> int:
        """The degree in time of the solution inside a step; 3 also if it is no polynomial."""
        return self._stepper.dense_degree if isinstance(self._stepper, EmbeddedStepper) else 3

    @property
    def interval(self) -> tuple[float, float]:
        """The times of the step's ends."""
        return self._t, self._t_next

    def at(self, t: float) -> Vector:
        """Return the state at a time of the step; the next call overwrites it."""
        if t in self.interval:
            np.copyto(self._state, self._begin if t == self._t else self._end)
            return self._state
        dt = self._t_next - self._t
        theta = (t - self._t) / dt
        stepper = self._stepper
        own = isinstance(stepper, EmbeddedStepper)
        if own and stepper.interpolate(self._begin, theta, self._state):  # type: ignore[attr-defined]
            return self._state
        self._find_slopes()
        rest = 1.0 - theta
        if not self._resolved:
            self._state[...] = rest * self._begin + theta * self._end
            return self._state
        weights = (
            (1.0 + 2.0 * theta) * rest * rest,
            theta * theta * (3.0 - 2.0 * theta),
            dt * theta * rest * rest,
            -dt * theta * theta * rest,
        )
        self._state[...] = weights[0] * self._begin + weights[1] * self._end
        self._state += weights[2] * self._slopes[0] + weights[3] * self._slopes[1]
        return self._state

    def _find_slopes(self) -> None:
        if self._sloped:
            return
        if not self._has_first:
            self._problem.rhs(self._t, self._begin, self._slopes[0])
            self._has_first = True
        known = None
        if isinstance(self._stepper, EmbeddedStepper):
            known = self._stepper.end_slope()
        if known is not None:
            np.copyto(self._slopes[1], known)
        else:
            try:
                self._problem.rhs(self._t_next, self._end, self._slopes[1])
                self._has_last = True
            except NotPhysicalError:  # the next step will raise it again, and end the run
                self._sloped, self._resolved = True, False
                return
        dt, way = self._t_next - self._t, self._end - self._begin
        ranks = self._ranks
        size = max(norm_over(ranks, self._begin), norm_over(ranks, self._end))
        reaches = [norm_over(ranks, dt * slope - way) for slope in self._slopes]
        self._resolved = all(reach <= _MAX_REACH * size for reach in reaches)
        self._sloped = True
