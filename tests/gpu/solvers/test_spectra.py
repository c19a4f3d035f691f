"""Eigenvalues of operators on a device, against those on the CPU."""

import numpy as np
import pytest
from dense_oracle import random_array

import batchkron as bk
from batchkron.problems import gallery
from batchkron.solvers import eigs, eigsh, lobpcg, preconditioners

pytestmark = pytest.mark.gpu


def positive(rng, sizes, dtype):
    """A positive definite Kronecker sum."""
    factors = []
    for n in sizes:
        columns = np.linalg.qr(random_array(rng, (n, n), np.result_type(dtype, "f8")))[0]
        factor = (columns * np.linspace(1.0, 20.0 + n, n)) @ columns.conj().T
        factors.append(((factor + factor.conj().T) / 2).astype(dtype))
    return bk.KroneckerSum(factors)


@pytest.mark.parametrize("options", [{"which": "LA"}, {"M": True}, {"sigma": 0.0}], ids=str)
def test_hermitian_operators(cupy, rng, dtype, options):
    A = positive(rng, (6, 7, 5), dtype)
    exact = np.sort(np.asarray(A.eigh()[0]))
    there = A.to("cuda")
    if "M" in options:
        inverse = bk.KroneckerProduct([np.linalg.inv(f) for f in A.factors]).to("cuda")
        options = {"M": inverse}
    result = eigsh(there, 3, **options)
    assert result.converged
    assert isinstance(result.vectors, cupy.ndarray)
    expected = exact[-3:] if "which" in options else exact[:3]
    rtol = 2e-3 if np.finfo(dtype).eps > 1e-10 else 1e-8
    np.testing.assert_allclose(result.values, expected, rtol=rtol)
    residuals = there @ result.vectors - result.vectors * cupy.asarray(result.values)
    limit = 1e-2 if np.finfo(dtype).eps > 1e-10 else 1e-5
    assert float(abs(residuals).max()) < limit


def test_diffusion(cupy):
    A = gallery.make("diffusion-2d", level=5).operator.to("cuda")
    result = eigsh(A, 4, M=preconditioners.make("combination", A), tol=1e-4)
    assert result.converged
    assert result.products <= 70
    np.testing.assert_allclose(
        result.values, -(np.pi**2) * np.array([8.0, 5.0, 5.0, 2.0]), rtol=1e-3
    )


def test_any_operators(cupy, rng, dtype):
    A = random_array(rng, (60, 60), dtype)
    exact = np.linalg.eigvals(A.astype(np.result_type(dtype, "f8")))
    rtol = 1e-2 if np.finfo(dtype).eps > 1e-10 else 1e-7
    for given in (cupy.asarray(A), bk.KroneckerProduct([A]).to("cuda")):
        result = eigs(given, 4)
        assert result.converged
        assert isinstance(result.vectors, cupy.ndarray)
        assert all(abs(value - exact).min() < rtol for value in result.values)


def test_blocks_and_constraints(cupy, rng, dtype):
    A = positive(rng, (6, 7), dtype)
    values, vectors = np.linalg.eigh(A.to_dense())
    X, Y = cupy.asarray(random_array(rng, (42, 3), dtype)), cupy.asarray(vectors[:, :2])
    tol = 1e-2 if np.finfo(dtype).eps > 1e-10 else 1e-7
    found = lobpcg(A.to("cuda"), X, Y=Y, tol=tol, maxiter=500, largest=False)
    assert found.converged
    np.testing.assert_allclose(found.values, values[2:5], rtol=tol)
