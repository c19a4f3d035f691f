"""Block methods: right-hand sides that share a space, each with a result of its own."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg as spla
from dense_oracle import DTYPES, random_array

import batchkron as bk
from batchkron.solvers import Status, block_cg, block_gmres, cg, gmres

METHODS = [block_cg, block_gmres]
ALONE = {block_cg: cg, block_gmres: gmres}


def matrix(rng, method, values, dtype=np.float64):
    """A matrix of given eigenvalues: Hermitian for block_cg, nonnormal for block_gmres."""
    size = len(values)
    columns = np.linalg.qr(random_array(rng, (size, size), np.result_type(dtype, "f8")))[0]
    middle = np.diag(values).astype(columns.dtype)
    if method is block_gmres:
        middle += np.triu(random_array(rng, (size, size), columns.dtype), 1) * min(values) / size
    return (columns @ middle @ columns.conj().T).astype(dtype)


def clustered(size, small=4):
    return np.concatenate([np.geomspace(1e-4, 1e-3, small), np.linspace(1.0, 2.0, size - small)])


def check(A, b, result, rtol):
    assert result.converged, result
    assert result.x.shape == b.shape
    norms = np.linalg.norm(b - A @ result.x, axis=0)
    assert (norms <= 2 * rtol * np.linalg.norm(b, axis=0)).all()
    assert result.residual_norms.shape == (result.iterations.max(initial=0) + 1, b.shape[1])
    counts = np.isfinite(result.residual_norms).sum(axis=0)
    np.testing.assert_array_equal(counts, result.iterations + 1)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("preconditioned", [False, True])
def test_solves(rng, method, dtype, preconditioned):
    A = matrix(rng, method, np.linspace(1, 30, 60), dtype)
    b = random_array(rng, (60, 5), dtype)
    b[:, 3] *= 1e4
    b[:, 4] = 0
    M = np.linalg.inv(A + 0.5 * np.eye(60)).astype(dtype) if preconditioned else None
    if preconditioned and method is block_cg:
        M = ((M + M.conj().T) / 2).astype(dtype)
    rtol = 1e-3 if np.finfo(dtype).eps > 1e-10 else 1e-9
    result = method(A, b, M=M, rtol=rtol)
    assert result.x.dtype == dtype
    check(A, b, result, rtol)
    assert result.iterations[4] == 0
    if preconditioned:
        assert result.iterations.max() < method(A, b, rtol=rtol).iterations.max()
        assert result.preconditioner_applications > 0
    guess = random_array(rng, b.shape, dtype)
    check(A, b, method(A, b, guess, rtol=rtol), rtol)
    check(A, b, method(A, b, "Mb", M=M, rtol=rtol), rtol)


@pytest.mark.parametrize("method", METHODS)
def test_a_shared_space_saves_applications(rng, method):
    A, b = matrix(rng, method, clustered(200)), rng.standard_normal((200, 4))
    together = method(A, b, rtol=1e-8)
    alone = ALONE[method](A, b, rtol=1e-8, batched="columns")
    check(A, b, together, 1e-8)
    assert alone.converged
    assert together.applications < 0.75 * alone.applications


@pytest.mark.parametrize("method", METHODS)
def test_one_column_goes_as_alone(rng, method):
    A, b = matrix(rng, method, np.linspace(1, 20, 50)), rng.standard_normal((50, 1))
    one, alone = method(A, b, rtol=1e-9), ALONE[method](A, b, rtol=1e-9, batched="columns")
    np.testing.assert_array_equal(one.iterations, alone.iterations)
    few = one.iterations[0] // 2
    np.testing.assert_allclose(one.residual_norms[:few], alone.residual_norms[:few], rtol=1e-6)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_dependent_columns(rng, method, dtype):
    A, b = matrix(rng, method, np.linspace(1, 50, 80), dtype), random_array(rng, (80, 6), dtype)
    b[:, 2] = b[:, 0] - 3 * b[:, 1]
    b[:, 3] = b[:, 0]
    b[:, 4] = b[:, 1] * (1 + np.finfo(dtype).eps)
    widths = []

    def product(x):
        widths.append(x.shape[1])
        return A @ x

    op = spla.LinearOperator(A.shape, matvec=lambda x: A @ x, matmat=product, dtype=A.dtype)
    rtol = 1e-3 if dtype == "float32" else 1e-10
    result = method(op, b, rtol=rtol)
    check(A, b, result, rtol)
    assert widths[0] == 3
    assert widths.count(6) == result.restarts.max() + 1  # the true residuals
    assert all(width in (1, 2, 3, 6) for width in widths)


@pytest.mark.parametrize("method", METHODS)
def test_columns_that_become_dependent(rng, method):
    """Three columns in a space of four dimensions: the second block cannot be three wide."""
    values = np.repeat([1.0, 3.0, 9.0], 10)
    columns = np.linalg.qr(rng.standard_normal((30, 30)))[0]
    A = (columns * values) @ columns.T
    b = columns[:, [0, 10, 20, 1]] @ rng.standard_normal((4, 3))
    check(A, b, method(A, b, rtol=1e-11), 1e-11)
    wide = rng.standard_normal((6, 11))  # more columns than unknowns
    B = matrix(rng, method, np.linspace(1, 5, 6))
    check(B, wide, method(B, wide, rtol=1e-11), 1e-11)


@pytest.mark.parametrize("method", METHODS)
def test_columns_end_by_themselves(rng, method):
    values = np.linspace(1, 400, 100)
    columns = np.linalg.qr(rng.standard_normal((100, 100)))[0]
    A = (columns * values) @ columns.T
    b = np.stack([columns[:, 7], rng.standard_normal(100), np.full(100, np.nan)], axis=1)
    options = {"restart": 60} if method is block_gmres else {}
    result = method(A, b, rtol=1e-8, **options)
    assert list(result.statuses) == [Status.CONVERGED, Status.CONVERGED, Status.NOT_FINITE]
    assert result.status is Status.NOT_FINITE
    assert result.iterations[0] < result.iterations[1]
    assert result.iterations[2] == 0
    np.testing.assert_allclose(result.x[:, 0], columns[:, 7] / values[7], atol=1e-8)


@pytest.mark.parametrize("method", METHODS)
def test_statuses(rng, method):
    ones = np.stack([np.ones(3), np.arange(1.0, 4.0)], axis=1)
    singular = np.diag([1.0, 2.0, 0.0])
    assert list(method(singular, ones).statuses) == [Status.BREAKDOWN] * 2
    consistent = ones * [[1.0], [1.0], [0.0]]
    assert method(singular, consistent, rtol=1e-10).converged
    A, b = matrix(rng, method, np.linspace(1, 1e3, 80)), rng.standard_normal((80, 2))
    few = method(A, b, rtol=1e-10, maxiter=1, **({"restart": 3} if method is block_gmres else {}))
    assert few.status is Status.MAX_ITERATIONS
    assert few.info == (3 if method is block_gmres else 1)
    assert method(A, b, maxiter=0).status is Status.MAX_ITERATIONS
    with pytest.raises(RuntimeError, match="2 of 2 systems stopped with status"):
        method(A, b, rtol=1e-10, maxiter=1, raise_on_failure=True)
    low = method(A, b, rtol=1e-17)
    assert low.status in (Status.STAGNATED, Status.MAX_ITERATIONS)
    assert (low.residual_norm < 1e-10 * np.linalg.norm(b, axis=0)).all()
    with np.errstate(all="ignore"):
        huge = method(A * 1e307, b * 1e10, rtol=1e-8)
    assert huge.converged or huge.status is Status.NOT_FINITE


@pytest.mark.parametrize("count", [1, 2])
def test_a_singular_operator_leaves_a_bounded_solution(count):
    """The rest of b is outside A's range: A times it is rounding, not a search direction."""
    b = np.ones((3, count))
    b[0] += np.arange(count)
    result = block_gmres(np.diag([1.0, 1.0, 0.0]), b)
    assert not result.converged
    assert np.abs(result.x).max() < 10
    assert (result.residual_norm <= np.linalg.norm(b, axis=0)).all()


@pytest.mark.parametrize("method", METHODS)
def test_a_preconditioner_that_is_not_finite(method):
    result = method(np.diag(np.arange(1.0, 51.0)), np.ones((50, 2)), M=np.full((50, 50), np.nan))
    assert result.status is Status.NOT_FINITE


def test_block_cg_ends_with_a_status_whatever_rounding_does():
    """Ill-conditioned matrices in float32, and columns that are nearly equal."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        size, count = rng.integers(2, 8), rng.integers(2, 9)
        A = matrix(rng, block_cg, np.geomspace(1, 1e-8, size), np.float32)
        noise = 10.0 ** -rng.integers(3, 9, count) * rng.standard_normal((size, count))
        b = (rng.standard_normal((size, 1)) + noise).astype(np.float32)
        result = block_cg(A, b, rtol=1e-3)
        assert all(isinstance(status, Status) for status in result.statuses)


def test_block_cg_finds_indefinite_operators(rng):
    b = rng.standard_normal((4, 2))
    assert block_cg(np.diag([1.0, 2.0, -3.0, 4.0]), b).status is Status.INDEFINITE
    M = np.diag([1.0, 1.0, -1.0, 1.0])
    assert block_cg(np.eye(4), b, M=M).status is Status.INDEFINITE
    assert block_gmres(np.diag([1.0, 2.0, -3.0, 4.0]), b, rtol=1e-9).converged


@pytest.mark.parametrize("method", METHODS)
def test_forms_of_the_operator_and_no_columns(rng, method):
    factors = [np.diag([2.0, 3.0, 4.0]) + 0.1, np.diag([1.0, 5.0])]
    ours, b = bk.KroneckerSum(factors), rng.standard_normal((6, 3))
    dense = ours.to_dense()
    for A in (ours, dense, scipy.sparse.csr_array(dense), spla.aslinearoperator(dense)):
        check(dense, b, method(A, b, rtol=1e-10), 1e-10)
    empty = method(ours, np.empty((6, 0)))
    assert empty.converged
    assert empty.x.shape == (6, 0)


@pytest.mark.parametrize("method", METHODS)
def test_wrong_arguments(method):
    with pytest.raises(ValueError, match=r"b has shape \(3,\); expected \(N, K\)"):
        method(np.eye(3), np.ones(3))
    with pytest.raises(ValueError, match="A is a batch of operators"):
        method(np.ones((2, 3, 3)), np.ones((3, 2)))
    with pytest.raises(ValueError, match="A is a batch of operators"):
        method(bk.KroneckerSum([np.ones((2, 3, 3))]), np.ones((3, 2)))
    with pytest.raises(ValueError, match=r"rtol is -1"):
        method(np.eye(3), np.ones((3, 2)), rtol=-1)
    with pytest.raises(ValueError, match="A has shape"):
        method(np.eye(4), np.ones((3, 2)))
    with pytest.raises(TypeError, match=r"maxiter is 1\.5"):
        method(np.eye(3), np.ones((3, 2)), maxiter=1.5)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("preconditioned", [False, True])
def test_storage(rng, method, preconditioned):
    size, count, restart = 30_000, 4, 6
    diagonal = np.linspace(1.0, 3.0, size)

    class Diagonal:
        shape, dtype = (size, size), np.dtype(np.float64)

        def apply(self, x, out=None):
            return np.multiply(diagonal, x, out=out)

    options = {"restart": restart} if method is block_gmres else {}
    maximum = restart + 10 if method is block_gmres else 10 + preconditioned
    b, M = rng.standard_normal((size, count)), Diagonal() if preconditioned else None
    method(Diagonal(), b, M=M, rtol=1e-4, **options)
    tracemalloc.start()
    assert method(Diagonal(), b, M=M, rtol=1e-4, **options).converged
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak / b.nbytes < maximum + 0.5
