"""Kronecker products some of whose factors are identities, or multiples of one."""

import copy
import pickle
from functools import reduce

import numpy as np
import pytest
import scipy.sparse as sp
from dense_oracle import dense_kron, random_array, rounding_bound
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.linalg import eigsh

import batchkron as bk

SHAPES = [(1, 1), (2, 2), (3, 2), (2, 5), (4, 4), (1, 3), (17, 16), (8, 8)]
KINDS = ("matrix", "mark", "identity", "multiple")


@st.composite
def products(draw):
    """Kinds and shapes of factors: a few thousand entries in all, of which some are matrices."""
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=6))
    shapes = [
        draw(st.sampled_from(SHAPES)) if kind == "matrix" else (draw(st.integers(1, 4)),) * 2
        for kind in kinds
    ]
    while np.prod([max(shape) for shape in shapes]) > 600:
        shapes.pop(), kinds.pop()
    return kinds, shapes


def factors_of(rng, kinds, shapes, dtype):
    """Factors as the user gives them, and as dense matrices."""
    user, dense = [], []
    for kind, shape in zip(kinds, shapes, strict=True):
        matrix = random_array(rng, shape, dtype)
        if kind != "matrix":
            scale = rng.choice([-0.5, 3]) if kind == "multiple" else 1
            matrix = (scale * np.eye(shape[0])).astype(dtype)
        dense.append(matrix)
        user.append(bk.Identity(shape[0]) if kind == "mark" else matrix)
    if set(kinds) == {"mark"}:  # then their dtype counts
        user = [bk.Identity(shape[0], dtype) for shape in shapes]
    return user, dense


@settings(max_examples=25, deadline=None)
@given(products(), st.integers(1, 3), st.integers(0, 2**32 - 1))
@pytest.mark.parametrize("name", ["cpu", "reference"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_random_products(dtype, name, product, columns, seed):
    rng = np.random.default_rng(seed)
    user, dense = factors_of(rng, *product, dtype)
    matrix = dense_kron(*dense)
    with bk.backends.using(name):
        op = bk.KroneckerProduct(user)
        assert op.dtype == dtype
        assert op.shape == matrix.shape
        for A, M, parts in (
            (op, matrix, dense),
            (op.T, matrix.T, [f.T for f in dense]),
            (op.H, matrix.conj().T, [f.conj().T for f in dense]),
        ):
            x = random_array(rng, (M.shape[1], columns), dtype)
            bound = rounding_bound(parts, np.abs(x), left=True, extra=2)
            assert (np.abs(A @ x - M @ x) <= bound).all()
            out = np.full(M.shape[0], np.nan, dtype)
            assert A.apply(x[:, 0].copy(), out=out) is out
            assert (np.abs(out - M @ x[:, 0]) <= bound[:, 0]).all()
            y = random_array(rng, M.shape[0], dtype)
            found = A.accumulate(x[:, 0], y.copy(), alpha=-2)
            slack = 2 * bound[:, 0] + 4 * np.finfo(dtype).eps * np.abs(y)
            assert (np.abs(found - (y - 2 * M @ x[:, 0])) <= slack).all()
        np.testing.assert_allclose(op.to_dense(), matrix, rtol=20 * np.finfo(dtype).eps)
        expected = matrix.diagonal()
        np.testing.assert_allclose(op.diagonal(), expected, rtol=20 * np.finfo(dtype).eps)


def test_factors_are_matrices_as_before(rng):
    A = rng.random((2, 3))
    op = bk.KroneckerProduct([bk.Identity(3), A, np.eye(2), 2 * np.eye(4)])
    expected = [np.eye(3), A, np.eye(2), 2 * np.eye(4)]
    for found, wanted in zip(op.factors, expected, strict=True):
        assert type(found) is np.ndarray
        assert not found.flags.writeable
        np.testing.assert_array_equal(found, wanted)
    assert "3 of 4 factors skipped" in op.describe()
    assert "22 stored entries" in op.describe()
    assert "skipped" not in bk.KroneckerProduct([A, A]).describe()


def test_dtype_of_marks():
    one = np.ones((1, 2), np.float32)
    assert bk.KroneckerProduct([bk.Identity(2), one]).dtype == np.float32
    assert bk.KroneckerProduct([bk.Identity(2), [[1, 2]]]).dtype == np.float64
    assert bk.KroneckerProduct([bk.Identity(2, np.complex64)]).dtype == np.complex64
    assert bk.KroneckerProduct(bk.Identity(2, np.float32), bk.Identity(3)).dtype == np.float64


def test_an_identity_that_no_memory_holds(rng):
    """As a matrix, it would have 2^36 entries."""
    n, A = 2**18, rng.random((2, 2))
    op = bk.KroneckerProduct(bk.Identity(n), A)
    x = rng.random(2 * n)
    expected = (x.reshape(n, 2) @ A.T).reshape(-1)
    for one in (op, copy.deepcopy(op), pickle.loads(pickle.dumps(op)), op.T.T):
        np.testing.assert_allclose(one @ x, expected, rtol=1e-14)
    assert len(pickle.dumps(op)) < 10_000
    np.testing.assert_allclose(op.solve(expected), x, rtol=1e-9)
    np.testing.assert_allclose(op.inverse() @ expected, x, rtol=1e-9)
    sign, logarithm = np.linalg.slogdet(A)
    np.testing.assert_allclose(op.slogdet(), (sign**n, n * logarithm))
    np.testing.assert_allclose(op.trace(), n * A.trace())
    np.testing.assert_allclose((op @ op) @ x, op @ expected, rtol=1e-13)
    assert isinstance(op @ op, bk.KroneckerProduct)
    assert isinstance(op.astype(complex).H, bk.KroneckerProduct)
    op.update([bk.Identity(n), 2 * A])
    np.testing.assert_allclose(op @ x, 2 * expected, rtol=1e-14)


def symmetric_factors(rng, dtype):
    A, B = random_array(rng, (3, 3), dtype), random_array(rng, (2, 2), dtype)
    return [np.eye(2, dtype=dtype), A + A.conj().T, bk.Identity(4), B + B.conj().T, 2 * np.eye(2)]


def test_direct_methods(rng, dtype):
    op = bk.KroneckerProduct(symmetric_factors(rng, dtype))
    matrix, b = op.to_dense(), random_array(rng, 96, dtype)
    op_dtype, rtol = op.dtype, 3e4 * np.finfo(dtype).eps
    wide = matrix.astype(np.complex128 if op_dtype.kind == "c" else np.float64)
    solution = np.linalg.solve(wide, b)
    scale = np.abs(solution).max()
    np.testing.assert_allclose(op.solve(b), solution, atol=rtol * scale)
    np.testing.assert_allclose(op.inverse() @ b, solution, atol=rtol * scale)
    np.testing.assert_allclose(op.slogdet(), np.linalg.slogdet(wide), rtol=rtol)
    np.testing.assert_allclose(op.trace(), wide.trace(), atol=rtol * np.abs(wide).sum())
    values, V = op.eigh()
    np.testing.assert_allclose(np.sort(values), np.linalg.eigvalsh(wide), atol=rtol * scale * 10)
    np.testing.assert_allclose((V.H @ V).to_dense(), np.eye(96), atol=rtol)
    values, V = op.eig()
    largest = np.abs(wide).max()
    np.testing.assert_allclose((op @ V).to_dense(), V.to_dense() * values, atol=rtol * largest)
    left, s, right = op.svd()
    product = (left.to_dense() * s) @ right.to_dense()
    np.testing.assert_allclose(product, matrix, atol=rtol * largest)
    x = op.expm_apply(b, -0.1)
    assert np.isfinite(x).all()
    assert x.dtype == op_dtype
    assert op.kronecker_terms().terms[0].modes == (1, 3, 4)
    only = bk.KroneckerProduct(bk.Identity(3), bk.Identity(2))
    right = np.arange(6.0)
    assert only.solve(right) is not right
    np.testing.assert_array_equal(only.solve(right), right)
    assert (only.logdet(), only.trace()) == (0, 6)


def test_algebra(rng):
    A, B = rng.random((3, 3)), rng.random((2, 2))
    left = bk.KroneckerProduct([A, bk.Identity(4), bk.Identity(2)])
    right = bk.KroneckerProduct([bk.Identity(3), np.eye(4), B])
    both, M = left @ right, left.to_dense() @ right.to_dense()
    assert isinstance(both, bk.KroneckerProduct)
    np.testing.assert_array_equal(both.factors[1], np.eye(4))
    x = rng.random(24)
    np.testing.assert_allclose(both @ x, M @ x, rtol=1e-13)
    total = 2 * left + right @ right - both + left**2
    expected = 2 * left.to_dense() + right.to_dense() @ right.to_dense() - M
    expected += left.to_dense() @ left.to_dense()
    np.testing.assert_allclose(total @ x, expected @ x, rtol=1e-12)
    shifted = left + 0.5 * bk.Identity(24)
    solution = np.linalg.solve(shifted.to_dense(), x)
    np.testing.assert_allclose(shifted.solve(x), solution, rtol=1e-9)
    left.update([B[0, 0] * A, bk.Identity(4), np.eye(2)])
    np.testing.assert_allclose(both @ x, B[0, 0] * M @ x, rtol=1e-13)


@pytest.mark.parametrize("systems", [(), (3,)])
def test_updates_find_identities_again(rng, backend, dtype, systems):
    def matrix(n):
        return random_array(rng, (*systems, n, n), dtype)

    def identity(n):
        return np.broadcast_to(np.eye(n, dtype=dtype), (*systems, n, n))

    op = bk.KroneckerProduct([matrix(3), matrix(2), matrix(4)])
    relatives = op.T, op.H, op.astype(np.result_type(dtype, np.float64))
    for factors in (
        [matrix(3), identity(2), matrix(4)],
        [matrix(3), identity(2), matrix(4)],
        [identity(3), matrix(2), identity(4)],
        [identity(3), identity(2), identity(4)],
        [matrix(3), -2 * identity(2), matrix(4)],
        [matrix(3), matrix(2), matrix(4)],
    ):
        op.update(factors)
        x = random_array(rng, (*systems, 24), dtype)
        dense = np.empty((*systems, 24, 24), dtype)
        for place in np.ndindex(*systems):
            dense[place] = reduce(np.kron, [factor[place] for factor in factors])
        turned = dense.swapaxes(-1, -2)
        matrices = dense, turned, turned.conj(), dense
        for one, M in zip((op, *relatives), matrices, strict=True):
            expected = (M @ x[..., None])[..., 0]
            size = (np.abs(M) @ np.abs(x)[..., None])[..., 0]
            assert (np.abs(one.apply(x) - expected) <= 60 * np.finfo(dtype).eps * size).all()


def test_marks_in_updates(rng):
    A = rng.random((2, 2))
    op = bk.KroneckerProduct(rng.random((3, 3)), A)
    x = rng.random(6)
    op.update([bk.Identity(3), A])
    np.testing.assert_allclose(op @ x, (x.reshape(3, 2) @ A.T).reshape(-1), rtol=1e-14)
    with pytest.raises(ValueError, match=r"factors\[0\] has shape \(4, 4\); expected \(3, 3\)"):
        op.update([bk.Identity(4), A])


def test_systems_with_marks(rng, backend):
    A = rng.random((3, 2, 2))
    op = bk.KroneckerProduct([bk.Identity(4), A, np.eye(3)])
    x = rng.random((3, 24))
    expected = np.einsum("spq,slqr->slpr", A, x.reshape(3, 4, 2, 3)).reshape(3, 24)
    np.testing.assert_allclose(op.apply(x), expected, rtol=1e-14)


def test_skipped_factors_spread_no_infinities(rng):
    A = rng.random((2, 2)) + 1
    op = bk.KroneckerProduct([np.eye(3), A, 2 * np.eye(2)])
    x = rng.random((3, 2, 2))
    x[1, 0, 1] = np.inf
    expected = 2 * np.einsum("pq,lqr->lpr", A, x)
    np.testing.assert_allclose(op @ x.reshape(-1), expected.reshape(-1), rtol=1e-14)


def test_scales_of_multiples_cancel(dtype):
    """Neither a partial product nor a factor of kernels leaves the range of the dtype."""
    largest = float(np.finfo(dtype).max)
    number = np.asarray(largest**0.9, dtype)
    A = np.array([[1, 2], [3, 4]], dtype)
    op = bk.KroneckerProduct([number * np.eye(2, dtype=dtype), A * (1 / number) ** np.float32(1)])
    expected = dense_kron(np.eye(2), A)
    np.testing.assert_allclose(op @ np.ones(4, dtype), expected @ np.ones(4), rtol=1e-5)


def test_a_spin_chain(rng):
    """12 terms of 14 factors, 11 of them identities, as a sum, and its smallest eigenvalues."""
    sites = 14
    flip, sign = np.array([[0.0, 1.0], [1.0, 0.0]]), np.diag([1.0, -1.0])
    terms, matrix = [], 0
    for site in range(12):
        factors = [np.eye(2) if site % 2 else bk.Identity(2) for _ in range(sites)]
        factors[site : site + 3] = sign, flip, sign
        terms.append(bk.KroneckerProduct(factors))
        middle = np.kron(np.kron(sign, flip), sign)
        ends = sp.eye_array(2**site), sp.eye_array(2 ** (sites - site - 3))
        matrix = matrix + sp.kron(sp.kron(ends[0], middle), ends[1])
    total = reduce(lambda a, b: a + b, terms)
    x = rng.standard_normal(2**sites)
    np.testing.assert_allclose(total @ x, matrix @ x, atol=1e-13)
    start = rng.standard_normal(2**sites)
    found = eigsh(total, k=1, which="SA", v0=start, tol=1e-8, return_eigenvectors=False)
    np.testing.assert_allclose(found, -12, rtol=1e-7)  # the terms commute: a cluster state


def test_refusals():
    A = np.ones((2, 2))
    for call in (bk.KroneckerProduct, bk.gekmm, bk.kron):
        given = ([2 * bk.Identity(2), A],) if call is not bk.gekmm else ([2 * bk.Identity(2), A], A)
        with pytest.raises(TypeError, match=r"factors\[0\] is a ScaledOperator, a linear operator"):
            call(*given)
    with pytest.raises(TypeError, match=r"factors\[1\] is a Identity"):
        bk.KroneckerSum([A, bk.Identity(2)])
