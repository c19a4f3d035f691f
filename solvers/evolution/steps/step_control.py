"""Step-size control: equal steps, or steps that are adapted to their estimated errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise, takewhile
from typing import TypeAlias

from ...steppers.bdf import Bdf
from ...steppers.error_scale import ErrorScale
from ...steppers.step_runner import StepTimes
from ...steppers.stepper import Stepper
from ..start.arguments import Tolerances
from ..start.integration import Integration
from .initial_step import initial_step

__all__ = ["AdaptiveSteps", "FixedSteps", "ResumePoint", "StepControl", "step_control"]

# Safety factor: the next step is this factor times the one whose error would equal the tolerance,
# so that few steps are rejected. This and the next three were chosen by hand.
_SAFETY = 0.9
_MIN_FACTOR, _MAX_FACTOR = 0.2, 5.0  # limits of the ratio of a step to the one before
_MAX_FACTOR_OF_HIGH_ORDER = 10.0  # the same for methods whose steps cost many evaluations
# Exponents of the last two errors. Methods whose estimate is of a high order take few steps, and a
# PI controller would need some ten of them to find the longest.
_PI_EXPONENTS, _HIGH_ORDER = (0.7, 0.4), 8
# An implicit method keeps its step, and so its preconditioner, if it could grow by less than this
# factor only.
_DEAD_BAND = 1.2
# Factor after a step whose end is not finite, or whose linear solve failed; chosen by hand.
_AFTER_FAILURE = 0.25
_MIN_STEP = 16.0  # shortest step, in units in the last place of the time; chosen by hand
# If rounding of its end changes a step by more than this share, the step is the rounded one.
_ROUNDING = 1e-10
# Parts of the interval that a progress display counts if the number of steps is not known.
_PROGRESS_PARTS = 1000


ResumePoint: TypeAlias = tuple[int, float, float | None, float | None]
"""The data, besides the state, from which a run can be continued: the number of steps from t0 to
the state, and the step to take next; for adaptive steps also the time of the state, and the error
of the step before it, relative to the tolerance."""


class _Steps:
    """What both kinds of steps have: how many there were, and the time after them."""

    def __init__(self, integration: Integration) -> None:
        self._integration = integration
        self.step, self.t = integration.first_step, integration.begin
        self.rejected = 0
        self.last_error: float | None = None

    def move(self, integration: Integration) -> None:
        """Continue with an integration on another grid, and perhaps with other equal steps."""
        self._integration = integration

    @property
    def shortest(self) -> float:
        """The shortest step that time resolves; only a last step may be shorter."""
        return _MIN_STEP * math.ulp(self.t)


class FixedSteps(_Steps):
    """Equal steps: step n ends at t0 + n dt.

    ``step``: number of accepted steps from t0.
    ``last_step``: number of steps of the whole run; None for adaptive steps.
    ``t``: the time after the accepted steps.
    ``dt``: the step to try next.
    ``rejected``: number of rejected steps.
    ``last_error``: for adaptive steps, the error of the last one, relative to the tolerance.
    ``shown_first``, ``shown_last``: first and last number of a progress display.
    """

    is_adaptive = False

    def __init__(self, integration: Integration) -> None:
        super().__init__(integration)
        self.dt = integration.dt
        self.last_step: int = integration.last_step
        self.shown_first, self.shown_last = integration.first_step, integration.last_step
        self._begin = self.t

    def move(self, integration: Integration) -> None:
        """Continue with an integration on another grid, and perhaps with other equal steps."""
        super().move(integration)
        self.dt, self.last_step = integration.dt, integration.last_step

    @property
    def done(self) -> bool:
        """Whether the last time is reached."""
        return self.step >= self.last_step

    @property
    def shown(self) -> int:
        """Number of steps taken; the part of the interval if their number has changed."""
        first, last, until = self.shown_first, self.shown_last, self._integration.until
        if self.last_step == last:
            return self.step
        return first + int((last - first) * (self.t - self._begin) / (until - self._begin))

    def next_step(self) -> StepTimes | None:
        """Return the next step, None if time does not resolve it."""
        if self.dt >= self.shortest or self.step + 1 == self.last_step:
            return StepTimes(self.t, self._integration.time(self.step + 1), self.dt)
        return None

    def accepts(self, error: Callable[[], float], size: float) -> bool:
        """Accept every step, and count it."""
        self.advance()
        return True

    def advance(self) -> None:
        """Count an accepted step."""
        self.step += 1
        self.t = self._integration.time(self.step)

    def upcoming(self, count: int) -> list[StepTimes]:
        """Return the next steps, as far as time resolves them."""
        ends = [self.t, *(self._integration.time(self.step + k) for k in range(1, count + 1))]
        steps = [StepTimes(t, t_next, self.dt) for t, t_next in pairwise(ends)]
        return list(takewhile(lambda step: self.dt >= _MIN_STEP * math.ulp(step.t), steps))

    def shorten(self) -> None:
        """Return None: equal steps cannot be shortened."""

    def resume_point(self) -> ResumePoint:
        """Return the data to continue from the state after the accepted steps."""
        return self.step, self.dt, None, None

    def previous_point(self) -> ResumePoint:
        """Return the data to continue from the state before the last accepted step."""
        return self.step - 1, self.dt, None, None


class AdaptiveSteps(_Steps):
    """Adaptive steps, as long as the error is within ‖e‖ ≤ atol + rtol max(‖u‖, ‖u_next‖).

    ``integration``: the integration; its ``dt`` is the first step to try, or 0.
    ``tolerances``: the tolerances of the run.
    ``stepper``: the method.

    No step but the last one is shorter than 16 units in the last place of the time: if one of that
    length is rejected, there is no other to try.

    A PI controller: with r the error relative to the tolerance, r' that of the step before and
    k = error_order + 1, the next step is dt · 0.9 r^(-0.7/k) r'^(0.4/k), between a fifth and five
    times the last one, and not longer right after a rejection; for k ≥ 8 it is dt · 0.9 r^(-1/k),
    up to ten times the last one. Source: K. Gustafsson, M. Lundh,
    G. Söderlind, A PI stepsize control for the numerical solution of ordinary differential
    equations, BIT 28 (1988); E. Hairer, G. Wanner, Solving Ordinary Differential Equations II,
    section IV.2. The first step is that of `initial_step`.
    """

    is_adaptive = True
    last_step = None

    def __init__(self, integration: Integration, tolerances: Tolerances, stepper: Stepper) -> None:
        super().__init__(integration)
        self._tolerances = tolerances
        self._order = stepper.error_order + 1
        is_high = self._order >= _HIGH_ORDER
        self._exponents = (1.0, 0.0) if is_high else _PI_EXPONENTS
        self._max_factor = _MAX_FACTOR_OF_HIGH_ORDER if is_high else _MAX_FACTOR
        self._implicit = stepper.implicit
        resumed = None if integration.resumed is None else integration.resumed.last_error
        self.last_error: float = 1.0 if resumed is None else resumed
        self._begin = self.t
        self._after_rejection = False
        self._rejected_end = math.inf  # the end of the step that was rejected last from this time
        self.shown_first, self.shown_last = 0, _PROGRESS_PARTS
        self.dt = integration.dt or initial_step(integration, tolerances, stepper.first_order)
        self._tried = self._step_to_try()
        self._previous = self.resume_point()

    @property
    def done(self) -> bool:
        """Whether the last time is reached."""
        return self.t >= self._integration.until

    @property
    def shown(self) -> int:
        """The completed part of the interval, in thousandths."""
        length = self._integration.until - self._begin
        return int(_PROGRESS_PARTS * (self.t - self._begin) / length) if length else _PROGRESS_PARTS

    def next_step(self) -> StepTimes | None:
        """Return the step to try: ``dt``, or less so that the last step is not tiny.

        None if it is no shorter than the one that was rejected, if there is one.
        """
        step = self._step_to_try()
        if not step.t_next < self._rejected_end:
            return None
        self._tried = step
        return step

    def _step_to_try(self) -> StepTimes:
        t, until, shortest = self.t, self._integration.until, self.shortest
        dt = max(self.dt, shortest)
        if t + dt * (1.0 + 1e-10) >= until:
            return StepTimes(t, until, until - t)
        if t + 2.0 * dt > until:  # divide the rest into two equal steps
            dt = max(0.5 * (until - t), shortest)
        t_next = t + dt
        if abs(t_next - t - dt) > _ROUNDING * dt:
            dt = t_next - t  # or the times of all steps would drift from what is integrated
        return StepTimes(t, t_next, dt)

    def accepts(self, error: Callable[[], float], size: float) -> bool:
        """Return whether a step is accepted, and if so count it; choose the one to try next.

        ``error``: returns the norm of the estimated error of the step.
        ``size``: the larger one of the norms of the states at its ends.
        """
        allowed = float(self._tolerances.atol) + self._tolerances.rtol * size
        found = error()
        ratio = found / allowed if allowed > 0.0 else (math.inf if found else 0.0)
        if not math.isfinite(ratio):
            self.shorten()
            return False
        tried = self._tried.dt
        if ratio > 1.0:
            self._reject(max(_MIN_FACTOR, _SAFETY * ratio ** (-1.0 / self._order)))
            return False
        self._previous = self.step, self.dt, self.t, self.last_error
        ratio = max(ratio, 1e-10)
        factor = self._growth(ratio)
        self._after_rejection = False
        self.last_error = max(ratio, 1e-4)
        if tried < self.dt and factor >= 1.0:
            factor = max(factor, self.dt / tried)  # it was shortened only to end at a given time
        if not (self._implicit and 1.0 <= factor < _DEAD_BAND):
            self.dt = tried * factor
        self.advance()
        return True

    def _growth(self, ratio: float) -> float:
        """Return the factor for the next step after an accepted one."""
        last, before = (exponent / self._order for exponent in self._exponents)
        factor: float = _SAFETY * ratio**-last * self.last_error**before
        factor = min(self._max_factor, max(_MIN_FACTOR, factor))
        return min(factor, 1.0) if self._after_rejection else factor

    def advance(self) -> None:
        """Count an accepted step."""
        self.step += 1
        self.t, self._rejected_end = self._tried.t_next, math.inf

    def shorten(self) -> StepTimes | None:
        """Return a quarter of a failed step; None if time resolves no shorter one."""
        self._reject(_AFTER_FAILURE)
        return self.next_step()

    def _reject(self, factor: float) -> None:
        """Reject the step that was tried; the next one is shorter by a factor, if time allows."""
        self.rejected += 1
        self.dt, self._rejected_end = factor * self._tried.dt, self._tried.t_next
        self._after_rejection = True

    def resume_point(self) -> ResumePoint:
        """Return the data to continue from the state after the accepted steps."""
        return self.step, self.dt, self.t, self.last_error

    def previous_point(self) -> ResumePoint:
        """Return the data to continue from the state before the last accepted step."""
        return self._previous


class VariableOrderSteps(AdaptiveSteps):
    """Adaptive steps of a method that chooses its order, and with it the next step.

    A step stays the same until the method asks for another one: see `Bdf.choose`.
    """

    def __init__(self, integration: Integration, tolerances: Tolerances, stepper: Bdf) -> None:
        super().__init__(integration, tolerances, stepper)
        self._stepper = stepper
        stepper.scale = ErrorScale(tolerances.rtol, tolerances.atol, integration.ranks)

    def accepts(self, error: Callable[[], float], size: float) -> bool:
        """Return whether a step is accepted, and if so count it; choose the one to try next."""
        stepper, tried = self._stepper, self._tried.dt
        ratio = stepper.error_ratio()
        if not math.isfinite(ratio):
            self.shorten()
            return False
        if ratio > 1.0:
            self._reject(max(_MIN_FACTOR, _SAFETY * ratio ** (-1.0 / (stepper.next_order + 1))))
            return False
        self._previous = self.step, self.dt, self.t, self.last_error
        self.last_error = max(ratio, 1e-4)
        self.dt = tried * stepper.choose()
        self.advance()
        return True


StepControl: TypeAlias = FixedSteps | AdaptiveSteps


def step_control(integration: Integration, stepper: Stepper) -> StepControl:
    """Return the step-size control of an integration: adaptive if it has tolerances.

    A stepper gets what a checkpoint holds of its earlier steps.
    """
    memory = integration.memory
    if memory is not None:
        stepper.remember(integration.begin, *memory)
    if integration.tolerances is None:
        return FixedSteps(integration)
    if isinstance(stepper, Bdf):
        return VariableOrderSteps(integration, integration.tolerances, stepper)
    return AdaptiveSteps(integration, integration.tolerances, stepper)
