"""The run in time: its grid of times, how it ends, what it shows and what it refuses."""

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from methods import EQUAL_STEPS

from batchkron.solvers import EvolveStatus, Status, evolve, steppers
from batchkron.solvers.evolution.start.arguments import time_grid
from batchkron.storage import load_checkpoint


class Oscillator:
    """u' = [[0, 1], [-1, -0.1]] u + (0, cos 3t): bounded, also with explicit methods."""

    def __init__(self, dtype=np.float64, **attributes):
        self.operator = np.array([[0.0, 1.0], [-1.0, -0.1]], dtype=dtype)
        self.initial = np.array([1.0, -0.5], dtype=dtype)
        self.initial.flags.writeable = False
        self.__dict__.update(attributes)

    def rhs(self, t, u, out):
        np.dot(self.operator, u, out=out)
        out[1] += np.cos(3.0 * t)


def growing(rate):
    """u' = rate · u² of one unknown: infinite at t = 1 / rate."""
    return SimpleNamespace(
        initial=np.ones(1), rhs=lambda t, u, out: np.multiply(rate * u, u, out=out)
    )


@pytest.mark.parametrize("method", EQUAL_STEPS)
def test_all_methods_reach_the_last_time(method):
    problem = Oscillator()
    result = evolve(problem, until=0.7, method=method, dt=0.03)
    assert result.status is EvolveStatus.COMPLETED
    assert result.t == 0.7
    assert (result.steps, result.method) == (24, method)
    assert result.dt == 0.7 / 24
    fine = evolve(problem, until=0.7, method="rk4", dt=1e-3)
    order = steppers.get(method).order
    np.testing.assert_allclose(result.u, fine.u, atol=3.0 * 0.03**order)
    assert not np.shares_memory(result.u, problem.initial)
    np.testing.assert_array_equal(problem.initial, [1.0, -0.5])


def test_times_come_from_the_integer_step():
    seen = []
    result = evolve(
        Oscillator(t0=0.3),
        until=1.0,
        method="forward-euler",
        dt=0.1,
        callback=lambda s: seen.append((s.step, s.t)),
    )
    assert seen == [(n, 0.3 + n * result.dt) for n in range(1, 7)] + [(7, 1.0)]


@pytest.mark.parametrize(
    ("t0", "until", "dt", "steps"),
    [
        (0.0, 0.1, 0.01, 10),
        (0.0, 1.0, 0.1, 10),
        (0.0, 0.3, 0.1, 3),
        (0.2, 0.5, 0.1, 3),
        (0.0, 1.0, 0.3, 4),
        (0.0, 1.0, 2.0, 1),
        (0.0, 1.0, 1.0, 1),
        (-1.0, 1.0, 0.5001, 4),
        (0.0, 1e-9, 1e-10, 10),
        (1.0, 1.0, 0.1, 0),
    ],
)
def test_time_grid(t0, until, dt, steps):
    count, step = time_grid(t0, until, dt)
    assert count == steps
    assert step <= dt * (1 + 1e-10)
    if steps:
        assert step == (until - t0) / steps


def test_no_steps():
    problem = Oscillator(t0=2.0)
    result = evolve(problem, until=2.0, method="rk4", dt=0.1)
    assert (result.status, result.steps, result.t) == (EvolveStatus.COMPLETED, 0, 2.0)
    np.testing.assert_array_equal(result.u, problem.initial)


@pytest.mark.parametrize("as_mapping", [False, True])
def test_defaults_of_the_problem(as_mapping):
    settings = {"method": "ssp-rk3", "dt": 0.05, "until": 9.0}
    problem = Oscillator(stepper=settings if as_mapping else SimpleNamespace(**settings))
    result = evolve(problem, until=0.5)
    assert (result.method, result.steps) == ("ssp-rk3", 10)
    other = evolve(problem, until=0.5, method="crank-nicolson", dt=0.25)
    assert (other.method, other.steps) == ("crank-nicolson", 2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("method", ["rk4", "crank-nicolson"])
def test_dtypes(dtype, method):
    result = evolve(Oscillator(dtype), until=1.0, method=method, dt=0.01)
    assert result.u.dtype == dtype
    reference = evolve(Oscillator(), until=1.0, method="rk4", dt=0.01)
    np.testing.assert_allclose(result.u, reference.u, atol=1e-4)


def test_callback_sees_and_stops():
    states = []

    def callback(state):
        assert not state.u.flags.writeable
        states.append((state.u.copy(), state.step, state.steps, state.dt))
        return state.step == 4

    result = evolve(Oscillator(), until=1.0, method="ssp-rk3", dt=0.1, callback=callback)
    assert result.status is EvolveStatus.STOPPED
    assert (result.steps, len(states)) == (4, 4)
    assert result.t == pytest.approx(0.4)
    np.testing.assert_array_equal(states[-1][0], result.u)
    assert states[0][1:] == (1, 10, 0.1)
    assert "resume" in result.message


def test_stop_at_the_last_step_is_completion():
    result = evolve(Oscillator(), until=0.2, method="rk4", dt=0.1, callback=lambda s: s.step == 2)
    assert result.status is EvolveStatus.COMPLETED


@pytest.mark.parametrize("method", ["forward-euler", "ssp-rk3", "rk4"])
def test_blow_up_has_a_status(method):
    """exp(1000 t) overflows, but is finite at any time."""
    problem = SimpleNamespace(
        initial=np.ones(1), rhs=lambda t, u, out: np.multiply(1e3, u, out=out)
    )
    result = evolve(problem, until=4.0, method=method, dt=0.01)
    assert result.status is EvolveStatus.NOT_FINITE
    assert 0 < result.steps < 400
    assert not np.isfinite(result.u).all()
    assert "smaller dt" in result.message
    json.dumps(result.history, allow_nan=False)


def test_nan_from_an_implicit_right_hand_side():
    problem = Oscillator()
    plain = problem.rhs

    def rhs(t, u, out):
        plain(t, u, out)
        if t > 0.55:
            out.fill(np.nan)

    problem.rhs = rhs
    result = evolve(problem, until=1.0, method="backward-euler", dt=0.1)
    assert (result.status, result.steps) == (EvolveStatus.NOT_FINITE, 5)
    assert np.isfinite(result.u).all()


def test_large_finite_values_are_no_blow_up():
    problem = SimpleNamespace(initial=np.full(3, 1e200), rhs=lambda t, u, out: out.fill(1e200))
    result = evolve(problem, until=1.0, method="forward-euler", dt=0.5)
    assert result.status is EvolveStatus.COMPLETED
    np.testing.assert_allclose(result.u, 2e200)


def test_failed_solve_is_a_status():
    rng = np.random.default_rng(1)
    size = 50
    matrix = -np.diag(np.logspace(0, 6, size)) + rng.standard_normal((size, size))
    problem = SimpleNamespace(
        initial=np.ones(size), operator=matrix, rhs=lambda t, u, out: np.dot(matrix, u, out=out)
    )
    options = {
        "until": 1.0,
        "method": "crank-nicolson",
        "dt": 0.1,
        "solver": {"restart": 2, "maxiter": 2},
    }
    result = evolve(problem, **options)
    assert (result.status, result.steps, result.t) == (EvolveStatus.SOLVER_FAILED, 0, 0.0)
    np.testing.assert_array_equal(result.u, problem.initial)
    assert f"ended as '{Status.MAX_ITERATIONS}'" in result.message
    with pytest.raises(RuntimeError, match="solver-failed at step 0 of 10"):
        evolve(problem, **options, raise_on_failure=True)


def test_blow_up_raises_if_asked():
    with pytest.raises(RuntimeError, match=r"unstable at step .* becomes infinite"):
        evolve(growing(1e3), until=1.0, method="rk4", dt=0.01, raise_on_failure=True)


def test_history_is_bounded_and_plain():
    result = evolve(Oscillator(), until=1.0, method="forward-euler", dt=1e-4)
    assert 150 < len(result.history) < 450
    assert json.loads(json.dumps(result.history)) == result.history
    steps = [record for record in result.history if record["event"] == "step"]
    assert [record["step"] for record in steps] == list(range(50, 10_001, 50))
    assert all(record["t"] == pytest.approx(record["step"] * 1e-4) for record in steps)
    assert steps[-1]["norm"] == np.linalg.norm(result.u)
    assert result.history[-1]["event"] == "completed"
    short = evolve(Oscillator(), until=1.0, method="backward-euler", dt=0.1)
    assert [record["step"] for record in short.history] == [*range(1, 11), 10]
    assert all(record["iterations"] > 0 for record in short.history[:-1])


def test_progress_lines_where_there_is_no_terminal(capfd):
    evolve(Oscillator(), until=1.0, method="rk4", dt=0.01, progress=True)
    out, err = capfd.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert len(lines) == 10
    assert lines[1].startswith("step 20/100  t = 0.2  20 %  elapsed 0:00:0")
    assert "left 0:00:0" in lines[1]


def test_progress_bar_on_a_terminal(capfd, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    evolve(Oscillator(), until=1.0, method="rk4", dt=0.01, progress=True)
    err = capfd.readouterr().err
    assert "100/100" in err
    assert "step/s" in err
    assert "t = 1" in err


def test_nothing_is_printed_by_default(capfd):
    evolve(Oscillator(), until=1.0, method="rk4", dt=0.01)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"until": -1.0}, ValueError, r"until is -1.0; expected at least .* t0 = 0.0"),
        ({"until": np.nan}, ValueError, "until is nan"),
        ({"until": "1"}, TypeError, "until is '1'"),
        ({"dt": 0.0}, ValueError, "dt is 0.0"),
        ({"dt": -0.1}, ValueError, "dt is -0.1"),
        ({"dt": np.inf}, ValueError, "dt is inf"),
        ({"dt": True}, TypeError, "dt is True"),
        ({"dt": 1e-17}, ValueError, "dt is 1e-17, too small"),
        ({"dt": None}, ValueError, "dt is missing"),
        ({"method": None}, ValueError, "method is missing.*one of forward-euler"),
        ({"method": "ssprk3"}, ValueError, "method is 'ssprk3'.*Did you mean 'ssp-rk3'"),
        ({"solver": "gmres"}, ValueError, "'rk4' is explicit"),
        ({"preconditioner": np.eye(2)}, ValueError, "'rk4' is explicit"),
        ({"callback": 3}, TypeError, "callback is a int"),
        ({"checkpoint_every": 5}, ValueError, "checkpoint_every needs checkpoint"),
        ({"resume": 3}, TypeError, "resume is a int"),
        ({"problem": SimpleNamespace(initial=np.ones(2))}, TypeError, r"rhs\(t, u, out\)"),
        ({"problem": Oscillator(initial=np.ones((2, 2)))}, ValueError, r"shape \(2, 2\)"),
        ({"problem": Oscillator(initial=np.ones(2, int))}, TypeError, "dtype int64"),
        ({"problem": Oscillator(initial=np.array([1.0, np.nan]))}, ValueError, "NaN or infinite"),
        ({"problem": Oscillator(t0=np.inf)}, ValueError, "problem.t0 is inf"),
    ],
)
def test_wrong_arguments(change, error, text):
    arguments = {"problem": Oscillator(), "until": 1.0, "method": "rk4", "dt": 0.1, **change}
    with pytest.raises(error, match=text):
        evolve(arguments.pop("problem"), **arguments)


def test_implicit_method_without_an_operator():
    with pytest.raises(TypeError, match="neither operator nor operator_at"):
        evolve(growing(1.0), until=0.1, method="backward-euler", dt=0.1)


def test_every_status_has_advice():
    assert len({status.advice for status in EvolveStatus}) == len(EvolveStatus)


@pytest.mark.parametrize("method", EQUAL_STEPS)
def test_a_right_hand_side_that_only_returns_its_value_is_refused(method):
    problem = SimpleNamespace(initial=np.ones(3), rhs=lambda t, u, out: -u, operator=-np.eye(3))
    with pytest.raises(TypeError, match=r"did not write into out"):
        evolve(problem, until=0.5, method=method, dt=0.1)


def test_a_right_hand_side_that_is_nan_has_written(rng):
    problem = SimpleNamespace(
        initial=rng.uniform(1.0, 2.0, 3), rhs=lambda t, u, out: np.sqrt(-u, out=out)
    )
    result = evolve(problem, until=0.5, method="rk4", dt=0.1)
    assert result.status is EvolveStatus.NOT_FINITE


def test_default_steps_of_other_methods():
    implicit = Oscillator(stepper={"method": "crank-nicolson", "dt": 0.1})
    assert evolve(implicit, until=1.0, method="backward-euler").steps == 10
    assert evolve(implicit, until=1.0, method="rk4", dt=0.05).steps == 20
    explicit = Oscillator(stepper={"method": "ssp-rk3", "dt": 0.1})
    for method in ("rk4", "crank-nicolson"):
        assert evolve(explicit, until=1.0, method=method).steps == 10


@pytest.mark.parametrize("method", EQUAL_STEPS)
@pytest.mark.parametrize("convert", [list, lambda u: u.astype(">f8")])
def test_any_kind_of_initial_state_is_the_same_run(method, convert):
    arguments = {"until": 0.5, "method": method, "dt": 0.1}
    problem = Oscillator()
    expected = evolve(problem, **arguments)
    problem.initial = convert(problem.initial)
    result = evolve(problem, **arguments)
    assert result.u.dtype == np.dtype("=f8")
    np.testing.assert_array_equal(result.u, expected.u)


def test_the_problem_checks_its_interval_before_the_run(tmp_path):
    seen = []

    def check(begin, until):
        seen.append((begin, until))
        if until > 1.0:
            raise ValueError("the table ends at 1.0")

    problem = Oscillator(check_interval=check, t0=0.2)
    path = tmp_path / "run.h5"
    arguments = {"method": "rk4", "dt": 0.1, "checkpoint": path}
    evolve(problem, until=1.0, callback=lambda state: state.step == 3, **arguments)
    with pytest.raises(ValueError, match=r"the table ends at 1\.0"):
        evolve(problem, until=2.0, **arguments)
    evolve(problem, until=1.0, resume=path, method="rk4")
    np.testing.assert_allclose(seen, [(0.2, 1.0), (0.2, 2.0), (0.5, 1.0)])


@pytest.mark.parametrize("method", EQUAL_STEPS)
def test_an_error_in_the_middle_leaves_a_checkpoint_of_the_last_step(tmp_path, method):
    class Ends(Oscillator):
        def rhs(self, t, u, out):
            if t > 0.45:
                raise ValueError("the table ends")
            super().rhs(t, u, out)

    path = tmp_path / "run.h5"
    with pytest.raises(ValueError, match="the table ends"):
        evolve(Ends(), until=1.0, method=method, dt=0.1, checkpoint=path)
    kept = load_checkpoint(path)
    assert kept.step in (4, 5)
    expected = evolve(Oscillator(), until=kept.step * 0.1, method=method, dt=0.1)
    np.testing.assert_allclose(kept.u, expected.u, rtol=1e-12)
