"""Eigenvalues of Hermitian operators, against dense ones, with what they cost."""

import warnings

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
from dense_oracle import random_array
from scipy.sparse.linalg import LinearOperator, aslinearoperator

import batchkron as bk
from batchkron.problems import gallery
from batchkron.solvers import ConvergenceWarning, Status, eigs, eigsh, lobpcg, preconditioners


def hermitian(rng, values, dtype):
    """A matrix with given eigenvalues."""
    basis = np.linalg.qr(random_array(rng, (len(values), len(values)), np.result_type(dtype, "f8")))
    matrix = (basis[0] * values) @ basis[0].conj().T
    return ((matrix + matrix.conj().T) / 2).astype(dtype)


def tolerance(dtype):
    return 2e-4 if np.finfo(dtype).eps > 1e-10 else 1e-8


def check(result, A, expected, B=None, *, rtol=1e-9):
    """Values are right, vectors orthonormal, and residuals those of the vectors."""
    assert result.converged
    assert set(result.statuses) == {Status.CONVERGED}
    np.testing.assert_allclose(result.values, expected, rtol=rtol, atol=rtol * abs(expected).max())
    v = np.asarray(result.vectors)
    images = v if B is None else B @ v
    metric = v.conj().T @ images
    eps = np.finfo(v.dtype).eps
    assert abs(metric - np.eye(len(metric))).max() < 500 * eps
    norms = np.linalg.norm(A @ v - images * result.values, axis=0) / np.linalg.norm(v, axis=0)
    size = np.linalg.norm(A, 2) if isinstance(A, np.ndarray) else abs(expected).max() * 1e4
    np.testing.assert_allclose(result.residual_norms, norms, rtol=0.1, atol=50 * eps * size)


@pytest.mark.parametrize(("level", "count", "most"), [(5, 4, 70), (6, 4, 120), (5, 6, 112)])
def test_least_eigenvalues_of_diffusion(level, count, most):
    A = gallery.make("diffusion-2d", level=level).operator
    M = preconditioners.make("combination", A)
    rough = eigsh(A, count, M=M, tol=1e-4)
    fine = eigsh(A, count, M=M, tol=1e-9)
    assert rough.converged
    assert fine.converged
    np.testing.assert_allclose(rough.values, fine.values, rtol=1e-7)
    assert rough.products <= most
    residuals = np.linalg.norm(A @ rough.vectors - rough.vectors * rough.values, axis=0)
    assert (residuals <= 1e-4 * abs(rough.values)).all()
    exact = -(np.pi**2) * np.array([8.0, 5.0, 5.0, 2.0])
    np.testing.assert_allclose(fine.values[-4:], exact, rtol=1e-4)


def test_products_are_counted():
    counted = []

    def multiply(x):
        counted.append(1)
        return diagonal * np.ravel(x)

    diagonal = np.linspace(1.0, 100.0, 80)
    A = LinearOperator((80, 80), matvec=multiply, dtype=np.float64)
    for options in ({"M": bk.Diagonal(1 / diagonal)}, {"which": "LA"}, {"sigma": 0.5}):
        counted.clear()
        result = eigsh(A, 3, **options)
        assert result.converged
        assert result.products == len(counted)


@pytest.mark.parametrize("which", ["LM", "SM", "LA", "SA", "BE"])
def test_both_ends(rng, dtype, which):
    values = np.concatenate([np.linspace(-9.0, 4.0, 60), [-12.0, 10.0, 11.0]])
    if which == "SM":
        values = abs(values) + 0.5
    A = hermitian(rng, values, dtype)
    exact = np.linalg.eigvalsh(A.astype(np.result_type(dtype, "f8")))
    order = {
        "LM": np.argsort(-abs(exact))[:4],
        "SM": np.argsort(abs(exact))[:4],
        "LA": np.arange(len(exact))[-4:],
        "SA": np.arange(4),
        "BE": np.r_[:2, -2:0],
    }[which]
    result = eigsh(A, 4, which=which, maxiter=3000)
    check(result, A, np.sort(exact[order]), rtol=tolerance(dtype))


@pytest.mark.parametrize("which", ["SA", "LA", "SM"])
@pytest.mark.parametrize("with_mass", [False, True])
def test_blocks(rng, dtype, which, with_mass):
    A = hermitian(rng, np.geomspace(1.0, 1e3, 70), dtype)
    B = hermitian(rng, np.geomspace(0.1, 10.0, 70), dtype) if with_mass else None
    wide = np.result_type(dtype, "f8")
    exact = scipy.linalg.eigvalsh(A.astype(wide), None if B is None else B.astype(wide))
    expected = exact[-5:] if which == "LA" else exact[:5]
    M = np.linalg.inv(A) if which != "LA" else None
    mass = np.eye(70, dtype=dtype) if B is None and M is None else B
    result = eigsh(A, 5, M, which=which, B=mass)
    check(result, A, expected, B, rtol=10 * tolerance(dtype))


@pytest.mark.parametrize("scale", [1e-200, 1e200])
@pytest.mark.parametrize("options", [{"M": True}, {"which": "LA"}, {"sigma": 0.0}], ids=str)
def test_extreme_scales(rng, scale, options):
    A = hermitian(rng, np.linspace(1.0, 50.0, 60), np.float64)
    exact = np.linalg.eigvalsh(A)
    if "M" in options:
        options = {"M": np.linalg.inv(A) / scale}
    result = eigsh(scale * A, 3, **options)
    expected = exact[-3:] if "which" in options else exact[:3]
    assert result.converged
    np.testing.assert_allclose(result.values / scale, expected, rtol=1e-9)


def test_clusters_and_null_spaces(rng):
    values = np.concatenate([[0.0, 0.0, 0.0, 1.0, 1.0 + 1e-9, 1.0 + 2e-9], np.linspace(3, 80, 60)])
    A = hermitian(rng, values, np.float64)
    M = np.linalg.inv(A + 0.1 * np.eye(len(A)))
    result = eigsh(A, 6, M=M, which="SA", tol=1e-10)
    assert result.converged
    np.testing.assert_allclose(result.values, values[:6], atol=1e-8)
    shifted = eigsh(A, 3, sigma=-0.5)  # 0 has no relative error
    assert shifted.converged
    np.testing.assert_allclose(shifted.values, 0.0, atol=1e-9)
    near = eigsh(A, 6, M=M)  # next to 0, of a semidefinite A
    np.testing.assert_allclose(near.values, values[:6], atol=1e-8)


def test_all_kinds_of_operators(rng):
    factors = [hermitian(rng, np.linspace(1.0, 9.0 + k, 6 + k), np.float64) for k in range(3)]
    A = bk.KroneckerSum(factors)
    exact = np.sort(A.eigh()[0])
    dense = A.to_dense()
    for given in (A, dense, scipy.sparse.csr_array(dense), aslinearoperator(dense)):
        result = eigsh(given, 3, M=np.linalg.inv(dense))
        np.testing.assert_allclose(result.values, exact[:3], rtol=1e-9)
    inverse = LinearOperator(A.shape, matvec=A.factorise().solve, dtype=np.float64)
    found = eigsh(A, 3, sigma=0.0, OPinv=inverse)
    np.testing.assert_allclose(found.values, exact[:3], rtol=1e-9)
    assert found.products == 3  # the true residuals'


@pytest.mark.parametrize("size", [1, 2, 5])
def test_all_of_a_small_matrix(rng, dtype, size):
    A = hermitian(rng, np.arange(1.0, size + 1), dtype)
    for options in ({}, {"M": np.eye(size, dtype=dtype)}, {"sigma": 0.25}):
        result = eigsh(A, size, **options)
        np.testing.assert_allclose(result.values, np.arange(1.0, size + 1), rtol=tolerance(dtype))


def test_constraints_of_lobpcg(rng):
    A = hermitian(rng, np.linspace(1.0, 30.0, 40), np.complex128)
    B = hermitian(rng, np.linspace(1.0, 3.0, 40), np.complex128)
    exact, vectors = scipy.linalg.eigh(A, B)
    X = random_array(rng, (40, 3), np.complex128)
    options = {"M": np.linalg.inv(A), "tol": 1e-9, "maxiter": 200, "largest": False}
    result = lobpcg(A, X, B, Y=7.0 * vectors[:, :2], **options)
    np.testing.assert_allclose(result.values, exact[2:5], rtol=1e-9)
    assert abs(vectors[:, :2].conj().T @ B @ result.vectors).max() < 1e-12
    up = lobpcg(A, X, B, tol=1e-8, maxiter=500)
    np.testing.assert_allclose(up.values, exact[::-1][:3], rtol=1e-9)


def test_bad_preconditioners_cost_iterations_only(rng):
    A = hermitian(rng, np.linspace(1.0, 30.0, 60), np.float64)
    X = rng.standard_normal((60, 3))
    M = np.diag(np.geomspace(1.0, 1e4, 60))
    result = lobpcg(A, X, M=M, tol=1e-6, maxiter=4000, largest=False)
    np.testing.assert_allclose(result.values, np.linalg.eigvalsh(A)[:3], rtol=1e-9)


def test_what_does_not_converge_is_said(rng):
    A = np.diag(np.linspace(1.0, 1e6, 300))
    for call in (
        lambda **options: eigsh(A, 2, which="SA", maxiter=1, **options),
        lambda **options: eigsh(A, 2, B=np.eye(300), maxiter=2, **options),
    ):
        with pytest.warns(ConvergenceWarning, match="2 of 2 pairs not converged"):
            result = call()
        assert result.status is Status.MAX_ITERATIONS
        assert not result.converged
        with pytest.raises(RuntimeError, match="max-iterations"):
            call(raise_on_failure=True)
    with pytest.warns(ConvergenceWarning, match="both signs"):
        assert eigsh(np.diag([-1.0, 1.0, 2.0, 3.0]), 1, B=np.eye(4)).status is Status.INDEFINITE
    broken = np.diag([np.nan, 1.0, 2.0, 3.0])
    for options in ({}, {"B": np.eye(4)}, {"M": broken, "which": "SA"}, {"sigma": 0.0}):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            assert eigsh(broken, 1, **options).status is Status.NOT_FINITE
        assert [one.category for one in seen] == [ConvergenceWarning]


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_lobpcg_says_that_products_are_not_finite(rng, wrong):
    """An infinite bound of what residuals have to be is none that infinite ones keep to."""
    broken = np.diag([wrong, *np.arange(1.0, 64.0)])
    with pytest.warns(ConvergenceWarning):
        assert lobpcg(broken, rng.standard_normal((64, 2))).status is Status.NOT_FINITE


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"k": 0}, "k is 0"),
        ({"k": 9}, "at most N = 8"),
        ({"which": "LR"}, "which is 'LR'"),
        ({"which": "BE", "M": np.eye(8)}, "which is 'BE'"),
        ({"ncv": 2}, "ncv is 2"),
        ({"ncv": 9}, "ncv is 9"),
        ({"tol": -1.0}, "tol is -1"),
        ({"tol": np.nan}, "tol is nan"),
        ({"v0": np.ones(7)}, "v0 has shape"),
        ({"v0": np.zeros(8)}, "v0 has to be one vector"),
        ({"v0": np.ones((8, 2)), "M": np.eye(8)}, "v0 has 2 columns"),
        ({"maxiter": 0}, "maxiter is 0"),
        ({"M": np.eye(7)}, r"M has shape \(7, 7\)"),
        ({"OPinv": np.eye(8)}, "pass sigma"),
        ({"sigma": 1.0, "B": np.eye(8)}, "exclude each other"),
    ],
    ids=str,
)
def test_bad_arguments(given, text):
    counted = []
    A = LinearOperator((8, 8), matvec=lambda x: counted.append(1) or x, dtype=np.float64)
    with pytest.raises(ValueError, match=text):
        eigsh(A, **{"k": 3, **given})
    assert not counted


def test_bad_operators():
    with pytest.raises(ValueError, match="one square operator"):
        eigsh(np.ones((3, 4)), 1)
    with pytest.raises(TypeError, match="without a shape"):
        eigsh(lambda x: x, 1)
    with pytest.raises(ValueError, match="X has 4 columns"):
        lobpcg(np.eye(4), np.ones((4, 4)), Y=np.ones((4, 1)))
    with pytest.raises(ValueError, match="linearly dependent"):
        lobpcg(np.eye(4), np.ones((4, 2)))


@pytest.mark.parametrize("find", [eigs, eigsh])
@pytest.mark.parametrize("sigma", [3.0, 3.0 + 1e-14])
def test_a_sigma_that_is_an_eigenvalue_is_named(find, sigma):
    with pytest.warns(ConvergenceWarning, match="A - sigma I is singular or nearly so"):
        found = find(np.diag(np.arange(1.0, 21.0)), 2, sigma=sigma)
    assert found.status is Status.BREAKDOWN


@pytest.mark.parametrize("which", ["LA", "SA", "LM", "BE"])
def test_repeated_eigenvalues_are_found_as_often_as_they_are(rng, dtype, which):
    values = np.array([9.0, 9.0, 8.0, 7.5, 7.5, 7.5, *np.linspace(1.0, 5.0, 40), -8.5, -8.5, -6.0])
    A = hermitian(rng, values, dtype)
    ascending = np.sort(values)
    expected = {
        "LA": ascending[-6:],
        "SA": ascending[:6],
        "LM": np.sort(values[np.argsort(-abs(values))[:6]]),
        "BE": np.concatenate([ascending[:3], ascending[-3:]]),
    }[which]
    result = eigsh(A, 6, which=which, rng=1)
    check(result, A, expected, rtol=tolerance(dtype))


def test_double_eigenvalues_of_diffusion():
    A = gallery.make("diffusion-2d", level=3).operator
    dense = np.linalg.eigvalsh(A.to_dense())
    result = eigsh(A, 4, which="LA", tol=1e-9)
    np.testing.assert_allclose(result.values, dense[-4:], rtol=1e-9)
    assert result.values[1] == pytest.approx(result.values[2], rel=1e-8)
    near = eigsh(A, 4, sigma=-45.0, M=preconditioners.make("combination", A))
    expected = np.sort(dense[np.argsort(abs(dense + 45.0))[:4]])
    np.testing.assert_allclose(near.values, expected, rtol=1e-7)


def test_all_eigenvalues_of_a_multiple_of_the_identity():
    result = eigsh(3.0 * np.eye(5), 4, rng=0)
    np.testing.assert_allclose(result.values, 3.0)
    assert result.converged
