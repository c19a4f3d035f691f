"""Steady solves, A u + s = 0, through batchkron's own Krylov solvers."""

import numpy as np
import pytest
from problem_oracle import orders, steady

from batchkron.problems import (
    PDE,
    Axis,
    Dirichlet,
    Neumann,
    Separable,
    div,
    laplacian,
    mass,
)
from batchkron.solvers import bicgstab, cg, gmres

X, Y, Z = Axis("x", 0.0, 1.0), Axis("y", 0.0, 1.0), Axis("z", 0.0, 1.0)


def wave(points):
    return np.cos(np.pi * points)


def solved(problem, solver, **options):
    """The solution of -A u = s; -A is positive definite for diffusion."""
    source = np.full(problem.unknowns, np.nan)
    problem.source(0.0, source)
    result = solver(-problem.operator, source, rtol=1e-11, **options)
    assert result.info == 0, result.status
    return result.x


SOLVERS = {
    "cg": (cg, {}),
    "gmres": (gmres, {"restart": 200}),
    "bicgstab": (bicgstab, {}),
}


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize(("level", "known"), [(3, 1.76e-4), (4, 2.02e-5), (5, 2.50e-6)])
def test_known_errors_of_the_steady_solve(name, level, known):
    """u'' = -π² cos(πx), distances to the projection: docs/background/discretization.md."""
    solver, options = SOLVERS[name]
    pde = PDE(
        [X],
        laplacian(X),
        boundary=Dirichlet("from exact"),
        exact=Separable(x=wave),
        sources=Separable(x=wave, coefficient=np.pi**2),
    )
    problem = pde.discretize(level, degree=2)
    u = solved(problem, solver, **options)
    distance = np.linalg.norm(u - problem.exact_coefficients(0.0))
    assert distance == pytest.approx(known, rel=3e-3)
    best = problem.l2_error(problem.exact_coefficients(0.0), 0.0)
    assert problem.l2_error(u, 0.0) == pytest.approx(np.hypot(distance, best), rel=1e-6)


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_sources_from_the_exact_solution_are_the_written_ones(degree):
    pde = {
        sources: PDE(
            [X, Y],
            laplacian([X, Y]),
            boundary=Dirichlet("from exact"),
            exact=Separable(x=wave, y=wave),
            sources="from exact" if sources == "exact" else written,
        )
        for sources, written in (
            ("exact", None),
            ("written", Separable(x=wave, y=wave, coefficient=2 * np.pi**2)),
        )
    }
    found = []
    for each in pde.values():
        problem = each.discretize(3, degree)
        found.append(np.full(problem.unknowns, np.nan))
        problem.source(0.0, found[-1])
    np.testing.assert_allclose(*found, atol=1e-11 * np.abs(found[0]).max())


def poisson(axes, boundary, **shapes):
    exact = Separable(**shapes)
    return PDE(axes, laplacian(axes), boundary=boundary, exact=exact, sources="from exact")


GIVEN = {
    "values": Dirichlet("from exact"),
    "values and slopes": {
        X: (Dirichlet("from exact"), Neumann("from exact")),
        Y: (Neumann("from exact"), Dirichlet("from exact")),
    },
}


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("degree", [1, 2, 3])
def test_poisson_in_two_dimensions_on_sparse_grids(given, degree):
    """Order p + 1 but for the sparse grid's logarithm, and errors near the projection's."""
    pde = poisson([X, Y], GIVEN[given], x=wave, y=lambda s: np.exp(-s))
    errors = []
    for level in (3, 4, 5):
        problem = pde.discretize(level, degree)
        u = solved(problem, cg)
        errors.append(problem.l2_error(u, 0.0))
        best = problem.l2_error(problem.exact_coefficients(0.0), 0.0)
        assert best < errors[-1] < 3.0 * best
    assert orders(errors).min() > degree + 0.6
    np.testing.assert_allclose(u, steady(problem), atol=1e-8)


@pytest.mark.parametrize("grid", ["sparse", "full"])
def test_poisson_in_three_dimensions(grid):
    pde = poisson([X, Y, Z], Dirichlet("from exact"), x=wave, y=np.cos, z=lambda s: np.exp(-s))
    errors = []
    for level in (2, 3):
        problem = pde.discretize(level, 1, grid)
        errors.append(problem.l2_error(solved(problem, cg), 0.0))
    assert orders(errors)[0] > 1.4


def test_the_penalty_makes_the_operator_regular():
    """Without it one mode in 1-D has eigenvalue 0, and its products in 2-D decay too slowly."""
    slowest = []
    for axes in ([X], [X, Y]):
        pde = poisson(axes, Dirichlet("from exact"), **{axis.name: wave for axis in axes})
        for penalty in (1.0, 0.0):
            A = pde.discretize(3, 2, boundary_penalty=penalty).operator.to_dense()
            assert np.abs(A - A.T).max() < 1e-12 * np.abs(A).max()
            slowest.append(np.linalg.eigvalsh(A).max())
    assert slowest[0] == pytest.approx(-(np.pi**2), rel=1e-5)
    assert abs(slowest[1]) < 1e-9
    assert slowest[2] == pytest.approx(-2 * np.pi**2, rel=1e-4)
    assert slowest[3] > -1.1 * np.pi**2


@pytest.mark.parametrize("name", ["gmres", "bicgstab"])
def test_steady_transport_with_diffusion_and_decay(name):
    """Not symmetric: f_t = -f_x + 0.3 f_y + Δf/5 - 2f + s."""
    solver, options = SOLVERS[name]
    exact = Separable(x=np.exp, y=wave)
    pde = PDE(
        [X, Y],
        [div(X, -1.0), div(Y, 0.3), laplacian([X, Y], 0.2), -2.0 * mass(X)],
        boundary={X: (Dirichlet("from exact"), Neumann("from exact")), Y: Dirichlet("from exact")},
        exact=exact,
        sources="from exact",
    )
    errors = []
    for level in (2, 3, 4):
        problem = pde.discretize(level, 2)
        errors.append(problem.l2_error(solved(problem, solver, **options), 0.0))
    assert orders(errors).min() > 2.5
