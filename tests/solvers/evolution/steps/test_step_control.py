"""Step-size control (rtol, atol): errors, dense output, events, quantities, checkpoints."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.integrate

import batchkron as bk
from batchkron.problems import gallery
from batchkron.solvers import Event, EvolveStatus, Quantity, evolve, steppers
from batchkron.storage import load_checkpoint

# rkc2 refuses the eigenvalues of the problems here, and has tests of its own.
ABLE = [name for name in steppers.names() if steppers.get(name).error_order and name != "rkc2"]


class Pendulum:
    """u'' = -u beside a third, stiff component with a source; u = (cos t, -sin t, e^-t)."""

    initial = np.array([1.0, 0.0, 1.0])
    operator = np.array([[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, -30.0]])

    def __init__(self):
        self.evaluations = 0

    def exact(self, t):
        return np.array([np.cos(t), -np.sin(t), np.exp(-t)])

    def rhs(self, t, u, out):
        self.evaluations += 1
        np.dot(self.operator, u, out=out)
        out[2] += 29.0 * np.exp(-t)


@pytest.mark.parametrize("method", ABLE)
def test_the_error_follows_the_tolerance(method):
    errors, steps = [], []
    for rtol in (1e-4, 1e-7):
        if steppers.get(method).error_order == 1 and rtol < 1e-5:
            rtol = 1e-6
        problem = Pendulum()
        result = evolve(problem, until=2.0, method=method, rtol=rtol)
        assert (result.status, result.t) == (EvolveStatus.COMPLETED, 2.0)
        errors.append(np.linalg.norm(result.u - problem.exact(2.0)))
        steps.append(result.steps)
    assert errors[0] < 3e-2
    assert errors[1] < 0.1 * errors[0]
    assert steps[1] > steps[0]
    assert result.rejected < 0.3 * result.steps + 5


def test_bogacki_shampine_takes_about_scipys_steps():
    problem = Pendulum()
    ours = evolve(problem, until=5.0, method="bogacki-shampine", rtol=1e-6)
    scipys = scipy.integrate.solve_ivp(
        lambda t, u: (problem.rhs(t, u, out := np.empty(3)), out)[1],
        (0, 5),
        problem.initial,
        "RK23",
        rtol=1e-6,
        atol=1e-6,
    )
    assert 0.5 < ours.steps / (len(scipys.t) - 1) < 2.0


def test_an_explicit_method_evaluates_its_first_slope_once():
    problem = Pendulum()
    result = evolve(problem, until=1.0, method="dormand-prince", rtol=1e-6)
    assert problem.evaluations == 2 + 1 + 6 * (result.steps + result.rejected)


def test_a_large_first_step_is_rejected_and_a_given_one_is_tried():
    tried = []
    problem = Pendulum()
    result = evolve(
        problem,
        until=1.0,
        method="bogacki-shampine",
        rtol=1e-6,
        dt=0.9,
        callback=lambda state: tried.append(state.t),
    )
    assert result.rejected >= 1
    assert tried[0] < 0.2
    tried.clear()
    evolve(
        problem,
        until=1.0,
        method="bogacki-shampine",
        rtol=1e-6,
        dt=1e-4,
        callback=lambda state: tried.append(state.t),
    )
    assert tried[0] == 1e-4


@pytest.mark.parametrize("method", ["dormand-prince", "bogacki-shampine", "esdirk3", "ssp-rk43"])
@pytest.mark.parametrize("chosen", [True, False])
def test_dense_output(method, chosen):
    problem = Pendulum()
    times = np.linspace(0.0, 2.0, 37)
    options = {"rtol": 1e-7} if chosen else {"dt": 0.02}
    result = evolve(problem, until=2.0, method=method, at=times, **options)
    assert [t for t, _ in result.samples] == list(times)
    for t, u in result.samples:
        assert np.linalg.norm(u - problem.exact(t)) < 2e-5
    plain = evolve(Pendulum(), until=2.0, method=method, **options)
    np.testing.assert_array_equal(plain.u, result.u)


def test_dense_output_of_a_method_that_works_in_place():
    problem = Pendulum()
    result = evolve(problem, until=1.0, method="rk4", dt=0.01, at=[0.1234, 0.5])
    for t, u in result.samples:
        assert np.linalg.norm(u - problem.exact(t)) < 1e-5


@pytest.mark.parametrize("time", [-0.1, 1.5, np.nan, np.inf])
def test_times_to_keep_are_within_the_run(time):
    with pytest.raises(ValueError, match=r"at has .*; expected times from t0 = 0\.0 to 1\.0"):
        evolve(Pendulum(), until=1.0, method="rk4", dt=0.1, at=[0.5, time])


@pytest.mark.parametrize(
    "options", [{"method": "dormand-prince", "rtol": 1e-9}, {"method": "rk4", "dt": 0.01}]
)
def test_events(options):
    problem = Pendulum()
    falling = Event(lambda t, u: u[0], "falls", direction=-1)
    rising = Event(lambda t, u: u[0], "rises", direction=1)
    result = evolve(problem, until=8.0, events=[falling, rising], **options)
    assert [record.name for record in result.events] == ["falls", "rises", "falls"]
    found = [record.t for record in result.events]
    np.testing.assert_allclose(found, np.pi * np.array([0.5, 1.5, 2.5]), atol=1e-5)
    assert abs(result.events[0].u[0]) < 1e-8


@pytest.mark.parametrize(
    "options", [{"method": "dormand-prince", "rtol": 1e-9}, {"method": "rk4", "dt": 0.01}]
)
def test_a_terminal_event_ends_the_run_there_and_the_checkpoint_is_before(tmp_path, options):
    path = tmp_path / "run.h5"

    def half(t, u):
        return u[0] - 0.5

    half.terminal = True
    result = evolve(Pendulum(), until=8.0, events=half, checkpoint=path, at=[0.5, 5.0], **options)
    assert result.status is EvolveStatus.EVENT
    assert result.t == pytest.approx(np.pi / 3, abs=1e-5)
    assert result.u[0] == pytest.approx(0.5, abs=1e-7)
    assert [t for t, _ in result.samples] == [0.5]
    before = load_checkpoint(path)
    assert before.t < result.t
    resumed = evolve(Pendulum(), until=8.0, resume=path, **options)
    plain = evolve(Pendulum(), until=8.0, **options)
    np.testing.assert_array_equal(resumed.u, plain.u)


def test_quantities_are_watched_and_may_end_the_run():
    problem = Pendulum()
    energy = Quantity(lambda t, u: u[0] ** 2 + u[1] ** 2)
    result = evolve(
        problem,
        until=5.0,
        method="bogacki-shampine",
        rtol=1e-4,
        watch={"energy": energy, "third": [0.0, 0.0, 1.0]},
    )
    watched = result.watched["energy"]
    assert watched.first == 1.0
    assert 0.0 < abs(watched.last - 1.0) <= watched.drift < 1e-2
    assert result.watched["third"].last == result.u[2]
    strict = {"energy": Quantity(energy.measure, tolerance=watched.drift / 10)}
    ended = evolve(problem, until=5.0, method="bogacki-shampine", rtol=1e-4, watch=strict)
    assert ended.status is EvolveStatus.DRIFTED
    assert 0.0 < ended.t < 5.0
    with pytest.raises(RuntimeError, match="left its tolerance"):
        evolve(
            problem,
            until=5.0,
            method="bogacki-shampine",
            rtol=1e-4,
            watch=strict,
            raise_on_failure=True,
        )


@pytest.mark.parametrize("method", ["dormand-prince", "esdirk3", "exponential-trapezoidal"])
def test_a_resumed_run_ends_bitwise_equal(tmp_path, method):
    path = tmp_path / "run.h5"
    options = {"until": 2.0, "method": method, "rtol": 1e-5}
    stopped = evolve(Pendulum(), **options, checkpoint=path, callback=lambda s: s.step == 7)
    assert (stopped.status, stopped.steps) == (EvolveStatus.STOPPED, 7)
    saved = load_checkpoint(path)
    assert (saved.t, saved.step) == (stopped.t, 7)
    resumed = evolve(Pendulum(), **options, resume=path)
    undisturbed = evolve(Pendulum(), **options)
    assert (resumed.t, resumed.steps) == (undisturbed.t, undisturbed.steps)
    np.testing.assert_array_equal(resumed.u, undisturbed.u)


def test_equal_steps_and_chosen_ones_do_not_resume_each_other(tmp_path):
    path = tmp_path / "run.h5"
    evolve(Pendulum(), until=1.0, method="dormand-prince", rtol=1e-5, checkpoint=path)
    with pytest.raises(ValueError, match="give its rtol or atol"):
        evolve(Pendulum(), until=2.0, resume=path)
    with pytest.raises(ValueError, match="before the checkpoint's time"):
        evolve(Pendulum(), until=0.5, resume=path, rtol=1e-5)
    evolve(Pendulum(), until=1.0, method="dormand-prince", dt=0.1, checkpoint=path)
    with pytest.raises(ValueError, match="leave rtol and atol out"):
        evolve(Pendulum(), until=2.0, resume=path, rtol=1e-5)


def test_blow_up_ends_with_the_last_good_state():
    problem = SimpleNamespace(initial=np.ones(1), rhs=lambda t, u, out: np.multiply(u, u, out=out))
    result = evolve(problem, until=2.0, method="dormand-prince", rtol=1e-6)
    assert result.status is EvolveStatus.STEP_TOO_SMALL
    assert result.t == pytest.approx(1.0, abs=1e-4)
    assert np.isfinite(result.u).all()
    with pytest.raises(RuntimeError, match="No step that time resolves"):
        evolve(problem, until=2.0, method="dormand-prince", rtol=1e-6, raise_on_failure=True)


def test_a_failed_solve_shortens_the_step():
    diffusion = gallery.make("diffusion-1d", level=5)
    result = evolve(
        diffusion,
        until=0.01,
        method="sdirk2",
        rtol=1e-3,
        dt=0.01,
        solver={"name": "gmres", "restart": 12, "maxiter": 1, "rtol": 1e-6},
    )
    assert result.status is EvolveStatus.COMPLETED
    assert result.rejected > 0


def test_history_stays_short():
    result = evolve(Pendulum(), until=20.0, method="ssp-rk2", rtol=3e-7)
    assert result.steps > 1500
    assert 100 < len(result.history) < 450


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"method": "rk4", "rtol": 1e-3}, ValueError, "does not estimate its error"),
        ({"rtol": -1e-3}, ValueError, "rtol is -0.001"),
        ({"rtol": 0.0}, ValueError, "both 0"),
        ({"rtol": "x"}, TypeError, "rtol is 'x'"),
        ({"rtol": 1e-3, "at": [np.nan]}, ValueError, "at has nan; expected times from"),
        ({"rtol": 1e-3, "events": [3]}, TypeError, r"events\[0\] is a int"),
    ],
)
def test_wrong_arguments(options, error, text):
    with pytest.raises(error, match=text):
        evolve(Pendulum(), until=1.0, **{"method": "dormand-prince", **options})
    with pytest.raises(ValueError, match="direction is 2"):
        Event(lambda t, u: 0.0, direction=2)
    with pytest.raises(ValueError, match="tolerance is -1"):
        Quantity([1.0], tolerance=-1)


def test_a_method_of_ones_own_with_a_name_of_a_preconditioner():
    g = 1 - np.sqrt(0.5)
    own = steppers.Tableau(
        "own", 2, [1 - g, g], implicit=[[g, 0], [1 - g, g]], embedded=[0.5, 0.5], embedded_order=1
    )
    problem = gallery.make("diffusion-2d", level=4)
    result = evolve(problem, until=0.01, method=own, rtol=1e-3, preconditioner="combination")
    named = evolve(problem, until=0.01, method="sdirk2", rtol=1e-3, preconditioner="combination")
    np.testing.assert_array_equal(result.u, named.u)
    solves = [record["iterations"] for record in result.history if "iterations" in record]
    assert 0 < max(solves) <= 15


def test_scipys_integrators_take_our_operators(rng):
    A = bk.KroneckerSum([-np.diag(np.arange(1.0, 5)), -np.eye(3)])
    start = rng.standard_normal(12)
    for method in ("RK45", "BDF"):
        options = {"jac": A.to_dense()} if method == "BDF" else {}
        found = scipy.integrate.solve_ivp(
            lambda t, u: A @ u, (0, 1), start, method, rtol=1e-7, atol=1e-9, **options
        )
        np.testing.assert_allclose(found.y[:, -1], A.expm_apply(start), atol=1e-5)


@pytest.mark.parametrize("method", ["dormand-prince", "ssp-rk43", "rkc2", "esdirk3", "bdf"])
def test_states_that_decay_are_resumed_bitwise(method, tmp_path):
    """The larger norm of a step's ends is then the one at its beginning."""
    rates = np.linspace(-40.0, -1.0, 30)
    problem = SimpleNamespace(
        initial=np.linspace(1.0, 2.0, 30),
        operator=np.diag(rates),
        rhs=lambda t, u, out: np.multiply(rates, u, out=out),
    )
    for rtol in (1e-3, 1e-4, 1e-5):
        options = {"until": 0.2, "method": method, "rtol": rtol}
        whole = evolve(problem, **options)
        for stop in (1, 2, 3):
            path = tmp_path / f"{rtol}-{stop}.h5"
            callback = lambda state, stop=stop: state.step == stop  # noqa: E731
            evolve(problem, checkpoint=path, callback=callback, **options)
            resumed = evolve(problem, resume=path, **options)
            np.testing.assert_array_equal(resumed.u, whole.u)


@pytest.mark.parametrize("method", ["bdf", "ssp-rk2", "esdirk2", "sdirk2", "ark2"])
@pytest.mark.parametrize("late", [0.0, 0.5])
def test_a_state_that_rises_from_0_needs_no_atol(method, late, tmp_path):
    """u' = -u + forcing that is 0 at first: steps relative to the state shrank without end."""
    options = {
        "source": lambda t: np.full(2, max(t - late, 0.0)),
        "u0": np.zeros(2),
        "until": 1.0,
        "method": method,
        "rtol": 1e-4,
    }
    whole = evolve(-np.eye(2), callback=lambda state: state.step > 5000, **options)
    assert whole.status is EvolveStatus.COMPLETED
    time = 1.0 - late
    np.testing.assert_allclose(whole.u, time - 1.0 + np.exp(-time), rtol=1e-3)
    path = tmp_path / "run.h5"
    evolve(-np.eye(2), callback=lambda state: state.step == 3, checkpoint=path, **options)
    resumed = evolve(-np.eye(2), resume=path, **options)
    np.testing.assert_array_equal(resumed.u, whole.u)
