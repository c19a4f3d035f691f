"""Combinations whose full grids are solved by sparse factors or dense inverses."""

import numpy as np
import pytest
from hard_problems import equations
from scipy.linalg import expm
from scipy.sparse import csr_matrix

import batchkron as bk
from batchkron.operators import KroneckerTerms
from batchkron.problems import gallery
from batchkron.problems.discretization.basis.multiwavelets import hierarchical_transform
from batchkron.solvers import evolve, gmres
from batchkron.solvers.preconditioners import CombinationPreconditioner, NamedPreconditioner
from batchkron.solvers.preconditioners.bases import ModeBases
from batchkron.solvers.preconditioners.factorised import FactorisedGrids, TooLargeError
from batchkron.solvers.preconditioners.factorised.elimination import (
    cost_of_elimination,
    dissection,
    lexicographic,
    minimum_degree,
)
from batchkron.solvers.preconditioners.factorised.inverse_list import InverseList
from batchkron.solvers.preconditioners.factorised.local_matrices import LocalMatrices
from batchkron.solvers.preconditioners.subgrids import subgrids


def factorised(operator, scale, **options):
    return CombinationPreconditioner(operator, scale, local="factorised", **options)


def expected(operator, scale, x):
    """Σ_l c_l P_l (P_l* B P_l)⁻¹ P_l* x by dense matrices of the operator itself."""
    A, terms = operator.to_dense(), operator.kronecker_terms()
    B = A if scale is None else np.eye(len(A)) - scale * A
    total = np.zeros(len(A), np.result_type(B, x))
    for grid in subgrids(terms):
        own = np.arange(len(A)) if grid.places is None else np.unique(grid.places)
        own = own[own < len(A)]
        total[own] += grid.coefficient * np.linalg.solve(B[np.ix_(own, own)], x[own])
    return total


def adapted(pde, shape="front", degree=1, level=4):
    return pde.discretize(grid=equations.adapted_grid(shape, level, 2e-3), degree=degree)


OPERATORS = {
    "2-D": lambda: equations.bump(100.0).discretize(level=4, degree=1).operator,
    "3-D": lambda: equations.oblique(3).discretize(level=2, degree=1).operator,
    "levels": lambda: equations.wind().discretize(level=(4, 2), degree=2).operator,
    "full": lambda: equations.sin8().discretize(level=3, degree=1, grid="full").operator,
    "periodic": lambda: gallery.make("continuity-2d", level=3, degree=2).operator,
    "adapted": lambda: adapted(equations.bump()).operator,
    "tensor product": lambda: sum_of_products(),
}


def sum_of_products():
    rng = np.random.default_rng(2)
    tridiagonal = np.diag(np.ones(8), 1) + np.diag(np.ones(8), -1) - 2 * np.eye(9)
    weights = np.diag(1 + rng.random(9))
    return bk.KroneckerProduct([weights, tridiagonal]) + bk.KroneckerProduct([tridiagonal, weights])


@pytest.mark.parametrize("scale", [0.3, None, 0.1 - 0.2j])
@pytest.mark.parametrize("name", OPERATORS)
def test_solves_on_full_grids_are_exact(rng, name, scale):
    A = OPERATORS[name]()
    if name == "periodic" and scale is None:  # the operator is singular
        scale = 2.0
    x = rng.standard_normal(A.shape[0])
    M = factorised(A, scale)
    wanted = expected(A, scale, x)
    found = M.matvec(x.astype(M.dtype))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-9 * np.abs(wanted).max())


def test_float32_vectors(rng):
    A = OPERATORS["2-D"]()
    x = rng.standard_normal(A.shape[0]).astype(np.float32)
    M = factorised(A, 0.1, dtype=np.float32)
    found = M.matvec(x)
    assert found.dtype == np.float32
    wanted = expected(A, 0.1, x)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-6 * np.abs(wanted).max())


@pytest.mark.parametrize("degree", [0, 2])
def test_nodal_matrices_are_those_of_the_finest_cells(degree):
    A = equations.oblique().discretize(level=3, degree=degree).operator
    terms = A.kronecker_terms()
    local = LocalMatrices(ModeBases(terms))
    W = [hierarchical_transform(level, degree) for level in (2, 1)]
    n, cells = degree + 1, np.indices((4, 2)).reshape(2, -1).T
    whole = sum(
        term.coefficient * np.kron(*(w.T @ terms.factor(t, k, 2 - k) @ w for k, w in enumerate(W)))
        for t, term in enumerate(terms.terms)
    )
    by_cells = whole.reshape(4, n, 2, n, 4, n, 2, n).transpose(0, 2, 1, 3, 4, 6, 5, 7)
    found = local.matrix((2, 1), cells, True).toarray()
    size = np.abs(whole).max()
    np.testing.assert_allclose(found, by_cells.reshape(found.shape), rtol=0, atol=1e-13 * size)
    pattern = local.pattern((2, 1), cells, True).toarray()
    blocks = np.abs(found).reshape(8, n * n, 8, n * n).max(axis=(1, 3)) > 0
    assert not (blocks & ~pattern).any()
    rows, columns = np.nonzero(pattern)
    assert np.abs(cells[rows] - cells[columns]).max() == 1  # neighbours


@pytest.mark.parametrize("order", [lexicographic, dissection, minimum_degree])
def test_costs_are_those_of_elimination(order):
    widths = (4, 8)
    numbers = np.arange(32).reshape(widths)
    pattern = np.eye(32, dtype=bool)
    for first, second in ((numbers[1:], numbers[:-1]), (numbers[:, 1:], numbers[:, :-1])):
        pattern[first, second] = pattern[second, first] = True
    found = order(csr_matrix(pattern) if order is minimum_degree else widths)
    assert sorted(found) == list(range(32))
    left, pairs, products = pattern[np.ix_(found, found)], 0, 0
    for i in range(32):
        below = i + 1 + np.flatnonzero(left[i + 1 :, i])
        left[np.ix_(below, below)] = True
        pairs += 1 + 2 * len(below)
        products += len(below) + len(below) ** 2
    cost = cost_of_elimination(csr_matrix(pattern), found, 3)
    assert cost.numbers == 9 * pairs
    assert pairs <= (240 if order is minimum_degree else 270)
    assert cost.multiply_adds == pytest.approx(27 * (products + 32 / 3))


def test_factors_are_kept_for_scales_between_half_and_twice(rng):
    A = OPERATORS["2-D"]()
    B = {c: bk.Identity(A.shape[0]) - c * A for c in (0.01, 0.019, 0.02, 0.0051, 0.004)}
    x = rng.standard_normal(A.shape[0])
    M = factorised(A, 0.01)
    for c, is_kept in ((0.019, True), (0.0051, True), (0.02, False), (0.004, False)):
        other = M.shifted(c)
        assert np.array_equal(other.matvec(x), M.matvec(x)) == is_kept
        assert other.scale == c
        assert gmres(B[c], x, M=other, rtol=1e-6).iterations <= 12
        if not is_kept:
            np.testing.assert_array_equal(other.matvec(x), factorised(A, c).matvec(x))
    M.rescale(0.004)
    np.testing.assert_array_equal(M.matvec(x), factorised(A, 0.004).matvec(x))


def test_the_multiplicative_composition_keeps_the_factors_but_not_the_scale(rng):
    A = OPERATORS["2-D"]()
    M = factorised(A, 0.01, composition="multiplicative")
    b = rng.standard_normal(A.shape[0])
    B = bk.Identity(A.shape[0]) - 0.015 * A
    assert gmres(B, b, M=M.shifted(0.015), rtol=1e-6).iterations <= 10


def test_too_many_numbers_are_refused_before_anything_is_factorised(monkeypatch):
    A = OPERATORS["2-D"]()
    monkeypatch.setattr(FactorisedGrids, "shifted", None)
    with pytest.raises(TooLargeError, match=r"would have .* numbers, more than 100"):
        factorised(A, 0.1, max_numbers=100)


def test_singular_operators(rng):
    """The constant function is in the kernel of the operator on a torus."""
    A = gallery.make("continuity-2d", level=3, degree=2).operator
    y = factorised(A, None).matvec(rng.standard_normal(A.shape[0]))
    assert np.isfinite(y).all()


def test_terms_without_filters_are_solved_as_well(rng):
    A = equations.bump().discretize(level=4, degree=2).operator
    terms = A.kronecker_terms()
    bare = KroneckerTerms(terms.sizes, terms.terms, terms.cells)
    x = rng.standard_normal(A.shape[0])
    wanted = factorised(A, 1.0).matvec(x)
    found = factorised(bare, 1.0).matvec(x)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-9 * np.abs(wanted).max())


@pytest.mark.parametrize("in_place", [False, True])
def test_named_ones_depend_on_the_present_scale_only(rng, in_place):
    """So that resumed runs have the same."""
    A = OPERATORS["2-D"]()
    x = rng.standard_normal(A.shape[0])
    run = NamedPreconditioner("auto", in_place=in_place)
    for scale in (0.01, 0.012, 0.017, 0.03, 0.011, -0.01):
        M = run(A, scale)
        assert M.scale == scale
        resumed = NamedPreconditioner("auto", in_place=in_place)(A, scale)
        np.testing.assert_array_equal(M.matvec(x), resumed.matvec(x))
        B = bk.Identity(A.shape[0]) - scale * A
        if scale > 0:
            assert gmres(B, x, M=M, rtol=1e-6).iterations <= 12


def test_an_implicit_run_with_contrast():
    problem = equations.bump().discretize(level=4, degree=1)
    start = np.random.default_rng(0).standard_normal(problem.unknowns)
    result = evolve(
        problem.on_grid(problem.grid, start),
        until=0.02,
        method="esdirk3",
        rtol=1e-4,
        preconditioner="auto",
    )
    exact = expm(0.02 * problem.operator.to_dense()) @ start
    assert result.status == "completed"
    assert np.linalg.norm(result.u - exact) <= 1e-3 * np.linalg.norm(start)


def test_what_is_far_too_large_is_refused_without_a_look_at_the_pattern(monkeypatch):
    monkeypatch.setattr(FactorisedGrids, "_piece", None)
    with pytest.raises(TooLargeError, match="more than 100"):
        factorised(OPERATORS["2-D"](), 0.1, max_numbers=100)


@pytest.mark.parametrize("name", ["2-D", "3-D", "levels", "full", "periodic", "adapted"])
def test_a_list_of_inverses_is_their_sum(rng, name):
    """What a device multiplies by: one matrix for each pair of cells, replaced in place."""
    A = OPERATORS[name]()
    terms = A.kronecker_terms()
    grids = FactorisedGrids(ModeBases(terms), subgrids(terms), np.float64, "cuda")
    assert {piece.way for piece in grids._pieces} == {"dense"}
    whole = InverseList(grids._local, grids._pieces, np.float64, "cpu").factorised(0.1)
    assert whole.numbers <= grids.cost.numbers
    x, memory = rng.standard_normal(A.shape[0]), whole._list
    for c in (0.1, 0.9):
        if c != 0.1:
            whole.refactorise(c)
        out = np.ones_like(x)
        whole.add(x, out)
        np.testing.assert_allclose(out, 1.0 + expected(A, c, x), rtol=1e-9, atol=1e-9)
    assert whole._list is memory
    single = InverseList(grids._local, grids._pieces, np.float32, "cpu").factorised(0.1)
    out = np.zeros(len(x), np.float32)
    single.add(x.astype(np.float32), out)
    assert np.linalg.norm(out - expected(A, 0.1, x)) < 1e-4 * np.linalg.norm(out)
