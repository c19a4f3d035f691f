"""The Runge-Kutta-Chebyshev method: order, stability, its stages, and runs."""

from types import SimpleNamespace

import numpy as np
import pytest

from batchkron.problems import make
from batchkron.solvers import EvolveStatus, evolve, steppers
from batchkron.solvers.steppers import rkc2
from batchkron.solvers.steppers.rkc2 import Rkc2, growth


class Heat:
    """u' = a(t) D u + b(t), with data at both ends that change in time, or a cubic term."""

    def __init__(self, cells=30, dtype=np.float64, cubic=0.0, changes=True):
        x = np.arange(1, cells + 1) / (cells + 1)
        beside = np.diag(np.ones(cells - 1), 1)
        self._D, self._cubic = 40.0 * (beside + beside.T - 2 * np.eye(cells)), cubic
        self.initial = (np.sin(np.pi * x) + x).astype(dtype)
        self._ends = 40.0 * np.eye(cells)[-1]
        self.evaluations = 0
        if not cubic and changes:
            self.operator_at = lambda t: (1.0 + 0.5 * np.sin(3.0 * t)) * self._D
        elif not cubic:
            self.operator = self._D
        self._factor = (lambda t: 1.0 + 0.5 * np.sin(3.0 * t)) if changes else (lambda t: 1.0)

    def rhs(self, t, u, out):
        self.evaluations += 1
        out[...] = self._factor(t) * (self._D @ u)
        out += self._ends * np.cos(t) - self._cubic * u**3


@pytest.mark.parametrize("s", [2, 3, 5, 17, 100])
def test_growth_is_of_order_2_and_stable(s, rng):
    interval = rkc2._INTERVAL * (s**2 - 1)
    inside = growth(s, -np.linspace(0.0, interval, 4000))
    assert abs(inside).max() <= 1.0 + 1e-10
    assert abs(inside[800:]).max() < 0.96  # damped
    assert abs(growth(s, np.array([-1.2 * interval]))[0]) > 1.0
    errors = [abs(growth(s, np.array([z]))[0] - np.exp(z)) for z in (-0.02, -0.01)]
    assert np.log2(errors[0] / errors[1]) == pytest.approx(3.0, abs=0.05)


@pytest.mark.parametrize("z", [0.3, 5.0, 60.0, 2000.0])
def test_a_step_is_its_polynomial(z, rng):
    values = -z * np.linspace(0.0, 1.0, 7)
    problem = SimpleNamespace(
        initial=np.ones(7),
        operator=np.diag(values),
        rhs=lambda t, u, out: np.multiply(values, u, out=out),
    )
    stepper, u = Rkc2(problem, 1.0), np.ones(7)
    assert stepper.step(u, 0.0, 1.0) is None
    s = rkc2._stages(np.array([-z + 0j, 0.0j]), 1.0)
    assert stepper.products.count == s + 1 + 7  # an evaluation at both ends, all of A
    np.testing.assert_allclose(u, growth(s, values).real, atol=1e-12)


@pytest.mark.parametrize("problem", [Heat(), Heat(cubic=2.0)], ids=["linear", "nonlinear"])
def test_order(problem):
    fine = evolve(problem, until=1.0, method="dop853", rtol=1e-11).u
    errors = []
    for steps in (40, 80):
        result = evolve(problem, until=1.0, method="rkc2", dt=1.0 / steps)
        assert result.steps == steps
        errors.append(np.linalg.norm(result.u - fine))
    assert np.log2(errors[0] / errors[1]) == pytest.approx(2.0, abs=0.15)


def test_the_estimate_is_of_order_3():
    estimates = []
    for dt in (0.002, 0.001):
        problem = Heat(cells=4)
        stepper = Rkc2(problem, dt)
        stepper.attempt(problem.initial, 0.3, 0.3 + dt, dt, np.empty(4))
        estimates.append(np.linalg.norm(stepper.error))
    assert np.log2(estimates[0] / estimates[1]) == pytest.approx(3.0, abs=0.2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
def test_the_error_follows_the_tolerance(dtype):
    problem = Heat(dtype=dtype)
    fine = evolve(Heat(), until=1.0, method="dop853", rtol=1e-11).u
    errors = []
    for rtol in (1e-2, 1e-5):
        result = evolve(problem, until=1.0, method="rkc2", rtol=rtol)
        assert result.status is EvolveStatus.COMPLETED
        assert result.u.dtype == dtype
        errors.append(np.linalg.norm(result.u - fine) / np.linalg.norm(fine))
    assert errors[0] < 2e-2
    assert errors[1] < 0.2 * errors[0]


def test_it_needs_far_fewer_evaluations_than_another_explicit_method():
    counts = []
    for method in ("rkc2", "bogacki-shampine"):
        problem = Heat(cells=100, changes=False)
        problem._D *= 100.0
        evolve(problem, until=1.0, method=method, rtol=1e-4)
        counts.append(problem.evaluations)
    assert counts[0] < 0.2 * counts[1]


def test_states_and_events_inside_steps():
    problem = SimpleNamespace(
        initial=np.ones(2),
        operator=np.diag([-1.0, -200.0]),
        rhs=lambda t, u, out: np.multiply([-1.0, -200.0], u, out=out),
    )
    result = evolve(
        problem, until=2.0, method="rkc2", rtol=1e-6, at=[0.5, 1.5], events=lambda t, u: u[0] - 0.5
    )
    for t, u in result.samples:
        assert u[0] == pytest.approx(np.exp(-t), rel=1e-4)
    assert result.events[0].t == pytest.approx(np.log(2.0), abs=1e-4)


@pytest.mark.parametrize(
    "options", [{"changes": False}, {}, {"cubic": 2.0}], ids=["constant", "changing", "nonlinear"]
)
@pytest.mark.parametrize("control", [{"rtol": 1e-7}, {"dt": 0.004}])
def test_a_resumed_run_repeats_the_whole_one(options, control, tmp_path):
    run = {"until": 0.2, "method": "rkc2", **control}
    whole = evolve(Heat(**options), **run)
    assert whole.steps > 28
    for stop in (1, 20, 27):
        path = tmp_path / f"{stop}.h5"
        callback = lambda state, stop=stop: state.step == stop  # noqa: E731
        evolve(Heat(**options), checkpoint=path, callback=callback, **run)
        resumed = evolve(Heat(**options), resume=path, **run)
        assert resumed.steps == whole.steps
        np.testing.assert_array_equal(resumed.u, whole.u)


def test_parts_of_the_right_hand_side_make_no_difference():
    problem = make("diffusion-2d", level=3)
    plain = SimpleNamespace(
        initial=problem.initial, rhs=problem.rhs, operator=problem.operator, t0=problem.t0
    )
    states = [evolve(one, until=0.01, method="rkc2", dt=1e-3).u for one in (problem, plain)]
    np.testing.assert_allclose(*states, rtol=1e-12, atol=1e-12)


def linear(A):
    return SimpleNamespace(
        initial=np.ones(len(A)), operator=A, rhs=lambda t, u, out: np.dot(A, u, out=out)
    )


def test_eigenvalues_outside_of_the_strip_are_refused():
    for real in (0.0, -60.0):
        problem = linear(np.array([[real, 100.0], [-100.0, real]]))
        with pytest.raises(ValueError, match="stable near the negative real axis only"):
            evolve(problem, until=1.0, method="rkc2", rtol=1e-4)
    with pytest.raises(ValueError, match="dop853"):
        evolve(make("advection-1d", level=4), until=0.1, method="rkc2", rtol=1e-4)


def test_eigenvalues_near_the_axis_take_more_stages_or_shorter_steps():
    A = np.zeros((4, 4))
    A[:2, :2] = [[-10.0, 12.0], [-12.0, -10.0]]
    A[2:, 2:] = np.diag([-500.0, -1000.0])
    result = evolve(linear(A), until=3.0, method="rkc2", rtol=1e-3)
    assert result.status is EvolveStatus.COMPLETED
    assert np.linalg.norm(result.u) < 1e-3
    z = np.linalg.eigvals(A)
    wide, narrow = rkc2._stages(0.3 * z, 1.0), rkc2._stages(0.3 * z.real + 0j, 1.0)
    assert wide is None or wide > narrow


def test_diffusion_without_a_preconditioner_takes_at_most_1000_products():
    """CVODE takes 1200 to 2200 at 1e-5."""
    problem = make("diffusion-2d", level=4, degree=2)
    counted = [0]

    class Operator:
        shape, dtype = problem.operator.shape, problem.operator.dtype

        def matvec(self, x, out=None):
            counted[0] += 1
            return problem.operator.matvec(x, out=out)

    class Counted:
        initial, is_linear, operator, source = problem.initial, True, Operator(), problem.source

        def rhs(self, t, u, out):
            counted[0] += 1
            problem.rhs(t, u, out)

    until = problem.stepper.until
    fine = evolve(problem, until=until, method="bdf", rtol=1e-9).u
    found = evolve(Counted(), until=until, method="rkc2", rtol=1e-5).u
    assert counted[0] <= 1000
    assert np.linalg.norm(found - fine) < 1e-5 * np.linalg.norm(fine)


def test_is_a_method_by_name():
    assert steppers.get("rkc2") is Rkc2
