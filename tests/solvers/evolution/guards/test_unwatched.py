"""Which steps guards leave alone, and what they make of the norms at their ends."""

from types import SimpleNamespace

import numpy as np
import pytest
from split_problem import EXPLICIT, HEUN, name_of, pair

from batchkron.solvers import steppers
from batchkron.solvers.evolution.guards import GrowthBound, StepDoubling
from batchkron.solvers.steppers.step_runner import StepTimes


def decay(rate=-1.0):
    return SimpleNamespace(
        initial=np.ones(2),
        operator=rate * np.eye(2),
        is_linear=True,
        rhs=lambda t, u, out: np.multiply(rate, u, out=out),
    )


def doubling(problem, dt=0.1, steps=100, method="rk4"):
    return StepDoubling(lambda dt: steppers.get(method)(problem, dt), dt, steps)


def test_the_bound_of_a_norm_watches_no_step():
    problem = decay()
    guard = GrowthBound(problem, 0.0, problem.initial)
    assert min(guard.unwatched(number) for number in range(1, 100)) >= 1 << 20
    allowed = 1e3 * np.sqrt(2.0)
    assert guard.allows([1.0, 0.999 * allowed])
    assert not guard.allows([1.0, 1.001 * allowed, 1.0])
    assert not guard.allows([np.nan])
    assert guard.allows([1.0])
    unknown = GrowthBound(SimpleNamespace(rhs=problem.rhs), 0.0, problem.initial)
    assert unknown.allows([1e300])


@pytest.mark.parametrize("steps", [1, 20, 32, 33, 70])
def test_steps_that_are_compared_are_watched(steps):
    """Those of numbers that are multiples of 32, the last one, and one after the norm doubled."""
    guard, u = doubling(decay(), steps=steps), np.ones(2)
    assert guard.unwatched(1) == 0  # the norm at the beginning is not known yet
    guard.before_step(1, u)
    guard.objection(StepTimes(0.0, 0.1, 0.1), u, np.sqrt(2.0))
    for number in range(2, steps + 1):
        compared = min(k for k in range(number, steps + 1) if k % 32 == 0 or k == steps)
        assert guard.unwatched(number) == compared - number


def test_norms_that_double_are_watched():
    guard, u = doubling(decay()), np.ones(2)
    guard.before_step(1, u)
    guard.objection(StepTimes(0.0, 0.1, 0.1), u, np.sqrt(2.0))
    assert guard.allows([2.0, 2.8, 1.0])
    assert guard.allows([2.0, 1.0, 1e9])  # what follows the last one is not taken yet
    assert not guard.allows([2.9, 1.0])
    assert not guard.allows([np.nan, 1.0])
    guard.note(2.8)
    assert guard.unwatched(5) == 27
    guard.note(2.9)
    assert guard.unwatched(5) == 0
    guard.before_step(5, 2.05 * u)  # compared, so that the next doubling counts from here
    assert guard.objection(StepTimes(0.4, 0.5, 0.1), 2.05 * np.exp(-0.1) * u, 2.6) == ""
    assert guard.unwatched(6) == 26
    assert guard.allows([5.1, 1.0])
    assert not guard.allows([5.3, 1.0])


@pytest.mark.parametrize("method", [*EXPLICIT, HEUN], ids=name_of)
def test_parts_of_a_step_begin_with_the_state_that_is_given(rng, method):
    """Also if that is another one than the end of the step before, at the same time."""
    problem, _ = pair(rng, "two with factors", "one")
    guard = doubling(problem, method=method)
    t, dt = 0.3, 0.1
    for scale, count in ((1.0, 2), (2.5, 2), (2.5, 1), (0.3, 64), (1.0, 4)):
        begin = scale * problem.initial
        u, stepper = begin.copy(), steppers.get(method)(problem, dt / count)
        length = (t + dt) - t
        ends = [t + length * (k / count) for k in range(count)] + [t + dt]
        for k in range(count):
            stepper.step(u, ends[k], ends[k + 1])
        kept = guard._take(begin, t, t + dt, count)
        np.testing.assert_array_equal(kept, u)
        guard._take(2.0 * begin, t, t + dt, 2)
        np.testing.assert_array_equal(kept, u)  # a result is not overwritten by the next one
        t += dt


def test_two_comparisons_after_each_other(rng):
    """A norm that grows in each step: dormand-prince would keep its last slope."""
    problem = decay(8.0)
    guard = doubling(problem, method="dormand-prince")
    own = steppers.get("dormand-prince")(problem, 0.1)
    u, t = problem.initial.copy(), 0.0
    for number in range(1, 12):
        guard.before_step(number, u)
        t_next = 0.1 * number
        own.step(u, t, t_next)
        assert guard.objection(StepTimes(t, t_next, 0.1), u, float(np.linalg.norm(u))) == ""
        t = t_next
