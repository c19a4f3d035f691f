"""Boundary data that are functions of all axes, next to the same data as products."""

import numpy as np
import pytest

from batchkron.problems import (
    PDE,
    Axis,
    Dirichlet,
    Inflow,
    Neumann,
    Separable,
    div,
    grad,
    mass,
    save_problem,
    time,
)
from batchkron.solvers import evolve

X, Y, Z = Axis("x", 0, 1), Axis("y", -1, 1), Axis("z", 0, 2)
TERMS = {
    "diffusion": [div(X) @ grad(X), 0.5 * div(Y) @ grad(Y)],
    "advection": [div(X, -1.0), mass(X, lambda x: x - 0.4) @ div(Y, 2.0)],
    "both": [div(X, -1.0, time=time.exp(0.5)), div(X) @ grad(X), div(Y) @ grad(Y)],
}
MOVING = Separable(y=lambda s: s, t=time.cos(2.0))
PARABOLA = Separable(y=lambda s: 1 - s**2)
CASES = [
    ("diffusion", Dirichlet, PARABOLA, lambda y: 1 - y**2),
    ("diffusion", Dirichlet, MOVING, lambda y, t: y * np.cos(2 * t)),
    ("diffusion", Neumann, Separable(y=lambda s: s), lambda x, y: y + 0 * x),
    ("advection", Inflow, PARABOLA, lambda a, b, t: 1 - b**2),
    ("advection", Inflow, Separable(x=3.0, t=time.exp(-1.0)), lambda t: 3.0 * np.exp(-t)),
    ("both", Dirichlet, PARABOLA + Separable(t=time.sin(1.0)), lambda y, t: 1 - y**2 + np.sin(t)),
]  # fmt: skip


def problem_with(terms, condition, data):
    """The data hold at both ends of x; along y the ends are those that the terms need."""
    other = condition(Separable(x=lambda s: s, t=time.cos(1.0)))
    if condition is Neumann:
        other = Dirichlet()
    pde = PDE([X, Y], TERMS[terms], boundary={X: condition(data), Y: other}, initial=0.0)
    return pde.discretize(3, 2, dt=1e-3)


@pytest.mark.filterwarnings("ignore::batchkron.problems.OutflowWarning")
@pytest.mark.parametrize(("terms", "condition", "product", "function"), CASES)
def test_data_as_a_function_and_as_products(terms, condition, product, function):
    found = []
    for data in (product, function):
        problem = problem_with(terms, condition, data)
        vectors = [np.full(problem.unknowns, np.nan) for _ in range(4)]
        for k, t in enumerate((0.0, 0.8)):
            problem.source(t, vectors[2 * k])
            problem.implicit_source(t, vectors[2 * k + 1])
        found.append(np.stack(vectors))
    assert np.abs(found[0]).max() > 0.1
    np.testing.assert_allclose(*found, atol=1e-7 * np.abs(found[0]).max())


@pytest.mark.parametrize("grid", ["sparse", "full"])
def test_what_flows_in_from_three_axes(grid):
    """f = exp(x + y + z - 3 t), whose data are products, given as functions of all axes."""
    axes = [X, Y, Z]
    terms = [div(axis, -1.0) for axis in axes]
    known = Separable(x=np.exp, y=np.exp, z=np.exp, t=time.exp(-3.0))

    def wave(z, y, x, t):
        return np.exp(x + y + z - 3 * t)

    errors = []
    for data in ("from exact", wave):
        pde = PDE(axes, terms, boundary=Inflow(data), exact=known)
        problem = pde.discretize(3 if grid == "sparse" else 2, 2, grid)
        result = evolve(problem, until=0.1, dt=0.005, method="ssp-rk3")
        errors.append(problem.relative_error(result.u, result.t))
    assert errors[1] < 1.05 * errors[0] < 1e-2


@pytest.mark.parametrize("method", ["rk4", "crank-nicolson", "ark3"])
def test_data_of_one_axis(method):
    """The data are a function of the time alone."""
    terms = [div(X) @ grad(X), div(X, -1.0)]
    runs = []
    for data in (Separable(t=time.sin(3.0)), lambda t: np.sin(3 * t)):
        pde = PDE([X], terms, boundary=(Dirichlet(data), Dirichlet()), initial=np.sin)
        problem = pde.discretize(2, 2)
        runs.append(evolve(problem, until=0.02, dt=2e-4, method=method).u)
    np.testing.assert_allclose(*runs, atol=1e-9)


def test_other_grids_and_levels():
    def data(y, z, t):
        return np.sin(y * z + t)

    pde = PDE([X, Y, Z], [div(X, -1.0)], boundary={X: Inflow(data), Y: "neumann", Z: "neumann"},
              initial=0.0)  # fmt: skip
    coarse, fine = pde.discretize(2, 1), pde.discretize(4, 1)
    moved = coarse.on_grid(fine.grid)
    found = [np.full(fine.unknowns, np.nan) for _ in range(2)]
    moved.source(0.5, found[0])
    fine.source(0.5, found[1])
    np.testing.assert_array_equal(*found)


def test_refusals(tmp_path):
    with pytest.raises(TypeError, match=r"the left end of axis 'x' is a function of \(q"):
        PDE([X, Y], [div(X)], boundary=Inflow(lambda q: q), initial=0.0)
    with pytest.raises(ValueError, match=r"differs|off by"):
        PDE([X], [div(X, -1.0)], boundary=Inflow(lambda t: 1.0 + 0 * t),
            exact=Separable(x=lambda s: 3.0 + s, t=time.exp(0.1))).discretize(2, 1)  # fmt: skip
    problem = problem_with("diffusion", Dirichlet, lambda y, t: y + t)
    with pytest.raises(TypeError, match=r"left end of axis 'x' is the Python function .*lambda"):
        save_problem(tmp_path / "p.h5", problem)
    wrong = problem_with("diffusion", Dirichlet, lambda y, t: 1 / (y - y))
    with pytest.raises(ValueError, match=r"left end of axis 'x' is inf at x = 0\.0"):
        wrong.source(0.0, np.zeros(wrong.unknowns))
