"""A step for an explicit method, for a problem that suggests only one for implicit methods."""

from __future__ import annotations

from typing import Any

from batchkron.attributes import attribute

from ...protocols import has_operator, says_linear
from ...spectrum import random_start
from ...steppers.registry import get
from ...steppers.stepper import Stepper
from ..start.arguments import finite_number, setting, step_suits, suggests_step
from ..start.integration import Integration, plan_integration
from .stability import SAFE_FRACTION, is_explicit_and_linear, largest_explicit_step
from .step_growth import growth_of_step

__all__ = ["suited_step"]

# Powers of a step and steps of Arnoldi's method that confirm it, and the ratio to a shorter one if
# they do not; chosen by hand.
_POWERS, _STEPS = 100, 20
_SHORTER = 0.8
_MAX_TRIALS = 20


def suited_step(problem: Any, until: float, method: Any) -> float | None:
    """Return a step for an explicit method if a problem suggests none for it.

    Result: 0.8 times the largest step with which the method is stable, but not more than the
    problem suggests for its implicit method. None if that suits the method, or the largest stable
    step is not known: f is not A(t) u + s(t) with an operator, or no step is stable. Without a
    suggestion f must be that by ``is_linear``, and the step is not more than the whole run.

    The largest stable step is that of the check of all explicit runs. It may be too large for
    operators that are not normal, so it is confirmed by 100 powers of the step on a random vector
    and 20 steps of Arnoldi's method, and shortened by a fifth until they do.
    """
    stepper, t0 = get(setting(problem, method, "method")), attribute(problem, "t0", 0.0)
    whole = until - finite_number("problem.t0", t0)
    if suggests_step(problem):
        is_wanted, suggested = not step_suits(problem, method), setting(problem, None, "dt")
    else:
        is_wanted, suggested = not stepper.implicit and says_linear(problem), whole
    if not (is_wanted and has_operator(problem) and whole > 0.0):
        return None
    run = plan_integration(problem, until=until, method=stepper, dt=max(whole, float(suggested)))
    if run.is_done or not is_explicit_and_linear(run):
        return None
    dt = SAFE_FRACTION * largest_explicit_step(run)
    for _ in range(_MAX_TRIALS):
        if dt == 0.0 or _is_confirmed(run, stepper, dt):
            break
        dt *= _SHORTER
    else:
        return None
    return min(dt, float(suggested)) or None


def _is_confirmed(run: Integration, stepper: type[Stepper], dt: float) -> bool:
    """Whether powers of a step on a random vector do not grow."""
    start = random_start(run.u, run.ranks)
    grown = growth_of_step(
        run,
        lambda moved: lambda dt: stepper(moved.problem, dt),
        run.begin,
        dt,
        start,
        powers=_POWERS,
        steps=_STEPS,
    )
    return grown is not None and grown.is_stable(dt, run.until - run.t0)
