"""Runs that take several steps before looking at any end as those that look at each."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from several_steps import check_same_run, several_at_once, without_seconds
from split_problem import EXPLICIT, HEUN, MANY, name_of, pair

from batchkron import NotPhysicalError
from batchkron.problems import make
from batchkron.solvers import EvolveStatus, evolve, steppers
from batchkron.storage import load_checkpoint


def pendulum(dtype=np.float64):
    """Not linear, so that some steps are compared with two halves."""

    def rhs(t, u, out):
        out[0], out[1] = u[1], -np.sin(u[0]) + 0.1 * np.cos(t)

    return SimpleNamespace(initial=np.array([1.0, 0.3], dtype), rhs=rhs)


def oscillator(dtype=np.float64):
    """Known to be linear."""
    A = np.array([[-0.1, 1.0], [-1.0, -0.1]])
    return SimpleNamespace(
        initial=np.array([1.0, 0.3], dtype),
        operator=A,
        is_linear=True,
        rhs=lambda t, u, out: np.copyto(out, A.astype(u.dtype) @ u),
    )


FEW = ["ssp-rk3", "rk4", "dormand-prince"]


def largest(seen):
    return max(seen.batches)


@pytest.mark.parametrize("method", [*EXPLICIT, HEUN, MANY], ids=name_of)
@pytest.mark.parametrize("make_problem", [pendulum, oscillator])
def test_completed_runs(method, make_problem):
    result, seen = check_same_run(make_problem, until=30.0, dt=0.1, method=method)
    assert (result.status, result.steps) == (EvolveStatus.COMPLETED, 300)
    assert largest(seen) == (64 if make_problem is oscillator else 31)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.complex128])
def test_dtypes(dtype):
    for method in ("rk4", "dormand-prince"):
        _, seen = check_same_run(lambda: pendulum(dtype), until=8.0, dt=0.1, method=method)
        assert largest(seen) == 31


@pytest.mark.parametrize("products", ["one with a factor", "three"])
def test_right_hand_sides_in_parts(rng, products):
    problem, _ = pair(rng, products, "three")
    _, seen = check_same_run(lambda: problem, until=3.0, dt=0.03, method="bogacki-shampine")
    assert largest(seen) == 31


@pytest.mark.parametrize("name", ["continuity-2d", "two-stream", "advection-1d"])
def test_problems_of_the_gallery(name):
    problem = make(name, 2, 1)
    dt = problem.stepper.dt
    _, seen = check_same_run(lambda: problem, until=problem.t0 + 100 * dt, method="ssp-rk3", dt=dt)
    assert largest(seen) >= 31


@pytest.mark.parametrize("steps", [1, 2, 3, 9, 66])
@pytest.mark.parametrize("make_problem", [pendulum, oscillator])
def test_short_runs(make_problem, steps):
    result, seen = check_same_run(make_problem, until=0.1 * steps, dt=0.1, method="rk4")
    assert result.steps == steps
    assert sum(seen.batches) == steps  # each step once


def test_results_are_read_once_for_many_steps():
    steps = 2000
    with several_at_once() as seen:
        evolve(oscillator(), until=0.01 * steps, dt=0.01, method="rk4")
    assert seen.reads <= steps // 64 + 4


# Runs that end early


def becoming_nan(at, make_problem=oscillator):
    problem = make_problem()
    own = problem.rhs

    def rhs(t, u, out):
        own(t, u, out)
        if t > at:
            out[0] = np.nan

    problem.rhs = rhs
    return problem


@pytest.mark.parametrize("method", ["rk4", "dormand-prince"])
@pytest.mark.parametrize("make_problem", [pendulum, oscillator])
@pytest.mark.parametrize("at", [0.05, 0.95, 2.25, 4.55])
def test_a_state_that_is_not_finite(method, make_problem, at):
    result, _ = check_same_run(
        lambda: becoming_nan(at, make_problem), until=10.0, dt=0.1, method=method
    )
    assert result.status is EvolveStatus.NOT_FINITE
    assert abs(result.t - at) < 0.16
    assert np.isnan(result.u).any()


def overflowing(dtype):
    """u' = 5 u, of which squares of norms overflow long before the state."""
    return SimpleNamespace(
        initial=np.full(3, 1e10, dtype), rhs=lambda t, u, out: np.multiply(5.0, u, out=out)
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_norms_whose_squares_overflow(dtype):
    until = 20.0 if dtype == np.float32 else 150.0
    result, _ = check_same_run(
        lambda: overflowing(dtype), until=until, dt=until / 400, method="rk4"
    )
    assert result.status is EvolveStatus.NOT_FINITE


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rate", [-3.0, 0.0])
def test_states_that_vanish(dtype, rate):
    """Squares of norms underflow, or are zero from the beginning."""
    initial = np.full(3, 1e-10 if rate else 0.0, dtype)
    problem = SimpleNamespace(
        initial=initial,
        operator=rate * np.eye(3),
        rhs=lambda t, u, out: np.multiply(rate, u, out=out),
    )
    result, _ = check_same_run(lambda: problem, until=200.0, dt=0.5, method="rk4")
    assert result.status is EvolveStatus.COMPLETED


@pytest.mark.parametrize("method", FEW)
@pytest.mark.parametrize("factor", [1.02, 1.5])
def test_instability_by_the_bound_of_a_norm(method, factor):
    """The guard that knows the operator needs no more than norms."""
    size = 30
    beside = np.ones(size - 1)
    A = np.diag(beside, 1) + np.diag(beside, -1) - 2.0 * np.eye(size)
    dt = factor * steppers.get(method).real_limit / 4.0
    problem = SimpleNamespace(
        initial=np.cos(np.arange(size) * 3.0),
        operator=A,
        is_linear=True,
        rhs=lambda t, u, out: np.dot(A, u, out=out),
    )
    result, seen = check_same_run(
        lambda: problem, until=2000 * dt, dt=dt, method=method, allow_unstable=True
    )
    assert result.status is EvolveStatus.UNSTABLE
    assert "ω = 0" in result.message
    assert largest(seen) >= 4


@pytest.mark.parametrize("method", FEW)
@pytest.mark.parametrize("steps", [20, 100])
def test_instability_by_halved_steps(method, steps):
    rates = np.array([-1000.0, -1.0])
    dt = 1.05 * steppers.get(method).real_limit / 1000.0
    problem = SimpleNamespace(
        initial=np.ones(2), rhs=lambda t, u, out: np.multiply(rates, u, out=out)
    )
    result, _ = check_same_run(lambda: problem, until=steps * dt, dt=dt, method=method)
    assert result.status is EvolveStatus.UNSTABLE
    assert "half its length" in result.message


@pytest.mark.parametrize("method", FEW)
@pytest.mark.parametrize("dt", [0.1, 0.01])
def test_solutions_that_become_infinite(method, dt):
    def rhs(t, u, out):
        out[0], out[1] = u[0] * u[0], 0.0

    problem = SimpleNamespace(initial=np.array([1.0, 0.1]), rhs=rhs)
    for until in (0.9, 1.2):
        result, _ = check_same_run(lambda: problem, until=until, dt=dt, method=method)
        assert (result.status is EvolveStatus.COMPLETED) == (until < 1.0)


@pytest.mark.parametrize("rate", [0.05, 3.0, 40.0])
@pytest.mark.parametrize("method", ["rk4", "dormand-prince"])
def test_norms_that_double(method, rate):
    """A step is compared whenever the norm has doubled: those that began too early are repeated."""
    calls = []

    def rhs(t, u, out):
        calls.append(t)
        np.multiply(rate, u, out=out)

    def run(problem):
        """Return also the times of the two halves of steps, which a step itself has not."""
        calls.clear()
        result = evolve(problem, until=10.0, dt=0.05, method=method)
        return without_seconds(result), {t for t in calls if not math.isclose(t % 0.025, 0.0)}

    problem = SimpleNamespace(initial=np.array([1.0, -0.4]), rhs=rhs)
    single = run(problem)
    with several_at_once():
        assert run(problem) == single
    assert single[0]["status"] is EvolveStatus.COMPLETED


class Emptying:
    """u' = -1 from 1: a density that is no longer positive at t = 1."""

    initial = np.ones(3)

    def rhs(self, t, u, out):
        if not u.min() > 0.0:
            raise NotPhysicalError("the density", "x", 0.25, t, float(u.min()))
        out[...] = -1.0


@pytest.mark.parametrize("method", FEW)
@pytest.mark.parametrize("dt", [0.3, 0.06, 0.013])
def test_states_that_are_not_physical(tmp_path, method, dt):
    path = tmp_path / "run.h5"
    result, _ = check_same_run(Emptying, until=2.0, dt=dt, method=method, checkpoint=path)
    assert result.status is EvolveStatus.NOT_PHYSICAL
    assert load_checkpoint(path).step == result.steps


def test_a_state_that_is_not_physical_while_a_step_is_compared():
    """The halves of a step see a state that the step does not."""
    problem = Emptying()
    result, _ = check_same_run(lambda: problem, until=0.99, dt=0.99 / 33, method="forward-euler")
    assert result.status is EvolveStatus.COMPLETED


# Errors and interruptions


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
@pytest.mark.parametrize("method", ["rk4", "dormand-prince"])
@pytest.mark.parametrize("step", [0, 5, 40])
def test_an_exception_in_the_middle(tmp_path, method, step, error):
    """The state returns to the beginning of the steps; its checkpoint is one of the run."""
    at, raised = 0.1 * step + 0.05, []

    def failing(problem):
        own = problem.rhs

        def rhs(t, u, out):
            own(t, u, out)
            if t > at:
                raised.append(t)
                raise error

        problem.rhs = rhs
        return problem

    path, options = tmp_path / "run.h5", {"dt": 0.1, "method": method}
    with several_at_once() as seen, pytest.raises(error):
        evolve(failing(oscillator()), until=10.0, **options, checkpoint=path, checkpoint_every=15)
    assert len(raised) == 1
    if error is KeyboardInterrupt:  # then the last one that was due is there
        assert path.exists() == (step > 15)
    if path.exists():
        kept = load_checkpoint(path)
        assert step - 32 < kept.step <= step
        assert (error is KeyboardInterrupt) <= (kept.step % 15 == 0)
        expected = evolve(oscillator(), until=kept.step * 0.1, **options).u if kept.step else None
        np.testing.assert_array_equal(
            kept.u, oscillator().initial if expected is None else expected
        )
        resumed = evolve(oscillator(), until=10.0, resume=path)
        whole = evolve(oscillator(), until=10.0, **options)
        np.testing.assert_array_equal(resumed.u, whole.u)
    assert seen.batches


# Checkpoints, records, callbacks


def written(monkeypatch):
    import sys

    found = []
    module = sys.modules["batchkron.solvers.evolution.checkpoints"]
    monkeypatch.setattr(
        module, "save_checkpoint", lambda path, c: found.append((c.step, c.u.tobytes()))
    )
    return found


@pytest.mark.parametrize("every", [1, 7, 64, 100, 1000])
@pytest.mark.parametrize("make_problem", [pendulum, oscillator])
def test_checkpoints_after_some_steps(tmp_path, monkeypatch, make_problem, every):
    path, found = tmp_path / "run.h5", written(monkeypatch)
    options = {"until": 20.0, "dt": 0.1, "method": "ssp-rk3"}
    check_same_run(make_problem, **options, checkpoint=path, checkpoint_every=every)
    half = len(found) // 2
    assert found[:half] == found[half:]
    assert [step for step, _ in found[:half]] == sorted({*range(every, 201, every), 200})


def test_checkpoints_after_some_seconds(tmp_path, monkeypatch):
    path, found = tmp_path / "run.h5", written(monkeypatch)
    with several_at_once() as seen:
        evolve(oscillator(), until=20.0, dt=0.1, method="rk4", checkpoint=path,
               checkpoint_every=1e-9)  # fmt: skip
    assert [step for step, _ in found] == np.cumsum(seen.batches).tolist()


@pytest.mark.parametrize("method", ["rk4", "dormand-prince"])
@pytest.mark.parametrize("make_problem", [pendulum, oscillator])
def test_resumed_runs(tmp_path, method, make_problem):
    path, options = tmp_path / "run.h5", {"until": 12.5, "dt": 1 / 16, "method": method}
    whole = evolve(make_problem(), **options)
    with several_at_once():
        evolve(make_problem(), **{**options, "until": 101 / 16}, checkpoint=path)
        resumed = evolve(make_problem(), **options, resume=path)
    assert (resumed.status, resumed.steps) == (EvolveStatus.COMPLETED, 200)
    np.testing.assert_array_equal(resumed.u, whole.u)


def test_records_of_the_history():
    result, _ = check_same_run(oscillator, until=40.0, dt=0.1, method="rk4")
    recorded = [record["step"] for record in result.history if record["event"] == "step"]
    assert recorded == list(range(2, 401, 2))


def test_a_callback_sees_every_step():
    def run():
        found = []
        options = {"until": 5.0, "dt": 0.1, "method": "dormand-prince"}
        result = evolve(
            pendulum(), **options, callback=lambda s: found.append((s.step, s.t, s.u.tobytes()))
        )
        return found, without_seconds(result)

    expected = run()
    with several_at_once() as seen:
        found = run()
    assert found == expected
    assert len(found[0]) == 50
    assert largest(seen) == 1


def test_a_callback_that_may_skip_steps_sees_the_ends_of_some():
    options = {"until": 40.0, "dt": 0.1, "method": "rk4"}
    states, steps = {}, []
    evolve(oscillator(), **options, callback=lambda s: states.update({s.step: s.u.tobytes()}))

    def look(state):
        steps.append(state.step)
        assert state.u.tobytes() == states[state.step]
        return state.step >= 200

    look.may_skip = True
    with several_at_once() as seen:
        result = evolve(oscillator(), **options, callback=look)
    assert largest(seen) == 64
    assert len(steps) < 20
    assert result.status == EvolveStatus.STOPPED
    assert 200 <= result.steps == steps[-1] < 264
    assert result.u.tobytes() == states[result.steps]


@pytest.mark.parametrize("what", ["at", "events", "watch"])
def test_those_who_look_between_steps_see_them(what):
    looks = {
        "at": {"at": [1.23, 3.0]},
        "events": {"events": lambda t, u: u[0] - 0.5},
        "watch": {"watch": {"first": lambda t, u: float(u[0])}},
    }
    result, seen = check_same_run(pendulum, until=5.0, dt=0.1, method="rk4", **looks[what])
    assert largest(seen) == 1
    assert result.steps == 50


def test_steps_that_are_adapted():
    result, seen = check_same_run(pendulum, until=20.0, rtol=1e-6, method="dormand-prince")
    assert largest(seen) == 1
    assert result.rejected > 0


def test_errors_that_are_small():
    """A device finds their norms alone, also if squares of these underflow in single precision."""
    rates = np.array([-1.0, -0.1], np.float32)
    problem = SimpleNamespace(
        initial=np.array([1e-9, 1e-12], np.float32),
        rhs=lambda t, u, out: np.multiply(rates, u, out=out),
    )
    options = {"until": 20.0, "rtol": 1e-5, "atol": 1e-25}
    for method in ("bogacki-shampine", "dormand-prince", "ssp-rk43"):
        single = evolve(problem, method=method, **options)
        with several_at_once():
            found = evolve(problem, method=method, **options)
        assert found.status is EvolveStatus.COMPLETED
        assert (found.steps, found.rejected) == (single.steps, single.rejected)
        np.testing.assert_allclose(found.u, single.u, rtol=1e-4)  # norms are rounded differently


# Times


@pytest.mark.parametrize("method", ["rk4", "dormand-prince"])
@pytest.mark.parametrize("t0", [1e15, -1e16, 2.0**53 - 500.0, -(2.0**53) - 60.0])
def test_times_that_are_hardly_resolved(t0, method):
    """Beyond 2^53, steps of 20 are shorter than 16 units in the last place."""
    problem = oscillator()
    problem.t0 = t0
    own = problem.rhs
    problem.rhs = lambda t, u, out: own(t, 1e-3 * u, out)
    problem.operator = 1e-3 * problem.operator
    result, _ = check_same_run(lambda: problem, until=t0 + 2000.0, dt=20.0, method=method)
    resolved = [math.ulp(t0 + 20.0 * k) * 16.0 <= 20.0 for k in range(100)]
    assert (result.status is EvolveStatus.COMPLETED) == all(resolved)
    if not all(resolved):
        assert result.status is EvolveStatus.STEP_TOO_SMALL
        assert result.steps == resolved.index(False)


def test_times_that_are_rounded():
    _, seen = check_same_run(oscillator, until=14.0, dt=0.07, method="dormand-prince")
    assert largest(seen) == 64
