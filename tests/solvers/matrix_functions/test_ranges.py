"""Functions of operators times vectors near the ends of the range of numbers, and beyond."""

import warnings

import numpy as np
import pytest
import scipy.linalg
from dense_oracle import random_array

from batchkron.solvers import (
    ConvergenceWarning,
    Status,
    expm_multiply,
    matrix_function,
    phi_multiply,
)
from batchkron.solvers.matrix_functions.whole_matrix import exponential_of

FUNCTIONS = {
    "expm_multiply": expm_multiply,
    "several times": lambda A, b: expm_multiply(A, b, 0.0, 1.0, 3),
    "exp": lambda A, b: matrix_function("exp", A, b).x,
    "Hermitian exp": lambda A, b: matrix_function("exp", A, b, hermitian=True).x,
    "sqrt": lambda A, b: matrix_function("sqrt", -A, b).x,
    "inverse-sqrt": lambda A, b: matrix_function("inverse-sqrt", -A, b).x,
    "a callable": lambda A, b: matrix_function(scipy.linalg.coshm, A, b).x,
    "phi": lambda A, b: phi_multiply(A, [None, b, b]).x,
}
SIZES = {
    "f8": (5e-321, 1e-312, 1e-306, 1e-200, 1e-160, 1e160, 1e300),
    "c16": (1e-312, 1e-200, 1e200),
    "f4": (1e-43, 1e-39, 1e-30, 1e30),
}


def second_difference(size, dtype):
    return np.eye(size, k=1, dtype=dtype) + np.eye(size, k=-1, dtype=dtype) - 2.5 * np.eye(size)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(("dtype", "size"), [(d, s) for d, own in SIZES.items() for s in own])
@pytest.mark.parametrize("unknowns", [4, 60])
def test_results_follow_the_size_of_vectors(rng, function, dtype, size, unknowns):
    A = second_difference(unknowns, dtype).astype(dtype)
    b = random_array(rng, unknowns, np.dtype(dtype))
    limits = np.finfo(dtype)
    small = b * limits.dtype.type(size)
    power = limits.dtype.type(2.0 ** round(-0.8 * np.log2(size)))  # exact
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = FUNCTIONS[function](A, small)
        expected = FUNCTIONS[function](A, small * power)
    rounding = 4.0 * float(limits.smallest_subnormal)
    accuracy = 1e-6 if limits.eps < 1e-10 else 1e-3
    largest = np.abs(expected).max()
    close = accuracy * float(largest) / float(power) + rounding
    assert np.abs(found - expected / power).max() <= close
    assert np.abs(found).max() > 0.0


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_of_vectors_that_are_not_finite_nothing_is(rng, function, wrong):
    """Not a part alone: the first value would look like a result."""
    b = rng.standard_normal(60)
    b[3] = wrong
    with pytest.warns(ConvergenceWarning, match="not-finite"):
        found = FUNCTIONS[function](second_difference(60, "f8"), b)
    assert np.isnan(found).all()


def test_columns_are_apart(rng):
    b = rng.standard_normal((60, 2))
    b[3, 0] = np.nan
    A = second_difference(60, "f8")
    with pytest.warns(ConvergenceWarning):
        found = expm_multiply(A, b)
    assert np.isnan(found[:, 0]).all()
    np.testing.assert_allclose(found[:, 1], expm_multiply(A, b[:, 1]), rtol=1e-12)


def test_results_beyond_the_range_are_said(rng):
    b = np.full(60, 1e305)
    with pytest.warns(ConvergenceWarning, match="not-finite"):
        found = matrix_function(scipy.linalg.coshm, 5.0 * second_difference(60, "f8"), b)
    assert found.status is Status.NOT_FINITE
    assert np.isnan(found.x).all()
    with pytest.warns(ConvergenceWarning, match="not-finite"):
        assert phi_multiply(np.eye(2), [[np.nan, 1.0]], t=0.0).status is Status.NOT_FINITE


def test_exponentials_of_whole_matrices_whose_squares_overflow():
    values = np.array([390.0, 400.0])
    x, error = exponential_of(np.diag(values), np.ones(2))
    assert np.abs(x / np.exp(values) - 1).max() < 1e-12
    assert error < 1e-10 * x[1]
