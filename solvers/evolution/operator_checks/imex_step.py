"""The check before a run that an IMEX method is stable with its step, for linear problems."""

from __future__ import annotations

import math
from typing import Any

from ...products import Vector
from ...protocols import has_operator, implicit_part_of
from ...spectrum import random_start
from ..start.integration import Integration
from .imex_parts import Parts, Worst, krylov_parts
from .stability import SAFE_FRACTION, StepCheck, UnstableStepError, is_stable, largest_stable
from .step_growth import HomogeneousProblem, MakeStepper, StepGrowth, growth_of_step

__all__ = ["check_imex_step"]

# Powers of the step, which damp what is stiff, and steps of Arnoldi's method with it: a twelfth of
# the run, but at least 4 and at most 20. These numbers, and those below, were chosen by hand.
_POWERS, _MIN_STEPS, _MAX_STEPS, _SHARE = 2, 4, 20, 12
# The same in the search for the largest stable step, from a vector that grows with a longer one.
_TRIAL_STEPS = (4, 8)
_RATIO, _PRECISION = 1.3, 1.04  # ratio of two trials, and of the last ones
_MAX_TRIALS = 60  # largest number of trials
# Powers and steps of Arnoldi's method that confirm the result, and the ratio to a shorter one.
_CONFIRMING_STEPS = ((_POWERS, _MAX_STEPS), (20, _MAX_STEPS))
_CONFIRMED = 0.95
_MIN_RATIO = 1e-6  # smallest result relative to the step of the run


def check_imex_step(integration: Integration, make_stepper: MakeStepper | None = None) -> StepCheck:
    """Check the step of an IMEX run of a linear problem.

    ``integration``: its f is A(t) u + s(t), and its steps are equal.
    ``make_stepper``: ``make_stepper(integration)`` returns a function of dt that returns a stepper.
      Without it, no step is taken, and only runs of up to 20 unknowns are refused.

    Returns the result.

    A step is stable as for explicit methods: in the whole run no component is amplified by more
    than 2, relative to the solution.

    First, A_I and the explicit part A_E = A - A_I are projected on a basis V of 20 steps of
    Arnoldi's method with A_E: 40 products with A_I and 20 with A, whose result is kept for the next
    run. A step is safe if, also with dt / 0.8, the method is stable for all pairs of an eigenvalue
    of V^H A_E V and a multiple of one of V^H A_I V, and for the projected problem u' = V^H A V u,
    whose parts need not commute. The first allows 0.01 to 1.06 times the largest stable step. For
    up to 20 unknowns the projected problem is the whole one, and decides alone.

    Otherwise the step of u' = A u itself decides: two powers and up to 20 steps of Arnoldi's method
    find the component that it amplifies most. For transport with diffusion that was within 3 % of
    the largest stable step. For inflow problems, which are not normal, it allows 0.7 to 0.95 times
    what the eigenvalues allow, as powers of the step do. The run is then watched by
    `StepDoubling`.

    The largest stable step is found by bisection to 4 %, from vectors that grow in steps that are
    too long, reduced by 5 %, and confirmed by 20 powers and 20 steps of Arnoldi's method.
    """
    if integration.is_done or implicit_part_of(integration.problem) is not None:
        return None, False
    return _Check(integration, make_stepper).result()


class _Check:
    """The check of one run, see `check_imex_step`."""

    def __init__(self, integration: Integration, make_stepper: MakeStepper | None) -> None:
        self._integration, self._make = integration, make_stepper
        self._problem = HomogeneousProblem(integration.problem, integration.u)
        self._length = integration.until - integration.t0
        method: Any = integration.method
        self._tableau = method.tableau

    def result(self) -> StepCheck:
        """Return the result."""
        dt = self._integration.dt
        operators = self._operators()
        if all(whole is implicit for whole, implicit in operators.values()):
            return None, True  # nothing is explicit
        parts = [krylov_parts(self._problem, t, self._integration.ranks) for t in operators]
        known = [found for found in parts if found is not None]
        if len(known) < len(parts):
            return None, False
        if all(found.is_whole for found in known):
            return self._by_projection(known)
        long = dt / SAFE_FRACTION
        doubtful = {
            t: found
            for t, found in zip(operators, known, strict=True)
            if not self._safe(found, long)
        }
        if not doubtful or self._make is None:
            is_known = len(operators) == 1 and has_operator(self._integration.problem)
            return None, is_known and not doubtful
        return self._by_steps(doubtful, self._make)

    def _operators(self) -> dict[float, tuple[Any, Any]]:
        """Return A and A_I at the beginning, the middle and the end, if they differ there."""
        begin, until = self._integration.begin, self._integration.until
        found: dict[float, tuple[Any, Any]] = {}
        for t in (begin, 0.5 * (begin + until), until - self._integration.dt):
            now = self._problem.operators(t)
            if not any(now[0] is whole and now[1] is part for whole, part in found.values()):
                found[t] = now
        return found

    def _safe(self, parts: Parts, dt: float) -> bool:
        """Whether a step is stable for both parts, without taking it."""
        worst = parts.worst(self._tableau, dt), parts.worst_pair(self._tableau, dt)
        return parts.is_complete and all(self._allows(found, dt) for found in worst)

    def _allows(self, worst: Worst, dt: float) -> bool:
        return is_stable(worst[0], dt, self._length)

    def _by_projection(self, parts: list[Parts]) -> StepCheck:
        """Check the step by projected problems that are whole ones."""
        dt = self._integration.dt

        def stable(step: float) -> bool:
            return all(self._allows(found.worst(self._tableau, step), step) for found in parts)

        if stable(dt):
            return None, stable(dt / SAFE_FRACTION) and len(parts) == 1
        found = (known.worst(self._tableau, dt) for known in parts)
        _, factor, rate = max(found, key=lambda one: one[0])
        return self._refusal(factor, rate, largest_stable(stable, dt))

    def _by_steps(self, parts: dict[float, Parts], make: MakeStepper) -> StepCheck:
        """Check the step by taking it from the times of given parts."""
        run = self._integration
        steps = (run.last_step - run.first_step) // (_SHARE * len(parts))
        # Few steps may accept; they see the first growth of a step that is not normal alone.
        counts = sorted({min(_MAX_STEPS, max(_MIN_STEPS, steps)), _MAX_STEPS})
        grown: dict[float, StepGrowth] = {}
        for t in parts:
            found = [self._growth(make, t, run.dt, _POWERS, counts[0])]
            if len(counts) > 1 and not self._accepts(found[0], run.dt):
                found.append(self._growth(make, t, run.dt, _POWERS, counts[1]))
            if found[-1] is not None and not self._accepts(found[-1], run.dt):
                grown[t] = found[-1]
        if not grown:
            return None, False
        largest = run.dt
        for t, growth in grown.items():
            largest = self._shortened(make, t, parts[t], largest, growth)
        worst = max(grown.values(), key=lambda one: one.excess)
        return self._refusal(worst.factor, worst.rate, largest)

    def _growth(
        self,
        make: MakeStepper,
        t: float,
        dt: float,
        powers: int,
        steps: int,
        start: Vector | None = None,
    ) -> StepGrowth | None:
        run = self._integration
        start = random_start(run.u, run.ranks) if start is None else start
        return growth_of_step(run, make, t, dt, start, powers=powers, steps=steps)

    def _accepts(self, growth: StepGrowth | None, dt: float) -> bool:
        """Whether a step is stable; True also if a linear solve failed, as the run will say."""
        return growth is None or growth.is_stable(dt, self._length)

    def _shortened(
        self, make: MakeStepper, t: float, parts: Parts, dt: float, growth: StepGrowth
    ) -> float:
        """Return the largest stable step from t, which is shorter than dt; 0 if none is found."""
        good, bad, grown = 0.0, dt, growth
        trial = min(self._longest_projected(parts, dt), dt / _RATIO) or dt / _RATIO
        for _ in range(_MAX_TRIALS):
            found = self._growth(make, t, trial, *_TRIAL_STEPS, grown.vector)
            if found is not None and self._accepts(found, trial):
                good = trial
            else:
                bad, grown = trial, found or grown
            if bad <= _PRECISION * good:
                break
            trial = min(math.sqrt(good * bad), _RATIO * good) if good else bad / _RATIO
        good *= _CONFIRMED
        while good > _MIN_RATIO * dt:
            confirmed = (self._growth(make, t, good, *steps) for steps in _CONFIRMING_STEPS)
            if all(one is not None and self._accepts(one, good) for one in confirmed):
                return good
            good *= _CONFIRMED
        return 0.0

    def _longest_projected(self, parts: Parts, dt: float) -> float:
        """Return the longest step up to dt that is stable for a projected problem, 0 for none."""

        def stable(step: float) -> bool:
            return self._allows(parts.worst(self._tableau, step), step)

        return dt if stable(dt) else largest_stable(stable, dt)

    def _refusal(self, factor: float, rate: float, largest: float) -> StepCheck:
        run = self._integration
        unstable = UnstableStepError(
            run.method.name, run.dt, complex(rate), factor, largest, is_eigenvalue=False
        )
        return unstable, False
