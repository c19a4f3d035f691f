"""The solution between the ends of a step."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..products import Vector, norm
from ..protocols import TimeProblem
from ..steppers.embedded import EmbeddedStepper
from ..steppers.stepper import Stepper

# a slope that leads further than this many times the size of the states is not resolved by dt; one
# that is, from a state 0 under a source t^p, leads up to p times as far as the step gets
_MAX_REACH = 8.0


class StepInterpolant:
    """u(t) for t in a step that has just been computed, before the next one.

    By the method's own continuous weights where its tableau has them, by a shorter step of
    exponential methods, else by the cubic polynomial with the values and slopes f(t, u) of both
    ends, whose error is O(dt⁴). Where a slope would lead many times further away than the states
    are large, dt does not resolve what f does, and the line between the ends is taken.

    Parameters
    ----------
    problem : TimeProblem
        What is solved.
    stepper : Stepper
        The method that took the step.
    like : ndarray, shape (N,)
        A vector of the run.

    Notes
    -----
    Storage: 3 vectors. Slopes are evaluated once a step, when first needed, where the method does
    not know them.
    """

    def __init__(self, problem: TimeProblem, stepper: Stepper, like: Vector) -> None:
        self._problem, self._stepper = problem, stepper
        self._slopes = [np.empty_like(like), np.empty_like(like)]
        self._state, self._begin = np.empty_like(like), np.empty_like(like)
        self._end: Any = None
        self._t = self._t_next = 0.0
        self._sloped = self._resolved = False

    def begin(self, t: float, u: Vector) -> None:
        """Take the state that a step begins with; it is copied."""
        self._t = t
        np.copyto(self._begin, u)

    def complete(self, t_next: float, u: Vector) -> None:
        """Take the state that the step ends with; it is not copied."""
        self._t_next, self._end, self._sloped = t_next, u, False

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
        self._problem.rhs(self._t, self._begin, self._slopes[0])
        known = None
        if isinstance(self._stepper, EmbeddedStepper):
            known = self._stepper.end_slope()
        if known is None:
            self._problem.rhs(self._t_next, self._end, self._slopes[1])
        else:
            np.copyto(self._slopes[1], known)
        dt, way = self._t_next - self._t, self._end - self._begin
        size = max(norm(self._begin), norm(self._end))
        self._resolved = all(norm(dt * slope - way) <= _MAX_REACH * size for slope in self._slopes)
        self._sloped = True
