"""Values at points and coefficients: one is the inverse of the other, on every closed grid."""

import itertools

import numpy as np
import pytest

from batchkron.problems import PDE, Axis, SparseGrid, div
from batchkron.problems.discretization.basis.evaluation import evaluate_on_grid
from batchkron.problems.discretization.interpolation.tables import point_tables
from batchkron.problems.discretization.interpolation.transform import PointTransform

NUDGE = 1e-11


def axes_of(d):
    return [Axis(f"x{k}", -0.5 * k, 1.0 + k) for k in range(d)]


def adapted(levels, rng):
    """A closed grid of cells that no rule of levels makes."""
    cells = [[rng.integers(1 << level) for level in levels] for _ in range(6)]
    return SparseGrid.custom(cells, levels).closed()


def grids():
    rng = np.random.default_rng(3)
    yield "one axis", SparseGrid.full([5])
    yield "level 0", SparseGrid.full([0, 2])
    yield "sparse", SparseGrid.sparse([4, 4])
    yield "sparse, several levels", SparseGrid.sparse([5, 2, 3])
    yield "full", SparseGrid.full([3, 2])
    yield "mixed", SparseGrid.product(SparseGrid.sparse([3, 3]), SparseGrid.full([2]))
    yield "adapted", adapted([5, 4], rng)
    yield "adapted, three axes", adapted([4, 3, 4], rng)


@pytest.mark.parametrize("extra", [0, 1])
@pytest.mark.parametrize("degree", range(6))
@pytest.mark.parametrize(("name", "grid"), list(grids()))
def test_values_and_coefficients_are_inverse(name, grid, degree, extra):
    if grid.dimensions == 3 and degree > 3:
        degree -= 3
    transform = PointTransform(axes_of(grid.dimensions), grid, degree, extra=extra)
    u = np.random.default_rng(degree).standard_normal(
        grid.num_cells * (degree + 1) ** grid.dimensions
    )
    values = transform.values(u)
    assert values.shape == (transform.num_points,)
    assert np.abs(transform.coefficients(values) - u).max() < 2e-13 * np.abs(u).max()
    points = np.stack(list(transform.points()), axis=-1)
    chosen = np.random.default_rng(1).choice(len(points), min(100, len(points)), replace=False)
    found = evaluate_on_grid(u, points[chosen], transform.axes, grid, degree)
    slope = NUDGE * 2.0 ** max(grid.levels) * (degree + 1) ** 2 * 100
    assert np.abs(found - values[chosen]).max() < (1e-12 + slope) * np.abs(values).max()


@pytest.mark.parametrize("degrees", [(1, 3, 0), (5, 4, 1), (2, 0, 5)])
@pytest.mark.parametrize("extra", [0, 1])
def test_degrees_of_each_axis(degrees, extra):
    axes, grid = axes_of(3), SparseGrid.sparse([3, 2, 3])
    transform = PointTransform(axes, grid, degrees, extra=extra)
    rng = np.random.default_rng(4)
    u = rng.standard_normal(transform.num_unknowns)
    values = transform.values(u)
    counts = [min(degree + 1 + extra, 6) for degree in degrees]
    assert values.size == transform.num_points == grid.num_cells * np.prod(counts)
    assert transform.degrees_at_points == tuple(count - 1 for count in counts)
    assert np.abs(transform.coefficients(values) - u).max() < 2e-13 * np.abs(u).max()
    points = np.stack(list(transform.points()), axis=-1)
    found = evaluate_on_grid(u, points, axes, grid, degrees)
    assert np.abs(found - values).max() < 1e-7 * np.abs(values).max()
    v = rng.standard_normal(transform.num_points)
    there, back = transform.operators
    np.testing.assert_array_equal(there @ u, values)
    np.testing.assert_array_equal(back @ v, transform.coefficients(v))
    assert (there.T @ v) @ u == pytest.approx(v @ values)
    assert (back.T @ u) @ v == pytest.approx(u @ (back @ v))


def test_results_are_written_where_they_are_wanted():
    transform = PointTransform(axes_of(2), SparseGrid.sparse([3, 3]), 2)
    u = np.random.default_rng(4).standard_normal(transform.num_unknowns)
    values, out = np.full(transform.num_points, np.nan), np.full(u.shape, np.nan)
    assert transform.values(u, values) is values
    np.testing.assert_array_equal(values, transform.values(u))
    assert transform.coefficients(values, out) is out
    np.testing.assert_array_equal(out, transform.coefficients(values))


@pytest.mark.parametrize("m", range(1, 7))
def test_points_are_distinct_and_determine_the_function(m):
    """Points that coincide would leave the matrix of values singular."""
    transform = PointTransform([Axis("x", 0, 1)], SparseGrid.full([4]), m - 1, extra=0)
    points = next(transform.points())
    assert len(np.unique(points)) == len(points) == 16 * m
    assert points.min() >= 0.0
    assert points.max() <= 1.0
    columns = [transform.values(column) for column in np.eye(16 * m)]
    assert np.linalg.matrix_rank(np.array(columns)) == 16 * m


@pytest.mark.parametrize("m", range(1, 7))
def test_surpluses_are_the_inverse_of_values(m):
    """S is (1 + N)⁻¹ in exact arithmetic, as both are built by themselves."""
    tables = point_tables(3, m, m)

    def dense(part):
        matrix = np.zeros((8, m, 8, m))
        matrix[part.rows, :, part.columns] = part.blocks
        return matrix.reshape(8 * m, 8 * m)

    N = np.eye(8 * m) + dense(tables.values_of_surpluses)
    inverse = np.eye(8 * m) + dense(tables.surpluses_of_values)
    assert np.abs(N @ inverse - np.eye(8 * m)).max() < 1e-13 * np.abs(N).max()


@pytest.mark.parametrize("extra", [0, 1])
@pytest.mark.parametrize("degree", [1, 2, 3])
def test_polynomials_are_reproduced(degree, extra):
    axes, grid = axes_of(2), SparseGrid.sparse([4, 4])
    transform = PointTransform(axes, grid, degree, extra=extra)

    def polynomial(x, y):
        powers = itertools.product(range(degree + 1), repeat=2)
        return sum((1 + i - 0.5 * j) * x**i * y**j for i, j in powers)

    u = transform.coefficients(polynomial(*transform.points()))
    points = np.random.default_rng(5).uniform([-0.0, -0.5], [1.0, 2.0], (50, 2))
    found = evaluate_on_grid(u, points, axes, grid, degree)
    expected = polynomial(*points.T)
    assert np.abs(found - expected).max() < 1e-9 * np.abs(expected).max()


def test_a_sum_of_products_is_interpolated_as_the_function_of_both_axes():
    axes, grid = [Axis("x", 0, 2 * np.pi), Axis("y", 0, 2 * np.pi)], SparseGrid.sparse([5, 5])
    transform = PointTransform(axes, grid, 2)
    x, y = transform.points()
    both = transform.coefficients(np.cos(x + y))
    products = np.cos(x) * np.cos(y) - np.sin(x) * np.sin(y)
    assert np.abs(both - transform.coefficients(products)).max() < 1e-12


def test_the_interpolant_has_the_values():
    """Its coefficients are those of a state of the higher degree."""
    axes, grid = axes_of(2), SparseGrid.sparse([3, 3])
    transform = PointTransform(axes, grid, 2)
    values = np.random.default_rng(2).standard_normal(transform.num_points)
    finer = PointTransform(axes, grid, 3, extra=0)
    assert np.abs(finer.values(transform.interpolant(values)) - values).max() < 1e-11


@pytest.mark.parametrize(
    ("levels", "degree", "to_points", "back"),
    [([7, 7], 2, 2.2, 3.6), ([5, 5, 5], 2, 2.5, 4.3), ([2] * 6, 2, 4.3, 9.5)],
)
def test_multiply_adds_beside_those_of_derivatives(levels, degree, to_points, back):
    """As multiples of one application of all upwind derivatives; equal degrees take at most 1.3."""
    axes = axes_of(len(levels))
    terms = [div(axis, -1.0) for axis in axes]
    problem = PDE(axes, terms, boundary="periodic", initial=0.0).discretize(levels, degree)
    unit = problem.operator.multiply_adds
    equal = PointTransform(axes, problem.grid, degree, extra=0).multiply_adds
    assert max(equal) < 1.3 * unit
    found = PointTransform(axes, problem.grid, degree).multiply_adds
    assert found[0] < to_points * unit
    assert found[1] < back * unit


def test_refusals_name_the_remedy():
    axes = axes_of(2)
    with pytest.raises(ValueError, match=r"degrees 0, 1, 2, 3, 4, 5; got degree 6"):
        PointTransform(axes, SparseGrid.sparse([2, 2]), 6)
    with pytest.raises(ValueError, match=r"grid\.closed\(\)"):
        PointTransform(axes, SparseGrid.custom([[0, 0], [2, 0]], [2, 2]), 1)
