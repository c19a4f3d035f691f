"""The checks of the kronmult library's own test programs, each by name.

pytest tests/functions/test_kronmult.py -k gemm_nn
pytest tests/functions/test_kronmult.py -k gemm_nt
pytest tests/functions/test_kronmult.py -k six_dimensions
"""

import numpy as np
import pytest
from dense_oracle import dense_kron

import batchkron as bk

PRECISIONS = ["float32", "float64"]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_batched_gemm_nn(rng, backend, precision):
    """C_i = beta C_i + alpha A_i B_i."""
    a = rng.standard_normal((50, 7, 4)).astype(precision)
    b = rng.standard_normal((50, 4, 6)).astype(precision)
    c = rng.standard_normal((50, 7, 6)).astype(precision)
    result = bk.batched_gemm(a, b, c, alpha=1.3, beta=1)
    expected = 1.3 * np.matmul(a, b) + c
    np.testing.assert_allclose(result, expected, rtol=0, atol=100 * np.finfo(precision).eps)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_batched_gemm_nt(rng, backend, precision):
    """C_i = beta C_i + alpha A_i B_i^T."""
    a = rng.standard_normal((50, 7, 4)).astype(precision)
    b = rng.standard_normal((50, 6, 4)).astype(precision)
    c = rng.standard_normal((50, 7, 6)).astype(precision)
    result = bk.batched_gemm(a, b, c, alpha=-0.7, beta=0.5, transpose_b=True)
    expected = -0.7 * np.matmul(a, b.transpose(0, 2, 1)) + np.float32(0.5) * c
    np.testing.assert_allclose(result, expected, rtol=0, atol=100 * np.finfo(precision).eps)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("accumulation", ["owner", "atomic"])
def test_batched_products_in_six_dimensions(rng, backend, precision, accumulation):
    """Y(:, k) += kron(A1(:, :, k), …, A6(:, :, k)) X(:, k), with outputs that overlap."""
    count, n = 24, 3
    matrices = rng.standard_normal((6, count, n, n)).astype(precision)
    X = np.asfortranarray(rng.standard_normal((n**6, count)).astype(precision))
    Y = np.asfortranarray(rng.standard_normal((n**6, 5)).astype(precision))
    targets = rng.integers(0, 5, count)
    ids = np.repeat(np.arange(count)[:, None], 6, axis=1)
    op = bk.BatchedKron(
        list(matrices), ids, np.arange(count), targets, num_outputs=5, accumulation=accumulation
    )
    expected = Y.astype("float64")
    for k, target in enumerate(targets):
        expected[:, target] += dense_kron(*matrices[:, k].astype("float64")) @ X[:, k]
    op.accumulate(X.T, Y.T)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(Y, expected, rtol=0, atol=200 * np.finfo(precision).eps * scale)
