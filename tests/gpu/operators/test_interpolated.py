"""Interpolated Kronecker products on a device, against the CPU and dense matrices."""

import numpy as np
import pytest
from dense_oracle import random_array
from interpolation_oracle import assert_close, dense_interpolation, dense_operator

import batchkron as bk
from batchkron.backends.cuda.interpolated import segments
from batchkron.operators.interpolated import grid_product
from batchkron.solvers import cg, logdet_slq

pytestmark = pytest.mark.gpu

SIZES = [(4,), (13,), (5, 7), (6, 5, 4), (4, 5, 4, 4), (4, 4, 4, 4, 5), (4, 4, 5, 4, 4, 4)]


def problem(rng, sizes, dtype, count=19, columns=False):
    grid = bk.RegularGrid(0.0, np.arange(1.0, len(sizes) + 1), sizes)
    points = rng.uniform(grid.lower, grid.upper, (count, len(sizes)))
    shapes = [(n,) if columns and k % 2 == 0 else (n, n) for k, n in enumerate(sizes)]
    factors = [random_array(rng, shape, dtype) for shape in shapes]
    for factor in factors:
        if factor.ndim == 1:
            factor[0] = factor[0].real
    return points, grid, factors


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.usefixtures("any_way")
def test_products(cupy, rng, dtype, sizes, columns, poisoned_on_device):
    points, grid, factors = problem(rng, sizes, dtype, columns=columns)
    noise = rng.random(19)
    op = bk.InterpolatedKronecker(points, grid, factors, noise=noise).to("cuda")
    A, magnitude = dense_operator(points, grid, factors, noise)
    for batch in (1, 2, 3, 8, 17):
        x = random_array(rng, (batch, 19), dtype)
        y = poisoned_on_device((batch, 19), dtype)
        assert op.apply(cupy.asarray(x), y) is y
        assert_close(y.get(), x @ A.T, abs(x) @ magnitude.T, 19, grid, 2)
        X = np.ascontiguousarray(x.T)
        for one, matrix, size in (
            (op, A, magnitude),
            (op.T, A.T, magnitude.T),
            (op.H, A.conj().T, magnitude.T),
        ):
            found = (one @ cupy.asarray(X)).get()
            assert_close(found, matrix @ X, size @ abs(X), 19, grid, 2)
    assert_close(op.diagonal().get(), A.diagonal(), magnitude.diagonal(), 19, grid, 2)


@pytest.mark.parametrize("count", [0, 1, 31, 5000, 200_000])
@pytest.mark.parametrize("sizes", [(9,), (40, 50), (12, 13, 14), (4, 5, 4, 4)], ids=str)
def test_points_on_the_device_have_the_plans_of_the_host(cupy, rng, sizes, count):
    """Windows, their order and segments have the same bits; only two numbers are copied."""
    grid = bk.RegularGrid(0.0, 1.0, sizes)
    for dtype in ("float32", "float64"):
        points, others = (rng.random((count, len(sizes))).astype(dtype) for _ in range(2))
        points[: count // 2] = points[: count // 2].round(1)  # some windows have several points
        found = bk.Interpolation(cupy.asarray(points), grid)
        expected = bk.Interpolation(points, grid).to("cuda")
        for given in (None, others):
            if given is not None:
                found.update(cupy.asarray(given))
                expected.update(given)
            for one, other in (
                (found.plan._back, expected.plan._back),
                (found.plan._there, expected.plan._there),
            ):
                assert getattr(one, "_deepest", 0) == getattr(other, "_deepest", 0)
                for array, known in zip(one._arrays, other._arrays, strict=True):
                    assert array.get().tobytes() == known.get().tobytes()
        np.testing.assert_array_equal(found.points, others)


@pytest.mark.parametrize("way", ["segments", "some vectors", "owners"])
@pytest.mark.parametrize("count", [0, 1, 31, 5000])
@pytest.mark.parametrize("sizes", [(9,), (40, 50), (12, 13, 14)], ids=str)
def test_interpolation_and_its_transpose(
    cupy, rng, sizes, count, way, poisoned_on_device, monkeypatch
):
    if way != "segments":
        device = segments.DeviceLimits(0, cupy.cuda.Device().attributes["MultiProcessorCount"])
        one = segments.segment_bounds(sizes, count, device)[2] * 4 ** (len(sizes) - 1) * 8
        monkeypatch.setattr(segments, "_MAX_PARTIAL", 4 * one if way == "some vectors" else -1)
    for dtype in ("float32", "float64"):
        points, grid, _ = problem(rng, sizes, dtype, count=count)
        host = bk.Interpolation(points, grid, dtype)
        W = host.to("cuda")
        dense = dense_interpolation(points, grid)
        for batch in (1, 5, 16):
            x = random_array(rng, (batch, count), dtype)
            y = poisoned_on_device((batch, host.shape[1]), dtype)
            W.T.apply(cupy.asarray(x), y)
            slack = np.abs(x).sum(axis=1, keepdims=True)
            assert_close(y.get(), x @ dense, abs(x) @ abs(dense), count, grid, slack=slack)
            u = random_array(rng, (batch, host.shape[1]), dtype)
            found = W.apply(cupy.asarray(u)).get()
            slack = np.abs(u).sum(axis=1, keepdims=True)
            assert_close(found, u @ dense.T, abs(u) @ abs(dense).T, count, grid, slack=slack)


def test_all_points_in_one_cell(cupy, rng):
    grid = bk.RegularGrid(0.0, 1.0, (6, 7))
    points = np.full((3000, 2), 0.4) + 0.01 * rng.random((3000, 2))
    x = rng.standard_normal((3, 3000))
    found = bk.Interpolation(points, grid).to("cuda").T.apply(cupy.asarray(x)).get()
    dense = dense_interpolation(points, grid)
    slack = np.abs(x).sum(axis=1, keepdims=True)
    assert_close(found, x @ dense, abs(x) @ abs(dense), 3000, grid, slack=slack)


@pytest.mark.parametrize(
    "sizes", [(64,), (9, 200), (7, 8, 9), (6, 5, 4, 8), (4, 5, 4, 4, 5)], ids=str
)
@pytest.mark.parametrize("spread", ["borders", "one cell", "few rows"])
def test_points_that_lie_unevenly(cupy, rng, sizes, spread):
    count = 2000
    grid = bk.RegularGrid(0.0, 1.0, sizes)
    if spread == "borders":
        points = rng.integers(0, 2, (count, len(sizes))).astype(float)
    elif spread == "one cell":
        points = 0.5 + 1e-3 * rng.random((count, len(sizes)))
    else:
        points = rng.random((count, len(sizes)))
        points[:, :-1] = points[rng.integers(0, 3, count), :-1]
    dense = dense_interpolation(points, grid)
    for dtype in ("float32", "float64"):
        W = bk.Interpolation(points, grid, dtype).to("cuda")
        for batch in (1, 2, 17):
            x = random_array(rng, (count, batch), dtype)
            found = (W.T @ cupy.asarray(x)).get()
            assert (found == (W.T @ cupy.asarray(x)).get()).all()
            slack = np.abs(x).sum(axis=0)
            assert_close(found, dense.T @ x, abs(dense).T @ abs(x), count, grid, slack=slack)


@pytest.mark.parametrize("inner", [0, 1])
def test_modes_in_registers(cupy, rng, inner, monkeypatch):
    monkeypatch.setattr(segments, "INNER", inner)
    for sizes in [(50,), (9, 40), (8, 7, 9), (5, 4, 6, 5)]:
        points, grid, _ = problem(rng, sizes, "float64", count=3000)
        host = bk.Interpolation(points, grid)
        for batch in (1, 4, 16):
            x = rng.standard_normal((3000, batch))
            found = (host.to("cuda").T @ cupy.asarray(x)).get()
            np.testing.assert_allclose(found, host.T @ x, rtol=0, atol=1e-11)


def test_accumulate(cupy, rng, dtype):
    points, grid, factors = problem(rng, (5, 4, 6), dtype)
    op = bk.InterpolatedKronecker(points, grid, factors, noise=0.25).to("cuda")
    A, magnitude = dense_operator(points, grid, factors, 0.25)
    for alpha in [1, -0.5, 1.5 - 2j] if dtype.kind == "c" else [1, -0.5]:
        x, y = random_array(rng, (5, 19), dtype), random_array(rng, (5, 19), dtype)
        added = cupy.asarray(y)
        assert op.accumulate(cupy.asarray(x), added, alpha=alpha) is added
        size = (1 + abs(alpha)) * (abs(y) + abs(x) @ magnitude.T)
        assert_close(added.get(), y + alpha * x @ A.T, size, 19, grid, 2)


def test_the_same_bits_in_each_run(cupy, rng):
    points, grid, factors = problem(rng, (20, 21, 22), "float64", count=20_000)
    op = bk.InterpolatedKronecker(points, grid, factors, noise=0.1).to("cuda")
    x = cupy.asarray(rng.standard_normal((5, 20_000)))
    first = op.apply(x)
    for _ in range(20):
        assert (op.apply(x) == first).all()
    close = abs(first.get() - op.to("cpu").apply(x.get())).max()
    assert close <= 1e-12 * abs(first).max()


@pytest.mark.parametrize("count", [14, 200])  # as a matrix, and on the grid
def test_a_graph_sees_updates(cupy, rng, dtype, count, captured, poisoned_on_device):
    points, grid, factors = problem(rng, (5, 6, 7), dtype, count=count, columns=True)
    host = bk.InterpolatedKronecker(points, grid, factors, noise=0.5)
    op, stream = host.to("cuda"), cupy.cuda.Stream(non_blocking=True)
    x = random_array(rng, (9, count), dtype)
    given, out = cupy.asarray(x), poisoned_on_device((9, count), dtype)
    graph = captured(stream, lambda: op.apply(given, out))
    for _ in range(2):
        out.fill(np.nan)
        cupy.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        expected = host.apply(x)
        atol = 1e4 * np.finfo(dtype).eps * abs(expected).max()
        np.testing.assert_allclose(out.get(), expected, rtol=0, atol=atol)
        points, _, factors = problem(rng, (5, 6, 7), dtype, count=count, columns=True)
        host.update(points=points, factors=factors, noise=0.75)


@pytest.mark.parametrize("sizes", [(8,), (8, 5, 9), (9, 4, 4, 10)], ids=str)
def test_toeplitz_factors_by_transforms(cupy, rng, dtype, sizes, on_the_grid, monkeypatch):
    monkeypatch.setattr(grid_product, "MIN_DEVICE_FFT_ROWS", 8)
    points, grid, _ = problem(rng, sizes, dtype)
    factors = [random_array(rng, n, dtype) for n in sizes]
    for factor in factors:
        factor[0] = factor[0].real
    op = bk.InterpolatedKronecker(points, grid, factors).to("cuda")
    assert f"{sum(n >= 8 for n in sizes)} of {len(sizes)} factors by FFT" in op.describe()
    A, _ = dense_operator(points, grid, factors)
    x = random_array(rng, (6, 19), dtype)
    error = np.linalg.norm(op.apply(cupy.asarray(x)).get() - x @ A.T) / np.linalg.norm(x @ A.T)
    assert error < 1000 * np.finfo(dtype).eps
    op.update(factors=[2 * factor for factor in factors])
    A = A * 2 ** len(sizes)
    error = np.linalg.norm(op.apply(cupy.asarray(x)).get() - x @ A.T) / np.linalg.norm(x @ A.T)
    assert error < 1000 * np.finfo(dtype).eps


def test_a_gaussian_process(cupy, rng):
    grid = bk.RegularGrid(0.0, 1.0, (12, 13))
    points = rng.random((300, 2))
    columns = [np.exp(-((x - x[0]) ** 2) / 0.1) for x in grid.axes]
    host = bk.InterpolatedKronecker(points, grid, columns, noise=0.1)
    op = host.to("cuda")
    y = rng.standard_normal((3, 300))
    result = cg(op, cupy.asarray(y), rtol=1e-10, batched="leading", maxiter=2000)
    assert str(result.status) == "converged"
    np.testing.assert_allclose(host.apply(result.x.get()), y, atol=1e-7)
    expected, found = logdet_slq(host, steps=40), logdet_slq(op, steps=40)
    np.testing.assert_allclose(found.logdet, expected.logdet, rtol=1e-8)
    others = rng.random((5, 2))
    mean = op.cross(others) @ result.x[0]
    np.testing.assert_allclose(mean.get(), host.cross(others) @ result.x[0].get(), atol=1e-8)


@pytest.mark.parametrize("kind", ["CuPy", "torch"])
def test_a_grid_around_points(cupy, rng, kind):
    points = rng.standard_normal((1000, 3))
    expected = bk.RegularGrid(points.min(axis=0), points.max(axis=0), (4, 5, 6))
    given = cupy.asarray(points)
    if kind == "torch":
        torch = pytest.importorskip("torch")
        if not torch.cuda.is_available():
            pytest.skip("torch finds no CUDA device")
        given = torch.from_dlpack(given)
    assert bk.RegularGrid.around(given, (4, 5, 6)) == expected
    assert bk.Interpolation(given, expected).device == "cuda"
