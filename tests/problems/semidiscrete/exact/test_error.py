"""The true L2 error, against tensor quadrature."""

from functools import reduce

import numpy as np
import pytest
from numpy.polynomial.legendre import leggauss

from batchkron.problems import (
    PDE,
    Axis,
    Separable,
    SeparableAt,
    SparseGrid,
    load_problem,
    make,
    save_problem,
    time,
)

X, Y, Z = Axis("x", -1.0, 1.0), Axis("y", 0.0, 2.0), Axis("z", 0.5, 3.0)


def quadrature(axis, level):
    """Gauss points and weights of 12 nodes on each of the finest cells."""
    nodes, weights = leggauss(12)
    width = axis.length / 2**level
    points = axis.lower + width * (np.arange(2**level)[:, None] + (1 + nodes) / 2)
    return points.ravel(), np.tile(weights * width / 2, 2**level)


def by_quadrature(problem, u, t, exact):
    """‖u - f(t)‖ by a tensor rule on the finest cells."""
    rules = [
        quadrature(axis, level)
        for axis, level in zip(problem.axes, problem.grid.levels, strict=True)
    ]
    points = np.stack([p.ravel() for p in np.meshgrid(*(r[0] for r in rules), indexing="ij")], -1)
    weights = reduce(np.multiply.outer, [rule[1] for rule in rules]).ravel()
    values = np.zeros(len(points))
    for part in exact.parts:
        value = part.coefficient * part.time(t) * np.ones(len(points))
        for k, axis in enumerate(problem.axes):
            factor = part.factor(axis)
            value *= factor(points[:, k]) if callable(factor) else factor
        values += value
    return np.sqrt(weights @ (problem.evaluate(u, points) - values) ** 2)


def f(points):
    return np.exp(np.sin(points))


def g(points):
    return 1 / (1 + points**2)


ONE = Separable(x=f, y=g, z=np.cos, t=time.cos(1.0), coefficient=-2.0)
SUM = ONE + Separable(x=np.sin, z=f, t=time.exp(0.5)) - Separable(x=f, y=np.cos, coefficient=0.7)


def select(exact, axes):
    """The factors of the given axes only."""
    names = {axis.name for axis in axes}
    parts = [
        Separable(
            t=part.time,
            coefficient=part.coefficient,
            **{name: factor for name, factor in part.factors.items() if name in names},
        )
        for part in exact.parts
    ]
    return sum(parts[1:], start=parts[0])


CUSTOM = {
    1: SparseGrid.custom([[0], [1], [3], [6]], [3]),
    2: SparseGrid.custom([[0, 0], [1, 0], [0, 3], [2, 1], [3, 3], [7, 1]], [3, 2]),
    3: SparseGrid.custom([[0, 0, 0], [1, 0, 1], [0, 3, 0], [2, 1, 1], [0, 1, 1]], [2, 2, 1]),
}


@pytest.mark.parametrize("exact", [ONE, SUM], ids=["one part", "three parts"])
@pytest.mark.parametrize("kind", ["sparse", "full", "custom"])
@pytest.mark.parametrize("axes", [(X,), (X, Y), (X, Y, Z)], ids=["1-D", "2-D", "3-D"])
def test_error_equals_quadrature(axes, kind, exact, rng):
    chosen = select(exact, axes)
    pde = PDE(axes, [], sources=0.0, boundary="periodic", exact=chosen)
    if kind == "custom":
        problem = pde.discretize(degree=1, grid=CUSTOM[len(axes)])
    else:
        problem = pde.discretize([3, 2, 1][: len(axes)], 1, kind)
    u, t = rng.standard_normal(problem.unknowns), 0.8
    best = problem.exact_coefficients(t)
    for state in (u, best, best + 1e-3 * u):
        expected = by_quadrature(problem, state, t, chosen)
        assert problem.l2_error(state, t) == pytest.approx(expected, rel=1e-9)
    norm = by_quadrature(problem, np.zeros(problem.unknowns), t, chosen)
    assert problem.l2_norm_exact(t) == pytest.approx(norm, rel=1e-9)
    assert problem.relative_error(u, t) == pytest.approx(problem.l2_error(u, t) / norm, rel=1e-9)


def moving(t):
    """A bump that moves and widens: products at each time, but not products with functions of t."""
    first = Separable(x=lambda s: np.exp(-((s - t) ** 2) / (1 + t)), y=lambda s: np.cos(t * s))
    return first + Separable(x=lambda s: np.sin(s + t), coefficient=0.3, t=time.exp(-1.0))


@pytest.mark.parametrize("curved", [False, True])
@pytest.mark.parametrize("kind", ["sparse", "full", "custom"])
def test_products_that_change_with_time_equal_quadrature(kind, curved, rng):
    """The same numbers as a function of all coordinates, whose error is a quadrature."""
    volume = {Y: lambda s: 0.5 + s} if curved else {}
    settings = {"sources": 0.0, "boundary": "neumann", "volume": volume}
    made = []

    def function(x, y, t):
        first, second = moving(t).parts
        value = first.factors["x"](x) * first.factors["y"](y)
        return value + 0.3 * np.exp(-t) * second.factors["x"](x)

    for exact in (SeparableAt(moving), function):
        pde = PDE([X, Y], [], exact=exact, **settings)
        grid = {"grid": CUSTOM[2]} if kind == "custom" else {"level": [3, 2], "grid": kind}
        made.append(pde.discretize(degree=1, **grid))
    problem, other = made
    np.testing.assert_allclose(problem.initial, other.initial, rtol=0, atol=1e-12)
    for t in (0.0, 0.9, 0.2, 0.2):
        u = rng.standard_normal(problem.unknowns)
        best = other.exact_coefficients(t)
        np.testing.assert_allclose(problem.exact_coefficients(t), best, rtol=0, atol=1e-12)
        for state in (u, best, best + 1e-3 * u):
            assert problem.l2_error(state, t) == pytest.approx(other.l2_error(state, t), rel=1e-9)
        assert problem.l2_norm_exact(t) == pytest.approx(other.l2_norm_exact(t), rel=1e-9)


def test_products_that_change_on_other_grids_and_in_files(tmp_path):
    pde = PDE([X, Y], [], sources=0.0, boundary="neumann", exact=SeparableAt(moving))
    problem = pde.discretize(3, 1)
    moved = problem.on_grid(SparseGrid.full([4, 4]))
    assert moved.l2_error(moved.exact_coefficients(0.5), 0.5) < 0.5 * problem.l2_error(
        problem.exact_coefficients(0.5), 0.5
    )
    save_problem(tmp_path / "problem.h5", problem)
    assert load_problem(tmp_path / "problem.h5").exact is None
    assert "known, a function" in problem.describe()


def test_what_is_no_sum_of_products_is_refused():
    with pytest.raises(TypeError, match="takes a function of the time, got float"):
        SeparableAt(2.0)
    settings = {"sources": 0.0, "boundary": "neumann"}
    for wrong, match in ((lambda t: np.ones(3), "exact at t = 0 must be a number, a Separable"),
                         (lambda t: Separable(q=np.cos), "names the axis 'q'")):  # fmt: skip
        with pytest.raises((TypeError, ValueError), match=match):
            PDE([X], [], exact=SeparableAt(wrong), initial=1.0, **settings)
    zero = PDE([X], [], exact=SeparableAt(lambda t: 0.0), initial=1.0, **settings)
    problem = zero.discretize(2, 1)
    assert problem.l2_error(problem.initial, 0.0) == pytest.approx(np.sqrt(2.0), rel=1e-12)


def test_anisotropic_sparse_levels_equal_quadrature():
    chosen = select(SUM, (X, Y))
    problem = PDE([X, Y], [], sources=0.0, boundary="periodic", exact=chosen).discretize([1, 5], 2)
    expected = by_quadrature(problem, problem.initial, 0.0, chosen)
    assert problem.l2_error(problem.initial, 0.0) == pytest.approx(expected, rel=1e-8)


def test_tiny_errors_do_not_cancel():
    """A difference of squared norms could not tell an error below 1e-8 of the norm."""
    smooth = Separable(x=np.cos, y=np.sin)
    problem = PDE([X, Y], [], sources=0.0, boundary="periodic", exact=smooth).discretize(
        4, 5, "full"
    )
    error = problem.l2_error(problem.exact_coefficients(0.0), 0.0)
    expected = by_quadrature(problem, problem.exact_coefficients(0.0), 0.0, smooth)
    assert error == pytest.approx(expected, rel=1e-3)
    assert 0.0 < error < 1e-9 * problem.l2_norm_exact(0.0)


def test_the_tail_of_one_product_on_a_full_grid():
    """The projection error of a product of two functions, in closed form."""
    problem = make("continuity-2d", 3, 3, "full")
    (part,) = problem.exact.parts
    remainder = problem.exact.remainders[:, 0, 0]
    norms = np.array([factor @ factor for factor in part.factors]) + remainder
    tail = norms[0] * remainder[1] + remainder[0] * norms[1] - remainder[0] * remainder[1]
    t = 0.5
    error = problem.l2_error(problem.exact_coefficients(t), t)
    assert error == pytest.approx(abs(np.sin(2 * t)) * np.sqrt(tail), rel=1e-12)
    np.testing.assert_allclose(norms, [1.0, 2.0], rtol=1e-12)


def test_relative_error_where_the_solution_vanishes():
    problem = make("continuity-1d", 3, 1)
    nothing = np.zeros(problem.unknowns)
    assert problem.relative_error(nothing, 0.0) == 0.0
    assert problem.relative_error(nothing + 1.0, 0.0) == np.inf
