"""Preconditioned solves take few iterations, whatever the coefficients and the level."""

import numpy as np
import pytest
import scipy.sparse.linalg

import batchkron as bk
from batchkron.problems import PDE, Axis, Dirichlet, Neumann, gallery
from batchkron.problems.statement.terms import div, grad, laplacian, mass
from batchkron.solvers import cg, gmres, preconditioners
from batchkron.solvers.preconditioners import CombinationPreconditioner, FibreInverse


def variable():
    axes = x, y = [Axis("x", 0, 1), Axis("y", 0, 1)]

    def growing(s):
        return 1 + 10 * s**2

    terms = [
        div(x) @ grad(x) @ mass(y, growing),
        mass(x, growing) @ div(y) @ mass(y, growing) @ grad(y),
    ]
    return PDE(axes, terms, boundary=Dirichlet(), initial=0.0)


def anisotropic():
    axes = x, y = [Axis("x", 0, 1), Axis("y", 0, 1)]
    return PDE(axes, [1e4 * div(x) @ grad(x), div(y) @ grad(y)], boundary=Dirichlet(), initial=0.0)


def mixed_flow():
    axes = x, y = [Axis("x", 0, 1), Axis("y", 0, 1)]
    own = {"boundary": (Dirichlet(), Neumann())}
    terms = [*laplacian(axes, 0.01), div(x, -1.0, **own), div(y, -0.5, **own)]
    return PDE(axes, terms, boundary=Dirichlet(), initial=0.0)


@pytest.mark.parametrize("build", [variable, anisotropic, mixed_flow])
def test_few_iterations_whatever_the_coefficients(rng, build):
    for level in (4, 6):
        problem = build().discretize(level=level, degree=2)
        b = rng.standard_normal(problem.unknowns)
        B = bk.Identity(problem.unknowns) - 0.005 * problem.operator
        M = preconditioners.make("auto", problem.operator, 0.005)
        result = gmres(B, b, M=M, rtol=1e-6)
        assert result.converged
        assert result.iterations <= 15


def test_implicit_diffusion_takes_at_most_15_iterations_and_cg_works_as_well():
    for level in (4, 6, 8):
        problem = gallery.make("diffusion-2d", level=level)
        b = np.random.default_rng(level).standard_normal(problem.unknowns)
        B = bk.Identity(problem.unknowns) - 0.005 * problem.operator
        M = CombinationPreconditioner(problem.operator, 0.005)
        for solve in (gmres, cg):
            result = solve(B, b, M=M, rtol=1e-6)
            assert result.converged
            assert result.iterations <= 15


def test_iterations_hardly_depend_on_the_level(rng):
    counts = []
    for level in range(4, 9):
        problem = gallery.make("diffusion-2d", level=level)
        b = rng.standard_normal(problem.unknowns)
        B = bk.Identity(problem.unknowns) - 0.005 * problem.operator
        M = preconditioners.make("auto", problem.operator, 0.005)
        for solve in (gmres, cg):
            result = solve(B, b, M=M, rtol=1e-6)
            assert result.converged
            counts.append(result.iterations)
    assert max(counts) <= 9
    assert max(counts) - min(counts) <= 4


def several(name):
    """A preconditioner of diffusion on a sparse grid, or of all of a small full one."""
    if name == "full grid":
        return CombinationPreconditioner(bk.KroneckerSum([np.diag(np.arange(1.0, 6.0))] * 2), -0.1)
    return preconditioners.make(name, gallery.make("diffusion-2d", level=3).operator, 0.01)


@pytest.mark.parametrize("name", ["full grid", *preconditioners.names()[:-1]])
def test_products_with_columns(rng, name):
    M = several(name)
    X = rng.standard_normal((M.shape[0], 3))
    columns = [M.matvec(np.ascontiguousarray(x)) for x in X.T]
    expected, close = np.stack(columns, axis=1), {"rtol": 1e-12, "atol": 1e-14}
    np.testing.assert_allclose(M @ X, expected, **close)
    np.testing.assert_allclose(M.matmat(np.asfortranarray(X)), expected, **close)
    np.testing.assert_array_equal(M @ X[:, 0].copy(), columns[0])
    np.testing.assert_array_equal(M.matvec(X[:, :1].copy()), columns[0][:, None])
    assert M.matmat(X[:, :0]).shape == (M.shape[0], 0)
    with pytest.raises(ValueError, match=r"expected \(\d+, K\)"):
        M.matmat(X[1:])


@pytest.mark.parametrize("name", ["auto", "combination", "kronecker-sum"])
def test_smallest_eigenvalues_by_scipy(name):
    """Its lobpcg multiplies several columns by M at once, and warns if it does not converge."""
    A = -gallery.make("diffusion-2d", level=3).operator
    X = np.random.default_rng(0).standard_normal((A.shape[0], 4))
    M = preconditioners.make(name, A)
    values = scipy.sparse.linalg.lobpcg(A, X, M=M, largest=False, tol=1e-6, maxiter=40)[0]
    exact = np.linalg.eigvalsh(A.to_dense())[:4]
    np.testing.assert_allclose(np.sort(values), exact, rtol=1e-8)


def test_a_description_says_what_is_solved():
    text = several("symmetric-combination").describe()
    assert text.splitlines()[0] == "CombinationPreconditioner 180×180 float64: (I - 0.01 A)⁻¹"
    assert "symmetric combination of 6 full grids with" in text
    assert "2 products with A" in text
    fibres = several("fibre-inverse")
    assert isinstance(fibres, FibreInverse)
    assert f"inverses along mode {fibres.mode}" in fibres.describe()
    A = bk.KroneckerSum([np.eye(2), np.eye(3)])
    assert "6×6 float64: A⁻¹" in CombinationPreconditioner(A).describe()
    assert (
        CombinationPreconditioner(A, dtype=complex)
        .shifted(1j)
        .describe()
        .endswith("0 products with A in one with M")
    )
