"""Events in edge cases: zero where a run begins, zero at the end of a step, and NaN."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from batchkron.solvers import Event, EvolveStatus, evolve
from batchkron.storage import load_checkpoint

METHODS = ("rk4", "dormand-prince")


def pendulum():
    """u = (cos t, -sin t)."""
    return SimpleNamespace(
        initial=np.array([1.0, 0.0]), rhs=lambda t, u, out: np.copyto(out, [u[1], -u[0]])
    )


def stays_zero(t, u):
    """0 until t = 1."""
    return max(t - 1.0, 0.0)


def scipy_times(function, until, direction=0, terminal=False):
    def event(t, u):
        return function(t, u)

    event.direction, event.terminal = direction, terminal
    solution = solve_ivp(
        lambda t, u: [u[1], -u[0]], (0.0, until), [1.0, 0.0], events=event, rtol=1e-10, atol=1e-12
    )
    return solution.t_events[0]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("direction", [-1, 0, 1])
@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize(
    "function",
    [
        lambda t, u: u[1],  # falls from 0
        lambda t, u: -u[1],  # rises from 0
        lambda t, u: u[0] - 1.0,  # touches 0 at t0
        lambda t, u: u[0],
        stays_zero,
    ],
)
def test_an_event_that_is_zero_where_the_run_begins(method, direction, terminal, function):
    """As in SciPy, but a function that stays 0 is recorded once, not once for each step."""
    expected = scipy_times(function, 5.0, direction, terminal)
    event = Event(function, "event", terminal, direction)
    result = evolve(pendulum(), until=5.0, method=method, dt=0.05, events=event)
    times = [record.t for record in result.events]
    if function is stays_zero:
        expected = expected[:1]
    assert times == pytest.approx(list(expected), abs=1e-5)
    if terminal and len(expected):
        assert result.status is EvolveStatus.EVENT
        assert result.t == times[0]
        if result.t == 0.0:
            np.testing.assert_array_equal(result.u, [1.0, 0.0])
    else:
        assert result.status is EvolveStatus.COMPLETED


@pytest.mark.parametrize("method", METHODS)
def test_a_zero_at_the_end_of_a_step_happens_once_also_for_a_resumed_run(tmp_path, method):
    path = tmp_path / "run.h5"
    options = {"until": 1.0, "method": method, "dt": 0.125, "events": lambda t, u: t - 0.5}
    stop = evolve(pendulum(), **options, checkpoint=path, callback=lambda state: state.step == 4)
    assert [record.t for record in stop.events] == [0.5]
    assert evolve(pendulum(), **options, resume=path).events == []
    assert [record.t for record in evolve(pendulum(), **options).events] == [0.5]


@pytest.mark.parametrize("method", METHODS)
def test_an_event_at_the_beginning_is_found_again_from_its_checkpoint(tmp_path, method):
    path = tmp_path / "run.h5"
    ended = evolve(
        pendulum(), until=1.0, method=method, dt=0.125, checkpoint=path,
        events=Event(lambda t, u: u[1], terminal=True),
    )  # fmt: skip
    assert (ended.status, ended.t) == (EvolveStatus.EVENT, 0.0)
    kept = load_checkpoint(path)
    assert (kept.step, list(kept.u)) == (0, [1.0, 0.0])
    options = {"until": 1.0, "method": method, "resume": path}
    again = evolve(pendulum(), **options, events=Event(lambda t, u: u[1]))
    assert [record.t for record in again.events] == [0.0]
    np.testing.assert_array_equal(again.u, evolve(pendulum(), until=1.0, method=method, dt=0.125).u)


@pytest.mark.parametrize("method", METHODS)
def test_an_event_that_is_nan_is_refused_and_the_step_kept(tmp_path, method):
    path = tmp_path / "run.h5"
    options = {"until": 1.0, "method": method, "dt": 0.125}

    def depth(t, u):
        return np.nan if t > 0.55 else 1.0 + t

    with pytest.raises(ValueError, match=r"event 'depth' is NaN at t = 0\.625; expected a number"):
        evolve(pendulum(), **options, events=depth, checkpoint=path)
    kept = load_checkpoint(path)
    plain = evolve(pendulum(), until=0.625, method=method, dt=0.125)
    assert kept.step == 5
    np.testing.assert_array_equal(kept.u, plain.u)
    expected = evolve(pendulum(), **options)
    resumed = evolve(pendulum(), **options, resume=path)
    np.testing.assert_array_equal(resumed.u, expected.u)


def test_an_event_that_is_nan_at_the_beginning_or_inside_a_step():
    options = {"until": 1.0, "method": "rk4", "dt": 0.125}
    steps = []
    with pytest.raises(ValueError, match=r"event 'event' is NaN at t = 0;"):
        evolve(
            pendulum(), **options, callback=steps.append,
            events=Event(lambda t, u: np.sqrt(t - 0.1) if t >= 0.1 else np.nan),
        )  # fmt: skip
    assert steps == []
    inside = Event(lambda t, u: t - 0.3 if t * 8 == int(t * 8) else np.nan)
    with pytest.raises(ValueError, match=r"event 'event' is NaN at t = 0\.3\d*;"):
        evolve(pendulum(), **options, events=inside)
