"""Explicit methods without dt, where the problem suggests a step for implicit ones."""

from types import SimpleNamespace

import numpy as np
import pytest
from methods import EQUAL_STEPS

from batchkron import problems
from batchkron.solvers import EvolveStatus, evolve, steppers

EXPLICIT = [name for name in EQUAL_STEPS if not steppers.get(name).implicit]


def suggesting(A, dt, initial=None, method="crank-nicolson"):
    """u' = A u, with a default step."""
    A = np.asarray(A)
    return SimpleNamespace(
        initial=np.ones(len(A), A.dtype) if initial is None else initial,
        operator=A,
        rhs=lambda t, u, out: np.dot(A, u, out=out),
        stepper={"method": method, "dt": dt},
    )


@pytest.mark.parametrize("name", EXPLICIT)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
def test_a_share_of_the_largest_stable_step_is_taken(name, dtype):
    problem = suggesting(np.diag(-np.geomspace(1.0, 1e4, 15)).astype(dtype), 0.1)
    limit = steppers.get(name).real_limit / 1e4
    result = evolve(problem, until=500 * limit, method=name)
    assert result.status is EvolveStatus.COMPLETED
    assert 0.78 * limit < result.dt < 0.81 * limit
    assert "dt was not given" in result.message
    assert f"0.8 times the largest stable step of '{name}'" in result.message
    given = evolve(problem, until=500 * limit, method=name, dt=result.dt)
    np.testing.assert_array_equal(given.u, result.u)
    assert "not given" not in given.message


def test_a_suggestion_that_is_stable_is_taken():
    problem = suggesting([[-1.0, 1.0], [0.0, -1.0]], 0.1)
    assert evolve(problem, until=1.0, method="rk4").steps == 10


def test_forward_euler_is_confirmed_by_powers_of_its_step():
    """The estimate for continuity-1d is 1.35 times the step with which its powers stay small."""
    made = problems.make("continuity-1d", level=4, degree=2)
    A, until = made.operator.to_dense(), made.stepper.until
    initial = np.random.default_rng(5).standard_normal(len(A))
    problem = suggesting(A, made.stepper.dt, initial, "backward-euler")
    result = evolve(problem, until=until, method="forward-euler")
    growth = np.abs(np.linalg.eigvals(np.eye(len(A)) + result.dt * A)).max() ** result.steps
    assert growth < 2.6
    assert np.linalg.norm(result.u) < 2.6 * np.linalg.norm(initial)


def test_where_no_step_is_known_it_has_to_be_given():
    problem = suggesting(np.diag([-1.0, -2.0]), 0.1)
    text = r"dt is missing.*0\.1.*'crank-nicolson'.*Give dt"
    nonlinear = SimpleNamespace(
        initial=problem.initial, stepper=problem.stepper, rhs=lambda t, u, out: -(u**3)
    )
    with pytest.raises(ValueError, match=text):
        evolve(nonlinear, until=1.0, method="rk4")
    problem.rhs = lambda t, u, out: np.multiply(u, -u, out=out)  # not what its operator is
    with pytest.raises(ValueError, match=text):
        evolve(problem, until=1.0, method="rk4")
    turning = suggesting([[0.0, 1.0], [-1.0, 0.0]], 0.1)
    assert evolve(turning, until=20.0, method="forward-euler").dt < 0.06


def test_a_linear_problem_without_defaults_has_a_step_of_explicit_methods():
    problem = suggesting(np.diag([-1.0, -200.0]), 0.1)
    del problem.stepper
    with pytest.raises(ValueError, match="dt is missing"):
        evolve(problem, until=1.0, method="rk4")
    problem.is_linear = True
    result = evolve(problem, until=1.0, method="rk4")
    largest = 2.785293563405282 / 200.0  # where the stability polynomial is 1
    assert 0.7 * largest < result.dt <= 0.81 * largest
    assert "at most 0.8 times the largest stable step of 'rk4'" in result.message
    assert evolve(problem, until=1e-3, method="rk4").steps <= 2
    for until, method in ((1.0, "backward-euler"), (0.0, "rk4")):
        with pytest.raises(ValueError, match="dt is missing"):
            evolve(problem, until=until, method=method)
