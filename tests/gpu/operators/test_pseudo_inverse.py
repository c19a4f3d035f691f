"""Pseudo-inverses, least squares, Cholesky factors, equations of Sylvester on a device."""

import numpy as np
import pytest
from dense_oracle import random_array

import batchkron as bk
from batchkron.solvers import solve_lyapunov, solve_sylvester

pytestmark = pytest.mark.gpu


def limit(dtype, expected):
    return (1e-3 if np.finfo(dtype).eps > 1e-10 else 1e-10) * max(abs(expected).max(), 1.0)


@pytest.mark.parametrize("shapes", [[(5, 3), (4, 2)], [(3, 5), (4, 4)]], ids=str)
def test_least_squares(cupy, rng, dtype, shapes):
    A = bk.KroneckerProduct([random_array(rng, shape, dtype) for shape in shapes])
    b = random_array(rng, (A.shape[0], 2), dtype)
    expected = A.lstsq(b)
    there = A.to("cuda")
    found = there.lstsq(cupy.asarray(b))
    assert found.rank == expected.rank
    for one, wanted in ((found.x, expected.x), (found.residuals, expected.residuals)):
        assert isinstance(one, cupy.ndarray)
        np.testing.assert_allclose(one.get(), wanted, atol=limit(dtype, b))
    found = (there.pinv() @ cupy.asarray(b)).get()
    np.testing.assert_allclose(found, expected.x, atol=limit(dtype, expected.x))


def test_where_the_inverse_is_no_product(cupy, rng):
    A = bk.KroneckerProduct(np.diag([1.0, 1e-9]), np.diag([1.0, 1e-9]))
    b = rng.standard_normal(4)
    np.testing.assert_allclose((A.to("cuda").pinv() @ cupy.asarray(b)).get(), A.pinv() @ b)


def test_cholesky(cupy, rng, dtype):
    G = random_array(rng, (4, 4), dtype)
    A = bk.KroneckerProduct(G @ G.conj().T + np.eye(4, dtype=dtype), np.eye(3, dtype=dtype))
    found = A.to("cuda").cholesky()
    assert found.device == "cuda"
    np.testing.assert_array_equal(found.to_dense().get(), A.cholesky().to_dense())


@pytest.mark.parametrize("hermitian", [False, True])
def test_matrix_equations(cupy, rng, dtype, hermitian):
    A, B = (random_array(rng, (n, n), dtype) + 12 * np.eye(n, dtype=dtype) for n in (5, 4))
    if hermitian:
        A, B = A + A.conj().T, B + B.conj().T
    C = random_array(rng, (3, 5, 4), dtype)
    found = solve_sylvester(*map(cupy.asarray, (A, B, C)))
    assert isinstance(found, cupy.ndarray)
    expected = solve_sylvester(A, B, C)
    np.testing.assert_allclose(found.get(), expected, atol=limit(dtype, expected))
    Q = random_array(rng, (5, 5), dtype)
    found, expected = solve_lyapunov(cupy.asarray(A), cupy.asarray(Q)), solve_lyapunov(A, Q)
    np.testing.assert_allclose(found.get(), expected, atol=limit(dtype, expected))
