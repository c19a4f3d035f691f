"""MINRES and flexible GMRES: what the tests of all methods do not cover."""

import numpy as np
import pytest
import scipy.sparse.linalg as spla
from dense_oracle import DTYPES

from batchkron.solvers import Status, bicgstab, cg, fgmres, gmres, minres


def indefinite(rng, size, dtype=np.float64):
    """A Hermitian matrix with eigenvalues of both signs, from 1 to 20."""
    columns = rng.standard_normal((size, size))
    if np.dtype(dtype).kind == "c":
        columns = columns + 1j * rng.standard_normal((size, size))
    orthogonal = np.linalg.qr(columns)[0]
    values = np.linspace(1, 20, size) * np.where(np.arange(size) % 3, 1, -1)
    return ((orthogonal * values) @ orthogonal.conj().T).astype(dtype)


def vector(rng, size, dtype=np.float64):
    b = rng.standard_normal(size)
    return (b + 1j * rng.standard_normal(size) if np.dtype(dtype).kind == "c" else b).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("preconditioned", [False, True])
def test_minres_solves_indefinite_systems(dtype, preconditioned):
    rng = np.random.default_rng(1)
    A, b = indefinite(rng, 30, dtype), vector(rng, 30, dtype)
    values, basis = np.linalg.eigh(A)
    M = ((basis / (abs(values) + 0.2)) @ basis.conj().T).astype(dtype) if preconditioned else None
    rtol = 1e-3 if np.finfo(dtype).eps > 1e-10 else 1e-9
    result = minres(A, b, M=M, rtol=rtol)
    assert result.converged
    assert result.x.dtype == dtype
    assert np.linalg.norm(b - A @ result.x) <= 2 * rtol * np.linalg.norm(b)
    if preconditioned:
        assert result.iterations < minres(A, b, rtol=rtol).iterations
    # the estimates are the residuals: with M they come from a vector of their own
    seen = []
    minres(A, b, M=M, rtol=rtol, callback=lambda x: seen.append(np.linalg.norm(b - A @ x)))
    np.testing.assert_allclose(seen, result.residual_norms[1:], rtol=0.01)


def test_minres_minimises_the_residual():
    rng = np.random.default_rng(2)
    A, b = indefinite(rng, 25), vector(rng, 25)
    ours, best = minres(A, b, rtol=1e-10), gmres(A, b, rtol=1e-10, restart=25)
    shared = min(ours.iterations, best.iterations) - 2
    np.testing.assert_allclose(
        ours.residual_norms[:shared], best.residual_norms[:shared], rtol=1e-6
    )
    assert (np.diff(ours.residual_norms) <= 1e-12).all()


def test_minres_agrees_with_scipy():
    rng = np.random.default_rng(3)
    A, b, x0 = indefinite(rng, 40), vector(rng, 40), vector(rng, 40)
    expected, info = spla.minres(A, b, x0, rtol=1e-11)
    result = minres(A, b, x0, rtol=1e-11)
    assert (info, result.info) == (0, 0)
    np.testing.assert_allclose(result.x, expected, atol=1e-8)


def test_minres_gives_least_squares_of_a_singular_system():
    A, b = np.diag([1.0, -2.0, 3.0, 0.0]), np.ones(4)
    result = minres(A, b)
    assert (result.status, result.info) == (Status.LEAST_SQUARES, 3)
    np.testing.assert_allclose(result.x[:3], [1.0, -0.5, 1 / 3], rtol=1e-9)
    assert result.residual_norm == pytest.approx(1.0)
    assert minres(A, np.array([1.0, 1.0, 1.0, 0.0]), rtol=1e-12).converged
    assert minres(np.zeros((3, 3)), np.ones(3)).status is Status.LEAST_SQUARES


def test_minres_finds_indefinite_preconditioners():
    result = minres(np.eye(3), np.ones(3), M=np.diag([1.0, -5.0, 1.0]))
    assert (result.status, result.info) == (Status.INDEFINITE, -3)


@pytest.mark.parametrize("method", [minres, fgmres])
@pytest.mark.parametrize("place", ["A", "b", "M", "x0"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_not_finite(method, place, bad):
    rng = np.random.default_rng(4)
    parts = {"A": np.eye(6) * 2, "b": vector(rng, 6), "M": np.eye(6), "x0": vector(rng, 6)}
    parts[place].flat[3] = bad
    result = method(**parts)
    assert (result.status, result.info) == (Status.NOT_FINITE, -2)


@pytest.mark.parametrize("method", [minres, fgmres])
@pytest.mark.parametrize(
    ("of_matrix", "of_b"),
    [(a, b) for a in (1e-200, 1.0, 1e200) for b in (1e-200, 1.0, 1e200) if 1e-300 < b / a < 1e300],
)
def test_scaling(method, of_matrix, of_b):
    rng = np.random.default_rng(5)
    A, b = indefinite(rng, 20), vector(rng, 20)
    plain, scaled = method(A, b, rtol=1e-9), method(A * of_matrix, b * of_b, rtol=1e-9)
    assert scaled.converged
    assert abs(scaled.iterations - plain.iterations) <= 1
    np.testing.assert_allclose(scaled.x * (of_matrix / of_b), plain.x, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("method", [minres, fgmres])
@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"A": np.ones((3, 4))}, ValueError, r"A has shape \(3, 4\)"),
        ({"b": np.ones((3, 2))}, ValueError, r"b has shape \(3, 2\)"),
        ({"rtol": -1.0}, ValueError, "rtol is -1.0"),
        ({"maxiter": 0}, ValueError, "maxiter is 0"),
        ({"A": "matrix"}, TypeError, "A is a str"),
    ],
)
def test_wrong_arguments(method, change, error, text):
    with pytest.raises(error, match=text):
        method(**{"A": 2 * np.eye(3), "b": np.ones(3), **change})


def test_fgmres_with_a_fixed_preconditioner_is_gmres():
    rng = np.random.default_rng(6)
    A = 4 * np.eye(30) + rng.standard_normal((30, 30)) / np.sqrt(30)
    b, M = vector(rng, 30), np.linalg.inv(A + 0.5 * rng.standard_normal((30, 30)))
    for options in ({}, {"M": M}, {"M": M, "restart": 5}):
        ours, expected = fgmres(A, b, rtol=1e-9, **options), gmres(A, b, rtol=1e-9, **options)
        assert ours.converged
        assert ours.iterations == expected.iterations
        shared = ours.iterations // 2 + 1
        np.testing.assert_allclose(
            ours.residual_norms[:shared], expected.residual_norms[:shared], rtol=1e-8
        )
        np.testing.assert_allclose(ours.x, expected.x, atol=1e-7)


@pytest.mark.parametrize("dtype", DTYPES)
def test_fgmres_takes_a_preconditioner_that_changes(dtype):
    rng = np.random.default_rng(7)
    size = 60
    A = (np.diag(np.linspace(1, 100, size)) + np.triu(rng.standard_normal((size, size)), 1)).astype(
        dtype
    )
    b, calls = vector(rng, size, dtype), []

    class Changing:
        shape = A.shape
        dtype = A.dtype

        def matvec(self, v):
            calls.append(1)
            return bicgstab(A, v, maxiter=1 + len(calls) % 3).x

    rtol = 1e-4 if np.finfo(dtype).eps > 1e-10 else 1e-10
    result = fgmres(A, b, M=Changing(), rtol=rtol)
    assert result.converged
    assert result.preconditioner_applications == len(calls) == result.iterations
    assert result.iterations < cg_like(A, b, rtol)
    assert np.linalg.norm(b - A @ result.x) <= 2 * rtol * np.linalg.norm(b)


def cg_like(A, b, rtol):
    """Iterations of GMRES without a preconditioner."""
    return gmres(A, b, rtol=rtol, maxiter=20).iterations


def test_single_precision_gmres_stays_orthogonal():
    """Delayed reorthogonalisation keeps the basis orthogonal, for condition 1e5 in float32."""
    from batchkron.solvers import Gmres

    rng = np.random.default_rng(8)
    A = (np.diag(np.logspace(0, 5, 80)) + np.triu(rng.standard_normal((80, 80)), 1)).astype("f4")
    solver = Gmres(80, "f4", restart=60)
    solver.solve(A, vector(rng, 80, "f4"), rtol=0.0, maxiter=1)
    basis = solver._recursion.at.basis[1:]
    kept = basis[np.isclose(np.linalg.norm(basis, axis=1), 1.0, rtol=1e-3)].astype(float)
    assert len(kept) >= 55
    assert np.abs(kept @ kept.T - np.eye(len(kept))).max() <= 100 * np.finfo("f4").eps


def test_cg_and_minres_meet_on_definite_systems():
    rng = np.random.default_rng(9)
    A = indefinite(rng, 30)
    A = A @ A
    b = vector(rng, 30)
    np.testing.assert_allclose(cg(A, b, rtol=1e-11).x, minres(A, b, rtol=1e-11).x, atol=1e-8)
