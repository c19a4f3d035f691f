"""Guards, which look after each step whether a run has become unstable."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from batchkron.attributes import attribute
from batchkron.errors import NotPhysicalError

from ..products import Ranks, Vector, any_over, max_over, norm_over
from ..protocols import has_operator, known_beside_rhs, operator_of, says_linear
from ..spectrum import numerical_abscissa, random_start
from ..steppers.step_runner import StepTimes
from ..steppers.stepper import Stepper
from .operator_checks.linearity import is_linear
from .start.integration import Integration

__all__ = ["GrowthBound", "StepDoubling", "watched"]

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
        zero, problem, ranks = np.zeros_like(u), self._problem, self._ranks
        if not (says_linear(problem) or is_linear(problem, t_next, zero, u, ranks)):
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


_OBJECTION = (
    "A step makes a small perturbation larger, which steps of half its length or less do not: dt "
    "is beyond the stability limit."
)
_DIVERGENCE = (
    "The state grows, and the more parts its last step is divided into, the faster: "
    "the solution becomes infinite, or dt is far too long for it."
)
# All numbers were chosen by hand.
_CHECK_INTERVAL = 32  # number of steps from one that is compared to the next
# Growth of the state's norm since the last comparison that demands another one, and that from which
# a solution that becomes infinite is looked for.
_GROWTH_COMPARED, _GROWTH_SUSPECTED = 2.0, 1.5
_MAX_GROWTH = 2.0  # factor by which a perturbation may grow in the whole run
# Allowed difference of a step and its two halves, relative to the state; beyond it, the growth of a
# perturbation is compared.
_MAX_DIFFERENCE = 0.1
# Norm of the perturbation relative to the state. Where f is linear it is as large as the state, so
# that errors of linear solves are small against it.
_PERTURBATION, _LINEAR_PERTURBATION = 1e-3, 1.0
_AGREEMENT = 0.2  # relative difference of two divisions of a step that agree
# A perturbation grows more in a step than in its halves if the ratio of the factors exceeds this.
_GROWTH_RATIO = 1.2
_MAX_PARTS = 64  # largest number of parts into which a step is divided
# Powers of two by which a step is divided to see how fast a perturbation grows, and the largest
# change of the perturbation, relative to it, that shows this.
_SHORT_STEPS, _SHORT_CHANGE = range(7, 40, 2), 0.1


class StepDoubling:
    """Compares some steps with two steps of half their length.

    These are every 32nd step, the last one, and one whenever the state's norm has doubled since the
    last comparison. If a method treats f, or a part of it, explicitly and is not stable with its
    step, each step amplifies some components, but two half steps do not. If the two results differ
    by a tenth of the state, a small perturbation along the difference is propagated both ways: the
    step is unstable if it enlarges the perturbation, and more than the half steps do. A step that
    is only inaccurate, because the solution grows or oscillates quickly, does not meet this
    condition.

    If the norm has grown by half and the half steps disagree, the solution may become infinite: the
    step is divided into 2, 4, … up to 64 parts, until two divisions agree. The run ends if they do
    not, and the factor by which the state grows from one to the next does not fall, as it does for
    an exponential.

    ``make``: ``make(dt)`` returns a new stepper of the run's method.
    ``dt``: the step of the run.
    ``steps``: the number of the last step.
    ``ranks``: the ranks that share the state.
    ``is_linear``: whether f is known to be linear.

    A perturbation grows too much if the same growth in each step of the run would more than double
    it, as in `stability`. The change of the state itself is not a criterion: beyond the stability
    limit it may be slow (R(z) of `rk4` is positive there).

    Storage: two vectors and the method's own, and during a comparison 5 more. Cost: two half steps
    for every 32nd step, and six more steps if the results disagree. If the perturbation grows in
    the half steps, too, the step is divided into 4, 8, … up to 64 parts until two results agree:
    half of a step far beyond the stability limit is beyond it as well. If none agree, it is asked
    how fast the perturbation grows at the beginning of the step, by a step that changes it little.
    """

    def __init__(
        self,
        make: Callable[[float], Stepper],
        dt: float,
        steps: int,
        ranks: Ranks | None = None,
        *,
        is_linear: bool = False,
    ) -> None:
        self._make, self._dt, self._steps, self._ranks = make, dt, steps, ranks
        self._stable_growth = _MAX_GROWTH ** (1.0 / max(steps, 1))
        self.is_linear = is_linear
        self._perturbation = _LINEAR_PERTURBATION if is_linear else _PERTURBATION
        self._before: Any = None
        self._size = self._compared = 0.0  # norms of the state: now, and when last compared
        self._stepper: Stepper | None = None
        self._end: Any = None  # the state that parts of a step overwrite
        self._failed = False  # whether a solve of a part of a step failed

    def before_step(self, number: int, u: Vector) -> None:
        """Copy the state before step ``number``, counted from 1, if that step will be compared."""
        due = number % _CHECK_INTERVAL == 0 or number == self._steps
        self._before = u.copy() if due or self._has_grown(_GROWTH_COMPARED) else None
        if self._compared == 0.0:
            self._compared = self._norm(u)

    def unwatched(self, number: int) -> int:
        """Return how many steps from ``number`` on come before one that is compared."""
        if self._compared == 0.0 or self._has_grown(_GROWTH_COMPARED):
            return 0
        return min(-number % _CHECK_INTERVAL, self._steps - number)

    def allows(self, sizes: Sequence[float]) -> bool:
        """Return whether none of the norms but the last demands that a step is compared."""
        return all(size < _GROWTH_COMPARED * self._compared for size in sizes[:-1])

    def note(self, size: float) -> None:
        """Take ‖u‖₂ at the end of steps that were not compared."""
        self._size = size

    def objection(self, step: StepTimes, u: Vector, size: float) -> str:
        """Return an error text if the step that ends with the state u (N,) is unstable, else ""."""
        self._size = size
        before, self._before = self._before, None
        if before is None:
            return ""
        objection = self._compare(before, step.t, step.t_next, u)
        self._compared = size
        return objection

    def _has_grown(self, factor: float) -> bool:
        """Whether the state's norm has grown by a factor since the last comparison."""
        return 0.0 < factor * self._compared <= self._size

    def _compare(self, before: Vector, t: float, t_next: float, u: Vector) -> str:
        """Return an error text if the step from ``before`` to u is unstable, else ""."""
        with np.errstate(all="ignore"):
            halves = self._take(before, t, t_next, 2)
            apart = u - halves
            is_finite = self._is_finite(apart)
            if is_finite and not self._norm(apart) > _MAX_DIFFERENCE * self._norm(u):
                return ""
            if is_finite and self._grows(before, u, halves, apart, t, t_next):
                return _OBJECTION
            suspected = self._has_grown(_GROWTH_SUSPECTED)
            return _DIVERGENCE if suspected and self._diverges(before, t, t_next) else ""

    def _diverges(self, before: Vector, t: float, t_next: float) -> bool:
        """Whether the more parts a step is divided into, the faster the state at its end grows."""
        limit = math.sqrt(float(np.finfo(before.dtype).max))
        if self._norm(before) > limit:  # an exponential may overflow here
            return False
        self._failed, last, slower, count = False, self._take(before, t, t_next, 1), False, 2
        size, rise = self._norm(last), 0.0
        while count <= _MAX_PARTS:
            now = self._take(before, t, t_next, count)
            if not self._is_finite(now):
                return not self._has_failed()
            if self._norm(now - last) <= _AGREEMENT * self._norm(now):
                return False
            slower = self._norm(now) <= size * rise
            size, rise = self._norm(now), self._norm(now) / size
            last, count = now, 2 * count
        return not slower

    def _has_failed(self) -> bool:
        return any_over(self._ranks, self._failed)

    def _is_finite(self, x: Vector) -> bool:
        return not any_over(self._ranks, not np.isfinite(x).all())

    def _grows(
        self, before: Vector, u: Vector, halves: Vector, change: Vector, t: float, t_next: float
    ) -> bool:
        """Whether a step enlarges a perturbation, and more than two half steps do."""
        scale = self._perturbation * (self._norm(before) or self._norm(u))
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
        if agreed == 2:
            return False
        rate = self._rate(before, begin, t, t_next, scale)
        return rate is not None and math.log(growth) > rate + math.log(_GROWTH_RATIO)

    def _rate(
        self, before: Vector, begin: Vector, t: float, t_next: float, scale: float
    ) -> float | None:
        """Return the logarithm of a perturbation's growth in a step at its rate in the beginning.

        None if no short step shows it.
        """
        for power in _SHORT_STEPS:
            parts = 2.0**power
            t_short = t + (t_next - t) / parts
            grown = self._take(begin, t, t_short, 1, self._dt / parts)
            grown -= self._take(before, t, t_short, 1, self._dt / parts)
            size = self._norm(grown) / scale
            if self._norm(grown - (begin - before)) <= _SHORT_CHANGE * scale and size > 0.0:
                return parts * math.log(size)
        return None

    def _norm(self, x: Vector) -> float:
        return norm_over(self._ranks, x)

    def _take(
        self, u: Vector, t: float, t_next: float, count: int, dt: float | None = None
    ) -> Vector:
        """Return the state at t_next after ``count`` equal steps, of the run's step by default.

        It is NaN if a linear solve fails or the right-hand side is not defined for a stage.
        """
        times = [t + (t_next - t) * (n / count) for n in range(count)] + [t_next]
        dt, ends = dt or self._dt / count, pairwise(times)
        try:
            if self._stepper is None:
                self._stepper, self._end = self._make(self._dt), np.empty_like(u)
            end = self._end
            np.copyto(end, u)
            if self._stepper.takes_any_dt:
                self._stepper.restart()
                self._stepper.take(end, [StepTimes(*step, dt) for step in ends])
                failed = False
            else:
                stepper = self._make(dt)
                failed = any(stepper.step(end, *step) is not None for step in ends)
            self._failed = self._failed or failed
        except NotPhysicalError:
            failed = True
        if failed:
            end.fill(np.nan)
        found: Vector = end.copy()
        return found


def watched(
    integration: Integration, make: Callable[[float], Stepper], is_linear: bool | None
) -> StepDoubling | None:
    """Return the guard of a run for what `check_stability` returns; None for stable steps."""
    if is_linear is None:
        return None
    steps, ranks = integration.last_step, integration.ranks
    return StepDoubling(make, integration.dt, steps, ranks, is_linear=is_linear)
