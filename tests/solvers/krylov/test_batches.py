"""Many right-hand sides and many systems at once: each as if it were alone."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg as spla
from dense_oracle import DTYPES, random_array
from hypothesis import given, settings
from hypothesis import strategies as st

import batchkron as bk
from batchkron.solvers import (
    Bicgstab,
    Cg,
    Fgmres,
    Gmres,
    Minres,
    Status,
    bicgstab,
    cg,
    fgmres,
    gmres,
    minres,
)

METHODS = [cg, minres, bicgstab, gmres, fgmres]
# vectors that a workspace keeps, without and with M
WORKSPACES = {Cg: (4, 5), Minres: (6, 9), Bicgstab: (6, 7), Gmres: (13, 14), Fgmres: (13, 23)}


def definite(rng, size, dtype=np.float64, condition=30.0):
    """A Hermitian matrix with eigenvalues from 1 to ``condition``."""
    columns = rng.standard_normal((size, size))
    if np.dtype(dtype).kind == "c":
        columns = columns + 1j * rng.standard_normal((size, size))
    orthogonal = np.linalg.qr(columns)[0]
    return ((orthogonal * np.linspace(1, condition, size)) @ orthogonal.conj().T).astype(dtype)


def same(one, many, index):
    """Whether a system in a batch went as it does alone."""
    assert many.statuses[index] is one.status
    assert many.iterations[index] == one.iterations
    assert many.restarts[index] == one.restarts
    history = many.residual_norms[(slice(None), *index)]
    # products of matrices of another shape round differently, which a Krylov space amplifies
    steps = max(1, one.iterations // 2)
    tolerance = 1e4 * np.finfo(one.x.dtype).eps
    np.testing.assert_allclose(history[:steps], one.residual_norms[:steps], rtol=tolerance)
    assert np.isnan(history[one.iterations + 1 :]).all()
    assert np.isfinite(history[: one.iterations + 1]).all()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_columns(method, dtype):
    rng = np.random.default_rng(1)
    A, b = definite(rng, 30, dtype), random_array(rng, (30, 4), dtype)
    b[:, 2] *= 1e3
    b[:, 3] = 0.0
    rtol = 1e-3 if np.finfo(dtype).eps > 1e-10 else 1e-8
    result = method(A, b, rtol=rtol, batched="columns")
    assert result.converged
    assert result.x.shape == b.shape
    assert result.x.dtype == dtype
    assert result.statuses.shape == (4,)
    for k in range(4):
        same(method(A, b[:, k], rtol=rtol), result, (k,))
    assert result.iterations[3] == 0
    residuals = np.linalg.norm(b - A @ result.x, axis=0)
    assert (residuals <= 2 * rtol * np.linalg.norm(b, axis=0)).all()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("leading", [(3,), (2, 3), (1, 1)])
def test_a_matrix_for_each_system(method, leading):
    rng = np.random.default_rng(2)
    b = random_array(rng, (*leading, 17))
    A = np.empty((*leading, 17, 17))
    for k, index in enumerate(np.ndindex(leading)):
        A[index] = definite(rng, 17, condition=2.0 + 20.0 * k)
    x0 = random_array(rng, b.shape)
    result = method(A, b, x0, rtol=1e-9, batched="leading")
    assert result.converged
    assert result.x.shape == b.shape
    for index in np.ndindex(leading):
        same(method(A[index], b[index], x0[index], rtol=1e-9), result, index)
    np.testing.assert_allclose(result.x, np.linalg.solve(A, b[..., None])[..., 0], atol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_an_operator_with_a_batch_shape(method):
    rng = np.random.default_rng(3)
    pool = np.stack([definite(rng, 4, condition=c) for c in (1, 5, 20, 3, 9)])
    pools = np.stack([pool, np.broadcast_to(np.eye(4), pool.shape)], axis=1)
    op = bk.BatchedKron(pools, [[0, 1], [1, 0]], [0, 0], [0, 0])
    b = random_array(rng, (5, 16))
    result = method(op, b, rtol=1e-10, batched="leading")
    assert result.converged
    assert len(set(result.iterations)) > 1
    for k in range(5):
        dense = np.kron(pool[k], np.eye(4)) + np.kron(np.eye(4), pool[k])
        np.testing.assert_allclose(dense @ result.x[k], b[k], atol=1e-8)


@pytest.mark.parametrize("method", METHODS)
def test_preconditioners_of_batches(method):
    rng = np.random.default_rng(4)
    A, b = definite(rng, 20, condition=200.0), random_array(rng, (20, 3))
    M = np.linalg.inv(A + 0.3 * np.eye(20))
    plain = method(A, b, rtol=1e-8, batched="columns")
    better = method(A, b, rtol=1e-8, M=M, batched="columns")
    assert better.converged
    assert (better.iterations < plain.iterations).all()
    assert better.preconditioner_applications < plain.applications


@pytest.mark.parametrize("form", ["array", "sparse", "LinearOperator", "ours", "matvec"])
def test_forms_of_the_operator(form):
    rng = np.random.default_rng(5)
    A, b = definite(rng, 12), random_array(rng, (12, 3))

    class WithMatvec:
        shape, dtype = A.shape, A.dtype

        def matvec(self, x):
            return A @ x

    forms = {
        "array": A,
        "sparse": scipy.sparse.csr_array(A),
        "LinearOperator": spla.aslinearoperator(A),
        "ours": bk.KroneckerProduct([A]),
        "matvec": WithMatvec(),
    }
    for batched, rhs in (("columns", b), ("leading", np.ascontiguousarray(b.T))):
        result = cg(forms[form], rhs, rtol=1e-11, batched=batched)
        assert result.converged
        x = result.x if batched == "columns" else result.x.T
        np.testing.assert_allclose(A @ x, b, atol=1e-8)
    deeper = random_array(rng, (2, 3, 12))
    M = scipy.sparse.diags_array(1 / A.diagonal()) if form == "sparse" else None
    result = cg(forms[form], deeper, rtol=1e-11, batched="leading", M=M)
    np.testing.assert_allclose(result.x @ A.T, deeper, atol=1e-8)


@pytest.mark.parametrize("method", METHODS)
def test_each_system_has_its_own_status(method):
    rng = np.random.default_rng(6)
    A = np.stack([definite(rng, 8), np.diag([1.0, 2, 3, 4, 5, 6, 7, 0]), definite(rng, 8)])
    b = np.ones((3, 8))
    b[2, 3] = np.nan
    good = method(A[0], b[0], rtol=1e-10)
    result = method(A, b, rtol=1e-10, batched="leading")
    assert result.status is Status.NOT_FINITE
    assert result.info < 0
    assert result.statuses[0] is Status.CONVERGED
    others = {bicgstab: Status.MAX_ITERATIONS, minres: Status.LEAST_SQUARES}
    assert result.statuses[1] is others.get(method, Status.BREAKDOWN)
    assert result.statuses[2] is Status.NOT_FINITE
    np.testing.assert_allclose(result.x[0], good.x, rtol=1e-9)
    assert result.residual_norm[1] >= 1 - 1e-9
    with pytest.raises(RuntimeError, match="2 of 3 systems"):
        method(A, b, rtol=1e-10, batched="leading", raise_on_failure=True)


@pytest.mark.parametrize("method", METHODS)
def test_finished_systems_stay_as_they_are(method):
    rng = np.random.default_rng(7)
    A = np.stack([np.eye(40), definite(rng, 40, condition=1e3)])
    b = random_array(rng, (2, 40))
    result = method(A, b, rtol=1e-10, batched="leading")
    assert result.iterations[0] <= 2
    assert result.iterations[1] > 20
    np.testing.assert_allclose(result.x[0], b[0], rtol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_no_systems(method):
    for batched, shape in (("columns", (5, 0)), ("leading", (0, 5)), ("leading", (2, 0, 5))):
        result = method(np.eye(5), np.empty(shape), batched=batched, callback=lambda _: None)
        assert result.converged
        assert result.x.shape == shape
        assert result.iterations.size == 0


@pytest.mark.parametrize("method", METHODS)
def test_layouts_are_never_guessed(method):
    A = np.eye(3)
    with pytest.raises(ValueError, match=r"b has shape \(3, 2\); expected \(N,\) or \(N, 1\)"):
        method(A, np.ones((3, 2)))
    with pytest.raises(ValueError, match=r"b has shape \(3,\); expected \(N, K\)"):
        method(A, np.ones(3), batched="columns")
    with pytest.raises(ValueError, match=r"A has shape \(3, 3\); expected \(2, 2\)"):
        method(A, np.ones((3, 2)), batched="leading")
    with pytest.raises(ValueError, match="batched is 'rows'"):
        method(A, np.ones((3, 2)), batched="rows")
    with pytest.raises(ValueError, match=r"x0 has shape \(2, 3\); expected \(3, 2\)"):
        method(A, np.ones((3, 2)), np.ones((2, 3)), batched="columns")


@pytest.mark.parametrize("workspace", WORKSPACES)
@pytest.mark.parametrize("preconditioned", [False, True])
@pytest.mark.parametrize("leading", [(), (3,)])
def test_storage(workspace, preconditioned, leading):
    """The workspace is what the docstring says, and solves after the first allocate no vector."""
    size = 30_000
    diagonal = np.linspace(1.0, 3.0, size)

    class Diagonal:
        shape, dtype = (size, size), np.dtype(np.float64)

        def apply(self, x, out=None):
            return np.multiply(diagonal, x, out=out)

    options = {"restart": 10} if issubclass(workspace, Gmres) else {}
    solver = workspace(size, batched="leading" if leading else None, **options)
    b, M = np.cos(np.arange(size)) + np.zeros((*leading, 1)), Diagonal() if preconditioned else None
    b = np.ascontiguousarray(b.reshape(*leading, size))
    out = np.empty_like(b)
    tracemalloc.start()
    solver.solve(Diagonal(), b, out=out, M=M)
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    out.fill(np.nan)
    result = solver.solve(Diagonal(), b, out=out, M=M)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    vectors_kept = WORKSPACES[workspace][preconditioned]
    assert vectors_kept <= kept / b.nbytes < vectors_kept + 0.5
    assert peak - kept < b.nbytes / 4
    assert result.x is out
    np.testing.assert_allclose(out, b / diagonal, atol=1e-3)


@pytest.mark.parametrize("workspace", WORKSPACES)
def test_a_solver_of_an_operator(workspace):
    rng = np.random.default_rng(8)
    A, M = definite(rng, 15), np.eye(15)
    solver = workspace(A, M=M)
    for _ in range(2):
        b = random_array(rng, 15)
        np.testing.assert_allclose(A @ solver(b, rtol=1e-10).x, b, atol=1e-8)
    with pytest.raises(TypeError, match=r"made for a size; call solve\(A, b\)"):
        workspace(15)(np.ones(15))
    columns = workspace(A, batched="columns")(random_array(rng, (15, 2)))
    assert columns.x.shape == (15, 2)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", [(40_000,), (300, 300), (3, 20_000)], ids=str)
def test_bits_do_not_depend_on_the_number_of_threads(method, shape):
    diagonal = np.linspace(1.0, 30.0, shape[-1])

    class Diagonal:
        shape, dtype = (diagonal.size, diagonal.size), diagonal.dtype

        def apply(self, x, out=None):
            return np.multiply(diagonal, x, out=out)

    b = np.cos(np.arange(np.prod(shape), dtype=float)).reshape(shape)
    before, results = bk.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            bk.set_num_threads(threads)
            results.append(method(Diagonal(), b, batched="leading"))
    finally:
        bk.set_num_threads(before)
    for other in results[1:]:
        assert np.array_equal(results[0].x, other.x)
        assert np.array_equal(results[0].residual_norms, other.residual_norms, equal_nan=True)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.integers(1, 24),
    systems=st.integers(1, 4),
    method=st.sampled_from(METHODS),
    dtype=st.sampled_from(DTYPES),
    scale=st.sampled_from([1e-30, 1.0, 1e30]),
)
def test_what_is_reported_converged_is(seed, size, systems, method, dtype, scale):
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    single = np.finfo(dtype).eps > 1e-10
    scale = 1.0 if single else scale
    A = np.stack([definite(rng, size, dtype, 10.0) for _ in range(systems)]) * dtype.type(scale)
    b = random_array(rng, (systems, size), dtype)
    rtol = 1e-4 if single else 1e-9
    result = method(A, b, rtol=rtol, batched="leading")
    wide = np.result_type(dtype, np.float64)
    residuals = b.astype(wide) - (A.astype(wide) @ result.x.astype(wide)[..., None])[..., 0]
    norms = np.linalg.norm(residuals, axis=1) / np.linalg.norm(b.astype(wide), axis=1)
    claimed = np.array([status is Status.CONVERGED for status in result.statuses])
    assert (norms[claimed] <= 1.01 * rtol).all()
    assert claimed.all() or method is bicgstab
    np.testing.assert_allclose(
        norms * np.linalg.norm(b.astype(wide), axis=1), result.residual_norm, rtol=0.1, atol=1e-6
    )
