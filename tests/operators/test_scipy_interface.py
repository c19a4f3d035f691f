"""The operators in SciPy's own functions."""

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse.linalg as spla
from dense_oracle import dense_kron, random_array

import batchkron as bk
from batchkron.problems import ModeOperator, SparseGrid


def symmetric_batch(rng):
    """A symmetric positive definite batch: diagonal blocks and their couplings."""
    pool = rng.standard_normal((4, 3, 3))
    pool = np.concatenate([pool, pool.transpose(0, 2, 1), 9 * np.eye(3)[None]])
    ids = [[8, 8]] * 5 + [[0, 1], [4, 5], [2, 3], [6, 7]]
    source, target = [*range(5), 0, 1, 2, 3], [*range(5), 1, 0, 3, 2]
    return bk.BatchedKron(pool, ids, source, target)


def symmetric_sweeps(rng):
    """A sparse grid takes a principal submatrix, which is symmetric positive definite, too."""
    modes = []
    for size in (8, 4):
        matrix = rng.standard_normal((size, size))
        modes.append(ModeOperator.from_dense(matrix @ matrix.T + 3 * np.eye(size), 2))
    return bk.SparseGridOperator(SparseGrid.sparse([2, 1]), [modes, [None, modes[1]]], 2)


@pytest.fixture(params=["product", "batch", "sweeps"])
def operator(request, rng):
    if request.param == "batch":
        return symmetric_batch(rng)
    if request.param == "sweeps":
        return symmetric_sweeps(rng)
    matrices = rng.standard_normal((3, 3, 3))
    return bk.KroneckerProduct([m @ m.T + 3 * np.eye(3) for m in matrices])


def test_gmres(operator, rng):
    b = rng.standard_normal(operator.shape[0])
    x, info = spla.gmres(operator, b, rtol=1e-10, maxiter=200)
    assert info == 0
    np.testing.assert_allclose(operator.to_dense() @ x, b, rtol=0, atol=1e-8 * np.linalg.norm(b))


def test_eigsh(operator):
    values = spla.eigsh(operator, k=4, return_eigenvectors=False)
    expected = scipy.linalg.eigvalsh(operator.to_dense())
    expected = expected[np.argsort(np.abs(expected))[-4:]]
    np.testing.assert_allclose(np.sort(values), np.sort(expected), rtol=1e-10)


def test_expm_multiply(operator, rng):
    small = operator.astype("float64")
    b = rng.standard_normal(operator.shape[0])
    scaled = 1 / np.linalg.norm(operator.to_dense(), 2)
    result = spla.expm_multiply(scaled * small, b, traceA=scaled * small.trace())
    expected = scipy.linalg.expm(scaled * operator.to_dense()) @ b
    np.testing.assert_allclose(result, expected, rtol=1e-10, atol=1e-12)


def test_expm_multiply_takes_the_operator_unchanged(rng):
    op = bk.KroneckerProduct(0.3 * rng.standard_normal((2, 3, 3)))
    b = rng.standard_normal((9, 2))
    result = spla.expm_multiply(op, b, traceA=op.trace())
    np.testing.assert_allclose(result, scipy.linalg.expm(op.to_dense()) @ b, rtol=1e-10)


def test_algebra_of_linear_operators(operator, rng):
    dense = operator.to_dense()
    x = rng.standard_normal(operator.shape[1])
    for combined, expected in [
        (2 * operator, 2 * dense),
        (operator + operator, 2 * dense),
        (operator - operator.T, dense - dense.T),
        (operator @ operator, dense @ dense),
        (-operator, -dense),
    ]:
        np.testing.assert_allclose(
            combined @ x, expected @ x, rtol=0, atol=1e-9 * np.abs(dense).max() ** 2
        )
    assert spla.aslinearoperator(operator) is operator


def test_kronecker_product_equals_scipy(rng, backend, dtype):
    factors = [random_array(rng, shape, dtype) for shape in [(3, 2), (2, 4), (3, 3)]]
    op = bk.KroneckerProduct(factors)
    dense = dense_kron(*factors)
    tolerance = {"rtol": 0, "atol": 500 * np.finfo(dtype).eps}
    np.testing.assert_allclose(op.to_dense(), dense, **tolerance)
    np.testing.assert_allclose(op.T.to_dense(), dense.T, **tolerance)
    np.testing.assert_allclose(op.H.to_dense(), dense.conj().T, **tolerance)
    np.testing.assert_allclose(op.diagonal(), dense.diagonal(), **tolerance)
    x, X = random_array(rng, 24, dtype), random_array(rng, (24, 5), dtype)
    np.testing.assert_allclose(op @ x, dense @ x, **tolerance)
    np.testing.assert_allclose(op @ X, dense @ X, **tolerance)
    np.testing.assert_allclose(op @ np.asfortranarray(X), dense @ X, **tolerance)
    np.testing.assert_allclose(
        op.rmatmat(dense[:, :5]),
        (dense.conj().T @ dense)[:, :5],
        rtol=0,
        atol=1e4 * np.finfo(dtype).eps,
    )
    np.testing.assert_allclose(op.apply(X.T), (dense @ X).T, **tolerance)
    with pytest.raises(ValueError, match="trace needs a square operator"):
        op.trace()


def test_trace_of_a_product(rng):
    op = bk.KroneckerProduct(rng.standard_normal((3, 4, 4)))
    np.testing.assert_allclose(op.trace(), np.trace(op.to_dense()), rtol=1e-12)
    op = bk.KroneckerProduct([rng.standard_normal((2, 3)), rng.standard_normal((3, 2))])
    np.testing.assert_allclose(op.trace(), np.trace(op.to_dense()), rtol=1e-12)


def test_describe_and_repr(operator):
    assert f"{operator.shape[0]}×{operator.shape[1]}" in operator.describe()
    assert type(operator).__name__ in repr(operator)


def test_conversion_errors(operator):
    with pytest.raises(TypeError, match="expected float32, float64"):
        operator.astype(int)
    with pytest.raises(TypeError, match="drops a part"):
        operator.astype(complex).astype(float)
