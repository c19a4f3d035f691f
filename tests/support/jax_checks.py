"""Checks of results and derivatives, which the tests of batchkron.jax share."""

import functools

import jax
import numpy as np
from jax.test_util import check_grads


def dense_kron(factors):
    """A_1 ⊗ … ⊗ A_d by NumPy."""
    return functools.reduce(np.kron, [np.asarray(factor) for factor in factors])


def dense_sum(factors):
    """A_1 ⊕ … ⊕ A_d by NumPy."""
    eyes = [np.eye(len(one), dtype=one.dtype) for one in factors]
    return sum(dense_kron([*eyes[:k], factor, *eyes[k + 1 :]]) for k, factor in enumerate(factors))


def assert_same(result, expected, steps):
    """Compare results whose sums have ``steps`` terms, with numbers of size 1."""
    assert isinstance(result, jax.Array)
    assert result.shape == expected.shape
    result, expected = np.asarray(result), np.asarray(expected)
    assert result.dtype == expected.dtype
    eps = np.finfo(result.dtype).eps
    scale = max(1.0, float(np.abs(expected).max())) if expected.size else 1.0
    difference = np.abs(result - expected)
    assert difference.size == 0 or float(difference.max()) <= 8 * eps * steps * scale


def assert_derivatives(function, operands, order=2):
    """Compare derivatives in both directions, up to an order, with differences.

    Their error is eps² times a third derivative, and a rounding error divided by eps.
    """
    modes = ["fwd", "rev"]
    check_grads(function, operands, order, modes, rtol=1e-6, atol=1e-6, eps=1e-4)
