"""Values at points of positions: against values of the functions of positions, and back."""

import numpy as np
import pytest

from batchkron.problems import Axis, SparseGrid
from batchkron.problems.discretization.basis.mesh_evaluation import evaluate_at
from batchkron.problems.discretization.interpolation.position_points import PositionPoints
from batchkron.problems.discretization.interpolation.transform import PointTransform

AXES = (Axis("v", -3, 3), Axis("x", 0, 2), Axis("w", -1, 1), Axis("y", -1, 2))
GRIDS = {
    "sparse": SparseGrid.sparse([2, 3, 2, 3]),
    "full": SparseGrid.full([1, 2, 1, 1]),
    "levels": SparseGrid.sparse([1, 4, 2, 3]),
}


@pytest.mark.parametrize("name", GRIDS)
@pytest.mark.parametrize("degree", [0, 1, 2, 5])
def test_round_trip(rng, name, degree):
    grid = GRIDS[name]
    points = PositionPoints(AXES, [1, 3], grid, degree)
    u = rng.standard_normal(grid.num_cells * (degree + 1) ** 4)
    np.testing.assert_allclose(points.coefficients(points.values(u).copy()), u, atol=1e-11)


def test_values_are_those_of_the_functions_of_the_positions(rng):
    grid, degree = GRIDS["sparse"], 1
    points = PositionPoints(AXES, [1, 3], grid, degree)
    u = rng.standard_normal(grid.num_cells * 16)
    values = points.values(u).copy()
    x, y = np.meshgrid(*points.along, indexing="ij")
    at = np.stack([x.ravel(), y.ravel()], axis=1)[points.places.ravel()]
    at = at.reshape(grid.num_cells, -1, 2)
    blocks = u.reshape(grid.num_cells, 2, 2, 2, 2)
    for row in rng.choice(grid.num_cells, 12, replace=False):
        others = (grid.cells[:, [0, 2]] == grid.cells[row, [0, 2]]).all(axis=1)
        left = SparseGrid.custom(grid.cells[others][:, [1, 3]], [3, 3])
        order = left.find(grid.cells[others][:, [1, 3]])
        for i in range(2):
            for j in range(2):
                state = np.empty((left.num_cells, 2, 2))
                state[order] = blocks[others][:, i, :, j, :]
                known = evaluate_at(state.ravel(), (at[row],), (AXES[1], AXES[3]), left, degree)
                found = values[row][i, :, j, :].ravel()
                np.testing.assert_allclose(found, known, atol=1e-12)


def test_with_positions_alone_it_is_the_transform(rng):
    axes, grid = AXES[1:4:2], SparseGrid.sparse([4, 4])
    points, transform = PositionPoints(axes, [0, 1], grid, 2), PointTransform(axes, grid, 2)
    u, values = rng.standard_normal(grid.num_cells * 9), rng.standard_normal(transform.num_points)
    np.testing.assert_allclose(points.values(u).ravel(), transform.values(u), atol=1e-12)
    expected = transform.coefficients(values)
    found = points.coefficients(values.reshape(points.shape).copy())
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_products_with_functions_of_the_positions(rng):
    """The order of axes does not matter, and the values are multiplied place by place."""
    grid = GRIDS["sparse"]
    points = PositionPoints(AXES, [1, 3], grid, 1)
    values = rng.standard_normal(points.shape)
    factor = rng.standard_normal([own.size for own in points.along])
    expected = values * factor.ravel()[points.places]
    points.multiply(values, factor.ravel())
    np.testing.assert_array_equal(values, expected)


def test_integrals_that_are_zero_stay_zero(rng):
    """No function of the positions changes that ∫ f dv dw = 0, as after a derivative in v."""
    grid = GRIDS["sparse"]
    points = PositionPoints(AXES, [1, 3], grid, 2)
    u = rng.standard_normal((grid.num_cells, 3, 3, 3, 3))
    lowest = (grid.cells[:, [0, 2]] == 0).all(axis=1)
    u[lowest, 0, :, 0, :] = 0.0
    values = points.values(u.ravel())
    points.multiply(values, rng.standard_normal([own.size for own in points.along]).ravel())
    found = points.coefficients(values).reshape(u.shape)
    assert np.abs(found).max() > 0.1
    np.testing.assert_allclose(found[lowest, 0, :, 0, :], 0.0, atol=1e-13)
