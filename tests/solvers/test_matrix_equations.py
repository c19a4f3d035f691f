"""Equations of Sylvester and Lyapunov against SciPy's solutions."""

import array_api_strict as strict
import numpy as np
import pytest
import scipy.linalg
from dense_oracle import random_array

from batchkron.solvers import solve_lyapunov, solve_sylvester


def tolerance(dtype):
    return 1e-3 if np.finfo(dtype).eps > 1e-10 else 1e-10


@pytest.mark.parametrize("sizes", [(4, 6), (1, 5), (3, 1), (7, 7)], ids=str)
@pytest.mark.parametrize("hermitian", [False, True])
def test_sylvester(rng, dtype, sizes, hermitian):
    A, B = (random_array(rng, (n, n), dtype) + 3 * n * np.eye(n, dtype=dtype) for n in sizes)
    if hermitian:
        A, B = A + A.conj().T, B + B.conj().T
    C = random_array(rng, sizes, dtype)
    X = solve_sylvester(A, B, C)
    assert X.dtype == dtype
    assert X.shape == sizes
    np.testing.assert_allclose(X, scipy.linalg.solve_sylvester(A, B, C), atol=tolerance(dtype))
    many = random_array(rng, (2, 3, *sizes), dtype)
    found = solve_sylvester(A, B, many)
    alone = np.stack([[solve_sylvester(A, B, one) for one in row] for row in many])
    np.testing.assert_allclose(found, alone, atol=tolerance(dtype))
    np.testing.assert_allclose(A @ found + found @ B, many, atol=30 * tolerance(dtype))


def test_lyapunov(rng, dtype):
    A = random_array(rng, (6, 6), dtype) - 8 * np.eye(6, dtype=dtype)
    G = random_array(rng, (6, 6), dtype)
    for Q in (G, G @ G.conj().T):
        X = solve_lyapunov(A, Q)
        expected = scipy.linalg.solve_continuous_lyapunov(A, Q)
        np.testing.assert_allclose(X, expected, atol=tolerance(dtype))
    np.testing.assert_allclose(X, X.conj().T, atol=tolerance(dtype))
    many = random_array(rng, (3, 6, 6), dtype)
    found = solve_lyapunov(A, many)
    np.testing.assert_allclose(A @ found + found @ A.conj().T, many, atol=30 * tolerance(dtype))


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_extreme_scales(rng, scale):
    A, B = (rng.standard_normal((n, n)) + 9 * np.eye(n) for n in (4, 3))
    C = rng.standard_normal((4, 3))
    expected = solve_sylvester(A, B, C)
    same = solve_sylvester(scale * A, scale * B, scale * C)
    np.testing.assert_allclose(same, expected, rtol=1e-9)
    with np.errstate(over="ignore"):
        large = solve_sylvester(scale * A, scale * B, C)
    np.testing.assert_allclose(large, expected / scale, rtol=1e-9)


def test_arrays_of_other_libraries(rng):
    A, C = rng.standard_normal((3, 3)) + 5 * np.eye(3), rng.standard_normal((3, 3))
    made = [strict.asarray(one) for one in (A, A, C)]
    found = solve_sylvester(*made)
    assert isinstance(found, type(made[0]))
    np.testing.assert_allclose(np.asarray(found), solve_sylvester(A, A, C))
    np.testing.assert_allclose(np.asarray(solve_lyapunov(made[0], made[2])), solve_lyapunov(A, C))


def test_singular_equations():
    A = np.array([[1.0, 2.0], [0.0, 3.0]])
    with pytest.raises(np.linalg.LinAlgError):
        solve_sylvester(A, -A, np.eye(2))
    with pytest.raises(np.linalg.LinAlgError):
        solve_lyapunov(np.diag([1.0, -1.0]), np.eye(2))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ((np.ones((2, 3)), np.eye(3), np.eye(2)), r"A has shape \(2, 3\)"),
        ((np.eye(2), np.ones(3), np.ones((2, 3))), r"B has shape \(3,\)"),
        ((np.eye(2), np.eye(3), np.ones((3, 2))), r"C has shape \(3, 2\); expected \(..., 2, 3\)"),
        ((np.eye(2), np.eye(3), np.ones(6)), "C has shape"),
    ],
    ids=str,
)
def test_bad_shapes(given, text):
    with pytest.raises(ValueError, match=text):
        solve_sylvester(*given)
    with pytest.raises(ValueError, match="Q has shape"):
        solve_lyapunov(np.eye(2), np.ones((2, 3)))
