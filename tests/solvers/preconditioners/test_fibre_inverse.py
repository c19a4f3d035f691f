"""The inverse along fibres, against dense matrices of grids that are small enough."""

import numpy as np
import pytest

import batchkron as bk
from batchkron.operators import KroneckerTerm, KroneckerTerms
from batchkron.operators.kronecker_terms import terms_of
from batchkron.problems import PDE, Axis, ModeOperator, gallery
from batchkron.problems.statement.terms import div, grad, mass
from batchkron.solvers import preconditioners
from batchkron.solvers.preconditioners import (
    CombinationPreconditioner,
    FibreInverse,
    fibre_inverse,
)
from batchkron.solvers.steppers.linear_solver import LinearSolver, ShiftedOperator

X, V = Axis("x", 0.0, 1.0), Axis("v", -1.0, 2.0)


def spread(grid="sparse", level=3, degree=1, weight=None, place=1):
    """Diffusion along one axis, with a function of the other one as its coefficient."""
    axes = [X, V]
    own, other = axes[place], axes[1 - place]
    factor = {} if weight is None else {"others": {other: weight}}
    terms = [div(own, 1.0, **factor) @ grad(own), mass(own, lambda s: np.cos(s))]
    return PDE(axes, terms, boundary="neumann", initial=0.0).discretize(
        level=level, degree=degree, grid=grid
    )


def as_matrix(M):
    """Outputs begin as NaN, to show elements that are not written."""
    size = M.shape[0]
    columns = [
        M.matvec(unit, out=np.full(size, np.nan, M.dtype)) for unit in np.eye(size, dtype=M.dtype)
    ]
    return np.stack(columns, axis=1)


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("grid", ["sparse", "full"])
@pytest.mark.parametrize(("level", "degree"), [(0, 2), (1, 0), (3, 1), (4, 2)])
def test_it_is_the_inverse(grid, level, degree, place):
    A = spread(grid, level, degree, place=place).operator
    M = FibreInverse(A, 0.03)
    assert M.is_near_inverse
    B = np.eye(A.shape[0]) - 0.03 * A.to_dense()
    np.testing.assert_allclose(as_matrix(M) @ B, np.eye(A.shape[0]), atol=1e-11)
    if level > 1:
        assert M.mode == place


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
def test_dtypes_and_scales(rng, dtype):
    A = spread().operator
    scale = 0.03 + 0.5j if dtype == np.complex128 else 0.03
    M = FibreInverse(A, scale, dtype=dtype)
    assert M.dtype == dtype
    b = rng.standard_normal(A.shape[0]).astype(dtype)
    expected = np.linalg.solve(np.eye(A.shape[0]) - scale * A.to_dense(), b)
    found = M.matvec(b)
    assert found.dtype == dtype
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(found, expected, atol=1e4 * eps * np.abs(expected).max())
    if dtype == np.complex128:
        np.testing.assert_array_equal(FibreInverse(A, scale).matvec(b), found)
    else:
        both = M.matvec(b + 2j * b[::-1])
        np.testing.assert_allclose(both, found + 2j * M.matvec(b[::-1].copy()), rtol=50 * eps)


def test_other_scales_and_the_operator_itself():
    A = spread().operator
    first = FibreInverse(A, 0.1)
    before = as_matrix(first)
    np.testing.assert_array_equal(as_matrix(first.shifted(0.2)), as_matrix(FibreInverse(A, 0.2)))
    np.testing.assert_array_equal(as_matrix(first), before)
    whole = as_matrix(FibreInverse(A.kronecker_terms())) @ A.to_dense()
    np.testing.assert_allclose(whole, np.eye(A.shape[0]), atol=1e-9)


def test_fibres_with_gaps(rng):
    """Cells are missing, and come in any order: as on grids that follow a solution."""
    problem = spread(level=3)
    terms = problem.operator.kronecker_terms()
    kept = rng.permutation(len(terms.cells))[:-6]
    M = FibreInverse(KroneckerTerms(terms.sizes, terms.terms, terms.cells[kept]), 0.05)
    own = (kept[:, None] * 4 + np.arange(4)).ravel()
    B = (np.eye(problem.unknowns) - 0.05 * problem.operator.to_dense())[np.ix_(own, own)]
    np.testing.assert_allclose(as_matrix(M) @ B, np.eye(len(own)), atol=1e-11)


def test_the_defect_is_the_distance_in_the_frobenius_norm(rng):
    """On a full grid of two cells and two, with dense products."""
    cells = np.stack(np.indices((2, 2)), axis=-1).reshape(-1, 2)
    pairs = [(rng.standard_normal((4, 4)), rng.standard_normal((4, 4))) for _ in range(3)]
    pairs[2] = (pairs[2][0], None)
    numbers = (1.5, -0.3, 2.0)
    terms = tuple(KroneckerTerm(c, pair) for c, pair in zip(numbers, pairs, strict=True))
    M = FibreInverse(KroneckerTerms((2, 2), terms, cells), 0.1)
    defects = []
    for mode in range(2):
        left = whole = 0.0
        for c, pair in zip(numbers, pairs, strict=True):
            factors = [np.eye(4) if f is None else f for f in pair]
            near = [f if k == mode else np.trace(f) / 4 * np.eye(4) for k, f in enumerate(factors)]
            left += abs(c) * np.linalg.norm(np.kron(*factors) - np.kron(*near))
            whole += abs(c) * np.linalg.norm(np.kron(*factors))
        defects.append(left / whole)
    assert M.mode == np.argmin(defects)
    assert M.defect == pytest.approx(min(defects), rel=1e-12)
    assert not M.is_near_inverse


def test_it_is_what_auto_takes_where_it_is_the_inverse_or_near():
    for weight in (None, lambda s: 1.0 + s):
        M = preconditioners.make("auto", spread(weight=weight).operator, 0.1)
        assert isinstance(M, FibreInverse)
    steep = spread(weight=lambda s: 0.01 + s**6).operator
    heat = gallery.make("diffusion-2d", level=3).operator
    line = gallery.make("diffusion-1d", level=3).operator
    for A in (steep, heat, line):
        assert isinstance(preconditioners.make("auto", A, 0.1), CombinationPreconditioner)
        assert isinstance(preconditioners.make("auto", A), CombinationPreconditioner)


def test_its_defect_is_computed_once_where_it_is_looked_for(monkeypatch):
    operator, calls = spread(weight=lambda s: 1.0 + 0.01 * s).operator, []
    least = fibre_inverse._least_defect
    monkeypatch.setattr(
        fibre_inverse, "_least_defect", lambda terms: [calls.append(1), least(terms)][1]
    )
    found = FibreInverse.if_suitable(operator, terms_of(operator), 0.1)
    assert len(calls) == 1
    expected = FibreInverse(operator, 0.1)
    assert (found.mode, found.defect, found.dtype) == (1, expected.defect, expected.dtype)
    b = np.cos(np.arange(found.shape[0]))
    np.testing.assert_array_equal(found.matvec(b), expected.matvec(b))


def test_what_is_weak_in_short_steps_counts_in_long_ones():
    """A thousandth of diffusion along the other axis: small in any norm, and slow where B is."""
    terms = [div(V) @ grad(V), 1e-3 * (div(X) @ grad(X))]
    A = PDE([X, V], terms, boundary="neumann", initial=0.0).discretize(level=3, degree=1).operator
    assert FibreInverse(A, 1e-3).defect < 0.01
    assert isinstance(preconditioners.make("auto", A, 1e-3), CombinationPreconditioner)


@pytest.mark.parametrize("weight", [lambda s: 1.0 + s, lambda s: 1.0 + 0.3 * np.sin(6.0 * s)])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_what_auto_takes_converges_fast(rng, weight, scale):
    A = spread(level=4, weight=weight).operator
    M = preconditioners.make("auto", A, scale)
    assert isinstance(M, FibreInverse)
    left = np.eye(A.shape[0]) - as_matrix(M) @ (np.eye(A.shape[0]) - scale * A.to_dense())
    assert np.abs(np.linalg.eigvals(left)).max() < 0.5


def test_near_multiples_of_the_identity_save_iterations():
    A = spread(level=4, weight=lambda s: 1.0 + 0.01 * s).operator
    M = FibreInverse(A, 0.1)
    assert 1e-4 < M.defect < 0.02
    left = np.eye(A.shape[0]) - as_matrix(M) @ (np.eye(A.shape[0]) - 0.1 * A.to_dense())
    assert np.abs(np.linalg.eigvals(left)).max() < 0.01


def test_a_singular_matrix_of_a_fibre_gives_the_identity(rng):
    A = (
        PDE([X, V], [mass(V, 2.0)], boundary="neumann", initial=0.0)
        .discretize(level=2, degree=1)
        .operator
    )
    x = rng.standard_normal(A.shape[0])
    np.testing.assert_array_equal(FibreInverse(A, 0.5).matvec(x), x)


def test_refusals(monkeypatch):
    with pytest.raises(ValueError, match="has no cells"):
        FibreInverse(bk.KroneckerSum([np.eye(2), np.eye(2)]), 0.1)
    A = spread(level=3).operator
    monkeypatch.setattr("batchkron.solvers.preconditioners.fibre_inverse._MAX_ROWS", 15)
    with pytest.raises(ValueError, match="up to 16 unknowns, more than 15"):
        FibreInverse(A, 0.1)
    assert not isinstance(preconditioners.make("auto", A, 0.1), FibreInverse)
    monkeypatch.undo()
    assert isinstance(preconditioners.make("auto", A, 0.1), FibreInverse)
    pairs = "batchkron.solvers.preconditioners.fibre_inverse._MAX_PAIRS"
    monkeypatch.setattr(pairs, FibreInverse(A, 0.1).product.num_products - 1)
    assert not isinstance(preconditioners.make("auto", A, 0.1), FibreInverse)


@pytest.mark.parametrize("solver", ["gmres", "bicgstab"])
def test_solvers_begin_with_it(rng, solver):
    """One product with each is all, if M is still the inverse; if it is not, they go on."""
    A = spread().operator
    b = rng.standard_normal(A.shape[0])
    linear = LinearSolver(solver, b)
    M, x = FibreInverse(A, 0.1), np.full_like(b, np.nan)
    found = linear.solve(ShiftedOperator(A, 0.1, b), b, M, x)
    assert found.converged
    assert (found.applications, found.preconditioner_applications) == (1, 1)
    B = np.eye(A.shape[0]) - 0.1 * A.to_dense()
    assert np.linalg.norm(b - B @ x) <= 1e-9 * np.linalg.norm(b)
    assert found.residual_norm == pytest.approx(np.linalg.norm(b - B @ x), abs=1e-12)
    moved = spread(weight=lambda s: 1.0 + 0.3 * s).operator
    found = linear.solve(ShiftedOperator(moved, 0.1, b), b, M, x)
    assert found.converged
    assert found.applications > 2
    B = np.eye(A.shape[0]) - 0.1 * moved.to_dense()
    assert np.linalg.norm(b - B @ x) <= 1e-9 * np.linalg.norm(b)
    loose = linear.solve(ShiftedOperator(moved, 0.1, b), b, M, x, rtol=0.9)
    assert (loose.converged, loose.applications) == (True, 1)
    with np.errstate(invalid="ignore"):
        bad = linear.solve(ShiftedOperator(A, 0.1, b), np.full_like(b, np.nan), M, x)
    assert not bad.converged


def test_a_matrix_of_few_cells_is_no_identity():
    """The mean over x, which has one block on a grid of four cells along x."""
    cells = np.stack(np.indices((4, 4)), axis=-1).reshape(-1, 2)
    first = ModeOperator(1, 1, np.array([0]), np.array([0]), np.ones((1, 1, 1)))
    decay = np.diag([-1.0, 1.0, -2.0, 2.0])
    M = FibreInverse(KroneckerTerms((1, 1), (KroneckerTerm(1.0, (first, decay)),), cells), 0.1)
    # ‖(P - φ I) ⊗ F‖ / ‖P ⊗ F‖ with P = diag(1, 0, 0, 0) and φ = ¼; less than for F - φ I
    assert M.mode == 1
    assert M.defect == pytest.approx(np.sqrt(3.0) / 2.0, rel=1e-12)
    assert not M.is_near_inverse


@pytest.mark.parametrize("answer", [np.nan, np.inf])
def test_solvers_do_not_begin_with_what_is_worse_than_zero(rng, answer):
    class WasTheInverse:
        is_near_inverse = True
        shape, dtype = (12, 12), np.dtype(float)
        calls = 0

        def matvec(self, x, out):
            self.calls += 1
            np.multiply(x, answer if self.calls == 1 else 1.0, out=out)

    b, A = rng.standard_normal(12), np.diag(np.arange(12.0))
    x = np.full_like(b, np.nan)
    with np.errstate(invalid="ignore", over="ignore"):
        found = LinearSolver("gmres", b).solve(ShiftedOperator(A, -0.1, b), b, WasTheInverse(), x)
    assert found.converged
    np.testing.assert_allclose(x, b / (1.0 + 0.1 * np.arange(12.0)), rtol=1e-7)


def test_a_coefficient_whose_square_is_out_of_range():
    A = spread(weight=lambda s: 1 + 0.1 * s).operator
    plain, large = FibreInverse(A), FibreInverse(2.0**665 * A)
    assert plain.defect == large.defect > 0
    assert plain.mode == large.mode
