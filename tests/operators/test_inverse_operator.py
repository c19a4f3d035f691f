"""Inverses of sums as operators: products are solves."""

import pickle

import numpy as np
import pytest
from dense_oracle import random_array

import batchkron as bk


def general(rng, n, dtype):
    return random_array(rng, (n, n), dtype) + 4 * np.eye(n, dtype=dtype)


def hermitian(rng, n, dtype):
    half = random_array(rng, (n, n), dtype)
    return (half @ half.conj().T + np.eye(n)).astype(dtype)


def sums(rng, dtype):
    a, b = general(rng, 3, dtype), general(rng, 4, dtype)
    h, k = hermitian(rng, 3, dtype), hermitian(rng, 4, dtype)
    plain = bk.KroneckerSum([a, b])
    return {
        "Kronecker sum": plain,
        "multiple": 2 * plain,
        "shifted sum": plain + 0.5 * bk.Identity(12, dtype),
        "product and identity": bk.KroneckerProduct([h, k]) + 0.1 * bk.Identity(12, dtype),
        "composition": bk.KroneckerProduct([a, b]) @ plain,
    }


@pytest.mark.parametrize(
    "name", ["Kronecker sum", "multiple", "shifted sum", "product and identity", "composition"]
)
def test_products_are_those_of_the_inverse_matrix(rng, dtype, name):
    A = sums(rng, dtype)[name]
    matrix = A.to_dense().astype(np.result_type(dtype, np.float64))
    expected = np.linalg.inv(matrix)
    tolerance = 200 * np.linalg.cond(matrix) * np.finfo(dtype).eps * np.abs(expected).max()
    inverse = A.inverse()
    assert (inverse.shape, inverse.dtype) == (A.shape, A.dtype)
    for operator, dense in [
        (inverse, expected),
        (inverse.T, expected.T),
        (inverse.H, expected.conj().T),
    ]:
        np.testing.assert_allclose(operator.to_dense(), dense, rtol=0, atol=tolerance)
    x = random_array(rng, (5, 12), dtype)
    found = inverse.apply(x)
    np.testing.assert_allclose(found, x @ expected.T, rtol=0, atol=40 * tolerance)
    y = random_array(rng, (5, 12), dtype)
    before = y.copy()
    inverse.accumulate(x, y, alpha=-2.0)
    np.testing.assert_allclose(y, before - 2 * found, rtol=0, atol=80 * tolerance)


def test_the_inverse_is_of_the_values_at_the_call(rng):
    a, b = general(rng, 3, "float64"), general(rng, 2, "float64")
    A = bk.KroneckerSum([a, b])
    expected = np.linalg.inv(A.to_dense())
    inverse = A.inverse()
    A.update([2 * a, b])
    for operator in (inverse, pickle.loads(pickle.dumps(inverse))):
        np.testing.assert_allclose(operator.to_dense(), expected, atol=1e-12)
        np.testing.assert_allclose(operator.T.to_dense(), expected.T, atol=1e-12)
    np.testing.assert_allclose(inverse.inverse().to_dense(), np.linalg.inv(expected), atol=1e-9)
    b = rng.standard_normal(6)
    np.testing.assert_allclose(inverse.solve(b), np.linalg.solve(expected, b), atol=1e-9)
    assert inverse.slogdet() == pytest.approx(np.linalg.slogdet(expected))


def test_inverse_goes_on_in_the_algebra(rng):
    A = bk.KroneckerSum([hermitian(rng, 3, "float64"), hermitian(rng, 4, "float64")])
    inverse = np.linalg.inv(A.to_dense())
    composed = A.inverse() @ bk.Diagonal(np.arange(1.0, 13.0)) - A
    expected = inverse @ np.diag(np.arange(1.0, 13.0)) - A.to_dense()
    np.testing.assert_allclose(composed.to_dense(), expected, atol=1e-10)
    solution, _ = bk.solvers.cg(A, np.ones(12), M=A.inverse(), maxiter=2)
    np.testing.assert_allclose(solution, inverse @ np.ones(12), rtol=1e-5)


def test_what_has_no_inverse(rng):
    with pytest.raises(ValueError, match=r"batch_shape \(2,\), so inverse is not defined"):
        bk.KroneckerSum([rng.standard_normal((2, 3, 3)), np.eye(2)]).inverse()
    singular = bk.KroneckerSum([np.diag([1.0, 2.0]), np.diag([-1.0, 3.0])])
    with pytest.raises(np.linalg.LinAlgError):
        singular.inverse() @ np.ones(4)
    pool = rng.standard_normal((2, 2, 2))
    with pytest.raises(TypeError, match=r"factorise is not found.*batchkron\.solvers\.gmres"):
        bk.BatchedKron(pool, [[0], [1]], [0, 1], [0, 1]).inverse()
