"""Implicit methods and steady states of problems with pointwise terms, by Newton's method."""

import numpy as np
import pytest

from batchkron.problems import PDE, Axis, Moment, Separable, div, grad, laplacian, pointwise, time
from batchkron.solvers import EvolveStatus, evolve, steady_state

TURN = 2 * np.pi
X, Y = Axis("x", 0, TURN), Axis("y", 0, TURN)
START = "0.3 * sin(x) * cos(y) + 0.2 * cos(x + 2 * y)"


def allen_cahn(level=3, **more):
    terms = [0.09 * div(a) @ grad(a) for a in (X, Y)]
    terms.append(pointwise(more.pop("function", "f - f**3"), **more))
    return PDE([X, Y], terms, boundary="periodic", initial=START).discretize(level, 2)


@pytest.fixture(scope="module")
def fine():
    return evolve(allen_cahn(), until=0.4, method="rk4", dt=0.005).u


@pytest.mark.parametrize(
    ("method", "allowed"),
    [("backward-euler", 5e-3), ("crank-nicolson", 1e-5), ("sdirk3", 1e-6), ("esdirk3", 1e-6)],
)
def test_steps(method, allowed, fine):
    result = evolve(allen_cahn(), until=0.4, method=method, dt=0.02)
    assert result.status is EvolveStatus.COMPLETED
    assert np.abs(result.u - fine).max() < allowed


@pytest.mark.parametrize("method", ["bdf", "rkc2", "esdirk3"])
def test_steps_by_tolerances(method, fine):
    result = evolve(allen_cahn(), until=0.4, method=method, rtol=1e-6)
    assert result.status is EvolveStatus.COMPLETED
    assert np.abs(result.u - fine).max() < 1e-5


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"function": lambda f: f - f**3},
        {"function": lambda f: f - f**3, "derivative": lambda f: 1 - 3 * f**2},
        {"function": "f - f**3", "derivative": "1 - 3 * f**2"},
        {"degree": "p"},
        {"function": "sin(f * x) + t * f"},
    ],
)
def test_jacobians_are_derivatives_of_the_right_hand_side(more):
    problem = allen_cahn(**more)
    u, w = np.random.default_rng(1).standard_normal((2, problem.unknowns))
    step = 1e-5
    above, below = (problem.rhs(0.3, u + move * w) for move in (step, -step))
    found = problem.jacobian(0.3, u) @ w
    size = np.abs(found).max()
    np.testing.assert_allclose(found, (above - below) / (2 * step), rtol=0, atol=1e-8 * size)


def test_jacobians_of_chains_and_of_linear_terms():
    terms = [
        -1 * div(X) @ pointwise("f**2 / 2", speed=2.0),
        div(Y) @ grad(Y) @ pointwise("f + f**3"),
        div(X) @ pointwise("(2 + sin(x + y)) * f", linear=True) @ grad(X),
        div(Y, -1.0, time=time.cos(1.0)),
    ]
    problem = PDE([X, Y], terms, boundary="periodic", initial=START).discretize(3, 2)
    u, w = np.random.default_rng(1).standard_normal((2, problem.unknowns))
    above, below = (problem.rhs(0.3, u + move * w) for move in (1e-5, -1e-5))
    found = problem.jacobian(0.3, u) @ w
    expected = (above - below) / 2e-5
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-8 * np.abs(found).max())


def test_problems_that_have_no_jacobian_of_their_own():
    """Linear ones have an operator; of speeds and fields Newton's method takes differences."""
    flux = -1 * div(X) @ pointwise("f**2", speed_of="2 * f")
    for terms in (laplacian(X), pointwise("cos(x) * f", linear=True), flux):
        assert PDE([X], terms, boundary="periodic", initial=0.0).discretize(2, 1).jacobian is None
    v = Axis("v", -1, 1)
    of_field = pointwise("n * f", n=Moment(v))
    pde = PDE([X, v], of_field, boundary={X: "periodic", v: "neumann"}, initial=1.0)
    assert pde.discretize(2, 1).jacobian is None


def test_a_wrong_derivative_is_used():
    """It is taken as it is given: the iteration does not converge with it."""
    problem = allen_cahn(derivative="-1e4 + 0 * f")
    result = evolve(problem, until=0.1, method="backward-euler", dt=0.1)
    exact = evolve(allen_cahn(), until=0.1, method="backward-euler", dt=0.1)
    assert result.status is not EvolveStatus.COMPLETED or np.allclose(result.u, exact.u, atol=1e-6)
    u = problem.initial
    found, right = (own.jacobian(0.0, u) @ u for own in (problem, allen_cahn()))
    assert np.abs(found - right).max() > 1.0


@pytest.mark.parametrize("method", ["esdirk3", "bdf"])
@pytest.mark.parametrize("speed", [{"speed": 1.0}, {"speed_of": "f"}])
def test_viscous_burgers(method, speed):
    terms = [0.1 * div(X) @ grad(X), -1 * div(X) @ pointwise("f**2 / 2", **speed)]
    problem = PDE([X], terms, boundary="periodic", initial=np.sin).discretize(4, 2)
    steps = {"rtol": 1e-6} if method == "bdf" else {"dt": 0.05}
    result = evolve(problem, until=1.0, method=method, **steps)
    explicit = evolve(problem, until=1.0, method="rk4", dt=0.005)
    assert np.abs(result.u - explicit.u).max() < 3e-5


def test_fields_in_terms_beside_pointwise_terms():
    """f_t = (n f)_v - f³ with the density n, by steps that iterate for both."""
    v = Axis("v", -2, 2)
    start = Separable(x=lambda s: 1 + 0.3 * np.sin(s), v=lambda s: np.exp(-2 * s * s))
    terms = [div(v, 0.1, others={X: Moment(v)}), pointwise("-f**3")]
    pde = PDE([X, v], terms, boundary={X: "periodic", v: "inflow"}, initial=start)
    problem = pde.discretize(3, 2)
    result = evolve(problem, until=0.3, method="esdirk3", dt=0.02)
    explicit = evolve(problem, until=0.3, method="rk4", dt=0.005)
    assert result.status is EvolveStatus.COMPLETED
    assert np.abs(result.u - explicit.u).max() < 1e-5


def test_bratu():
    """f'' + e^f = 0 on [0, 1]: f = -2 ln(cosh(θ (x - ½)/2) / cosh(θ/4)), θ = √2 cosh(θ/4)."""
    axis = Axis("x", 0, 1)
    pde = PDE([axis], [laplacian(axis), pointwise("exp(f)")], boundary="dirichlet", initial=0.0)
    problem = pde.discretize(4, 2)
    found = steady_state(problem, rtol=1e-9, preconditioner="none")
    assert found.converged
    theta = 1.5171645990507543
    x = np.linspace(0.1, 0.9, 9)
    exact = -2 * np.log(np.cosh(theta * (x - 0.5) / 2) / np.cosh(theta / 4))
    np.testing.assert_allclose(problem.evaluate(found.u, x), exact, atol=1e-5)


def test_preconditioners_are_those_of_the_linear_part():
    """Of Bratu's problem and of stiff steps: with 1/10 of the iterations, to the same state."""
    axis = Axis("x", 0, 1)
    pde = PDE([axis], [laplacian(axis), pointwise("exp(f)")], boundary="dirichlet", initial=0.0)
    problem = pde.discretize(5, 2)
    plain, fast = (steady_state(problem, preconditioner=own) for own in ("none", "auto"))
    assert fast.products < 0.1 * plain.products
    np.testing.assert_allclose(fast.u, plain.u, atol=1e-7)
    problem = allen_cahn(5)
    states, iterations = [], []
    for name in ("none", "auto", "block-jacobi"):
        run = {"until": 0.2, "method": "esdirk3", "dt": 0.1, "preconditioner": name}
        result = evolve(problem, **run)
        states.append(result.u)
        iterations.append(sum(entry.get("iterations", 0) for entry in result.history))
    assert iterations[1] < 0.3 * iterations[0]
    np.testing.assert_allclose(states[1], states[0], atol=1e-7)
    np.testing.assert_allclose(states[2], states[0], atol=1e-7)


def test_explicit_time_and_sources():
    """f = cos t (2 + sin x): f_t = -f² + s."""
    source = "-sin(t) * (2 + sin(x)) + (cos(t) * (2 + sin(x)))**2"
    pde = PDE([X], pointwise("-f**2"), boundary="periodic", sources=source,
              exact=lambda x, t: np.cos(t) * (2 + np.sin(x)))  # fmt: skip
    problem = pde.discretize(4, 2)
    result = evolve(problem, until=1.0, method="esdirk3", dt=0.05)
    assert problem.relative_error(result.u, 1.0) < 1e-4


def test_a_function_may_return_an_array_of_its_own():
    kept: dict[tuple[int, ...], np.ndarray] = {}

    def own(values):
        array = kept.setdefault(values.shape, np.empty(values.shape))
        array[...] = values
        return array

    def default_step(keep):
        x = Axis("x", 0, 1)
        terms = [
            pointwise(lambda f: keep(-50 * f**2)),
            div(x) @ pointwise(lambda f, x: keep((2 + x) * f), linear=True) @ grad(x),
        ]
        pde = PDE([x], terms, boundary="no-flux", initial="1 + x")
        return pde.discretize(2, 1, method="rk4").stepper.dt

    assert default_step(own) == default_step(lambda values: values)
