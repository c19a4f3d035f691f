"""Degrees up to 8, and any number of axes: exactness for polynomials, orders of convergence."""

import numpy as np
import pytest
from numpy.polynomial import Polynomial
from numpy.polynomial.legendre import Legendre
from problem_oracle import orders

from batchkron.problems import (
    PDE,
    Axis,
    Dirichlet,
    Inflow,
    Neumann,
    Separable,
    div,
    laplacian,
    make,
    time,
)
from batchkron.problems.discretization.basis.multiwavelets import to_nodal
from batchkron.problems.discretization.basis.projection import project, remainder_gram
from batchkron.problems.discretization.matrices.boundary_terms import edge_data
from batchkron.problems.discretization.matrices.dg_matrices import div_matrix, grad_matrix
from batchkron.problems.discretization.matrices.mode_operator import ModeOperator
from batchkron.solvers import cg, evolve

HIGH = [5, 6, 7, 8]
X, Y = Axis("x", -0.4, 1.3), Axis("y", 0.0, 2.0)


def polynomial(degree, axis, seed=0):
    """A random polynomial of a degree, of size one on an axis."""
    coefficients = np.random.default_rng([degree, seed]).uniform(0.2, 1.0, degree + 1)
    return Legendre(coefficients, domain=[axis.lower, axis.upper])


def steady_state(problem, rtol=1e-11):
    """The solution of A u + s = 0 for a symmetric A."""
    source = np.full(problem.unknowns, np.nan)
    problem.source(0.0, source)
    solution = cg(-problem.operator, source, rtol=rtol)
    assert solution.info == 0
    return solution.x


@pytest.mark.parametrize("degree", HIGH)
@pytest.mark.parametrize("boundary", [("dirichlet", "neumann"), ("neumann", "dirichlet")])
@pytest.mark.parametrize("build", [div_matrix, grad_matrix])
def test_derivatives_of_polynomials_are_exact(build, boundary, degree):
    level, f = 2, polynomial(degree, X)
    result = build(X, level, degree, 2.5, boundary=boundary) @ to_nodal(
        project(f, X, level, degree), level, degree
    )
    side = ("left", "right")[boundary.index("dirichlet")]
    end = X.lower if side == "left" else X.upper
    result += f(end) * edge_data(X, level, degree, side, 2.5)
    slope = to_nodal(project(f.deriv(), X, level, degree), level, degree)
    np.testing.assert_allclose(result, 2.5 * slope, atol=1e-12 * np.abs(result).max() * 4**level)


@pytest.mark.parametrize("degree", HIGH)
def test_hierarchical_operators_keep_their_pattern(degree):
    """Blocks that are zero up to rounding are dropped: the others are those of degree 1."""
    mode = ModeOperator.from_nodal(div_matrix(X, 3, degree), degree)
    low = ModeOperator.from_nodal(div_matrix(X, 3, 1), 1)
    np.testing.assert_array_equal(mode.rows, low.rows)
    np.testing.assert_array_equal(mode.columns, low.columns)


@pytest.mark.parametrize("degree", HIGH)
def test_a_polynomial_one_degree_too_high_leaves_its_known_remainder(degree):
    """On one cell the best approximation of P_(p+1) is zero: the remainder is all of it."""
    f = Legendre.basis(degree + 1, domain=[X.lower, X.upper])
    gram = remainder_gram([f], X, 0, degree)
    assert gram[0, 0] == pytest.approx(X.length / (2 * degree + 3), rel=1e-12)
    assert np.abs(project(f, X, 0, degree)).max() < 1e-13


@pytest.mark.parametrize("degree", HIGH)
def test_diffusion_of_polynomials_is_exact_in_two_dimensions(degree):
    """Steady, on a sparse grid, with values given at some sides and slopes at others."""
    exact = Separable(x=polynomial(degree, X), y=polynomial(degree, Y, 1))
    boundary = {X: (Dirichlet("from exact"), Neumann("from exact")), Y: Dirichlet("from exact")}
    pde = PDE([X, Y], laplacian([X, Y]), boundary=boundary, exact=exact, sources="from exact")
    problem = pde.discretize(1, degree)
    u = steady_state(problem)
    assert problem.relative_error(u, 0.0) < 1e-8
    points = np.random.default_rng(degree).uniform([-0.4, 0.0], [1.3, 2.0], (20, 2))
    expected = exact.factors["x"](points[:, 0]) * exact.factors["y"](points[:, 1])
    np.testing.assert_allclose(problem.evaluate(u, points), expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("degree", HIGH)
def test_transport_of_polynomials_is_exact_in_time_and_space(degree):
    """A cubic in time, which the fourth-order method integrates exactly."""
    exact = Separable(
        x=polynomial(degree, X), y=polynomial(degree, Y, 1), t=time.polynomial([1, -2, 1, 3])
    )
    pde = PDE(
        [X, Y],
        [div(X, -1.0), div(Y, 0.5)],
        boundary={X: (Dirichlet("from exact"), Neumann()), Y: (Neumann(), Dirichlet("from exact"))},
        exact=exact,
        sources="from exact",
    )
    problem = pde.discretize(2, degree)
    result = evolve(problem, until=0.01, method="rk4", dt=0.001)
    assert problem.relative_error(result.u, 0.01) < 1e-10


@pytest.mark.parametrize("degree", HIGH)
def test_orders_of_steady_diffusion(degree):
    """u'' = f on one axis: the L2 error has order p + 1 while it is above rounding."""
    wave = 6.0
    exact = Separable(x=lambda s: np.sin(wave * s))
    errors = []
    for level in (1, 2):
        pde = PDE(
            [X], laplacian(X), boundary=Dirichlet("from exact"), exact=exact, sources="from exact"
        )
        problem = pde.discretize(level, degree)
        errors.append(problem.l2_error(steady_state(problem, 1e-12), 0.0))
    assert errors[1] > 1e-11
    assert orders(errors)[0] > degree + 0.6


@pytest.mark.parametrize("degree", [7, 8])
def test_orders_of_transport(degree):
    """f_t + f_x = s with four waves in the box, so that the error stays above rounding."""
    x = Axis("x", -1.0, 1.0)
    exact = Separable(x=lambda s: np.cos(4 * np.pi * s + 0.7), t=time.cos(1.0))
    pde = PDE([x], div(x, -1.0), boundary="periodic", exact=exact, sources="from exact")
    errors = []
    for level in (3, 4):
        problem = pde.discretize(level, degree)
        result = evolve(problem, until=0.1, method="rk4", dt=5e-4)
        errors.append(problem.l2_error(result.u, 0.1))
    assert errors[1] > 1e-9
    assert orders(errors)[0] == pytest.approx(degree + 1, abs=0.3)


@pytest.mark.parametrize("degree", [7, 8])
def test_high_degrees_in_several_dimensions_validate(degree):
    problem = make("continuity-3d", 1, degree)
    assert problem.unknowns == 4 * (degree + 1) ** 3
    assert problem.validate().ok
    A = make("continuity-2d", 1, degree).operator.to_dense()
    assert np.linalg.eigvals(A).real.max() <= 1e-10 * np.linalg.norm(A, 2)


AXES = [Axis(f"x{k}", 0.1 * k, 1.0 + 0.3 * k) for k in range(8)]


@pytest.mark.parametrize("dimensions", [1, 2, 3, 4, 5, 6, 7, 8])
def test_multilinear_functions_are_exact_in_any_dimension(dimensions):
    """For a function in the discrete space the right-hand side is its exact time derivative."""
    axes = AXES[:dimensions]
    lines = {axis.name: Polynomial([1.0, 0.3 - 0.1 * k]) for k, axis in enumerate(axes)}
    exact = Separable(t=time.exp(-0.5), **lines)
    pde = PDE(
        axes,
        [
            *(div(axis, -0.7, boundary=Inflow("from exact")) for axis in axes),
            laplacian(axes, 0.2),
        ],
        boundary=Dirichlet("from exact"),
        exact=exact,
        sources="from exact",
    )
    problem = pde.discretize(2, 1)
    u = problem.exact_coefficients(0.3)
    slope = np.full(problem.unknowns, np.nan)
    problem.rhs(0.3, u, slope)
    np.testing.assert_allclose(slope, -0.5 * u, atol=1e-11 * np.abs(u).max() * 4**2)
    assert problem.relative_error(u, 0.3) < 1e-12
    assert problem.validate(samples=3).ok


def test_twenty_axes_of_piecewise_constants():
    axes = [Axis(f"x{k}", 0.0, 1.0) for k in range(20)]
    pde = PDE(axes, [div(axis, -1.0) for axis in axes], boundary="periodic", initial=1.0)
    problem = pde.discretize(1, 0)
    assert problem.unknowns == 21
    slope = np.full(21, np.nan)
    problem.rhs(0.0, problem.initial, slope)
    np.testing.assert_allclose(slope, 0.0, atol=1e-13)
    assert problem.validate().ok


def test_continuity_in_six_dimensions_runs_near_its_bound():
    problem = make("continuity-6d", level=3, degree=2)
    assert problem.unknowns == 100_602
    best = problem.relative_error(problem.exact_coefficients(0.1), 0.1)
    assert best == pytest.approx(0.137, rel=5e-3)
    result = evolve(problem, until=0.1, method="rk4", dt=0.02)
    reached = problem.relative_error(result.u, result.t)
    assert best < reached < 1.05 * best
