"""Interpolation on a regular grid: weights, products with W and its transpose, updates."""

import copy
import pickle

import numpy as np
import pytest
from dense_oracle import poisoned, random_array
from foreign_arrays import MAKERS
from interpolation_oracle import assert_close, dense_interpolation

import batchkron as bk

GRIDS = [(4,), (9,), (4, 4), (7, 5), (5, 4, 11), (4, 6, 4, 5), (4, 4, 5, 4, 4), (4,) * 6]


def random_points(rng, count, grid):
    """Points in the grid, among them its corners, its points, and two equal ones."""
    lower, upper = np.array(grid.lower), np.array(grid.upper)
    points = rng.uniform(lower, upper, (count, len(lower)))
    if count >= 5:
        points[0], points[1], points[2] = lower, upper, points[3]
        points[4] = [axis[1] for axis in grid.axes]
    return points


@pytest.fixture(params=MAKERS)
def make_foreign(request):
    """Makes arrays of a kind of NumPy's."""
    return MAKERS[request.param]


def grid_of(sizes):
    lower = [-1.0 + k for k in range(len(sizes))]
    return bk.RegularGrid(lower, [bound + 0.5 * (k + 3) for k, bound in enumerate(lower)], sizes)


def sums_of(vectors):
    return abs(vectors).sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("sizes", GRIDS)
def test_products(rng, backend, dtype, sizes):
    grid = grid_of(sizes)
    points = random_points(rng, 23, grid)
    op, W = bk.Interpolation(points, grid, dtype), dense_interpolation(points, grid)
    assert (op.shape, op.dtype) == (W.shape, dtype)
    cells = W.shape[1]
    for batch in (1, 2, 7, 16, 19):
        u, v = random_array(rng, (batch, cells), dtype), random_array(rng, (batch, 23), dtype)
        y, back = poisoned((batch, 23), dtype), poisoned((batch, cells), dtype)
        assert op.apply(u, y) is y
        assert op.T.apply(v, back) is back
        columns = op @ np.ascontiguousarray(u.T), op.T @ np.ascontiguousarray(v.T)
        for found in (y, columns[0].T):
            assert_close(found, u @ W.T, abs(u) @ abs(W).T, 23, grid, slack=sums_of(u))
        for found in (back, columns[1].T):
            assert_close(found, v @ W, abs(v) @ abs(W), 23, grid, slack=sums_of(v))


def test_accumulate_with_alpha(rng, backend, dtype):
    grid = grid_of((5, 6, 4))
    points = random_points(rng, 17, grid)
    op, W = bk.Interpolation(points, grid, dtype), dense_interpolation(points, grid)
    alphas = [1, -0.5, 1.5 - 2j] if dtype.kind == "c" else [1, -0.5]
    for alpha in alphas:
        u, y = random_array(rng, (3, 120), dtype), random_array(rng, (3, 17), dtype)
        added, back = y.copy(), u.copy()
        op.accumulate(u, added, alpha=alpha)
        op.T.accumulate(y, back, alpha=alpha)
        size = 1 + abs(alpha)
        assert_close(added, y + alpha * u @ W.T, size * (abs(y) + abs(u) @ abs(W).T), 17, grid, 2)
        assert_close(back, u + alpha * y @ W, size * (abs(u) + abs(y) @ abs(W)), 17, grid, 2)
        scaled = (alpha * op) @ u[0]
        assert_close(scaled, alpha * W @ u[0], size * abs(W) @ abs(u[0]), 17, grid, 2)


def test_parabolas_are_exact_up_to_the_ends(rng):
    grid = bk.RegularGrid([0.0, -2.0], [1.0, 3.0], (7, 9))
    points = random_points(rng, 300, grid)

    def function(x, y):
        return (1 + x - 3 * x**2) * (2 - y + 0.5 * y**2)

    values = function(*np.meshgrid(*grid.axes, indexing="ij")).ravel()
    found = bk.Interpolation(points, grid) @ values
    np.testing.assert_allclose(found, function(*points.T), rtol=0, atol=1e-13)


def test_grid_values_are_kept(rng):
    grid = grid_of((5, 4, 6))
    points = np.stack(np.meshgrid(*grid.axes, indexing="ij"), axis=-1).reshape(-1, 3)
    values = rng.standard_normal(120)
    np.testing.assert_allclose(bk.Interpolation(points, grid) @ values, values, atol=1e-13)


def test_the_error_falls_with_the_third_power():
    errors = []
    points = np.linspace(0.0, 1.0, 501)[:, None]
    for size in (33, 65, 129):
        grid = bk.RegularGrid(0.0, 1.0, [size])
        found = bk.Interpolation(points, grid) @ np.exp(np.sin(3 * grid.axes[0]))
        errors.append(abs(found - np.exp(np.sin(3 * points[:, 0]))).max())
    assert (np.log2(np.array(errors[:-1]) / errors[1:]) > 2.8).all()


@pytest.mark.parametrize("sizes", [(40, 30), (12, 11, 9, 8), (5, 6, 4, 4, 4), (4,) * 6])
def test_bits_do_not_depend_on_threads(rng, threads, sizes):
    grid = grid_of(sizes)
    count = 200_000 // 4 ** (len(sizes) - 1)
    points = random_points(rng, count, grid)
    for dtype in ("float32", "float64"):
        op = bk.Interpolation(points, grid, dtype)
        u, v = rng.random((5, op.shape[1]), dtype), rng.random((5, count), dtype)
        found = []
        for team in (1, 2, 2, 3, 7, 1):
            threads(team)
            found.append((op.apply(u), op.T.apply(v)))
        for gathered, scattered in found[1:]:
            np.testing.assert_array_equal(gathered, found[0][0])
            np.testing.assert_array_equal(scattered, found[0][1])


def test_few_points_in_a_large_grid(rng, backend, dtype):
    grid = grid_of((30, 40))  # where vectors on the grid are not copied
    points = random_points(rng, 2, grid)
    op, W = bk.Interpolation(points, grid, dtype), dense_interpolation(points, grid)
    u, v = random_array(rng, (3, 1200), dtype), random_array(rng, (3, 2), dtype)
    y, back = poisoned((3, 2), dtype), poisoned((3, 1200), dtype)
    op.apply(u, y)
    op.T.apply(v, back)
    assert_close(y, u @ W.T, abs(u) @ abs(W).T, 2, grid, slack=sums_of(u))
    assert_close(back, v @ W, abs(v) @ abs(W), 2, grid, slack=sums_of(v))


def test_no_points_and_no_vectors(backend):
    grid = bk.RegularGrid(0.0, 1.0, (4, 5))
    op = bk.Interpolation(np.empty((0, 2)), grid)
    assert op.apply(np.ones((3, 20))).shape == (3, 0)
    np.testing.assert_array_equal(op.T.apply(np.ones((3, 0))), np.zeros((3, 20)))
    some = bk.Interpolation([[0.5, 0.5]], grid)
    assert some.apply(np.ones((0, 20))).shape == (0, 1)
    assert some.matmat(np.ones((20, 0))).shape == (1, 0)


def test_update_reaches_all_relatives(rng, backend):
    grid = grid_of((5, 6))
    op = bk.Interpolation(random_points(rng, 9, grid), grid, "float32")
    relatives = op.T, op.astype("float64"), op.T.astype("complex64"), 2 * op
    points = random_points(rng, 9, grid)
    op.update(points)
    W = dense_interpolation(points, grid)
    for relative, expected in zip(relatives, (W.T, W, W.T, 2 * W), strict=True):
        np.testing.assert_allclose(relative.to_dense(), expected, atol=1e-6)
    with pytest.raises(ValueError, match=r"points has shape \(8, 2\); expected \(9, 2\)"):
        op.update(points[:8])


def test_copies_and_pickles(rng):
    grid = grid_of((5, 6))
    op = bk.Interpolation(random_points(rng, 9, grid), grid, "float32")
    for other in (copy.deepcopy(op), pickle.loads(pickle.dumps(op))):
        np.testing.assert_array_equal(other.to_dense(), op.to_dense())
        assert (other.dtype, other.grid) == (op.dtype, grid)
    turned = pickle.loads(pickle.dumps(op.T))
    np.testing.assert_array_equal(turned.to_dense(), op.to_dense().T)
    assert "9 points in a grid of 5 × 6" in op.describe()
    assert op.T.T is op


def test_refused_points():
    grid = bk.RegularGrid([0.0, -1.0], [1.0, 1.0], (4, 4))
    for bad in (1.5, -1e-9, np.nan, np.inf):
        points = np.full((6, 2), 0.5)
        points[4, 0] = bad
        with pytest.raises(ValueError, match=r"points\[4, 0\] is .*; expected 0.0 to 1.0"):
            bk.Interpolation(points, grid)
    with pytest.raises(ValueError, match=r"points has shape \(2,\); expected \(n, 2\)"):
        bk.Interpolation([0.5, 0.5], grid)
    with pytest.raises(TypeError, match="points has dtype complex128"):
        bk.Interpolation([[0.5j, 0.5]], grid)
    with pytest.raises(TypeError, match=r"grid is a tuple; expected a batchkron\.RegularGrid"):
        bk.Interpolation([[0.5, 0.5]], (0, 1))


def test_grids():
    grid = bk.RegularGrid(0, [1, 2], sizes=(4, 5))
    assert (grid.lower, grid.upper, grid.sizes) == ((0.0, 0.0), (1.0, 2.0), (4, 5))
    assert grid == bk.RegularGrid([0, 0], [1, 2], (4, 5)) != bk.RegularGrid(0, 1, (4, 5))
    assert hash(grid) == hash(copy.deepcopy(grid))
    around = bk.RegularGrid.around([[0.0, 3.0], [2.0, -1.0]], (4, 5))
    assert (around.lower, around.upper) == ((0.0, -1.0), (2.0, 3.0))
    cases = [
        (0, 1, (4, 3), ValueError, r"sizes\[1\] is 3; expected 4 or more"),
        (0, 1, (4.0,), TypeError, r"sizes\[0\] is 4.0; expected an integer"),
        (0, 1, (), ValueError, "sizes has 0 numbers; expected 1 to 16"),
        (0, 1, (4,) * 17, ValueError, "sizes has 17 numbers"),
        (0, [1, 0], (4, 4), ValueError, r"upper\[1\] is 0.0; expected more than lower\[1\]"),
        (0, [1, 2, 3], (4, 4), ValueError, r"upper has shape \(3,\); expected \(2,\)"),
        (np.nan, 1, (4, 4), ValueError, "lower is nan; expected finite"),
    ]
    for lower, upper, sizes, kind, text in cases:
        with pytest.raises(kind, match=text):
            bk.RegularGrid(lower, upper, sizes)


def test_grids_around_points():
    points = [[0.0, 3.0], [2.0, -1.0], [1.5, 0.1]]
    expected = bk.RegularGrid([0.0, -1.0], [2.0, 3.0], (4, 5))
    kinds = (points, np.array(points), np.array(points, np.float32), np.array(points, object))
    for given in (*kinds, np.array(points).view(np.matrix)):
        assert bk.RegularGrid.around(given, (4, 5)) == expected
    with pytest.raises(ValueError, match=r"points has shape \(0, 2\)"):
        bk.RegularGrid.around(np.empty((0, 2)), (4, 4))
    with pytest.raises(ValueError, match=r"points has shape \(2,\)"):
        bk.RegularGrid.around(points[0], (4, 4))
    with pytest.raises(ValueError, match=r"expected finite numbers"):
        bk.RegularGrid.around([[0.0, np.nan], [1.0, 1.0]], (4, 4))
    with pytest.raises(TypeError, match="points has dtype complex128; expected real numbers"):
        bk.RegularGrid.around([[0.0, 1j], [1.0, 1.0]], (4, 4))
    with pytest.raises(TypeError, match="points is a masked array"):
        bk.RegularGrid.around(np.ma.masked_less(points, 0), (4, 4))


def test_grids_around_points_of_other_libraries(make_foreign):
    points = np.array([[0.0, 3.0], [2.0, -1.0], [1.5, 0.1]])
    assert bk.RegularGrid.around(make_foreign(points), (4, 5)) == bk.RegularGrid.around(
        points, (4, 5)
    )
    with pytest.raises(ValueError, match=r"points has shape \(0, 2\)"):
        bk.RegularGrid.around(make_foreign(points[:0]), (4, 4))


def test_grids_around_tensors_that_require_gradients():
    torch = pytest.importorskip("torch")
    points = torch.tensor([[0.0, 3.0], [2.0, -1.0]], dtype=torch.bfloat16, requires_grad=True)
    grid = bk.RegularGrid.around(points, (4, 5))
    assert grid == bk.RegularGrid([0.0, -1.0], [2.0, 3.0], (4, 5))
