"""Diagonal operators: their products, for one system and many, and what they refuse."""

import pickle

import numpy as np
import pytest
from dense_oracle import random_array

import batchkron as bk


def check(product, expected):
    """Equal up to rounding: complex products may or may not be fused."""
    eps = 10 * np.finfo(expected.dtype).eps
    np.testing.assert_allclose(product, expected, rtol=eps, atol=eps)


def test_products(rng, dtype, backend):
    d = random_array(rng, 7, dtype)
    op = bk.Diagonal(d)
    assert (op.shape, op.dtype, op.batch_shape) == ((7, 7), np.dtype(dtype), ())
    x, X = random_array(rng, 7, dtype), random_array(rng, (3, 7), dtype)
    out = np.full(7, np.nan, dtype)
    assert op.matvec(x, out) is out
    check(out, d * x)
    check(op.apply(X), d * X)
    check(op @ X.T, d[:, None] * X.T)
    check(op.H @ x, d.conj() * x)
    np.testing.assert_array_equal(op.to_dense(), np.diag(d))
    np.testing.assert_array_equal(op.diagonal(), d)
    y = random_array(rng, 7, dtype)
    expected = y + 3 * (d * x)
    assert op.accumulate(x, y, alpha=3) is y
    check(y, expected)


def test_each_system_has_its_own(rng, dtype, backend):
    d = random_array(rng, (4, 5), dtype)
    op = bk.Diagonal(d)
    assert (op.shape, op.batch_shape) == ((5, 5), (4,))
    x, many = random_array(rng, (4, 5), dtype), random_array(rng, (3, 4, 5), dtype)
    check(op.apply(x), d * x)
    check((2 * op).apply(many), 2 * (d * many))
    with pytest.raises(ValueError, match="matvec is not defined"):
        op.matvec(x[0])
    with pytest.raises(ValueError, match="batch_shape"):
        op.apply(x[:3])


def test_dtypes_mix(rng):
    d, z = rng.standard_normal(6), random_array(rng, 6, "complex128")
    check(bk.Diagonal(d) @ z, d * z)
    assert bk.Diagonal(d.astype(np.float32)).astype("complex128").dtype == np.complex128
    np.testing.assert_array_equal(bk.Diagonal([1, 2, True]) @ np.ones(3), [1.0, 2.0, 1.0])


def test_entries_are_copied_and_pickled(rng):
    d = rng.standard_normal(5)
    op = bk.Diagonal(d)
    kept, d[:] = d.copy(), np.nan
    for same in (op, pickle.loads(pickle.dumps(op))):
        np.testing.assert_array_equal(same @ np.ones(5), kept)
    op.diagonal()[:] = 0
    np.testing.assert_array_equal(op.diagonal(), kept)


def test_empty_ones():
    assert (bk.Diagonal([]) @ np.empty(0)).shape == (0,)
    assert bk.Diagonal(np.ones((0, 3))).apply(np.empty((0, 3))).shape == (0, 3)
    assert bk.Diagonal(np.ones(3)).apply(np.empty((0, 3))).shape == (0, 3)


def test_bad_entries():
    with pytest.raises(ValueError, match="entries has no axis"):
        bk.Diagonal(2.0)
    for entries in (["a"], np.ones(2, np.float16), np.array([None])):
        with pytest.raises(TypeError, match="float32, float64, complex64 or complex128"):
            bk.Diagonal(entries)
