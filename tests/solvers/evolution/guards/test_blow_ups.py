"""Instability is found before numbers overflow; solutions that grow as much are not accused."""

from types import SimpleNamespace

import numpy as np
import pytest
from methods import EQUAL_STEPS
from scipy.sparse.linalg import LinearOperator

from batchkron.solvers import EvolveStatus, evolve, steppers
from batchkron.solvers.spectrum import numerical_abscissa, random_start
from batchkron.storage import load_checkpoint

EXPLICIT = [name for name in EQUAL_STEPS if not steppers.get(name).implicit]
IMEX = ["ark2", "ark3"]


def linear(A, initial, source=None):
    """u' = A u + s(t)."""
    A = np.asarray(A)

    def rhs(t, u, out):
        np.dot(A, u, out=out)
        if source is not None:
            out += source(t)

    return SimpleNamespace(initial=np.asarray(initial), operator=A, rhs=rhs)


def heat(size=30):
    """Second differences, and their eigenvalue of largest size."""
    beside = np.ones(size - 1)
    A = np.diag(beside, 1) + np.diag(beside, -1) - 2.0 * np.eye(size)
    A = A * (size + 1) ** 2
    return linear(A, np.ones(size)), np.linalg.eigvalsh(A)[0]


@pytest.mark.parametrize("name", EXPLICIT)
def test_a_blow_up_that_stays_finite_is_unstable(tmp_path, name):
    problem, eigenvalue = heat()
    dt = 3.0 * steppers.get(name).real_limit / -eigenvalue
    path = tmp_path / "run.h5"
    options = {"until": 8 * dt, "dt": dt, "method": name, "allow_unstable": True}
    result = evolve(problem, **options, checkpoint=path, checkpoint_every=1)
    assert result.status is EvolveStatus.UNSTABLE
    size = np.linalg.norm(result.u)
    assert 1e3 * np.linalg.norm(problem.initial) < size < np.inf
    assert "ω = 0" in result.message
    assert "smaller dt" in result.message
    assert result.history[-1]["event"] == "unstable"
    if result.steps > 1:
        kept = load_checkpoint(path)
        assert kept.step == result.steps - 1
        assert np.linalg.norm(kept.u) <= 1e3 * np.linalg.norm(problem.initial)
    else:
        assert not path.exists()
    with pytest.raises(RuntimeError, match="unstable at step"):
        evolve(problem, **options, raise_on_failure=True)


def test_an_unstable_implicit_method_is_seen():
    problem, _ = heat()
    method = steppers.Tableau("little-theta", 1, [1.0], implicit=[[0.25]])
    result = evolve(problem, until=2.0, dt=0.1, method=method)
    assert result.status is EvolveStatus.UNSTABLE


def test_transients_of_an_operator_that_is_not_normal_are_solutions():
    problem = linear([[-1.0, 1e6], [0.0, -1.0]], [0.0, 1.0])
    result = evolve(problem, until=1.0, method="rk4", dt=0.05)
    assert result.status is EvolveStatus.COMPLETED
    assert result.u[0] == pytest.approx(1e6 * np.exp(-1.0), rel=1e-4)


@pytest.mark.parametrize("with_adjoint", [True, False])
def test_a_mode_that_grows_below_a_stiff_spectrum_is_a_solution(rng, with_adjoint):
    """20 Lanczos steps from a random vector miss the growing mode; the state reveals it."""
    values = np.concatenate([[1.0], -np.linspace(1.0, 1e6, 200)])
    A = np.diag(values)
    assert numerical_abscissa(A, random_start(np.ones(201))) < 0.0
    problem = linear(A, rng.uniform(1.0, 2.0, 201))
    if not with_adjoint:
        problem.operator = LinearOperator(A.shape, lambda x: A @ x)
    result = evolve(
        problem,
        until=16.0,
        method="crank-nicolson",
        dt=0.1,
        preconditioner=lambda A, c: np.diag(1.0 / (1.0 - c * values)),
    )
    assert result.status is EvolveStatus.COMPLETED
    assert result.u[0] == pytest.approx(problem.initial[0] * np.exp(16.0), rel=0.02)


@pytest.mark.parametrize(
    "source",
    [
        lambda t: t**9,
        lambda t: 1e6 if t > 0.5 else 0.0,
        lambda t: 1e9 * (0.33 < t < 0.34),
        lambda t: np.exp(40.0 * t),
    ],
)
@pytest.mark.parametrize("start", [0.0, 1e-12])
@pytest.mark.parametrize("method", ["rk4", "backward-euler"])
def test_what_a_source_brings_is_a_solution(source, start, method):
    problem = linear(np.diag([-1.0, -3.0]), np.full(2, start), source)
    result = evolve(problem, until=1.0, method=method, dt=0.004)
    assert result.status is EvolveStatus.COMPLETED


def test_a_rate_that_changes_in_time_is_a_solution():
    problem = SimpleNamespace(
        initial=np.ones(2),
        rhs=lambda t, u, out: np.multiply(100.0 * t, u, out=out),
        operator_at=lambda t: 100.0 * t * np.eye(2),
    )
    result = evolve(problem, until=1.0, method="rk4", dt=0.004)
    assert result.status is EvolveStatus.COMPLETED
    assert result.u[0] == pytest.approx(np.exp(50.0), rel=0.01)


# Right-hand sides that are not known to be linear


def only_rhs(problem):
    return SimpleNamespace(initial=problem.initial, rhs=problem.rhs)


@pytest.mark.parametrize("steps", [5, 50, 100])
@pytest.mark.parametrize("name", EXPLICIT)
def test_a_blow_up_without_an_operator_is_seen_by_halved_steps(tmp_path, name, steps):
    problem, eigenvalue = heat()
    dt = 1.5 * steppers.get(name).real_limit / -eigenvalue
    path = tmp_path / "run.h5"
    result = evolve(
        only_rhs(problem), until=steps * dt, dt=dt, method=name, checkpoint=path, checkpoint_every=7
    )
    assert result.status is EvolveStatus.UNSTABLE
    assert result.steps <= min(steps, 32)
    assert "half its length" in result.message
    assert np.isfinite(result.u).all()
    assert not path.exists() if result.steps < 8 else load_checkpoint(path).step < result.steps


@pytest.mark.parametrize("z", [30.0, 200.0, 1000.0, 20000.0])
@pytest.mark.parametrize("name", EXPLICIT)
def test_steps_far_too_long_are_seen_though_shorter_ones_are_unstable_too(name, z):
    result = evolve(lambda t, u: -z * u, u0=np.ones(3), until=5.0, dt=1.0, method=name)
    assert result.status is EvolveStatus.UNSTABLE


@pytest.mark.parametrize(
    ("name", "z"), [("forward-euler", 2.04), ("rk4", 2.8), ("rk4", 2.81), ("ssp-rk3", 2.54)]
)
def test_a_slow_blow_up_without_an_operator_is_seen(rng, name, z):
    """A step multiplies by 1.02 to 1.05 in modulus; with rk4 without a change of sign."""
    initial = rng.uniform(1.0, 2.0, 3)
    problem = SimpleNamespace(
        initial=initial, rhs=lambda t, u, out: np.multiply(-1000.0, u, out=out)
    )
    options = {"until": z, "dt": z * 1e-3, "method": name}
    result = evolve(problem, **options)
    assert result.status is EvolveStatus.UNSTABLE
    assert result.steps <= 32
    limit = steppers.get(name).real_limit * 1e-3
    fine = evolve(problem, **{**options, "dt": 0.999 * limit})
    assert fine.status is EvolveStatus.COMPLETED
    assert np.abs(fine.u).max() <= initial.max()


@pytest.mark.parametrize("z", [6.5, 7.5, 9.0, 20.0, 60.0])  # beyond the limits of all methods
@pytest.mark.parametrize("name", EXPLICIT)
def test_halves_that_are_unstable_as_well_do_not_hide_it(name, z):
    problem = SimpleNamespace(
        initial=np.ones(2), rhs=lambda t, u, out: np.multiply([-1000.0, -1.0], u, out=out)
    )
    steps = 8
    result = evolve(problem, until=steps * z * 1e-3, dt=z * 1e-3, method=name)
    assert result.status is EvolveStatus.UNSTABLE
    assert result.steps <= steps


@pytest.mark.parametrize("name", IMEX)
def test_an_explicit_part_that_blows_up_is_seen(name):
    """u' = -u - 1000 u + sin(u) / 10, of which an IMEX method solves -u alone implicitly."""
    problem = SimpleNamespace(
        initial=np.ones(2),
        implicit_operator=-np.eye(2),
        rhs=lambda t, u, out: np.copyto(out, -u - [1000.0, 1.0] * u + 0.1 * np.sin(u)),
    )
    options = {"until": 0.2, "method": name, "solver": {"name": "bicgstab"}}
    for steps in (10, 40):
        result = evolve(problem, dt=0.005, **{**options, "until": 0.005 * steps})
        assert result.status is EvolveStatus.UNSTABLE
        assert "half its length" in result.message
    fine = evolve(problem, dt=0.001, **options)
    assert fine.status is EvolveStatus.COMPLETED
    assert fine.u[1] == pytest.approx(np.exp(-0.38), rel=0.01)


def test_a_bounded_wrong_oscillation_is_unstable():
    """u' = 1000 u (1 - u) tends to 1; forward Euler with this step cycles around 1 instead."""
    problem = SimpleNamespace(
        initial=np.full(3, 0.1), rhs=lambda t, u, out: np.multiply(1000.0 * u, 1.0 - u, out=out)
    )
    result = evolve(problem, until=1.0, method="forward-euler", dt=0.0025)
    assert result.status is EvolveStatus.UNSTABLE
    fine = evolve(problem, until=1.0, method="forward-euler", dt=0.0015)
    assert fine.status is EvolveStatus.COMPLETED
    np.testing.assert_allclose(fine.u, 1.0)


@pytest.mark.parametrize(
    ("f", "dt", "method"),
    [
        (lambda t, u: -u, 1.9, "forward-euler"),  # inaccurate, but it decays
        (lambda t, u: 5.0 * u, 0.3, "forward-euler"),  # inaccurate, but it grows
        (lambda t, u: np.exp(-1000.0 * t) + 0.0 * u, 0.01, "forward-euler"),
        (lambda t, u: np.cos(300.0 * t) + 0.0 * u, 0.01, "rk4"),
        (lambda t, u: -1000.0 * u**3, 4e-4, "rk4"),
        (lambda t, u: np.array([u[1], 5.0 * (1.0 - u[0] ** 2) * u[1] - u[0]]), 0.05, "rk4"),
    ],
)
def test_halved_steps_do_not_object_to_long_steps(f, dt, method):
    problem = SimpleNamespace(
        initial=np.array([1.0, 0.9]), rhs=lambda t, u, out: np.copyto(out, f(t, u))
    )
    for steps in (1, 7, 64, 100):
        result = evolve(problem, until=steps * dt, method=method, dt=dt)
        assert result.status is EvolveStatus.COMPLETED


@pytest.mark.parametrize("name", EXPLICIT)
def test_halved_steps_cost_little_and_leave_the_run_alone(tmp_path, name):
    calls = []

    def rhs(t, u, out):
        calls.append(t)
        out[0], out[1] = u[1], -np.sin(u[0])

    problem = SimpleNamespace(initial=np.array([1.0, 0.0]), rhs=rhs)
    dt = 10.0 / 320  # a step changes the state by 3 %
    result = evolve(problem, until=10.0, method=name, dt=dt)
    cls = steppers.get(name)
    first_is_last = getattr(getattr(cls, "tableau", None), "first_is_last", False)
    plain = 320 * cls.stages if not first_is_last else 320 * (cls.stages - 1) + 1
    assert plain < len(calls) <= plain * 1.1
    stepper, u = cls(problem, dt), problem.initial.copy()
    for n in range(320):
        stepper.step(u, n * dt, 10.0 if n == 319 else (n + 1) * dt)
    np.testing.assert_array_equal(result.u, u)
    path = tmp_path / "run.h5"
    options = {"until": 10.0, "method": name, "dt": dt}
    evolve(problem, **options, checkpoint=path, callback=lambda state: state.step == 200)
    np.testing.assert_array_equal(evolve(problem, **options, resume=path).u, u)


@pytest.mark.parametrize(("name", "evaluations"), [("rk4", 4 * 32), ("dormand-prince", 6 * 32 + 1)])
def test_an_error_while_a_step_is_compared_keeps_that_step(tmp_path, name, evaluations):
    calls = []

    def rhs(t, u, out):
        calls.append(t)
        if len(calls) == evaluations + 1:
            raise ValueError("no value here")
        out[0], out[1] = u[1], -np.sin(u[0])

    problem = SimpleNamespace(initial=np.array([1.0, 0.0]), rhs=rhs)
    path = tmp_path / "run.h5"
    options = {"method": name, "dt": 0.1}
    with pytest.raises(ValueError, match="no value here"):
        evolve(problem, until=6.4, **options, checkpoint=path)
    kept = load_checkpoint(path)
    assert kept.step == 32
    np.testing.assert_allclose(kept.u, evolve(problem, until=3.2, **options).u, rtol=1e-12)


# Solutions that become infinite


def squared(sign, dtype):
    """u' = ± u², u(0) = ± 1: infinite at t = 1. The second unknown does not change."""

    def rhs(t, u, out):
        out[0], out[1] = sign * u[0] * u[0], 0.0

    return SimpleNamespace(initial=np.array([sign, 0.1], dtype), rhs=rhs)


@pytest.mark.parametrize("name", EXPLICIT)
@pytest.mark.parametrize("dt", [0.1, 0.03, 0.01])
def test_no_run_completes_beyond_a_pole(name, dt):
    lag = (0.2 if dt > 0.05 else 0.1) if name == "forward-euler" else 0.05
    for sign, dtype in ((1.0, np.float64), (-1.0, np.float32), (1.0, np.complex128)):
        for beyond in (lag, 0.2, 0.5):
            result = evolve(squared(sign, dtype), until=1.0 + beyond, dt=dt, method=name)
            assert result.status in (EvolveStatus.UNSTABLE, EvolveStatus.NOT_FINITE)
        before = evolve(squared(sign, dtype), until=0.9, dt=dt, method=name)
        assert before.status is EvolveStatus.COMPLETED


def test_the_text_says_that_the_solution_becomes_infinite():
    result = evolve(squared(1.0, np.float64), until=1.2, dt=0.01, method="forward-euler")
    assert result.status is EvolveStatus.UNSTABLE
    assert "the solution becomes infinite" in result.message


@pytest.mark.parametrize("name", EXPLICIT)
@pytest.mark.parametrize("z", [0.5, 5.0, 50.0])
def test_exponential_growth_is_no_pole(name, z):
    problem = SimpleNamespace(initial=np.ones(1), rhs=lambda t, u, out: np.multiply(z, u, out=out))
    result = evolve(problem, until=20.0, dt=1.0, method=name)
    assert result.status is EvolveStatus.COMPLETED


def test_a_state_is_compared_only_when_it_has_doubled():
    calls = []

    def rhs(t, u, out):
        calls.append(t)
        out[...] = u

    problem = SimpleNamespace(initial=np.ones(1), rhs=rhs)
    evolve(problem, until=31 * 0.1, dt=0.1, method="forward-euler")  # grows by 19
    assert len(calls) == 31 + 2 * 4  # after each doubling one step, and the last one
