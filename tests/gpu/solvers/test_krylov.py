"""Krylov methods with everything on the device, against those on the CPU."""

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from dense_oracle import random_array

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
from batchkron.solvers.krylov.iteration import workspace_cache as kept_solvers

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
    b = random_array(rng, np.prod(sizes), given)
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
    assert solver._recordings.recorder._graphs


def test_a_short_solve_makes_no_graph(cupy, rng):
    """To make a graph takes as long as many iterations."""
    op, b = laplacian((9, 9)), rng.standard_normal(81)
    solver = Cg(op.to("cuda"))
    result = solver(cupy.asarray(b), rtol=1e-9)
    assert result.converged
    assert not solver._recordings.recorder._graphs


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


@pytest.mark.parametrize("method", METHODS)
def test_iterates_on_the_device_are_never_worse_than_the_first(cupy, rng, method):
    indefinite = np.diag(np.concatenate([np.linspace(-3.0, -0.01, 7), np.linspace(0.02, 9.0, 13)]))
    A = np.stack([indefinite, np.diag(np.arange(20.0)), np.diag(np.linspace(1.0, 2.0, 20))])
    b, x0 = rng.standard_normal((2, 3, 20))
    result = method(cupy.asarray(A), cupy.asarray(b), cupy.asarray(x0), batched="leading")
    first = np.linalg.norm(b - (A @ x0[..., None])[..., 0], axis=1)
    true = np.linalg.norm(b - (A @ result.x.get()[..., None])[..., 0], axis=1)
    assert (true <= first * (1 + 1e-14)).all()
    np.testing.assert_allclose(result.residual_norm, true, rtol=1e-6, atol=1e-12)
    assert result.statuses[2] is Status.CONVERGED


def test_statuses_on_the_device(cupy):
    singular = cupy.asarray(np.diag([1.0, 2.0, 0.0]))
    assert gmres(singular, cupy.ones(3)).status is Status.BREAKDOWN
    assert cg(cupy.asarray(np.diag([1.0, -2.0])), cupy.ones(2)).status is Status.INDEFINITE
    least = minres(singular, cupy.ones(3))
    assert least.status is Status.LEAST_SQUARES
    assert least.residual_norm == pytest.approx(1.0)
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


@pytest.mark.parametrize("method", METHODS)
def test_functions_keep_a_workspace(cupy, rng, kept, method):
    op = laplacian((6, 6), shift=0.3)
    device, others = op.to("cuda"), []
    for _ in range(14):  # of GMRES, the number of iterations that are a graph is learned
        b = rng.standard_normal(36)
        given = cupy.asarray(b)
        result = method(device, given, rtol=1e-9)
        np.testing.assert_allclose(op @ result.x.get(), b, atol=1e-7)
        others.append((result.x, result.x.get(), result.residual_norms.copy(), result))
    for x, before, norms, result in others:  # later calls change nothing
        np.testing.assert_array_equal(x.get(), before)
        np.testing.assert_array_equal(result.residual_norms, norms)
    assert len(kept) == 1
    solver = next(iter(kept.values()))[0]
    assert solver._recordings.recorder._graphs
    recursion = solver._recursion
    here = {id(array) for passes in (recursion.start, recursion.decide) for array in passes._arrays}
    assert id(given) not in here


def test_graphs_belong_to_one_operator(cupy, rng, kept):
    b = rng.standard_normal(36)
    for shift in (0.1, 5.0, 0.2):
        op = laplacian((6, 6), shift=shift)
        device = op.to("cuda")
        for _ in range(6):
            result = cg(device, cupy.asarray(b), rtol=1e-9)
            np.testing.assert_allclose(op @ result.x.get(), b, atol=1e-7)
    gone = weakref.ref(device)
    del op, device
    gc.collect()
    assert gone() is None
    assert len(kept) == 1


@pytest.mark.parametrize("method", [cg, gmres])
def test_updates_are_seen(cupy, rng, kept, method):
    """Also those that move values to other memory, which a graph would not see."""
    eye, first = np.eye(6), laplacian((6,), shift=1.0).to_dense()
    pool = np.stack([first, eye])
    op = bk.BatchedKron([pool, pool], [[0, 1], [1, 0]], [0, 0], [0, 0])
    device, b = op.to("cuda"), rng.standard_normal(36)
    pools = [pool, pool], [pool, np.stack([3 * first, eye])], [np.stack([2 * first, eye]), pool]
    for new in pools:
        device.update(new)
        expected = method(op, b, rtol=1e-9)
        for _ in range(7):
            result = method(device, cupy.asarray(b), rtol=1e-9)
            assert result.converged
            assert abs(result.iterations - expected.iterations) <= 2
            np.testing.assert_allclose(op.to_dense() @ result.x.get(), b, atol=1e-7)


def test_what_is_kept_is_bounded(cupy, rng, kept, monkeypatch):
    for size in range(2, 14):
        assert cg(cupy.asarray(np.eye(size)), cupy.ones(size)).converged
    assert [solver.size for solver, _ in kept.values()] == list(range(6, 14))
    monkeypatch.setattr(kept_solvers, "_MAX_CACHE_BYTES", 3 * next(iter(kept.values()))[0].nbytes)
    cg(cupy.asarray(np.eye(6)), cupy.ones(6))
    assert [solver.size for solver, _ in kept.values()] == [13, 6]
    monkeypatch.setattr(kept_solvers, "_MAX_CACHE_BYTES", 100)
    cg(cupy.asarray(np.eye(20)), cupy.ones(20))
    assert 20 not in [solver.size for solver, _ in kept.values()]


def test_a_solver_belongs_to_one_call(cupy, rng, kept):
    """A callback may keep the iterate; a preconditioner may call the same method."""
    seen = []
    A, b = cupy.asarray(np.diag(np.arange(1.0, 13.0))), cupy.asarray(rng.standard_normal(12))
    cg(A, b, callback=seen.append)
    assert not kept
    assert seen

    class Inner:
        shape, dtype = (12, 12), np.dtype(np.float64)

        def matvec(self, x):
            return fgmres(A, x, M=cupy.asarray(np.eye(12)), rtol=1e-3).x

    for _ in range(2):
        result = fgmres(A, b, M=Inner(), rtol=1e-10)
        assert result.converged
        np.testing.assert_allclose(result.x.get(), b.get() / np.arange(1.0, 13.0), rtol=1e-8)
    with pytest.raises(RuntimeError, match="stopped with status"):
        fgmres(A, b, M=Inner(), maxiter=1, restart=1, rtol=1e-15, raise_on_failure=True)
    assert fgmres(A, b, M=Inner(), rtol=1e-10).converged


def test_threads_and_streams_have_their_own(cupy, rng, kept):
    A, b = cupy.asarray(np.diag(np.arange(1.0, 13.0))), cupy.asarray(rng.standard_normal(12))
    cg(A, b)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(lambda: (cg(A, b).x.get(), len(kept_solvers._cache.entries))).result()
    np.testing.assert_array_equal(other[0], cg(A, b).x.get())
    assert other[1] == len(kept) == 1
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        np.testing.assert_array_equal(cg(A, b).x.get(), other[0])
    assert len(kept) == 2


@pytest.mark.parametrize("workspace", [Cg, Minres, Bicgstab, Gmres])
def test_the_first_look_is_later_after_a_long_solve(cupy, rng, monkeypatch, workspace):
    """After a long solve, norms are read later for the first time; no result changes by that.

    Nor where the next solve is short or ends at maxiter.
    """
    op = laplacian((9, 9))
    solver, device = workspace(81, like=cupy.ones(1)), op.to("cuda")
    b = cupy.asarray(rng.standard_normal(81))
    asked, original = [], cupy.asnumpy
    monkeypatch.setattr(cupy, "asnumpy", lambda array: asked.append(1) or original(array))
    looks = []
    for k in range(9):
        del asked[:]
        result = solver.solve(device, b, rtol=1e-9)
        looks.append(len(asked))
        if k == 0:
            first = result
        assert (result.iterations, result.applications > 16) == (first.iterations, True)
        np.testing.assert_array_equal(result.residual_norms, first.residual_norms)
    assert looks[-1] < looks[0]
    short = solver.solve(device, b, rtol=0.5)
    assert short.iterations < 8
    norms = short.residual_norms
    np.testing.assert_array_equal(norms[:-1], first.residual_norms[: len(norms) - 1])
    few = Cg(81, like=b) if workspace is Gmres else solver
    assert few.solve(device, b, rtol=1e-12, maxiter=5).iterations == 5
