"""Values on meshes and at points of any shape are those at single points."""

import numpy as np
import pytest

from batchkron.problems import Axis, Mixed, SparseGrid
from batchkron.problems.discretization.basis.evaluation import evaluate_on_grid
from batchkron.problems.discretization.basis.mesh_evaluation import evaluate_at, evaluate_on_mesh

AXES = [Axis("x", -1.0, 2.0), Axis("y", 0.0, 5.0), Axis("z", 2.0, 3.0), Axis("w", -1.0, 1.0)]


def random_state(rng, grid, degree):
    return rng.standard_normal(grid.num_cells * (degree + 1) ** grid.dimensions)


def points_of(rng, axes, counts):
    """Points of each axis, its ends and an edge between cells among them."""
    found = []
    for axis, count in zip(axes, counts, strict=True):
        special = [axis.lower, axis.upper, (axis.lower + axis.upper) / 2]
        rest = rng.uniform(axis.lower, axis.upper, count)
        found.append(np.concatenate([special, rest])[-count:] if count < 4 else
                     np.concatenate([special, rest[3:]]))  # fmt: skip
    return found


def one_by_one(u, points, axes, grid, degree):
    flat = np.asarray(points).reshape(-1, len(axes))
    return np.array([evaluate_on_grid(u, row[None], axes, grid, degree)[0] for row in flat])


GRIDS = [
    SparseGrid.sparse([3]),
    SparseGrid.sparse([3, 2]),
    SparseGrid.full([0, 2]),
    SparseGrid.sparse([2, 3, 1]),
    SparseGrid.sparse([2, 1, 2, 2]),
    SparseGrid.custom(SparseGrid.sparse([4, 4]).cells[[0, 1, 2, 5, 7]], [4, 4]),
]


@pytest.mark.parametrize("grid", GRIDS, ids=lambda grid: f"{grid.levels}-{grid.num_cells}")
@pytest.mark.parametrize("degree", [0, 1, 2])
def test_a_mesh_has_the_values_of_its_points(rng, grid, degree):
    axes = AXES[: grid.dimensions]
    u = random_state(rng, grid, degree)
    places = points_of(rng, axes, [5, 7, 2, 3][: grid.dimensions])
    mesh = evaluate_on_mesh(u, places, axes, grid, degree)
    assert mesh.shape == tuple(len(part) for part in places)
    every = np.stack(np.meshgrid(*places, indexing="ij"), axis=-1)
    expected = one_by_one(u, every, axes, grid, degree).reshape(mesh.shape)
    np.testing.assert_allclose(mesh, expected, atol=1e-12)


def test_every_kind_of_mesh_gives_the_same(rng):
    grid, axes = SparseGrid.sparse([2, 3, 1]), AXES[:3]
    u = random_state(rng, grid, 2)
    places = points_of(rng, axes, [4, 5, 6])
    for indexing in ("ij", "xy"):
        closed = np.meshgrid(*places, indexing=indexing)
        expected = one_by_one(u, np.stack(closed, -1), axes, grid, 2).reshape(closed[0].shape)
        for coordinates in (closed, np.meshgrid(*places, indexing=indexing, sparse=True)):
            found = evaluate_at(u, coordinates, axes, grid, 2)
            np.testing.assert_allclose(found, expected, atol=1e-12)
    x, y, z = places  # in another order of dimensions than the axes have
    found = evaluate_at(u, (x[None, :, None], y[None, None], z[:, None, None]), axes, grid, 2)
    expected = evaluate_at(u, np.meshgrid(x, y, z, indexing="ij"), axes, grid, 2)
    np.testing.assert_allclose(found, expected.transpose(2, 0, 1), atol=1e-12)


def test_coordinates_that_are_no_open_mesh_are_broadcast(rng):
    grid, axes = SparseGrid.sparse([2, 3]), AXES[:2]
    u = random_state(rng, grid, 1)
    x = rng.uniform(-1, 2, 4)
    along = evaluate_at(u, (x, 2 * x + 2.5 - x), axes, grid, 1)
    np.testing.assert_allclose(
        along, one_by_one(u, np.column_stack([x, x + 2.5]), axes, grid, 1), atol=1e-12
    )
    assert evaluate_at(u, (x, 0.5), axes, grid, 1).shape == (4,)
    assert evaluate_at(u, (0.5, 0.5), axes, grid, 1).shape == ()
    assert evaluate_at(u, (np.empty(0), 0.5), axes, grid, 1).shape == (0,)
    assert evaluate_at(u, (np.empty((0, 1)), x), axes, grid, 1).shape == (0, 4)


def test_points_have_any_leading_shape(rng):
    grid, axes = SparseGrid.sparse([2, 3]), AXES[:2]
    u = random_state(rng, grid, 1)
    points = rng.uniform(0.0, 2.0, (3, 4, 2))
    found = evaluate_at(u, (points,), axes, grid, 1)
    np.testing.assert_allclose(found.ravel(), one_by_one(u, points, axes, grid, 1), atol=1e-12)
    assert found.shape == (3, 4)
    line, x = SparseGrid.sparse([3]), np.linspace(-1, 2, 5)
    u = random_state(rng, line, 2)
    np.testing.assert_array_equal(
        evaluate_at(u, (x,), AXES[:1], line, 2), evaluate_at(u, (x[:, None],), AXES[:1], line, 2)
    )


@pytest.mark.parametrize(
    ("points", "words"),
    [
        ((np.zeros(2),), r"points has shape \(2,\); expected \(m, 2\)"),
        ((np.zeros((3, 3)),), r"points has shape \(3, 3\).*coordinates x, y"),
        ((np.zeros(2), np.zeros(2), np.zeros(2)), "3 arrays of coordinates.*each of the 2 axes"),
        ((np.zeros(2), np.zeros(3)), r"shapes \(2,\), \(3,\), which do not broadcast"),
        ((np.zeros((2, 1)), np.full((1, 3), 9.0)), "expected a point of axis 'y'"),
    ],
)
def test_what_does_not_fit_is_refused(rng, points, words):
    grid = SparseGrid.sparse([2, 2])
    with pytest.raises(ValueError, match=words):
        evaluate_at(random_state(rng, grid, 1), points, AXES[:2], grid, 1)


def test_a_problem_and_its_fields_take_meshes():
    from batchkron.problems import make

    problem = make("landau-1x2v", (1, 2, 2), 1, Mixed(["x"], ["v1", "v2"]))
    x, v1, _ = problem.axes
    mesh = np.meshgrid([1.0, 2.0], [-1.0, 0.0, 1.0], [0.5, 0.6], indexing="ij", sparse=True)
    values = problem.evaluate(problem.initial, *mesh)
    point = problem.evaluate(problem.initial, [[2.0, 1.0, 0.6]])
    assert values.shape == (2, 3, 2)
    assert values[1, 2, 1] == pytest.approx(point[0], rel=1e-12)
    kept = problem.marginal(problem.initial, [x, v1])
    assert kept.evaluate(*(part[..., 0] for part in mesh[:2])).shape == (2, 3)
