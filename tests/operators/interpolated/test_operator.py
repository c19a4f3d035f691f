"""InterpolatedKronecker: products, Toeplitz factors, noise, relatives, errors."""

import copy
import pickle

import numpy as np
import pytest
import scipy.sparse.linalg as spla
from dense_oracle import poisoned, random_array
from interpolation_oracle import assert_close, dense_interpolation, dense_operator, dense_product
from threadpoolctl import threadpool_limits

import batchkron as bk
from batchkron.operators.interpolated import grid_product, operator

CASES = [(4,), (13,), (4, 7), (6, 5, 4), (4, 5, 4, 4), (4, 4, 4, 4, 5)]


def grid_of(sizes):
    return bk.RegularGrid(np.zeros(len(sizes)), np.arange(1.0, len(sizes) + 1), sizes)


def problem(rng, sizes, dtype, count=19, columns=False):
    """Points, a grid, and factors: matrices, or every other one a column."""
    grid = grid_of(sizes)
    points = rng.uniform(grid.lower, grid.upper, (count, len(sizes)))
    shapes = [(n,) if columns and k % 2 == 0 else (n, n) for k, n in enumerate(sizes)]
    factors = [random_array(rng, shape, dtype) for shape in shapes]
    for factor in factors:
        if factor.ndim == 1:
            factor[0] = factor[0].real
    return points, grid, factors


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("sizes", CASES)
@pytest.mark.usefixtures("any_way")
def test_products(rng, backend, dtype, sizes, columns):
    points, grid, factors = problem(rng, sizes, dtype, columns=columns)
    noise = rng.random(19)
    op = bk.InterpolatedKronecker(points, grid, factors, noise=noise)
    A, magnitude = dense_operator(points, grid, factors, noise)
    assert (op.shape, op.dtype) == ((19, 19), dtype)
    for batch in (1, 3, 17):
        x, y = random_array(rng, (batch, 19), dtype), poisoned((batch, 19), dtype)
        assert op.apply(x, y) is y
        assert_close(y, x @ A.T, abs(x) @ magnitude.T, 19, grid, 2)
        X = np.ascontiguousarray(x.T)
        assert_close(op @ X, A @ X, magnitude @ abs(X), 19, grid, 2)
        assert_close(op.T @ X, A.T @ X, magnitude.T @ abs(X), 19, grid, 2)
        assert_close(op.H @ X, A.conj().T @ X, magnitude.T @ abs(X), 19, grid, 2)
    assert_close(op.diagonal(), A.diagonal(), magnitude.diagonal(), 19, grid, 2)
    assert_close(op.to_dense(), A, magnitude, 19, grid, 2)


@pytest.mark.usefixtures("any_way")
def test_accumulate_with_alpha(rng, backend, dtype):
    points, grid, factors = problem(rng, (5, 4, 6), dtype)
    op = bk.InterpolatedKronecker(points, grid, factors, noise=0.25)
    A, magnitude = dense_operator(points, grid, factors, 0.25)
    for alpha in [1, -0.5, 1.5 - 2j] if dtype.kind == "c" else [1, -0.5]:
        x, y = random_array(rng, (5, 19), dtype), random_array(rng, (5, 19), dtype)
        added = y.copy()
        assert op.accumulate(x, added, alpha=alpha) is added
        size = (1 + abs(alpha)) * (abs(y) + abs(x) @ magnitude.T)
        assert_close(added, y + alpha * x @ A.T, size, 19, grid, 2)


@pytest.mark.usefixtures("any_way")
def test_complex_vectors_of_a_real_operator(rng, backend):
    points, grid, factors = problem(rng, (5, 6), "float32")
    op = bk.InterpolatedKronecker(points, grid, factors, noise=0.5)
    A, magnitude = dense_operator(points, grid, factors, 0.5)
    z = random_array(rng, (5, 19), "complex64")
    product = op.apply(z)
    assert product.dtype == np.complex64
    assert_close(product, z @ A.T, abs(z) @ magnitude.T, 19, grid, 2)
    assert op.apply(rng.standard_normal(19)).dtype == np.float64
    X = (1j * op) @ z.T
    assert_close(X, 1j * A @ z.T, magnitude @ abs(z.T), 19, grid, 2)


@pytest.mark.parametrize("sizes", [(8,), (8, 5, 9), (4, 8, 8), (9, 4, 4, 10)])
@pytest.mark.usefixtures("on_the_grid")
def test_toeplitz_factors_by_transforms(rng, dtype, sizes, monkeypatch):
    monkeypatch.setattr(grid_product, "MIN_FFT_ROWS", 8)
    monkeypatch.setattr(grid_product, "_SLAB", 64)  # so that there are several slabs
    points, grid, _ = problem(rng, sizes, dtype)
    factors = [random_array(rng, n, dtype) for n in sizes]
    for factor in factors:
        factor[0] = factor[0].real
    op = bk.InterpolatedKronecker(points, grid, factors, noise=0.5)
    assert f"{sum(n >= 8 for n in sizes)} of {len(sizes)} factors by FFT" in op.describe()
    A, _ = dense_operator(points, grid, factors, 0.5)
    W = dense_interpolation(points, grid)
    x = random_array(rng, (6, 19), dtype)
    # a transform's error is relative to the norm, 5 log2(length) eps (Higham, 24.1), four of them
    size = np.prod([2 * np.abs(f).sum() for f in factors])  # above the norms of the circulants
    size *= np.linalg.norm(W, 2) ** 2 * np.linalg.norm(x, axis=1, keepdims=True)
    bound = 200 * len(sizes) * np.finfo(op.dtype).eps * size
    assert (abs(op.apply(x) - x @ A.T) <= bound).all()
    assert (abs(op.T.apply(x) - x @ A) <= bound).all()
    # this far from the bound an error of the method would show
    plain = np.linalg.norm(op.apply(x) - x @ A.T) / np.linalg.norm(x @ A.T)
    assert plain < 500 * np.finfo(op.dtype).eps


def test_where_the_whole_matrix_is_taken(rng):
    """It has no more entries than the grid has cells, nor has a factor."""
    for sizes, count, taken in [
        ((6, 6), 6, True),
        ((6, 6), 7, False),
        ((36,), 6, False),
        ((9, 4), 6, False),
        ((8, 8), 0, False),
        ((4, 4, 4), 8, True),
    ]:
        points, grid, factors = problem(rng, sizes, "float64", count)
        op = bk.InterpolatedKronecker(points, grid, factors)
        assert ("multiplied as a matrix" in op.describe()) == taken


def test_where_transforms_are_taken():
    grid = bk.RegularGrid(0.0, 1.0, (600, 4))
    column = np.exp(-np.arange(600) / 40)
    by_transform = bk.InterpolatedKronecker([[0.3, 0.7], [0.9, 0.2]], grid, [column, np.eye(4)])
    dense = bk.InterpolatedKronecker(
        [[0.3, 0.7], [0.9, 0.2]], grid, [dense_product([column]), np.eye(4)]
    )
    assert "1 of 2 factors by FFT" in by_transform.describe()
    assert "0 of 2 factors by FFT" in dense.describe()
    np.testing.assert_allclose(by_transform.to_dense(), dense.to_dense(), atol=1e-13)


@pytest.mark.usefixtures("any_way")
def test_bits_do_not_depend_on_threads(rng, threads):
    points, grid, factors = problem(rng, (12, 11, 10), "float64", count=1100)
    x = rng.standard_normal((17, 1100))
    found = []
    for count in (1, 2, 5):
        threads(count)
        with threadpool_limits(count):  # of BLAS, too
            op = bk.InterpolatedKronecker(points, grid, factors, noise=0.1)
            found.append(op.apply(x))
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_array_equal(found[2], found[0])


@pytest.mark.usefixtures("on_the_grid")
def test_few_vectors_at_a_time(rng, dtype, monkeypatch):

    points, grid, factors = problem(rng, (5, 6), dtype)
    op = bk.InterpolatedKronecker(points, grid, factors)
    A, magnitude = dense_operator(points, grid, factors)
    x = random_array(rng, (9, 19), dtype)
    for limit in (1, 3000):
        monkeypatch.setattr(operator, "_MAX_GRID_BYTES", limit)
        assert_close(op.apply(x), x @ A.T, abs(x) @ magnitude.T, 19, grid, 2)


@pytest.mark.usefixtures("any_way")
def test_update_reaches_all_relatives(rng, backend):
    sizes = (5, 4, 5, 4)
    points, grid, factors = problem(rng, sizes, "complex64")
    op = bk.InterpolatedKronecker(points, grid, factors, noise=0.5)
    relatives = op.T, op.H, op.astype("complex128"), op.T.T, 2 * op
    points, _, factors = problem(rng, sizes, "complex64")
    factors[0] = np.array([1.0, 0.5, 0.25, 0.1, 0.0])
    noise = rng.random(19)
    for change in ({"points": points}, {"factors": factors}, {"noise": noise}):
        op.update(**change)
    A, magnitude = dense_operator(points, grid, factors, noise)
    dense = A.T, A.conj().T, A, A, 2 * A
    magnitudes = magnitude.T, magnitude.T, magnitude, magnitude, 2 * magnitude
    for relative, expected, size in zip(relatives, dense, magnitudes, strict=True):
        narrow = relative.to_dense().astype("complex64")
        assert_close(narrow, expected, size, 19, grid, 2)
    before = op.to_dense()
    with pytest.raises(ValueError, match=r"points has shape \(18, 4\); expected \(19, 4\)"):
        op.update(points=points[:18], factors=factors)
    with pytest.raises(ValueError, match=r"noise is -1\.0; expected 0 or more"):
        op.update(factors=[2 * f for f in factors], noise=-1.0)
    np.testing.assert_array_equal(op.to_dense(), before)
    real = bk.InterpolatedKronecker(points, grid, [np.eye(n) for n in sizes])
    factors = [np.eye(5), random_array(rng, (4, 4), "complex64"), np.eye(5), np.eye(4)]
    with pytest.raises(TypeError, match=r"factors\[1\] has dtype complex64; the operator holds"):
        real.update(factors=factors)


def test_covariance_of_other_points(rng):
    points, grid, factors = problem(rng, (6, 5), "float64", columns=True)
    op = bk.InterpolatedKronecker(points, grid, factors, noise=0.5)
    others = rng.uniform(grid.lower, grid.upper, (7, 2))
    expected = dense_interpolation(others, grid) @ dense_product(factors)
    expected = expected @ dense_interpolation(points, grid).T
    np.testing.assert_allclose(op.cross(others).to_dense(), expected, atol=1e-12)


def test_as_scipy_takes_it(rng):
    points, grid, _ = problem(rng, (9, 8), "float64", count=60)
    columns = [np.exp(-((x - x[0]) ** 2)) for x in grid.axes]
    op = bk.InterpolatedKronecker(points, grid, columns, noise=0.1)
    A, _ = dense_operator(points, grid, columns, 0.1)
    b = rng.standard_normal(60)
    x, info = spla.cg(op, b, rtol=1e-12, maxiter=500)
    assert info == 0
    np.testing.assert_allclose(A @ x, b, atol=1e-8)
    np.testing.assert_allclose((op + bk.Identity(60)) @ b, A @ b + b, atol=1e-12)


def test_copies_and_pickles(rng):
    points, grid, factors = problem(rng, (5, 4), "float32", columns=True)
    given = [f.copy() for f in factors]
    op = bk.InterpolatedKronecker(points, grid, given, noise=[0.5] * 19)
    for factor in given:
        factor[:] = np.nan
    for other in (copy.copy(op), copy.deepcopy(op), pickle.loads(pickle.dumps(op))):
        np.testing.assert_array_equal(other.to_dense(), op.to_dense())
        assert (other.dtype, other.grid) == (np.float32, grid)
    for array in (op.points, op.noise, *op.factors):
        assert not array.flags.writeable


def test_no_points(backend):
    op = bk.InterpolatedKronecker(np.empty((0, 1)), grid_of((5,)), [np.eye(5)], noise=1.0)
    assert op.apply(np.ones((3, 0))).shape == (3, 0)
    assert op.to_dense().shape == (0, 0)


def test_refused():
    points, grid = np.full((3, 2), 0.5), grid_of((5, 4))
    good = [np.eye(5), np.eye(4)]
    cases = [
        ({"factors": good[:1]}, ValueError, "factors has 1 entries; expected 2"),
        ({"factors": []}, ValueError, "factors is empty"),
        ({"factors": good[::-1]}, ValueError, r"factors\[0\] has shape \(4, 4\); expected \(5, 5"),
        ({"factors": [np.eye(5), ["a"] * 4]}, TypeError, "expected an array of float32"),
        ({"noise": -0.5}, ValueError, "noise is -0.5; expected 0 or more"),
        ({"noise": np.nan}, ValueError, "noise is nan; expected 0 or more"),
        ({"noise": [1.0, 2.0]}, ValueError, r"noise has shape \(2,\); expected \(\) or \(3,\)"),
        ({"noise": 1j}, TypeError, "noise has dtype complex128; expected real"),
        ({"points": points + 1}, ValueError, r"points\[0, 0\] is 1.5; expected 0.0 to 1.0"),
    ]
    for change, kind, text in cases:
        arguments = {"points": points, "factors": good, "noise": 0.0, **change}
        with pytest.raises(kind, match=text):
            bk.InterpolatedKronecker(grid=grid, **arguments)
    op = bk.InterpolatedKronecker(points, grid, good)
    with pytest.raises(ValueError, match=r"x has shape \(4,\); expected \(..., 3\)"):
        op.apply(np.ones(4))
    x = np.ones((2, 3))
    with pytest.raises(ValueError, match="overlap"):
        op.apply(x, x)
