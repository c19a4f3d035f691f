"""The steps of a run: of equal length, or chosen by the error that they make."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..products import Vector, norm
from ..steppers.stepper import Stepper
from .integration import ErrorControl, Plan

_SAFETY, _MIN_FACTOR, _MAX_FACTOR = 0.9, 0.2, 5.0  # usual values of step-size control
_DEAD_BAND = 1.2  # growth of an implicit method's step below which it stays as it is
_FAILED_STEP_FACTOR = 0.25  # length that is tried next, over that of a step that failed
_MIN_STEP_ULPS = 16.0  # length of a step in units in the last place of the time
_PROGRESS_UNITS = 1000  # of a progress display, where the number of steps is not known


@dataclass(frozen=True)
class Target:
    """A step to take.

    Attributes
    ----------
    t, t_next, dt : float
        Its ends, and its length.
    """

    t: float
    t_next: float
    dt: float


class FixedSteps:
    """Steps of one length: step n ends at t0 + n dt.

    Parameters
    ----------
    plan : Plan
        The run.
    """

    rejected = 0
    time: float | None = None
    last_error: float | None = None

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.step, self.dt = plan.first_step, plan.dt
        self.steps: int | None = plan.steps
        self.first, self.total = plan.first_step, plan.steps

    @property
    def t(self) -> float:
        """The time after the steps so far."""
        return self._plan.time(self.step)

    @property
    def done(self) -> bool:
        """Whether the last time is reached."""
        return self.step >= self._plan.steps

    @property
    def shown(self) -> int:
        """How far a progress display is, of ``total``."""
        return self.step

    def target(self) -> Target:
        """Return the next step."""
        return Target(self.t, self._plan.time(self.step + 1), self.dt)

    def judge(self, error: Vector | None, u: Vector, proposal: Vector) -> bool:
        """Take every step."""
        self.advance()
        return True

    def advance(self) -> None:
        """Count a step that has been taken."""
        self.step += 1

    def shorten(self) -> bool:
        """Return False: a step that failed is not tried again."""
        return False


class AdaptiveSteps:
    """Steps whose estimated error is within ‖e‖ ≤ atol + rtol max(‖u‖, ‖u_next‖), no shorter.

    Parameters
    ----------
    plan : Plan
        The run; its ``dt`` is the first step to try, or None.
    control : ErrorControl
        The tolerances.
    stepper : Stepper
        The method.

    Notes
    -----
    A PI controller: with r the error relative to the tolerance, r' that of the step before and
    k = error_order + 1, the next step is dt · 0.9 r^(-0.7/k) r'^(0.4/k), between a fifth and five
    times the last one, and not longer right after a rejection. Source: K. Gustafsson, M. Lundh,
    G. Söderlind, A PI stepsize control for the numerical solution of ordinary differential
    equations, BIT 28 (1988); E. Hairer, G. Wanner, Solving Ordinary Differential Equations II,
    section IV.2. The first step is that of E. Hairer, S. P. Nørsett, G. Wanner, Solving Ordinary
    Differential Equations I, section II.4.
    """

    steps: int | None = None

    def __init__(self, plan: Plan, control: ErrorControl, stepper: Stepper) -> None:
        self._plan, self._control = plan, control
        self._order = stepper.error_order + 1
        self._implicit = stepper.implicit
        self.step, self.rejected = plan.first_step, 0
        self._t = plan.t0 if control.time is None else control.time
        self.last_error: float | None = 1.0 if control.last_error is None else control.last_error
        self._begin = self._t
        self._after_rejection = False
        self.first, self.total = 0, _PROGRESS_UNITS
        self.dt = plan.dt or first_step(plan, control, stepper.order)
        self._tried = self._target(self.dt)

    @property
    def t(self) -> float:
        """The time after the steps so far."""
        return self._t

    @property
    def time(self) -> float | None:
        """The same, for a checkpoint."""
        return self._t

    @property
    def done(self) -> bool:
        """Whether the last time is reached."""
        return self._t >= self._plan.until

    @property
    def shown(self) -> int:
        """How far a progress display is, of ``total``."""
        length = self._plan.until - self._begin
        return (
            int(_PROGRESS_UNITS * (self._t - self._begin) / length) if length else _PROGRESS_UNITS
        )

    def target(self) -> Target:
        """Return the step to try."""
        self._tried = self._target(self.dt)
        return self._tried

    def _target(self, dt: float) -> Target:
        t, until = self._t, self._plan.until
        if t + dt * (1.0 + 1e-10) >= until:
            return Target(t, until, until - t)
        if t + 2.0 * dt > until:  # two equal steps, and none that is tiny
            dt = 0.5 * (until - t)
        return Target(t, t + dt, dt)

    def judge(self, error: Vector | None, u: Vector, proposal: Vector) -> bool:
        """Return whether the step is taken; choose the next one."""
        assert error is not None
        allowed = self._control.atol + self._control.rtol * max(norm(u), norm(proposal))
        size = norm(error)
        ratio = size / allowed if allowed > 0.0 else (math.inf if size else 0.0)
        if not math.isfinite(ratio):
            self.shorten()
            return False
        tried = self._tried.dt
        if ratio > 1.0:
            self.rejected += 1
            self.dt = tried * max(_MIN_FACTOR, _SAFETY * ratio ** (-1.0 / self._order))
            self._after_rejection = True
            return False
        ratio = max(ratio, 1e-10)
        assert self.last_error is not None
        factor = _SAFETY * ratio ** (-0.7 / self._order) * self.last_error ** (0.4 / self._order)
        factor = min(_MAX_FACTOR, max(_MIN_FACTOR, factor))
        if self._after_rejection:
            factor = min(factor, 1.0)
        self._after_rejection = False
        self.last_error = max(ratio, 1e-4)
        if tried < self.dt and factor >= 1.0:
            factor = max(factor, self.dt / tried)  # it was shortened to end somewhere
        if not (self._implicit and 1.0 <= factor < _DEAD_BAND):
            self.dt = tried * factor
        self.advance()
        return True

    def advance(self) -> None:
        """Count a step that has been taken."""
        self.step += 1
        self._t = self._tried.t_next

    def shorten(self) -> bool:
        """Try a quarter of a step that failed; return whether time still resolves it."""
        self.rejected += 1
        self.dt = _FAILED_STEP_FACTOR * self._tried.dt
        self._after_rejection = True
        return self.resolved

    @property
    def resolved(self) -> bool:
        """Whether the step to try is longer than rounding of the time."""
        scale = max(abs(self._t), abs(self._plan.until))
        return self.dt > _MIN_STEP_ULPS * float(np.spacing(scale))


def first_step(plan: Plan, control: ErrorControl, order: int) -> float:
    """Return a first step for a tolerance, from two evaluations of f.

    Parameters
    ----------
    plan : Plan
        The run, at its first step.
    control : ErrorControl
        The tolerances.
    order : int
        Of the method.

    Returns
    -------
    float
        At most until - t0.
    """
    problem, t, u = plan.problem, plan.t0, plan.u
    longest = plan.until - t
    if longest <= 0.0:
        return 1.0
    slope, other = np.empty_like(u), np.empty_like(u)
    problem.rhs(t, u, slope)
    size, speed = norm(u), norm(slope)
    allowed = control.atol + control.rtol * max(size, speed * longest * 1e-3)
    if allowed <= 0.0 or not math.isfinite(speed):
        return 1e-6 * longest
    d0, d1 = size / allowed, speed / allowed
    trial = 0.01 * d0 / d1 if d0 > 1e-5 and d1 > 1e-5 else 1e-6 * longest
    trial = min(trial, longest)
    problem.rhs(t + trial, u + trial * slope, other)
    other -= slope
    d2 = norm(other) / allowed / trial
    steepest = max(d1, d2)
    if not math.isfinite(steepest):
        return trial
    if steepest <= 1e-15:
        return min(max(1e-6 * longest, 1e-3 * trial), longest)
    found = float((0.01 / steepest) ** (1.0 / (order + 1)))
    return min(100.0 * trial, found, longest)


def step_control_of(plan: Plan, stepper: Any) -> FixedSteps | AdaptiveSteps:
    """Return how a plan's steps are chosen."""
    if plan.control is None:
        return FixedSteps(plan)
    return AdaptiveSteps(plan, plan.control, stepper)
