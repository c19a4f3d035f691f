"""Preconditioners by name, of lists whose terms are found, and what "auto" says otherwise."""

import warnings

import numpy as np
import pytest
import scipy.sparse
from raw_lists import as_raw

import batchkron as bk
from batchkron.problems import PDE, Axis, Dirichlet, gallery, time
from batchkron.problems.statement.terms import div, grad, laplacian
from batchkron.solvers import PreconditionerWarning, preconditioners, steady_state
from batchkron.solvers.preconditioners import CombinationPreconditioner, NamedPreconditioner


def listed(name, level):
    return gallery.make(name, level=level, degree=1).with_form("batch").operator


def without_terms(rng):
    """A list that no Kronecker terms make."""
    op = as_raw(listed("diffusion-2d", 3))
    op.update(weights=1.0 + rng.random(op.num_products))
    return op


@pytest.mark.parametrize("name", [n for n in preconditioners.names() if n != "none"])
def test_all_names_take_a_raw_list_as_the_list_of_a_problem(rng, name):
    ours = listed("diffusion-2d", 3)
    x = rng.standard_normal(ours.shape[0])
    expected = preconditioners.make(name, ours, 0.01).matvec(x)
    found = preconditioners.make(name, as_raw(ours), 0.01).matvec(x)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10 * np.abs(expected).max())


def test_lists_in_sums_and_multiples(rng):
    """A(t) of terms that depend on time is a sum of multiples of lists."""
    axes = x, _ = [Axis("x", 0, 1), Axis("y", 0, 1)]
    terms = [*laplacian(axes, 0.1), time.sin(3.0) * (div(x) @ grad(x))]
    pde = PDE(axes, terms, boundary=Dirichlet(), initial=0.0)
    A = pde.discretize(level=3, degree=1).with_form("batch").operator_at(0.4)
    raw = sum(part.scalar * as_raw(part.operator) for part in A.terms[1:]) + as_raw(
        A.terms[0].operator if hasattr(A.terms[0], "operator") else A.terms[0]
    )
    x = rng.standard_normal(A.shape[0])
    expected = preconditioners.make("combination", A, 0.05).matvec(x)
    found = preconditioners.make("combination", raw, 0.05).matvec(x)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10 * np.abs(expected).max())


def test_auto_says_once_what_it_is_instead(rng):
    op = without_terms(rng)
    with pytest.warns(PreconditionerWarning, match="'block-jacobi' here: .*the products that act"):
        M = preconditioners.make("auto", op, 0.01)
    expected = preconditioners.block_jacobi(op, 0.01)
    x = rng.standard_normal(op.shape[0])
    np.testing.assert_array_equal(M.matvec(x), expected.matvec(x))
    assert "the preconditioner 'auto' is 'block-jacobi' here" in M.describe()
    assert "'auto' is block-jacobi" in op.describe()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        named = NamedPreconditioner("auto")
        for scale in (0.01, 0.02):
            named(op, scale)
    with pytest.raises(TypeError, match="no Kronecker terms that can be found"):
        preconditioners.make("combination", op)


def test_a_hint_makes_the_difference():
    op = as_raw(listed("runaway", (3, 2)))
    with pytest.warns(PreconditionerWarning, match=r"recover_terms\(levels=…\)"):
        assert isinstance(preconditioners.make("auto", op, 0.1), bk.BatchedKron)
    op.recover_terms(levels=(3, 2))
    assert isinstance(preconditioners.make("auto", op, 0.1), CombinationPreconditioner)
    assert "5 Kronecker terms were found" in op.describe()


def test_kronecker_sparse_matrices_have_block_jacobi(rng):
    K = bk.KroneckerSparse(rng.standard_normal((2, 3, 3, 2)))
    with pytest.warns(PreconditionerWarning, match="'block-jacobi' here"):
        M = preconditioners.make("auto", K, 0.1)
    x = rng.standard_normal(12)
    np.testing.assert_allclose(M.matvec(x - 0.1 * (K @ x)), x, atol=1e-12)


def test_large_factors_are_not_inverted(rng, monkeypatch):
    monkeypatch.setattr("batchkron.solvers.preconditioners.automatic._MAX_ROWS", 1)
    with pytest.warns(PreconditionerWarning, match="'none' here"):
        assert preconditioners.make("auto", without_terms(rng), 0.1) is None


@pytest.mark.parametrize("matrix", [np.asarray, scipy.sparse.csr_array])
def test_auto_warns_once_of_a_matrix(matrix):
    A = matrix(-np.diag([1.0, 2.0, 300.0]))
    with pytest.warns(PreconditionerWarning, match="'none' here") as seen:
        found = steady_state(A, u0=np.ones(3), source=np.ones(3), preconditioner="auto")
    assert found.converged
    assert len(seen) == 1
