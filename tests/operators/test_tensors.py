"""Tensors with an axis for each factor as vectors of @, what is refused, and what repr shows."""

import numpy as np
import pytest
import scipy.sparse
from dense_oracle import random_array

import batchkron as bk


def test_a_tensor_is_multiplied_along_each_axis(rng, dtype):
    shapes = [(3, 2), (2, 4), (5, 3)]
    a, b, c = (random_array(rng, shape, dtype) for shape in shapes)
    X = random_array(rng, (2, 4, 3), dtype)
    expected = np.einsum("ia,jb,kc,abc->ijk", a, b, c, X)
    P = bk.KroneckerProduct(a, b, c)
    found = P @ X
    assert (found.shape, found.dtype) == ((3, 2, 5), X.dtype)
    tolerance = 100 * np.finfo(dtype).eps * np.abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)
    np.testing.assert_allclose(P @ X.tolist(), expected, rtol=0, atol=tolerance)
    back = np.einsum("ia,jb,kc,ijk->abc", a, b, c, expected)
    np.testing.assert_allclose(P.T @ expected, back, rtol=0, atol=100 * tolerance)
    np.testing.assert_allclose((2 * P) @ X, 2 * expected, rtol=0, atol=4 * tolerance)
    np.testing.assert_allclose((P.T @ P) @ X, back, rtol=0, atol=100 * tolerance)


def test_sums_take_tensors(rng):
    a, b = rng.standard_normal((3, 3)), rng.standard_normal((4, 4))
    X = rng.standard_normal((3, 4))
    A = bk.KroneckerSum(a, b)
    expected = a @ X + X @ b.T
    np.testing.assert_allclose(A @ X, expected, rtol=1e-12)
    shifted = A + bk.Diagonal(np.arange(12.0)) + 2 * bk.Identity(12)
    np.testing.assert_allclose(
        shifted @ X, expected + (np.arange(12.0).reshape(3, 4) + 2) * X, rtol=1e-12
    )


def test_a_matrix_with_n_rows_has_columns(rng):
    """(N, 1) is both a tensor and a column; it is a column."""
    a, b = rng.standard_normal((3, 3)), rng.standard_normal((2, 1))
    P = bk.KroneckerProduct(a, b)
    X = rng.standard_normal((3, 1))
    assert (P @ X).shape == (6, 1)
    np.testing.assert_allclose(P @ X, np.kron(a, b) @ X, rtol=1e-12)


def test_stacks_of_tensors_are_refused(rng):
    P = bk.KroneckerProduct(rng.standard_normal((3, 3)), rng.standard_normal((4, 4)))
    text = r"expected \(12,\) or \(12, K\), or a tensor \(3, 4\), because.*For stacks use apply"
    with pytest.raises(ValueError, match=text):
        P @ np.ones((5, 3, 4))
    with pytest.raises(ValueError, match=r"X has shape \(4, 3\).*apply takes \(\.\.\., 12\)"):
        P @ np.ones((4, 3))
    one = bk.KroneckerProduct(np.ones((3, 3)))
    with pytest.raises(ValueError, match=r"expected \(3,\) or \(3, K\)"):
        one @ np.ones((2, 2, 3))


def test_a_list_says_what_takes_blocks(rng):
    op = bk.BatchedKron(rng.standard_normal((2, 3, 3)), [[0], [1]], [0, 1], [0, 1])
    with pytest.raises(ValueError, match=r"X has shape \(2, 3\).*apply takes \(\.\.\., 2, 3\)"):
        op(np.ones((2, 3)))


def test_repr_shows_the_systems():
    assert repr(bk.KroneckerSum(np.eye(2), np.eye(3))) == "<6x6 KroneckerSum with dtype=float64>"
    many = bk.KroneckerSum([np.ones((5, 2, 2)), np.eye(3, dtype="complex64")])
    assert repr(many) == "<6x6 KroneckerSum with dtype=complex128, batch_shape=(5,)>"
    assert repr(2 * many) == "<6x6 ScaledOperator with dtype=complex128, batch_shape=(5,)>"


def test_toarray_is_the_matrix(rng):
    a, b = rng.standard_normal((3, 2)), rng.standard_normal((2, 4))
    np.testing.assert_allclose(bk.KroneckerProduct(a, b).toarray(), np.kron(a, b))
    for op in (bk.Identity(3), bk.Diagonal([1.0, 2.0]), bk.KroneckerSum(a[:2], b[:, :2])):
        np.testing.assert_array_equal(op.toarray(), op.to_dense())


@pytest.mark.parametrize("kind", [bk.KroneckerProduct, bk.KroneckerSum])
def test_sparse_factors(rng, kind):
    a, b = rng.standard_normal((3, 3)), np.diag([1.0, 2.0])
    sparse = scipy.sparse.csr_array(a), scipy.sparse.coo_matrix(b)
    expected = kind([a, b]).to_dense()
    for op in (kind(sparse), kind(*sparse), kind([a, sparse[1]])):
        np.testing.assert_array_equal(op.to_dense(), expected)
    np.testing.assert_array_equal(kind(sparse[0]).to_dense(), a)
    op.update([2 * sparse[0], b])
    np.testing.assert_array_equal(op.to_dense(), kind([2 * a, b]).to_dense())
