"""Steps that are too short for the resolution of the time in float64."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from methods import EQUAL_STEPS

from batchkron.solvers import Adapt, EvolveStatus, evolve, steppers

ALL = EQUAL_STEPS
ABLE = [name for name in ALL if steppers.get(name).error_order]
RATES = np.array([-1.0, -0.3])


def decay(t0, speed=1.0, dtype=np.float64):
    """u' = speed · RATES · u."""
    rates = (speed * RATES).astype(dtype)
    return SimpleNamespace(
        t0=t0, initial=np.array([1.0, 0.5], dtype), operator=np.diag(rates),
        rhs=lambda t, u, out: np.multiply(u, rates, out=out),
    )  # fmt: skip


def ends_at_once(problem, **options):
    """Whether a run ends with its first state, because no step is possible; its text says so."""
    tried = []

    def stop(state):
        tried.append(state.t)
        return len(tried) > 50  # without a check such a run never ends

    result = evolve(problem, allow_unstable=True, callback=stop, **options)
    assert result.status is EvolveStatus.STEP_TOO_SMALL
    assert "No step that time resolves" in result.message
    resolution = math.ulp(problem.t0)
    assert f"float64 resolves times to {resolution:.2g}, so that no step may be" in result.message
    np.testing.assert_array_equal(result.u, problem.initial)
    return (result.t, result.steps, tried) == (problem.t0, 0, [])


@pytest.mark.parametrize("first", [{}, {"dt": 0.01}])
@pytest.mark.parametrize("t0", [1e15, 1e16, -1e16])
@pytest.mark.parametrize("method", [m for m in ABLE if m != "exponential-trapezoidal"])
def test_a_tolerance_that_needs_shorter_steps(method, t0, first):
    assert ends_at_once(decay(t0), until=t0 + 200.0, method=method, rtol=1e-6, **first)


@pytest.mark.parametrize("t0", [1e15, -1e16])
@pytest.mark.parametrize("method", ALL)
def test_equal_steps_that_are_too_short(method, t0):
    """Steps of 8 units in the last place, whose ends are all numbers of float64."""
    dt = 8.0 * math.ulp(t0)
    assert ends_at_once(decay(t0, 1.0 / dt), until=t0 + 40.0 * dt, method=method, dt=dt)


def test_an_exact_method_takes_any_step():
    result = evolve(decay(1e16), until=1e16 + 200.0, method="exponential-trapezoidal", rtol=1e-6)
    assert result.status is EvolveStatus.COMPLETED
    np.testing.assert_allclose(result.u, np.exp(200.0 * RATES) * [1.0, 0.5], atol=1e-15)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.float64])
@pytest.mark.parametrize("method", ["dormand-prince", "esdirk3", "ark3"])
def test_coarse_times_of_a_run_that_can_be_computed(method, dtype):
    """Steps of some hundred units in the last place; their rounding must not add up."""
    t0, length = 1e15, 300.0
    problem, ends = decay(t0, 0.01, dtype), []
    rtol = 1e-6 if dtype == np.float64 else 1e-4
    result = evolve(
        problem, until=t0 + length, method=method, rtol=rtol, at=[t0 + 100.0, t0 + 200.0],
        events=lambda t, u: u[0].real - math.exp(-0.5), callback=lambda s: ends.append(s.t),
    )  # fmt: skip
    assert (result.status, result.t) == (EvolveStatus.COMPLETED, t0 + length)
    steps = np.diff([t0, *ends])
    assert steps[:-1].min() >= 16.0 * math.ulp(t0)
    assert steps.max() < 1e4 * math.ulp(t0)
    exact = np.exp(0.01 * length * RATES) * problem.initial
    np.testing.assert_allclose(result.u, exact, rtol=20.0 * rtol)
    for t, u in result.samples:
        exact = np.exp(0.01 * (t - t0) * RATES) * problem.initial
        np.testing.assert_allclose(u, exact, rtol=1e-3)
    assert [record.t - t0 for record in result.events] == pytest.approx([50.0], abs=0.5)


def test_only_a_last_step_may_be_shorter():
    """It ends exactly at the last time, so that no rounding adds up."""
    t0, length = 1e15, 3 * math.ulp(1e15)
    for options in ({"rtol": 1e-6}, {"dt": 1.0}):
        result = evolve(decay(t0, 0.01), until=t0 + length, method="dormand-prince", **options)
        assert (result.status, result.steps) == (EvolveStatus.COMPLETED, 1)
        np.testing.assert_allclose(result.u, np.exp(0.01 * length * RATES) * [1.0, 0.5], rtol=1e-9)
    # a step of which the rest is one unit is repeated with the same end: it must not be tried again
    assert ends_at_once(decay(t0), until=t0 + 1.0, method="dormand-prince", rtol=1e-9)


def test_short_steps_near_zero_lead_to_large_times():
    """What is resolved depends on the present time, not on the last one."""
    until = 1e16
    result = evolve(decay(0.0), until=until, method="esdirk3", rtol=1e-4, atol=1e-6, at=[2.0])
    assert result.status is EvolveStatus.COMPLETED
    np.testing.assert_allclose(result.samples[0][1], np.exp(2.0 * RATES) * [1.0, 0.5], rtol=2e-3)
    assert np.linalg.norm(result.u) < 1e-5


class Finer:
    """u' = 1 on a grid that becomes finer once, after which its default step is too short."""

    def __init__(self, t0, initial, dt):
        self.t0, self.initial = t0, initial
        self.stepper = SimpleNamespace(method="rk4", dt=dt)

    def rhs(self, t, u, out):
        out[...] = 1.0

    def adaptive(self, **rule):
        return FinerGrid(self)


class FinerGrid:
    missed, is_finer, added, removed = False, True, 2, 0

    def __init__(self, problem):
        self.problem = problem

    def started(self, horizon):
        return self

    def changed(self, u, t, horizon, interval):
        return FinerGrid(Finer(t, np.repeat(u, 2), 1e-3)) if u.size == 2 else self


@pytest.mark.parametrize("options", [{}, {"rtol": 1e-3, "method": "dormand-prince"}])
def test_a_grid_that_makes_the_steps_too_short(options):
    t0 = 1e15
    problem = Finer(t0, np.ones(2), 10.0)
    result = evolve(problem, until=t0 + 100.0, adapt=Adapt(0.5, every=2), **options)
    if options:  # steps are chosen by their errors, which are 0
        assert (result.status, result.t) == (EvolveStatus.COMPLETED, t0 + 100.0)
        np.testing.assert_allclose(result.u, np.full(4, 101.0), rtol=1e-12)
        return
    assert (result.status, result.t) == (EvolveStatus.STEP_TOO_SMALL, t0 + 20.0)
    np.testing.assert_allclose(result.u, np.full(4, 21.0), rtol=1e-12)
