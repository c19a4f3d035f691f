"""Functions of all axes and of the state on the device: what they are on the CPU, to rounding."""

import numpy as np
import pytest

from batchkron.problems import (
    PDE,
    Axis,
    Dirichlet,
    Mixed,
    Moment,
    SparseGrid,
    div,
    grad,
    pointwise,
)
from batchkron.problems.discretization.interpolation.transform import PointTransform
from batchkron.solvers import evolve

pytestmark = pytest.mark.gpu

TURN = 2 * np.pi
X, Y, Z = (Axis(name, 0, TURN) for name in "xyz")


def close(found, expected, factor=1e-12):
    np.testing.assert_allclose(found, expected, rtol=0, atol=factor * np.abs(expected).max())


@pytest.mark.parametrize("extra", [0, 1])
@pytest.mark.parametrize("degree", [0, 2, 3])
def test_values_and_coefficients(cupy, rng, degree, extra):
    grid = SparseGrid.sparse([3, 2, 3])
    host, device = (
        PointTransform([X, Y, Z], grid, degree, extra=extra, device=own) for own in ("cpu", "cuda")
    )
    u = rng.standard_normal(grid.num_cells * (degree + 1) ** 3)
    values = device.values(cupy.asarray(u))
    close(values.get(), host.values(u))
    close(device.coefficients(values).get(), u)
    for way, given in zip(range(2), (u, host.values(u)), strict=True):
        operator, expected = device.operators[way], host.operators[way]
        close((operator @ cupy.asarray(given)).get(), expected @ given)


def driven():
    """Sources and boundary data that are functions of all axes and the time."""
    x, y = Axis("x", 0, 1), Axis("y", -1, 1)
    terms = [div(x, -1.0), 0.1 * div(y) @ grad(y)]
    boundary = {x: "inflow", y: Dirichlet(lambda x, t: np.sin(x + t))}
    sources = ["exp(-x * y) * cos(t)", lambda x, y, t: np.sin(x * y + t), lambda x, y: x + y]
    return PDE([x, y], terms, boundary=boundary, initial="cos(x + y)", sources=sources)


def nonlinear():
    """Fluxes, reactions and a diffusivity."""
    flux = pointwise(lambda f: f**2 / 2, speed=1.0)
    k = pointwise("(2 + sin(x + y)) * f", linear=True)
    terms = [-1 * div(X) @ flux, -1 * div(Y) @ flux, pointwise(lambda f, x: np.cos(x) * f**3),
             0.1 * div(X) @ k @ grad(X)]  # fmt: skip
    return PDE([X, Y], terms, boundary="periodic", initial="sin(x + y)")


def following():
    """Speeds and fields that follow the state, and a second derivative of a function."""
    v = Axis("v", -2, 2)
    flux = pointwise("(f + n)**2 / 2", speed_of=lambda f, n: f + n, n=Moment(v))
    loss = pointwise(lambda f, n, T, t: -n * T * f * np.exp(-t), n=Moment(v), T=Moment({v: 2}))
    terms = [-1 * div(X) @ flux, loss, 0.1 * div(v) @ grad(v) @ pointwise("f + f**3")]
    start = "2 + sin(x) * exp(-v**2)"
    return PDE([X, v], terms, boundary={X: "periodic", v: "no-flux"}, initial=start)


@pytest.mark.parametrize("make", [driven, nonlinear, following])
def test_the_right_hand_side_is_that_of_the_cpu(cupy, rng, make):
    problem = make().discretize(3, 2)
    device = problem.to("cuda")
    for t in (0.0, 0.7, 1.3):
        u = rng.standard_normal(problem.unknowns)
        expected, found = np.full_like(u, np.nan), cupy.full(u.shape, np.nan)
        problem.rhs(t, u, expected)
        device.rhs(t, cupy.asarray(u), found)
        close(found.get(), expected)
    text = f"cos({' + '.join(axis.name for axis in problem.axes)})"
    close(device.project(text).get(), problem.project(text))


@pytest.mark.parametrize(("make", "method"), [(driven, "ssp-rk3"), (driven, "esdirk3"),
                                              (nonlinear, "rk4"), (nonlinear, "ark3"),
                                              (nonlinear, "esdirk3"), (following, "ssp-rk3"),
                                              (following, "esdirk3")])  # fmt: skip
def test_runs(make, method):
    problem = make().discretize(3, 1)
    options = {"until": 0.02, "dt": 0.001, "method": method}
    close(evolve(problem.to("cuda"), **options).u.get(), evolve(problem, **options).u, 1e-9)


@pytest.mark.parametrize("text", ["f - f**3", "exp(-f) * x"])
def test_jacobians(cupy, rng, text):
    terms = [0.1 * div(X) @ grad(X), pointwise(text), pointwise(lambda f: f**2)]
    problem = PDE([X, Y], terms, boundary="periodic", initial="sin(x + y)").discretize(3, 2)
    u, w = rng.standard_normal((2, problem.unknowns))
    found = problem.to("cuda").jacobian(0.3, cupy.asarray(u)) @ cupy.asarray(w)
    close(found.get(), problem.jacobian(0.3, u) @ w, 1e-7)  # of the lambda by differences


def test_newtons_method_in_bdf():
    terms = [0.1 * div(a) @ grad(a) for a in (X, Y)] + [pointwise("f - f**3")]
    problem = PDE([X, Y], terms, boundary="periodic", initial="0.3 * sin(x + y)").discretize(4, 2)
    for options in ({"rtol": 1e-6, "method": "bdf"}, {"dt": 0.1, "method": "esdirk3"}):
        options |= {"until": 0.2, "preconditioner": "auto"}
        close(evolve(problem.to("cuda"), **options).u.get(), evolve(problem, **options).u, 1e-5)


@pytest.mark.parametrize("grid", ["full", Mixed([X], [Y, Z])])
def test_limiters(cupy, grid):
    start = "1.01 + sin(x) * cos(y + z)"
    pde = PDE([X, Y, Z], div(X, -1.0), boundary="periodic", initial=start)
    problem = pde.discretize(3, 2, grid, limiter="positive")
    options = {"until": 0.2, "dt": problem.stepper.dt / 2}
    close(evolve(problem.to("cuda"), **options).u.get(), evolve(problem, **options).u)


def test_linear_terms_are_an_operator(cupy, rng):
    term = -1 * div(X) @ pointwise("sin(x + y) * f", speed=1.0, linear=True)
    problem = PDE([X, Y], [term, div(Y)], boundary="periodic", initial="cos(x)").discretize(3, 2)
    device = problem.to("cuda")
    u = rng.standard_normal(problem.unknowns)
    close((device.operator @ cupy.asarray(u)).get(), problem.operator @ u)
    close((device.operator.T @ cupy.asarray(u)).get(), problem.operator.T @ u)


def in_time(function):
    """A flux and a reaction that depend on the time, the latter by a function or a formula."""
    flux = pointwise("(1 + 0.5 * sin(t)) * f**2", speed=1.0)
    terms = [-1 * div(X) @ flux, pointwise(function)]
    return PDE([X, Y], terms, boundary="periodic", initial="sin(x + y)").discretize(3, 2)


def host_copies(f, t):
    """What no graph can have: the values come to the host and go back."""
    import cupy

    if isinstance(f, np.ndarray):  # for the default step
        return np.cos(f) * float(t)
    return cupy.asarray(np.cos(f.get()) * float(t))


FUNCTIONS = {
    "formula": ("cos(f) * t", "cos(f) * t"),
    "function": (lambda f, t: np.cos(f) * t, "cos(f) * t"),
    "a branch": (lambda f, t: np.cos(f) * t if t > 0.5 else 0.0 * f, None),
    "copies": (host_copies, "cos(f) * t"),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_many_calls_follow_state_and_time(cupy, rng, name):
    """Right with and without graphs, at times that change from call to call."""
    function, same = FUNCTIONS[name]
    device = in_time(function).to("cuda")
    host = in_time(function if same is None else same)
    for number in range(10):
        u, t = rng.standard_normal(host.unknowns), 0.1 + 0.13 * number
        expected, found = np.full_like(u, np.nan), cupy.full(u.shape, np.nan)
        host.rhs(t, u, expected)
        device.rhs(t, cupy.asarray(u), found)
        close(found.get(), expected)


@pytest.mark.parametrize("name", ["formula", "function"])
def test_all_of_it_is_one_graph(cupy, rng, name, monkeypatch):
    """After some calls Python launches only what is not at points: here the damping of the flux."""
    from batchkron.backends.cuda.runtime.launch import Launch

    device = in_time(FUNCTIONS[name][0]).to("cuda")
    points = device.system._pointwise
    u = cupy.asarray(rng.standard_normal(device.unknowns))
    out = cupy.zeros_like(u)
    for _ in range(8):
        points.write(0.3, u, out)
    expected = out.copy()

    def refuse(*arguments):
        raise AssertionError("Python launches a kernel")

    monkeypatch.setattr(Launch, "__call__", refuse)
    points.write(0.3, u, out)
    close(out.get(), expected.get())


def test_values_that_are_not_finite_end_a_run(cupy):
    terms = [pointwise("1 / (f - f)")]
    problem = PDE([X], terms, boundary="periodic", initial="sin(x)").discretize(3, 1)
    result = evolve(problem.to("cuda"), until=0.1, dt=0.01, method="rk4")
    assert str(result.status) == "not-finite"


@pytest.mark.parametrize("degree", [(1, 2), (3, 0)])
def test_degrees_of_each_axis(cupy, rng, degree):
    problem = nonlinear().discretize(3, degree)
    device = problem.to("cuda")
    u = rng.standard_normal(problem.unknowns)
    for _ in range(8):
        expected, found = np.full_like(u, np.nan), cupy.full(u.shape, np.nan)
        problem.rhs(0.2, u, expected)
        device.rhs(0.2, cupy.asarray(u), found)
        close(found.get(), expected)
