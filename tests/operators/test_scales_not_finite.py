"""Multiples by numbers that are infinite, NaN or beyond a dtype: empty sums become NaN."""

import numpy as np
import pytest
from dense_oracle import random_array

import batchkron as bk

SCALES = [np.inf, -np.inf, np.nan, 1e39, -1e39, 0.0, -2.0]


def operators(rng, dtype):
    """Operators of all kinds, some with outputs to which nothing is added."""
    A = random_array(rng, (2, 2), dtype)
    listed = bk.BatchedKron(A[None], [[0, 0]], [0], [1], num_inputs=3, num_outputs=3)
    return {
        "product": bk.KroneckerProduct(A, A),
        "no columns": bk.KroneckerProduct(np.ones((2, 0), dtype), A),
        "systems without columns": bk.KroneckerProduct(np.ones((3, 2, 0), dtype), A),
        "sum": bk.KroneckerSum(A, A),
        "batch": listed,
        "transposed batch": listed.T,
        "sum with a batch": listed + 2 * bk.Identity(12, dtype),
        "composition with a batch": listed @ bk.Identity(12, dtype),
        "diagonal": bk.Diagonal(np.array([1, 0, -2], dtype)),
        "identity": bk.Identity(3, dtype),
    }


@pytest.mark.parametrize("scale", SCALES)
def test_products_are_those_of_numpy(rng, backend, dtype, scale):
    with np.errstate(over="ignore"):
        factor = dtype.type(scale)
    for name, op in operators(rng, dtype).items():
        x = random_array(rng, (2, *op.batch_shape, op.shape[1]), dtype)
        plain = np.empty((*x.shape[:-1], op.shape[0]), dtype)
        op.apply_flat(x, plain)
        found = np.full_like(plain, np.nan)
        (scale * op).apply_flat(x, found)
        with np.errstate(invalid="ignore", over="ignore"):
            expected = factor * plain
        np.testing.assert_allclose(found, expected, rtol=1e-5, err_msg=name)
        summed = np.full_like(plain, 3)
        (op + scale * op).apply_flat(x, summed)
        with np.errstate(invalid="ignore", over="ignore"):
            np.testing.assert_allclose(summed, plain + expected, rtol=1e-5, err_msg=name)
        if isinstance(op, bk.BatchedKron):
            x = x.reshape(2, 3, 4)
        added = np.ones((2, *op.batch_shape, op.shape[0]), dtype).reshape(op.apply(x).shape)
        op.accumulate(x, added, alpha=scale)
        np.testing.assert_allclose(added.ravel(), 1 + expected.ravel(), rtol=1e-5, err_msg=name)


def test_a_complex_scale_with_an_infinite_part(rng, backend):
    for op in operators(rng, np.dtype("complex128")).values():
        x = random_array(rng, (*op.batch_shape, op.shape[1]), "complex128")
        plain, found = np.empty((2, *op.batch_shape, op.shape[0]), complex)
        op.apply_flat(x, plain)
        scale = complex(2.0, np.inf)
        (scale * op).apply_flat(x, found)
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(found, plain * scale)


@pytest.mark.parametrize("alpha", [1e39, -np.inf])
def test_functions_in_single_precision(rng, alpha):
    empty, x = np.ones((2, 0), "f4"), np.ones(0, "f4")
    y = np.ones(2, "f4")
    assert np.isnan(bk.gekmm([empty], x, alpha=alpha)).all()
    assert np.isnan(bk.gekmm([empty], x, alpha=alpha, beta=1.0, y=y)).all()
    assert np.isnan(bk.gemkm(x, [empty.T], alpha=alpha)).all()
    a, b = np.ones((1, 2, 0), "f4"), np.ones((1, 0, 2), "f4")
    assert np.isnan(bk.batched_gemm(a, b, alpha=alpha)).all()
    sweep = bk.SegmentedModeMultiply(
        [np.eye(2, dtype="f4")], [0, 1, 1], [0], [0], before=1, behind=1
    )
    found = sweep.apply(np.ones((1, 2), "f4"), alpha=alpha)
    np.testing.assert_array_equal(found, [[np.float64(alpha * np.inf)] * 2, [np.nan] * 2])
