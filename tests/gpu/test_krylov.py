"""Krylov methods with everything on the device, against those on the CPU."""

import numpy as np
import pytest

import batchkron as bk
from batchkron.solvers import (
    Bicgstab,
    Cg,
    Fgmres,
    Gmres,
    Minres,
    Status,
    bicgstab,
    block_cg,
    block_gmres,
    cg,
    fgmres,
    gmres,
    minres,
)

pytestmark = pytest.mark.gpu

METHODS = [cg, minres, bicgstab, gmres, fgmres]
LARGE = (6, 7, 4, 8, 8)  # 10 752 unknowns: several thread blocks for one system


def laplacian(sizes, dtype=np.float64, shift=0.0):
    """A Kronecker sum of second differences; Hermitian, of condition below 100 with the shift."""
    factors = []
    for n in sizes:
        factor = np.diag(np.full(n, 2.0 + shift)) - np.eye(n, k=1) - np.eye(n, k=-1)
        factors.append(factor.astype(dtype))
    if np.dtype(dtype).kind == "c":
        factors[0] += 0.5j * (np.eye(sizes[0], k=1) - np.eye(sizes[0], k=-1))
    return bk.KroneckerSum(factors)


def vectors(rng, shape, dtype):
    b = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        b = b + 1j * rng.standard_normal(shape)
    return b.astype(dtype)


def check(op, b, result, expected, rtol):
    assert result.statuses == expected.statuses if result.statuses is None else True
    assert result.status is expected.status is Status.CONVERGED
    assert np.abs(np.asarray(result.iterations) - expected.iterations).max() <= 2
    x = result.x.get()
    residual = np.linalg.norm(b - op.apply(x), axis=-1)
    assert (residual <= 2 * rtol * np.linalg.norm(b, axis=-1)).all()
    rounded = 10 * np.finfo(b.dtype).eps * np.linalg.norm(b)
    np.testing.assert_allclose(
        np.linalg.norm(residual), np.linalg.norm(result.residual_norm), rtol=0.2, atol=rounded
    )


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("given", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("sizes", [(5,), (6, 6), LARGE], ids=str)
def test_methods_equal_those_on_the_cpu(cupy, rng, method, given, sizes):
    op = laplacian(sizes, given, 0.3)
    b = vectors(rng, np.prod(sizes), given)
    rtol = 1e-4 if given in ("float32", "complex64") else 1e-8
    expected = method(op, b, rtol=rtol)
    result = method(op.to("cuda"), cupy.asarray(b), rtol=rtol)
    check(op, b, result, expected, rtol)
    shared = min(len(result.residual_norms), len(expected.residual_norms)) // 2
    np.testing.assert_allclose(
        result.residual_norms[:shared], expected.residual_norms[:shared], rtol=0.01
    )


@pytest.mark.parametrize("method", METHODS)
def test_batches_equal_those_on_the_cpu(cupy, rng, method):
    pool = np.stack([laplacian((3,), shift=s).to_dense() for s in (0.1, 1.0, 3.0, 9.0)])
    pools = np.stack([pool, np.broadcast_to(np.eye(3), pool.shape)], axis=1)
    op = bk.BatchedKron(pools, [[0, 1], [1, 0]], [0, 0], [0, 0])
    assert op.batch_shape == (4,)
    b = rng.standard_normal((4, 9))
    b[2] = 0
    expected = method(op, b, rtol=1e-9, batched="leading")
    result = method(op.to("cuda"), cupy.asarray(b), rtol=1e-9, batched="leading")
    assert result.converged
    assert expected.converged
    np.testing.assert_array_equal(result.iterations, expected.iterations)
    np.testing.assert_allclose(result.x.get(), expected.x, atol=1e-8)


@pytest.mark.parametrize("preconditioned", [False, True])
@pytest.mark.parametrize("workspace", [Cg, Minres, Bicgstab, Gmres, Fgmres])
def test_graphs_are_replayed(cupy, rng, workspace, preconditioned):
    op = laplacian((9, 9))
    M = bk.KroneckerProduct([np.eye(9), np.diag(np.linspace(0.2, 0.4, 9))])
    device, device_m = op.to("cuda"), M.to("cuda")
    options = {"restart": 40} if workspace in (Gmres, Fgmres) else {}
    given = {"M": device_m} if preconditioned else {}
    solver = workspace(device, **given, **options)
    for _ in range(8):
        b = rng.standard_normal(81)
        result = solver(cupy.asarray(b), rtol=1e-9)
        assert result.converged
        assert result.iterations > 16
        assert result.applications >= result.iterations
        np.testing.assert_allclose(op @ result.x.get(), b, atol=1e-7)
        assert len(result.residual_norms) == result.iterations + 1
    assert solver._recorder._graphs


def test_a_short_solve_makes_no_graph(cupy, rng):
    """One takes as long to make as many iterations."""
    op, b = laplacian((9, 9)), rng.standard_normal(81)
    solver = Cg(op.to("cuda"))
    result = solver(cupy.asarray(b), rtol=1e-9)
    assert result.converged
    assert not solver._recorder._graphs


def test_a_device_is_asked_seldom(cupy, rng, monkeypatch):
    op = laplacian((9, 9)).to("cuda")
    solver = Cg(op)
    b = cupy.asarray(rng.standard_normal(81))
    solver(b, rtol=1e-10)
    asked, original = [], cupy.asnumpy
    monkeypatch.setattr(cupy, "asnumpy", lambda array: asked.append(1) or original(array))
    result = solver(b, rtol=1e-10)
    assert result.iterations >= 24
    assert 0 < len(asked) < 5 + result.iterations / 4


def test_statuses_on_the_device(cupy):
    singular = cupy.asarray(np.diag([1.0, 2.0, 0.0]))
    assert gmres(singular, cupy.ones(3)).status is Status.BREAKDOWN
    assert cg(cupy.asarray(np.diag([1.0, -2.0])), cupy.ones(2)).status is Status.INDEFINITE
    assert minres(singular, cupy.ones(3)).status is Status.BREAKDOWN
    bad = cupy.asarray([1.0, np.nan])
    assert bicgstab(cupy.asarray(np.eye(2)), bad).status is Status.NOT_FINITE
    few = cg(laplacian((9, 9)).to("cuda"), cupy.ones(81), maxiter=3, rtol=1e-12)
    assert (few.status, few.iterations) == (Status.MAX_ITERATIONS, 3)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("size", [90, 20_000])
def test_operators_of_others(cupy, rng, method, size):
    """Their products are read where they are, if they are plain arrays, else copied."""
    entries, b = np.linspace(1.0, 9.0, size), rng.standard_normal(size)
    on_device, made = cupy.asarray(entries), []

    class Function:
        shape, dtype = (size, size), np.dtype(np.float64)

        def matvec(self, x):
            product = on_device * x
            made.append(product)
            return product if len(made) % 3 else product.reshape(1, size)

    result = method(Function(), cupy.asarray(b), rtol=1e-9)
    assert result.converged
    assert result.applications == len(made)
    np.testing.assert_allclose(result.x.get(), b / entries, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("method", [block_cg, block_gmres])
@pytest.mark.parametrize("preconditioned", [False, True])
def test_block_methods_equal_those_on_the_cpu(cupy, rng, method, preconditioned):
    op = laplacian((6, 6), shift=0.3)
    M = bk.KroneckerProduct([np.eye(6), np.diag(np.linspace(0.2, 0.4, 6))])
    b = rng.standard_normal((36, 4))
    b[:, 3] = b[:, 0] - b[:, 1]
    host = {"M": M} if preconditioned else {}
    device = {"M": M.to("cuda")} if preconditioned else {}
    expected = method(op, b, rtol=1e-9, **host)
    result = method(op.to("cuda"), cupy.asarray(b), rtol=1e-9, **device)
    assert result.converged
    assert np.abs(result.iterations - expected.iterations).max() <= 1
    np.testing.assert_allclose(result.x.get(), expected.x, atol=1e-7)
