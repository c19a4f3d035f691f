"""Interpolation and InterpolatedKronecker, also with Toeplitz factors."""

import cupy
import numpy as np
import pytest
from dense_oracle import DTYPES, random_array
from fake_cupy.arrays import Array

import batchkron as bk
from batchkron.backends.cuda.runtime import device as device_runtime
from fake_device_checks import DEVICE
from fake_device_checks.common import close, on_device


def interpolated_problem(rng, sizes, dtype, columns=False):
    grid = bk.RegularGrid(0.0, np.arange(1.0, len(sizes) + 1), sizes)
    points = rng.uniform(grid.lower, grid.upper, (23, len(sizes)))
    shapes = [(n,) if columns and k % 2 == 0 else (n, n) for k, n in enumerate(sizes)]
    factors = [random_array(rng, shape, dtype) for shape in shapes]
    for factor in factors:
        if factor.ndim == 1:
            factor[0] = factor[0].real
    return points, grid, factors


def interpolated():
    """InterpolatedKronecker on a device: products, transposes, sums, updates, few launches."""
    rng = np.random.default_rng(0)
    for dtype in DTYPES:
        for cells in ((4,), (6, 4, 5)):
            interpolated_products(rng, cells, dtype)
    points, grid, factors = interpolated_problem(rng, (5, 6), "float64")
    on_host = bk.InterpolatedKronecker(points, grid, factors, noise=0.5)
    x = rng.standard_normal((3, 23))
    mixed = bk.InterpolatedKronecker(points, grid, on_device(factors), noise=0.5)
    assert (mixed.device, mixed.interpolation.device) == ("cuda", "cuda")
    close(mixed.apply(cupy.asarray(x)), on_host.apply(x))
    none = bk.InterpolatedKronecker(points[:0], grid, factors, noise=0.5).to("cuda")
    assert none.apply(cupy.asarray(x[:, :0])).shape == (3, 0)
    cells = none.interpolation.T.apply(cupy.asarray(x[:, :0]))
    np.testing.assert_array_equal(cells.get(), np.zeros((3, 30)))
    others = on_host.to("cuda").cross(points[:5])
    close(others.apply(cupy.asarray(x)), on_host.cross(points[:5]).apply(x))
    interpolated_with_less_memory(rng)


def points_on_the_device():
    """Points on a device: plans have the bits of those of the host's points; few waits."""
    rng = np.random.default_rng(3)
    cases = [
        ((4,), 23),
        ((5, 6), 300),
        ((6, 4, 5), 23),
        ((4, 5, 4, 4), 7),
        ((5, 8), 0),
        ((4, 4), 1),
    ]
    for sizes, count in cases:
        for dtype in ("float32", "float64", "complex64"):
            for owners in (False, True):
                planned_on_the_device(rng, sizes, count, dtype, owners)
    outside = cupy.asarray(np.array([[0.5, 0.5], [0.5, 1.5]]))
    with pytest.raises(ValueError, match=r"points\[1, 1\] is 1.5; expected 0.0 to 1.0"):
        bk.Interpolation(outside, bk.RegularGrid(0.0, 1.0, (4, 5)))


def planned_on_the_device(rng, sizes, count, dtype, owners):
    from batchkron.backends.cuda.interpolated import segments

    grid = bk.RegularGrid(-1.0, 2.0, sizes)
    points = rng.uniform(-1.0, 2.0, (count, len(sizes)))
    points[: count // 3] = points[: count // 3].round(1)  # some windows have several points
    points = points.astype("float32" if dtype == "complex64" else dtype)
    known = segments._MAX_PARTIAL
    segments._MAX_PARTIAL = -1 if owners else known
    host = bk.Interpolation(points, grid, dtype)
    expected = host.to("cuda")
    with Waits() as waits:
        found = bk.Interpolation(cupy.asarray(points), grid, dtype)
    assert waits.names == ["any", "max"]  # whether points are outside; how full cells are
    assert found.device == "cuda"
    same_plans(found, expected)
    np.testing.assert_array_equal(found.points, points)
    assert found.points is found.points
    assert not found.points.flags.writeable
    on_host = found.to("cpu")
    assert (on_host.device, on_host.to("cuda")) == ("cpu", found)
    x = random_array(rng, (2, grid_cells(sizes)), dtype)
    close_or_empty(found.apply(cupy.asarray(x)), on_host.apply(x))
    others = rng.uniform(-1.0, 2.0, points.shape)
    with Waits() as waits:
        found.update(cupy.asarray(others))
    assert waits.names.count("get") == 1  # for the operator on the host
    host.update(others)
    same_plans(found, expected)
    np.testing.assert_array_equal(on_host.points, others)
    close_or_empty(found.apply(cupy.asarray(x)), on_host.apply(x))
    factors = [random_array(rng, (n, n), dtype) for n in sizes]
    given = cupy.asarray(random_array(rng, (3, count), dtype))
    both = [
        bk.InterpolatedKronecker(where(others), grid, factors, noise=0.5)
        for where in (cupy.asarray, np.asarray)
    ]
    for one, other in ((both[0], both[1].to("cuda")), (both[0].H, both[1].to("cuda").H)):
        np.testing.assert_array_equal(one.apply(given).get(), other.apply(given).get())
    close_or_empty(both[0].diagonal(), both[1].diagonal())
    some = points[: count // 2]
    across = [one.cross(on(some)) for one, on in zip(both, (cupy.asarray, np.asarray), strict=True)]
    close_or_empty(across[0].apply(given), across[1].apply(given.get()))
    segments._MAX_PARTIAL = known


def grid_cells(sizes):
    return int(np.prod(sizes))


def close_or_empty(found, expected):
    assert found.shape == expected.shape
    if expected.size:
        close(found, expected)


def same_plans(found, expected):
    """All arrays that kernels read have the same bits, and the same kernels are chosen."""
    for one, other in (
        (found.plan._back, expected.plan._back),
        (found.plan._there, expected.plan._there),
    ):
        assert one._names == other._names
        assert getattr(one, "_deepest", 0) == getattr(other, "_deepest", 0)
        for array, known in zip(one._arrays, other._arrays, strict=True):
            assert array.dtype == known.dtype
            assert array.get().tobytes() == known.get().tobytes()


class Waits:
    """The functions that were called on arrays of the device for which the host has to wait."""

    def __enter__(self):
        self.names, self._found = [], (Array.__getattr__, Array.get)
        names, (attribute, get) = self.names, self._found

        def noted(array, name):
            if name in ("any", "all", "max", "min", "tolist", "item", "nonzero"):
                names.append(name)
            return attribute(array, name)

        Array.__getattr__ = noted
        Array.get = lambda array: [names.append("get"), get(array)][1]
        return self

    def __exit__(self, *error):
        Array.__getattr__, Array.get = self._found


def grids_around_points():
    """The least and the largest coordinates are copied to the host, not the points."""
    points = np.random.default_rng(2).standard_normal((50, 3))
    given = cupy.asarray(points)

    def no_copy(*values, **options):
        raise AssertionError("all points are copied")

    cupy.asnumpy = given.get = no_copy
    found = bk.RegularGrid.around(given, (4, 5, 6))
    assert found == bk.RegularGrid(points.min(axis=0), points.max(axis=0), (4, 5, 6))


def interpolated_with_less_memory(rng):
    """Wᵀ of some vectors at a time, and by the owners of cells."""
    from batchkron.backends.cuda.interpolated import segments

    points, grid, _ = interpolated_problem(rng, (5, 6), "float64")
    host, x = bk.Interpolation(points, grid), rng.standard_normal((23, 8))
    known = segments._MAX_PARTIAL
    *_, spans = segments.segment_bounds((5, 6), 23, segments.DeviceLimits(0, 132))
    kinds = {}
    for vectors in (8, 2, 0):
        segments._MAX_PARTIAL = vectors * spans * 4 * 8
        W = bk.Interpolation(points, grid).to("cuda")
        before = len(DEVICE.launches)
        close(W.T.matmat(cupy.asarray(x)), host.T.matmat(x))
        kinds[vectors] = [kernel.kind for kernel, _ in DEVICE.launches[before:]]
    segments._MAX_PARTIAL = known
    both = ["segments", "cells"]
    assert kinds == {8: both, 2: both * 4, 0: ["scatter"]}


def interpolated_products(rng, sizes, dtype):
    points, grid, factors = interpolated_problem(rng, sizes, dtype, columns=len(sizes) > 2)
    host = bk.InterpolatedKronecker(points, grid, factors, noise=rng.random(23))
    op = host.to("cuda")
    assert op.to("cpu") is host
    W, w = op.interpolation, host.interpolation
    for batch in (1, 3, 17):
        x, y = (random_array(rng, (batch, 23), dtype) for _ in range(2))
        given, target = cupy.asarray(x), cupy.asarray(np.full((batch, 23), np.nan, dtype))
        assert op.apply(given, target) is target
        close(target, host.apply(x))
        close(op.T.apply(given), host.T.apply(x))
        close(op.H.matmat(cupy.asarray(x.T.copy())), host.H.matmat(x.T.copy()))
        added = cupy.asarray(y)
        for alpha in (1, -0.5, 2 - 1j) if np.dtype(dtype).kind == "c" else (1, -0.5):
            op.accumulate(given, added, alpha=alpha)
            host.accumulate(x, y, alpha=alpha)
            close(added, y)
        real = random_array(rng, (batch, 23), w.dtype)
        close(W.T.apply(cupy.asarray(real)), w.T.apply(real))
        added, y = (random_array(rng, (batch, w.shape[1]), w.dtype) for _ in range(2))
        target = cupy.asarray(y.copy())
        W.T.accumulate(cupy.asarray(real), target, alpha=-2)
        close(target, w.T.accumulate(real, y, alpha=-2))
        close(W.apply(target), w.apply(y))
    close(op.diagonal(), host.diagonal())
    close((op + 2 * op).apply(given), 3 * host.apply(x))
    again = interpolated_problem(rng, sizes, dtype)
    plan = op.interpolation.plan
    plans = plan._there, plan._back
    arrays = [array.data.ptr for one in plans for array in one._arrays]
    op.update(points=again[0], factors=again[2], noise=0.25)
    close(op.apply(given), host.apply(x))
    close(op.T.apply(given), host.T.apply(x))
    assert [array.data.ptr for one in plans for array in one._arrays] == arrays
    DEVICE.stream.capturing = 1
    before = len(DEVICE.launches)
    op.apply(given, target := cupy.asarray(x.copy()))
    DEVICE.stream.capturing = 0
    close(target, host.apply(x))
    kinds = [getattr(kernel, "kind", "kron") for kernel, _ in DEVICE.launches[before:]]
    shares = 3 if np.dtype(dtype).kind == "c" else 2  # of 17 vectors, 16 real ones at a time
    assert kinds.count("segments") == kinds.count("cells") == kinds.count("gather") == shares
    assert kinds.count("fold") == (shares if len(sizes) > 1 else 0)  # 23 points are few
    assert kinds[-1] == "diagonal"


def transforms():
    """Toeplitz factors by CuPy's transforms."""
    from batchkron.operators.interpolated import grid_product

    grid_product.MIN_DEVICE_FFT_ROWS = 5
    rng = np.random.default_rng(1)
    for dtype in DTYPES:
        points, grid, factors = interpolated_problem(rng, (8, 4, 5), dtype, columns=True)
        host = bk.InterpolatedKronecker(points, grid, factors)
        op = host.to("cuda")
        assert "2 of 3 factors by FFT" in op.describe()
        x = random_array(rng, (5, 23), dtype)
        close(op.apply(cupy.asarray(x)), host.apply(x))
        op.update(factors=[2 * factor for factor in factors])
        close(op.apply(cupy.asarray(x)), host.apply(x))
        for one in (op, 2 * op, op + op, op @ op, op.T):
            assert not one.capturable
        before = device_runtime.moves()
        op.update(factors=[np.eye(n, dtype=dtype) for n in (8, 4, 5)])
        close(op.apply(cupy.asarray(x)), host.apply(x))
        assert device_runtime.moves() > before
        assert (op + op).capturable
        before = device_runtime.moves()
        op.update(factors=[2 * np.eye(n, dtype=dtype) for n in (8, 4, 5)])
        assert device_runtime.moves() == before
        for noise in (0.5, 0.0):
            op.update(noise=noise)
            close(op.apply(cupy.asarray(x)), host.apply(x))
            assert device_runtime.moves() > before
            before = device_runtime.moves()
