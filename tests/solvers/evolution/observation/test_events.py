"""Events in edge cases: zero where a run begins, zero at the end of a step, and NaN."""

from decimal import Decimal
from fractions import Fraction
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
        lambda t, u: [u[1], -u[0]], (0.0, until), [1.0, 0.0], "DOP853", events=event, rtol=1e-10,
        atol=1e-12,
    )  # fmt: skip
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
    with pytest.raises(ValueError, match=r"event 'event' is NaN at t = 0\.03125;"):
        evolve(pendulum(), **options, events=inside)


def crossing(t, u):
    """0 at t = 1 where u[0] = cos t falls."""
    return u[0] - np.cos(1.0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "make",
    [
        lambda u: bool(u[0] < np.cos(1.0)),
        lambda u: u[0] < np.cos(1.0),
        lambda u: u[:1] < np.cos(1.0),
        lambda u: (u[:1] < np.cos(1.0)).reshape(1, 1),
        lambda u: np.inf if u[0] < np.cos(1.0) else -np.inf,
        lambda u: -1.0 if u[0] > np.cos(1.0) else 1.0,
        lambda u: 1 if u[0] < np.cos(1.0) else -1,
    ],
)
def test_a_function_of_which_only_the_sign_is_known(method, make):
    """A bool that changes is an event at the time of the change, not at t0."""
    options = {"until": 2.0, "method": method, "dt": 0.05}
    for direction in (0, 1):
        event = Event(lambda t, u: make(u), terminal=True, direction=direction)
        result = evolve(pendulum(), **options, events=event)
        assert result.status is EvolveStatus.EVENT
        assert result.t == pytest.approx(1.0, abs=1e-6)
    falls = Event(lambda t, u: make(u), terminal=True, direction=-1)
    assert evolve(pendulum(), **options, events=falls).status is EvolveStatus.COMPLETED


def test_a_bool_that_is_true_at_the_beginning():
    event = Event(lambda t, u: u[0] > np.cos(1.0), terminal=True)
    result = evolve(pendulum(), until=2.0, method="rk4", dt=0.05, events=event)
    assert result.t == pytest.approx(1.0, abs=1e-6)
    assert not result.u[0] > np.cos(1.0)


class Tensor:
    """An array of another library, of which a number is known as ``item()``."""

    def __init__(self, value):
        self._value, self.shape = value, (1, 1)

    def item(self):
        return self._value


@pytest.mark.parametrize(
    "kind",
    [
        float,
        np.float32,
        np.longdouble,
        Fraction,
        Decimal,
        lambda x: np.array(x),
        lambda x: np.array([x]),
        lambda x: np.array([[x]], dtype=np.float32),
        lambda x: np.array([x], dtype=object),
        Tensor,
    ],
)
def test_what_counts_as_a_number(kind):
    result = evolve(
        pendulum(), until=2.0, method="rk4", dt=0.05,
        events=lambda t, u: kind(float(crossing(t, u))),
    )  # fmt: skip
    assert [record.t for record in result.events] == [pytest.approx(1.0, abs=1e-5)]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "a NoneType"),
        (1j, "a complex"),
        (1.0 + 0.0j, "a complex"),
        (np.complex64(1.0), "a complex"),
        (np.array([1j]), "an array of shape \\(1,\\)"),
        ("1.0", "a str"),
        (b"1", "a bytes"),
        ([1.0], "a list"),
        (np.array([1.0, 2.0]), "an array of shape \\(2,\\)"),
        (np.array([]), "an array of shape \\(0,\\)"),
        (np.array(["1"]), "an array of shape \\(1,\\)"),
    ],
)
@pytest.mark.parametrize("later", [False, True])
def test_what_is_no_number_is_refused_by_the_events_name(value, words, later):
    event = Event(lambda t, u: 1.0 if later and t < 0.3 else value, "depth")
    with pytest.raises(
        TypeError, match=f"event 'depth' returns {words} at t = .*; expected a real"
    ):
        evolve(pendulum(), until=1.0, method="rk4", dt=0.125, events=event)


def test_an_event_takes_the_functions_attributes_unless_they_are_given():
    def g(t, u):
        return u[0]

    assert (Event(g).terminal, Event(g).direction) == (False, 0)
    g.terminal, g.direction = True, -2.5  # SciPy takes the sign
    assert (Event(g).terminal, Event(g).direction) == (True, -1)
    assert (Event(g, terminal=False).terminal, Event(g, direction=1).direction) == (False, 1)
    assert Event(g, direction=0).direction == 0
    result = evolve(pendulum(), until=5.0, method="rk4", dt=0.05, events=[Event(g, "falls")])
    assert (result.status, result.events[0].name) == (EvolveStatus.EVENT, "falls")
    assert result.t == pytest.approx(np.pi / 2, abs=1e-5)
    g.terminal = 3
    with pytest.raises(ValueError, match="terminal is 3; expected True"):
        Event(g)
    g.terminal = None
    for direction in (np.nan, "up"):
        g.direction = direction
        with pytest.raises(ValueError, match=f"direction is {direction!r}; expected -1, 0 or 1"):
            Event(g)
    with pytest.raises(TypeError, match="event 'depth' has a int as its function"):
        Event(3, "depth")


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("rk4", {"dt": 1.0}),
        ("crank-nicolson", {"dt": 1.0}),
        ("exponential-euler", {"dt": 1.0}),
        ("dormand-prince", {"dt": 1.0}),
        ("dormand-prince", {"rtol": 1e-3}),
        ("esdirk3", {"dt": 1.0}),
        ("ark3", {"dt": 1.0}),
    ],
)
@pytest.mark.parametrize("direction", [-1, 0, 1])
@pytest.mark.parametrize("as_bool", [False, True])
def test_a_function_that_crosses_and_comes_back_in_one_step(method, options, direction, as_bool):
    """sin t > 0.97 from t = 1.325 to 1.816: inside the step from 1 to 2.

    Methods whose error is too large with this step are given a function of time.
    """
    problem = pendulum()
    problem.operator = np.array([[0.0, 1.0], [-1.0, 0.0]])

    def high(t, u):
        value = np.sin(t) if method in ("esdirk3", "ark3") else -u[1]
        return value > 0.97 if as_bool else value - 0.97

    result = evolve(
        problem, until=4.0, method=method, events=Event(high, direction=direction), **options
    )
    if method == "exponential-euler":  # exact, also inside steps
        exact = [np.arcsin(0.97), np.pi - np.arcsin(0.97)]
        expected = {-1: exact[1:], 0: exact, 1: exact[:1]}[direction]
        assert [record.t for record in result.events] == pytest.approx(expected, abs=1e-7)
    assert len(result.events) == (2 if direction == 0 else 1)
    times = [record.t for record in result.events]
    assert times == sorted(times)


def test_a_terminal_event_is_the_first_of_two_zeros_in_a_step():
    function = Event(lambda t, u: (t - 0.3) * (t - 0.6), terminal=True)
    result = evolve(pendulum(), until=4.0, method="rk4", dt=1.0, events=function)
    assert result.t == pytest.approx(0.3, abs=1e-14)
    # at t0 the direction is that to the next time inside the step, and later zeros count
    function = Event(lambda t, u: t * (0.5 - t), direction=1)
    result = evolve(pendulum(), until=1.0, method="rk4", dt=1.0, events=function)
    assert [record.t for record in result.events] == [0.0]
    function = Event(lambda t, u: t * (0.6 - t), direction=-1)
    result = evolve(pendulum(), until=1.0, method="rk4", dt=1.0, events=function)
    assert [record.t for record in result.events] == [pytest.approx(0.6, abs=1e-14)]


def test_slopes_between_steps_are_evaluated_once():
    """With events, a method without slopes of its own evaluates one more f a step."""
    counted = []
    problem = pendulum()

    def rhs(t, u, out):
        counted.append(t)
        np.copyto(out, [u[1], -u[0]])

    problem.rhs = rhs
    plain = evolve(problem, until=1.0, method="rk4", dt=0.125, allow_unstable=True)
    before = len(counted)
    found = evolve(problem, until=1.0, method="rk4", dt=0.125, events=crossing, allow_unstable=True)
    np.testing.assert_array_equal(found.u, plain.u)
    assert len(counted) - before == before + found.steps + 1


@pytest.mark.parametrize("value", [None, 1j, "1.0", np.ones(2)])
def test_a_measure_that_is_no_number_is_refused_by_its_name(value):
    def energy(t, u):
        return value

    with pytest.raises(TypeError, match=r"the measure 'energy' returns an? .* at t = 0; expected"):
        evolve(pendulum(), until=1.0, method="rk4", dt=0.5, watch={"energy": energy})


@pytest.mark.parametrize(
    "direction", [np.sign(-1.0), np.int64(-3), np.float32(-0.5), np.array([-1])]
)
def test_directions_of_functions_may_be_numbers_of_numpy(direction):
    def half(t, u):
        return u[0] - 0.5

    half.direction, half.terminal = direction, np.bool_(True)
    assert (Event(half).direction, Event(half).terminal) == (-1, True)
    half.direction = np.array([1, 2])
    with pytest.raises(ValueError, match="direction is array"):
        Event(half)


def test_integers_beyond_all_floats_have_a_sign_and_masked_values_none():
    problem = SimpleNamespace(
        initial=np.ones(1), rhs=lambda t, u, out: np.negative(u, out=out), t0=0.0
    )
    result = evolve(
        problem,
        until=1.0,
        dt=0.1,
        method="rk4",
        events=Event(lambda t, u: 10**400 if u[0] > 0.5 else -(10**400), "large"),
    )
    assert result.events[0].t == pytest.approx(np.log(2.0), abs=1e-6)
    for masked in (np.ma.masked, np.ma.array([1.0])):
        with pytest.raises(TypeError, match="what event 'masked' returns is a masked array"):
            evolve(
                problem,
                until=1.0,
                dt=0.1,
                method="rk4",
                events=Event(lambda t, u, value=masked: value, "masked"),
            )
