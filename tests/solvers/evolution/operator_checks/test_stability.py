"""Explicit methods refuse steps beyond their stability limit, and only those."""

from types import SimpleNamespace

import numpy as np
import pytest
from methods import EQUAL_STEPS
from scipy.sparse.linalg import LinearOperator

from batchkron import problems
from batchkron.solvers import EvolveStatus, evolve, steppers
from batchkron.solvers.evolution.operator_checks.stability import (
    check_step,
    is_explicit_and_linear,
)
from batchkron.solvers.evolution.start.integration import plan_integration
from batchkron.solvers.spectrum import (
    krylov_matrix,
    numerical_abscissa,
    random_start,
)

EXPLICIT = [name for name in EQUAL_STEPS if not steppers.get(name).implicit]
SHORT_OF_LIMITS = [name for name in EXPLICIT if name != "forward-euler"]


def linear(A, initial):
    """u' = A u."""
    A = np.asarray(A)
    return SimpleNamespace(
        initial=np.asarray(initial), operator=A, rhs=lambda t, u, out: np.dot(A, u, out=out)
    )


def heat(size=30, dtype=np.float64):
    """Second differences, and their eigenvalue of largest size."""
    beside = np.ones(size - 1)
    A = np.diag(beside, 1) + np.diag(beside, -1) - 2.0 * np.eye(size)
    A = (A * (size + 1) ** 2).astype(dtype)
    return linear(A, np.ones(size, dtype)), np.linalg.eigvalsh(A)[0]


def step_told(error):
    """The largest stable dt in an error's text."""
    return float(str(error.value).split("take dt <= ")[1].split(",")[0])


def unstable_step(problem, **options):
    integration = plan_integration(problem, **options)
    assert is_explicit_and_linear(integration)
    return check_step(integration)[0]


@pytest.mark.parametrize("name", EXPLICIT)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
def test_a_step_beyond_the_limit_is_refused_with_the_largest_one(name, dtype):
    problem, eigenvalue = heat(dtype=dtype)
    limit = steppers.get(name).real_limit / -eigenvalue
    options = {"until": 100 * limit, "method": name}
    with pytest.raises(ValueError, match=f"{name} is not stable.*allow_unstable=True") as error:
        evolve(problem, dt=2.0 * limit, **options)
    shown = float(str(error.value).split("eigenvalue of about ")[1].split()[0])
    assert shown == pytest.approx(eigenvalue, rel=0.02)
    told = step_told(error)
    assert 0.99 * limit < told < 1.03 * limit
    assert evolve(problem, dt=told, **options).status is EvolveStatus.COMPLETED
    with pytest.raises(ValueError, match="largest stable step"):
        evolve(problem, dt=1.04 * limit, **options)


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in problems.gallery.names()
        if name[-2:] != "6d" and name != "bgk-1x1v"  # which is not linear with frozen fields
        if not problems.gallery.get(name).pde.electric
        if all(term.function.linear for term in problems.gallery.get(name).pde.pointwise)
    ],
)
def test_default_steps_of_the_gallery_are_stable(name):
    problem = problems.make(name, level=2 if "3d" in name else 3, degree=2, method="rk4")
    problem = problem.frozen(problem.initial)
    for method in SHORT_OF_LIMITS:  # they all have the same default step
        assert unstable_step(problem, until=problem.stepper.until, method=method, dt=None) is None


def test_the_estimate_for_transport_is_what_its_runs_bear():
    """Inflow operators are far from normal: eigenvalues alone allow twice the step that works."""
    problem = problems.make("advection-1d", level=4, degree=2)
    options = {"until": 2.0, "method": "ssp-rk3"}
    largest = unstable_step(problem, dt=0.2, **options).largest
    A = problem.operator.to_dense()
    rate = np.abs(np.linalg.eigvals(A)).max()
    assert 2.5 / rate > 1.3 * largest
    assert unstable_step(problem, dt=1.2 * largest, **options) is None
    assert evolve(problem, dt=1.2 * largest, **options).status is EvolveStatus.COMPLETED
    assert unstable_step(problem, dt=1.3 * largest, **options) is not None


def rotation(size):
    """Periodic central differences minus the identity: normal, not self-adjoint."""
    A = np.diag(np.full(size - 1, 500.0), 1)
    A[0, -1] = -500.0
    return A - A.T - np.eye(size)


@pytest.mark.parametrize(
    "A",
    [
        np.array([[-1.0, 1000.0], [-1000.0, -1.0]]),
        np.array([[-1000.0, 1.0], [0.0, -1.0]]),  # not normal, but all eigenvalues are found
        rotation(40),
    ],
    ids=["normal", "all of A", "normal, 40 unknowns"],
)
@pytest.mark.parametrize("name", SHORT_OF_LIMITS)
def test_nothing_beyond_the_limit_is_let_through_where_eigenvalues_are_known(name, A):
    values = np.linalg.eigvals(A)
    polynomial = steppers.get(name).stability_polynomial
    steps = np.linspace(1e-5, 7e-3, 7000)
    growth = np.abs(np.polynomial.polynomial.polyval(np.outer(steps, values), polynomial)).max(1)
    limit = steps[np.argmax(growth > 1.0)]
    problem = linear(A, np.ones(len(A)))
    options = {"until": 100.0, "method": name}
    with pytest.raises(ValueError, match=f"{name} is not stable"):
        evolve(problem, dt=1.06 * limit, **options)
    assert unstable_step(problem, dt=0.99 * limit, **options) is None


def test_a_step_within_the_margin_is_watched():
    """The estimate for transport may be too small: runs slightly beyond it begin, watched."""
    problem = problems.make("advection-1d", level=6, degree=3, method="rk4")
    options = {"until": 40 * 0.0043, "dt": 0.0043, "method": "rk4"}
    assert unstable_step(problem, **options) is None
    result = evolve(problem, **options)
    assert result.status is EvolveStatus.UNSTABLE
    assert result.steps <= 32
    assert "half its length" in result.message
    fine = evolve(problem, **{**options, "dt": 0.0034})
    assert fine.status is EvolveStatus.COMPLETED
    assert np.abs(fine.u).max() < 2.0 * np.abs(problem.initial).max()


@pytest.mark.parametrize("ratio", [0.5, 0.75])
def test_steps_far_below_the_limit_are_not_watched(ratio):
    problem, eigenvalue = heat()
    calls, plain = [], problem.rhs
    problem.rhs = lambda t, u, out: calls.append(t) or plain(t, u, out)
    problem.is_linear = True
    dt = ratio * steppers.get("rk4").real_limit / -eigenvalue
    evolve(problem, until=64 * dt, dt=dt, method="rk4")
    assert len(calls) == 4 * 64


def test_small_errors_of_the_amplitude_are_no_instability_unless_they_add_up():
    problem = linear([[0.0, 1.0], [-1.0, 0.0]], [1.0, 0.0])
    assert evolve(problem, until=1.0, method="forward-euler", dt=0.1).steps == 10
    with pytest.raises(ValueError, match="forward-euler is not stable") as error:
        evolve(problem, until=100.0, method="forward-euler", dt=0.1)
    amplitude = np.linalg.norm(
        evolve(problem, until=100.0, method="forward-euler", dt=step_told(error)).u
    )
    assert 1.8 < amplitude < 2.01


@pytest.mark.parametrize("name", ["rk4", "dormand-prince"])
def test_no_unknowns_and_no_steps_are_stable(name):
    result = evolve(linear(np.zeros((0, 0)), np.zeros(0)), until=1.0, method=name, dt=0.1)
    assert (result.status, result.u.shape) == (EvolveStatus.COMPLETED, (0,))
    problem, _ = heat()
    assert evolve(problem, until=0.0, method=name, dt=1.0).steps == 0


def test_growth_of_the_solution_is_no_instability():
    problem = linear(np.diag([3.0, -1.0]), np.ones(2))
    result = evolve(problem, until=10.0, method="rk4", dt=0.1)
    assert result.status is EvolveStatus.COMPLETED
    assert result.u[0] == pytest.approx(np.exp(30.0), rel=0.01)


def test_the_estimate_is_kept_and_an_update_in_place_is_seen():
    problem, eigenvalue = heat(40)
    A, products = problem.operator, []
    problem.operator = LinearOperator(A.shape, lambda x: products.append(1) or A @ x, dtype=float)
    dt = 1.0 / -eigenvalue
    options = {"until": 3 * dt, "dt": dt, "method": "rk4"}
    evolve(problem, **options)
    assert len(products) == 21
    products.clear()
    evolve(problem, **options)
    assert len(products) == 2
    A *= 10.0
    with pytest.raises(ValueError, match="rk4 is not stable"):
        evolve(problem, **options)


def test_an_operator_that_grows_in_time_is_looked_at_until_the_end():
    problem, eigenvalue = heat()
    A = problem.operator

    def rhs(t, u, out):
        np.dot((1.0 + t) * A, u, out=out)

    varying = SimpleNamespace(initial=problem.initial, rhs=rhs, operator_at=lambda t: (1.0 + t) * A)
    dt = 2.0 / -eigenvalue
    assert evolve(varying, until=20 * dt, method="rk4", dt=dt).status is EvolveStatus.COMPLETED
    with pytest.raises(ValueError, match="rk4 is not stable"):
        evolve(varying, until=1.0, method="rk4", dt=dt)


def test_a_problem_that_is_not_its_operator_is_not_judged_by_it():
    """``operator`` is here the implicit part of an IMEX splitting; the rest of f cancels it."""
    problem = linear(np.diag([-1e4, -1.0]), np.ones(2))
    problem.rhs = lambda t, u, out: np.multiply(u, -u, out=out)
    result = evolve(problem, until=1.0, method="rk4", dt=0.1)
    assert result.status is EvolveStatus.COMPLETED
    np.testing.assert_allclose(result.u, 0.5, rtol=1e-5)


def test_the_abscissa_is_that_of_the_symmetric_part(rng):
    A = rng.standard_normal((12, 12)) + 1j * rng.standard_normal((12, 12))
    expected = np.linalg.eigvalsh(0.5 * (A + A.conj().T)).max()
    start = random_start(np.ones(12, complex))
    assert numerical_abscissa(A, start) == pytest.approx(expected)
    without = LinearOperator(A.shape, lambda x: A @ x, dtype=complex)
    assert expected < numerical_abscissa(without, start) < expected + 0.06 * np.linalg.norm(A, 2)


def test_ritz_values_of_a_small_operator_are_its_eigenvalues(rng):
    A = rng.standard_normal((7, 7))
    seen = krylov_matrix(lambda x, out: np.dot(A, x, out=out), random_start(np.ones(7)))
    key = lambda values: np.sort_complex(np.round(values, 10))  # noqa: E731
    np.testing.assert_allclose(key(seen.values), key(np.linalg.eigvals(A)), atol=1e-9)
    assert not seen.self_adjoint


@pytest.mark.parametrize("scale", [1e-200, 1e160, 1e200])
@pytest.mark.parametrize("method", ["rk4", "ark3"])
def test_operators_of_any_scale_are_checked(method, scale):
    operator = -np.diag(np.linspace(1.0, 2.0, 30)) * scale
    operator[0, 1] = 0.3 * scale
    problem = SimpleNamespace(
        initial=np.ones(30),
        t0=0.0,
        operator=operator,
        implicit_operator=0.5 * operator,
        rhs=lambda t, u, out: np.dot(operator, u, out=out),
    )
    assert evolve(problem, until=1 / scale, dt=0.01 / scale, method=method).t == 1 / scale
    with pytest.raises(ValueError, match="stable"):
        evolve(problem, until=200 / scale, dt=20 / scale, method="rk4")
