"""Eigenvalues, least squares and functions of operators: the same on device arrays as on others."""

import cupy
import numpy as np
import scipy.linalg
from dense_oracle import random_array
from fake_cupy.arrays import Array

import batchkron as bk
from batchkron.solvers import (
    eigs,
    eigsh,
    expm_multiply,
    lobpcg,
    lsmr,
    lsqr,
    matrix_function,
    phi_multiply,
    solve_lyapunov,
    solve_sylvester,
)
from fake_device_checks.common import close


def positive(rng, dtype, sizes=(3, 4)):
    factors = [random_array(rng, (n, n), dtype) for n in sizes]
    return bk.KroneckerSum([f @ f.conj().T + np.eye(len(f), dtype=dtype) for f in factors])


def with_diagonal(rng, shape, dtype):
    return random_array(rng, shape, dtype) + 6 * np.eye(*shape, dtype=dtype)


def eigenvalues():
    """By blocks, with B and constraints, by Krylov spaces, and near a number."""
    rng = np.random.default_rng(0)
    for dtype in ("float32", "float64", "complex128"):
        A = positive(rng, dtype)
        exact, vectors = np.linalg.eigh(A.to_dense())
        there, inverse = A.to("cuda"), cupy.asarray(np.linalg.inv(A.to_dense()))
        B = bk.Diagonal(np.full(12, 4, dtype)).to("cuda")
        tolerance = 2e-3 if dtype == "float32" else 1e-8
        for given in (there, cupy.asarray(A.to_dense())):
            for options, expected in (
                ({"M": inverse}, exact[:3]),
                ({"M": inverse, "B": B}, exact[:3] / 4),
                ({"which": "LA"}, exact[-3:]),
                ({"sigma": 0.0}, exact[:3]),
            ):
                found = eigsh(given, 3, **options)
                assert found.converged
                assert isinstance(found.vectors, Array)
                np.testing.assert_allclose(found.values, expected, rtol=tolerance)
        X, Y = cupy.asarray(random_array(rng, (12, 2), dtype)), cupy.asarray(vectors[:, :2])
        found = lobpcg(there, X, Y=Y, tol=tolerance, maxiter=100, largest=False)
        np.testing.assert_allclose(found.values, exact[2:4], rtol=tolerance)
        C = random_array(rng, (9, 9), dtype)
        values = np.linalg.eigvals(C)
        found = eigs(bk.KroneckerProduct([C]).to("cuda"), 2)
        assert all(abs(value - values).min() < 1e-2 * abs(values).max() for value in found.values)


def least_squares():
    """LSQR and LSMR, and the factors' pseudo-inverses and roots."""
    rng = np.random.default_rng(0)
    for dtype in ("float32", "complex128"):
        A = bk.KroneckerProduct([with_diagonal(rng, s, dtype) for s in ((4, 3), (5, 2))])
        b = random_array(rng, (20, 2), dtype)
        expected = A.lstsq(b)
        found = A.to("cuda").lstsq(cupy.asarray(b))
        for one, other in zip(found, expected, strict=True):
            close(one, other) if isinstance(one, Array) else np.testing.assert_equal(one, other)
        close(A.to("cuda").pinv() @ cupy.asarray(b), expected.x)
        for method in (lsqr, lsmr):
            for given in (A.to("cuda"), cupy.asarray(A.to_dense())):
                found = method(given, cupy.asarray(b), atol=1e-6, btol=0.0, batched="columns")
                assert isinstance(found.x, Array)
                np.testing.assert_allclose(found.x.get(), expected.x, atol=1e-2)
        found = lsqr(A.to("cuda"), cupy.asarray(b[:, 0]), calc_var=True)
        assert isinstance(found.var, Array)
        G = random_array(rng, (3, 3), dtype)
        K = bk.KroneckerProduct(G @ G.conj().T + np.eye(3, dtype=dtype), np.eye(2, dtype=dtype))
        assert K.to("cuda").cholesky().device == "cuda"
        left, right = (with_diagonal(rng, (n, n), dtype) for n in (3, 4))
        C, Q = random_array(rng, (2, 3, 4), dtype), random_array(rng, (3, 3), dtype)
        there = [cupy.asarray(one) for one in (left, right, C, Q)]
        close(solve_sylvester(*there[:3]), solve_sylvester(left, right, C))
        close(solve_lyapunov(there[0], there[3]), solve_lyapunov(left, Q))


def functions():
    """Of Hermitian and of any operators, within and beyond the vectors that are kept."""
    rng = np.random.default_rng(0)
    for dtype in ("float32", "float64", "complex128"):
        A, b = positive(rng, dtype), random_array(rng, (12, 2), dtype)
        for f in ("exp", "sqrt", "inverse-sqrt", scipy.linalg.sinm):
            for options in ({}, {"hermitian": True}, {"hermitian": True, "restart": 3}):
                options = {"rtol": 1e-5, "t": 0.25, **options}
                expected = matrix_function(f, A, b, **options)
                found = matrix_function(f, A.to("cuda"), cupy.asarray(b), **options)
                assert isinstance(found.x, Array)
                assert found.x.dtype == expected.x.dtype
                scale = abs(expected.x).max()
                np.testing.assert_allclose(found.x.get(), expected.x, atol=1e-3 * scale)
        times = {"start": 0.0, "stop": 0.5, "num": 2}
        found = expm_multiply((-A).to("cuda"), cupy.asarray(b), **times)
        np.testing.assert_allclose(found.get(), expm_multiply(-A, b, **times), atol=1e-4)
        vectors = [b[:, 0], None, b[:, 1]]
        there = [None if v is None else cupy.asarray(np.ascontiguousarray(v)) for v in vectors]
        expected = A.phi_apply(vectors, -0.5)
        found = phi_multiply(A.to("cuda"), there, -0.5)
        np.testing.assert_allclose(found.x.get(), expected, atol=1e-4 * abs(expected).max())
