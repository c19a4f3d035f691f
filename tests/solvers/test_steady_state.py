"""Steady states by pseudo-transient continuation."""

import numpy as np
import pytest
import scipy.optimize

import batchkron as bk
from batchkron.problems import make
from batchkron.solvers import SteadyStatus, evolve, steady_state


def second_difference(size):
    beside = np.diag(np.ones(size - 1), 1)
    return (beside + beside.T - 2.0 * np.eye(size)) * (size + 1) ** 2


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_linear(rng, dtype):
    A = second_difference(40)
    source = rng.standard_normal(40).astype(dtype)
    found = steady_state(A.astype(dtype), u0=np.zeros(40, dtype), source=source, rtol=1e-9)
    assert found.converged
    assert found.u.dtype == dtype
    exact = -np.linalg.solve(A, source)
    assert np.linalg.norm(found.u - exact) < 1e-7 * np.linalg.norm(exact)
    assert found.residual_norm == pytest.approx(np.linalg.norm(A @ found.u + source), rel=1e-3)
    assert found.steps + 1 == len(found.residual_norms)


def test_linear_with_a_preconditioner():
    problem = make("diffusion-2d", level=4, degree=2)
    t = 0.05
    found = steady_state(problem, t=t, rtol=1e-8, preconditioner="combination")
    plain = steady_state(problem, t=t, rtol=1e-8, preconditioner="none")
    assert found.converged
    assert plain.converged
    out = np.empty_like(found.u)
    problem.rhs(t, found.u, out)
    assert np.linalg.norm(out) <= 1.01e-8 * found.residual_norms[0]
    np.testing.assert_allclose(found.u, plain.u, atol=1e-5 * abs(plain.u).max())
    assert found.products < 0.5 * plain.products


def bratu(size, strength=2.0):
    A = second_difference(size)
    return lambda t, u: A @ u + strength * np.exp(u)


@pytest.mark.parametrize("size", [50, 300])
@pytest.mark.parametrize("options", [{}, {"solver": "gmres"}], ids=["own", "gmres"])
def test_bratu(size, options):
    """u'' + 2 e^u = 0, u(0) = u(1) = 0; the lower branch is known."""
    theta = scipy.optimize.brentq(lambda s: s - np.sqrt(4.0) * np.cosh(s / 4.0), 1.0, 4.0)
    x = np.arange(1, size + 1) / (size + 1)
    exact = -2.0 * np.log(np.cosh((x - 0.5) * theta / 2.0) / np.cosh(theta / 4.0))
    if size == 300:  # products only: the second difference is stiff
        options = {
            **options,
            "preconditioner": lambda A, c: np.linalg.inv(
                np.eye(size) - c * second_difference(size)
            ),
        }
    found = steady_state(bratu(size), u0=np.zeros(size), rtol=1e-9, **options)
    assert found.converged
    assert abs(found.u - exact).max() < 2.0 / size**2
    last = found.residual_norms[-3:]
    assert last[2] < 1e-2 * last[0]  # Newton's method at the end


def test_given_jacobians_are_used():
    A = second_difference(30)
    calls = [0]

    def f(t, u):
        calls[0] += 1
        return bratu(30)(t, u)

    found = steady_state(f, u0=np.zeros(30), jac=lambda t, u: A + np.diag(2.0 * np.exp(u)))
    assert found.converged
    assert calls[0] == found.steps + 2 == found.products  # at first, for the first step, after each
    operator = bk.Diagonal(np.full(3, -4.0))
    cubic = steady_state(lambda t, u: 2.0 - u - u**3, u0=np.full(3, 0.5), jac=operator)
    np.testing.assert_allclose(cubic.u, 1.0, atol=1e-7)


def test_what_is_conserved_keeps_its_value():
    """a + b → c and back: two sums are conserved, so that the Jacobian is singular."""

    def reaction(t, u):
        rate = 3.0 * u[0] * u[1] - u[2]
        return np.array([-rate, -rate, rate])

    u0 = np.array([1.0, 2.0, 0.1])
    found = steady_state(reaction, u0=u0, rtol=1e-10)
    assert found.converged
    assert found.u[0] + found.u[2] == pytest.approx(1.1, rel=1e-9)
    assert found.u[1] + found.u[2] == pytest.approx(2.1, rel=1e-9)
    late = evolve(reaction, u0=u0, until=50.0, method="bdf", rtol=1e-9).u
    np.testing.assert_allclose(found.u, late, rtol=1e-6)


def test_a_state_that_is_steady_takes_no_step():
    found = steady_state(lambda t, u: u - 1.0, u0=np.ones(4))
    assert (found.status, found.steps, found.residual_norm) == (SteadyStatus.CONVERGED, 0, 0.0)
    found = steady_state(lambda t, u: 1.0 - u, u0=np.zeros(4), atol=3.0)
    assert found.steps == 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_state_is_steady_to_rounding(dtype, rng):
    """From the steady state itself no residual is left to fall; single precision ends, too."""
    A = (second_difference(40) - np.eye(40)).astype(dtype)
    b = rng.standard_normal(40).astype(dtype)

    def f(t, u):
        return A @ u + b

    found = steady_state(f, u0=np.ones(40, dtype), rtol=1e-14)
    assert found.converged
    again = steady_state(f, u0=found.u, max_steps=5)
    assert again.converged
    exact = np.linalg.solve(A.astype(np.float64), -b)
    for u in (found.u, again.u):
        assert np.linalg.norm(u - exact) < 1e5 * np.finfo(dtype).eps * np.linalg.norm(exact)
    far = steady_state(f, u0=100.0 * found.u, max_steps=1)
    assert far.steps == 1


def test_failures_have_a_status():
    found = steady_state(lambda t, u: 1.0 + u * u, u0=np.zeros(1), max_steps=7)
    assert found.status in (SteadyStatus.MAX_STEPS, SteadyStatus.SOLVER_FAILED)
    assert not found.converged
    lost = steady_state(lambda t, u: np.full(2, np.nan), u0=np.zeros(2))
    assert lost.status is SteadyStatus.SOLVER_FAILED
    with pytest.raises(RuntimeError, match="search for a steady state ended as 'max-steps'"):
        steady_state(lambda t, u: 1.0 - u**3, u0=np.zeros(1), max_steps=1, raise_on_failure=True)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"rtol": -1.0}, ValueError, "rtol is -1.0"),
        ({"max_steps": 0}, ValueError, "max_steps is 0"),
        ({"dt": 0.0}, ValueError, "dt is 0.0"),
        ({"t": "now"}, TypeError, "t is 'now'"),
        ({"u0": None}, ValueError, "u0 is missing"),
    ],
)
def test_refused(options, error, text):
    with pytest.raises(error, match=text):
        steady_state(lambda t, u: -u, **{"u0": np.ones(2), **options})


def test_a_step_whose_matrix_is_singular_is_tried_shorter():
    """And a state that is not stable is not found, as it would not be in time."""
    found = steady_state(lambda t, u: u, u0=np.array([1.0, 2.0]), dt=1.0, jac=np.eye(2))
    assert found.status is SteadyStatus.MAX_STEPS
    np.testing.assert_allclose(found.u / found.u[0], [1.0, 2.0])
    assert found.residual_norms[1] == pytest.approx(found.residual_norms[0] / 0.9)  # dt = 0.1


def test_a_function_that_does_not_write_is_refused():
    with pytest.raises(TypeError, match="did not write into out"):
        steady_state(lambda t, u, out: 1.0 - u, u0=np.zeros(3))
