"""Eigenvalues of any operator, against dense ones."""

import numpy as np
import pytest
from dense_oracle import random_array
from scipy.sparse.linalg import LinearOperator

import batchkron as bk
from batchkron.problems import gallery
from batchkron.solvers import ConvergenceWarning, Status, eigs, preconditioners

ORDERS = {
    "LM": lambda values: -abs(values),
    "SM": abs,
    "LR": lambda values: -values.real,
    "SR": lambda values: values.real,
    "LI": lambda values: -abs(values.imag),
    "SI": lambda values: abs(values.imag),
}


def normal(rng, values, dtype):
    """A normal matrix with given eigenvalues; of a real dtype with their conjugates, too."""
    values = np.asarray(values)
    wide = np.result_type(dtype, "f8")
    if wide.kind == "c":
        blocks = np.diag(values)
    else:
        blocks = np.zeros((2 * len(values), 2 * len(values)))
        for k, value in enumerate(values):
            rows = slice(2 * k, 2 * k + 2)
            blocks[rows, rows] = [[value.real, value.imag], [-value.imag, value.real]]
    basis = np.linalg.qr(random_array(rng, blocks.shape, wide))[0]
    return (basis @ blocks @ basis.conj().T).astype(dtype)


def relative(dtype):
    return 2e-4 if np.finfo(dtype).eps > 1e-10 else 1e-9


def check(result, A, wanted, rtol):
    """Each value is one of the wanted, and residuals are those of the vectors."""
    assert result.converged
    for value in result.values:
        assert abs(value - wanted).min() <= rtol * abs(wanted).max()
    v = np.asarray(result.vectors)
    np.testing.assert_allclose(np.linalg.norm(v, axis=0), 1.0, rtol=1e-4)
    norms = np.linalg.norm(A @ v - v * result.values, axis=0)
    eps = np.finfo(v.dtype).eps
    atol = 100 * eps * np.linalg.norm(A, 2)
    np.testing.assert_allclose(result.residual_norms, norms, rtol=0.1, atol=atol)


@pytest.mark.parametrize("which", ORDERS)
def test_each_part_of_the_spectrum(rng, dtype, which):
    radius = np.linspace(0.5, 4.0, 30)
    angles = np.linspace(0.1, np.pi - 0.1, 30)[rng.permutation(30)]
    A = normal(rng, radius * np.exp(1j * angles), dtype)
    exact = np.linalg.eigvals(A.astype(np.result_type(dtype, "f8")))
    rank = ORDERS[which]
    if which in ("LI", "SI") and np.dtype(dtype).kind == "c":
        rank = {"LI": lambda values: -values.imag, "SI": lambda values: values.imag}[which]
    order = np.argsort(rank(exact), kind="stable")
    inside = which in ("SM", "SI")  # of the spectrum: found only by a basis of the whole space
    result = eigs(A, 4, which=which, ncv=len(A) if inside else 20)
    # a conjugate pair may be cut
    edge = rank(exact)[order[3]] + 1e-5
    check(result, A, exact[rank(exact) <= edge], relative(dtype))


def test_matrices_that_are_far_from_normal(rng):
    A = np.diag(np.linspace(1.0, 20.0, 60)) + np.triu(rng.standard_normal((60, 60)), 1) * 0.5
    result = eigs(A, 3, which="LR", tol=1e-12, maxiter=500)
    assert result.converged
    largest = np.linspace(1.0, 20.0, 60)[-3:]
    np.testing.assert_allclose(np.sort(result.values.real), largest, rtol=1e-5)


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_extreme_scales(rng, scale):
    A = rng.standard_normal((50, 50))
    exact = np.linalg.eigvals(A)
    result = eigs(scale * A, 2)
    assert result.converged
    assert all(abs(value / scale - exact).min() < 1e-8 for value in result.values)


def test_near_a_shift(rng, dtype):
    A = normal(rng, np.linspace(1.0, 9.0, 20) + 1j * np.linspace(0.0, 3.0, 20), dtype)
    A = A + 0.05 * random_array(rng, A.shape, dtype)
    exact = np.linalg.eigvals(A.astype(np.result_type(dtype, "f8")))
    for sigma in (4.0, 4.0 + 1.0j):
        result = eigs(A, 2, sigma=sigma)
        nearest = exact[np.argsort(abs(exact - sigma))[:3]]
        check(result, A, nearest, 50 * relative(dtype))
        kind = np.result_type(dtype, "F" if sigma.imag else "f")
        inverse = np.linalg.inv(A - sigma * np.eye(len(A))).astype(kind)
        direct = eigs(A, 2, sigma=sigma, OPinv=inverse)
        check(direct, A, nearest, 50 * relative(dtype))


def test_a_preconditioner_of_inner_solves():
    A = gallery.make("diffusion-2d", level=4).operator
    alone = eigs(A, 2, sigma=0.0, tol=1e-6)
    helped = eigs(A, 2, M=preconditioners.make("combination", A), sigma=0.0, tol=1e-6)
    found, expected = (np.sort(one.values.real) for one in (helped, alone))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert helped.products < 0.4 * alone.products
    assert helped.preconditioner_applications > 0


def test_products_are_counted(rng):
    matrix, counted = rng.standard_normal((60, 60)) + 8.0 * np.eye(60), []
    A = LinearOperator(
        (60, 60), matvec=lambda x: counted.append(1) or matrix @ np.ravel(x), dtype=np.float64
    )
    for options in ({}, {"sigma": 0.0}, {"which": "LR"}):
        counted.clear()
        result = eigs(A, 3, **options)
        assert result.products == len(counted)


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_all_of_a_small_matrix(rng, dtype, size):
    A = random_array(rng, (size, size), dtype)
    exact = np.linalg.eigvals(A.astype(np.result_type(dtype, "f8")))
    result = eigs(A, size)
    rtol = 100 * relative(dtype)
    found, expected = np.sort_complex(result.values), np.sort_complex(exact)
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol)


def test_invariant_spaces(rng):
    A = bk.KroneckerProduct(np.eye(20), rng.standard_normal((3, 3)))
    v0 = np.kron(np.eye(20)[3], rng.standard_normal(3))
    exact = np.linalg.eigvals(A.factors[1])
    result = eigs(A, 3, v0=v0)
    assert result.converged
    assert all(abs(value - exact).min() < 1e-9 for value in result.values)


def test_what_does_not_converge_is_said(rng):
    A = rng.standard_normal((100, 100))
    with pytest.warns(ConvergenceWarning, match="max-iterations"):
        assert eigs(A, 3, which="SM", maxiter=2).status is Status.MAX_ITERATIONS
    with pytest.raises(RuntimeError, match="max-iterations"):
        eigs(A, 3, which="SM", maxiter=2, raise_on_failure=True)
    with pytest.warns(ConvergenceWarning):
        assert not eigs(np.diag([1.0, 2.0, 0.0, 0.0]), 1, sigma=0.0).converged


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"M": np.eye(8)}, "pass sigma"),
        ({"M": np.eye(8), "OPinv": np.eye(8), "sigma": 1.0}, "needs no M"),
        ({"which": "LA"}, "which is 'LA'"),
        ({"k": 9}, "at most N = 8"),
        ({"v0": np.full(8, np.nan)}, "v0"),
    ],
    ids=str,
)
def test_bad_arguments(given, text):
    with pytest.raises(ValueError, match=text):
        eigs(np.eye(8), **{"k": 2, **given})
