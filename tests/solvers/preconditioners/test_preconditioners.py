"""Preconditioners against dense references: exact where promised, and saving iterations."""

from fractions import Fraction

import numpy as np
import pytest
from hermitian_sums import mass as definite

import batchkron as bk
from batchkron.operators import KroneckerTerm, KroneckerTerms
from batchkron.operators.scaling import times_power_of_two
from batchkron.problems import PDE, Axis, Dirichlet, Neumann, SparseGrid, gallery, make, time
from batchkron.problems.statement.terms import div, grad, laplacian, mass
from batchkron.solvers import gmres, preconditioners
from batchkron.solvers.preconditioners import CombinationPreconditioner
from batchkron.solvers.preconditioners.subgrids import (
    coloured_levels,
    combination_coefficients,
    subgrids,
)


def dense(terms):
    """The matrix of Kronecker terms on a full grid: the sum of coefficient · A_1 ⊗ … ⊗ A_d."""
    total = 0
    for t, term in enumerate(terms.terms):
        product = np.ones((1, 1))
        for mode in range(len(terms.sizes)):
            product = np.kron(product, terms.factor(t, mode))
        total = total + term.coefficient * product
    return total


def as_matrix(preconditioner):
    """The preconditioner's matrix. Outputs begin as NaN, to show elements that are not written."""
    size = preconditioner.shape[0]
    columns = []
    for unit in np.eye(size, dtype=preconditioner.dtype):
        out = np.full(size, np.nan, preconditioner.dtype)
        columns.append(preconditioner.matvec(unit, out=out))
    return np.stack(columns, axis=1)


def normal_far(rng, n):
    """A stable matrix far from normal: nearly a Jordan block, with nearly parallel eigenvectors."""
    return -2.0 * np.eye(n) + np.diag(np.full(n - 1, 3.0), 1) + 1e-9 * rng.standard_normal((n, n))


def symmetric(rng, n):
    matrix = rng.standard_normal((n, n))
    return -(matrix @ matrix.T) / n


@pytest.mark.parametrize("kind", ["product", "sum", "algebra", "identity"])
def test_terms_are_those_of_the_matrix(rng, kind):
    A, B = rng.standard_normal((3, 3)), rng.standard_normal((4, 4))
    operator = {
        "product": bk.KroneckerProduct([A, B]),
        "sum": bk.KroneckerSum([A, B]),
        "algebra": 2 * bk.KroneckerSum([A, B])
        - bk.KroneckerProduct([B.T[:3, :3], B]) / 3
        + 0.5 * bk.Identity(12),
        "identity": 3.0 * bk.Identity(12),
    }[kind]
    np.testing.assert_allclose(dense(operator.kronecker_terms()), operator.to_dense(), atol=1e-13)


def test_terms_of_a_problem_survive_pickling_and_end_with_an_update():
    import pickle

    operator = gallery.make("diffusion-2d", level=2).with_form("batch").operator
    copy = pickle.loads(pickle.dumps(operator))
    assert copy.kronecker_terms().unknowns == operator.shape[0]
    copy.update(weights=np.ones(copy.num_products))
    with pytest.raises(TypeError, match="does not know its Kronecker terms"):
        copy.kronecker_terms()
    with pytest.raises(ValueError, match="unknowns"):
        copy.declare_terms(KroneckerTerms((2,), (KroneckerTerm(1.0, (None,)),)))


def test_coefficients_of_the_combination():
    levels = SparseGrid.sparse([3, 3]).cells
    found = combination_coefficients(np.frexp(levels.astype(float))[1])
    assert {k: v for k, v in found.items() if sum(k) == 3} == {(i, 3 - i): 1 for i in range(4)}
    assert {k: v for k, v in found.items() if sum(k) == 2} == {(i, 2 - i): -1 for i in range(3)}
    assert sum(found.values()) == 1
    assert len(found) == 7


@pytest.mark.parametrize("kind", ["sparse", "unequal", "mixed", "adaptive"])
def test_every_cell_is_counted_once(rng, kind):
    grids = {
        "sparse": SparseGrid.sparse([3, 3, 3]),
        "unequal": SparseGrid.sparse([4, 2]),
        "mixed": SparseGrid.product(SparseGrid.sparse([2, 2]), SparseGrid.sparse([3])),
        "adaptive": None,
    }
    if grids[kind] is None:
        cells, waiting = set(), [(5, 2), (1, 7), (4, 4)]
        while waiting:  # each cell brings all its ancestors
            first, second = waiting.pop()
            cells.add((first, second))
            waiting += [(first // 2, second)] * (first > 0) + [(first, second // 2)] * (second > 0)
        cells = np.array(sorted(cells))
    else:
        cells = grids[kind].cells
    terms = KroneckerTerms((1,) * cells.shape[1], (), cells)
    counted = np.zeros(len(cells) + 1, int)
    for grid in subgrids(terms):
        assert grid.places.size == np.prod([1 << level for level in grid.levels])
        np.add.at(counted, grid.places, grid.coefficient)
        assert grid.complete == (grid.places.max() < len(cells))
    assert (counted[:-1] == 1).all()


def levels_of(problem):
    return np.frexp(problem.grid.cells.astype(float))[1]


def reference(problem, scale, tops=None):
    """Σ c_l P_l (P_l* B P_l)⁻¹ P_l* over subgrids, with B = I - scale A.

    The c_l are the coefficients of the combination technique on the grid's levels or, if ``tops``
    is given, on these levels and all below them.
    """
    B = np.eye(problem.unknowns) - scale * problem.operator.to_dense()
    levels = levels_of(problem)
    n = (problem.degree + 1) ** problem.grid.dimensions
    total = np.zeros_like(B)
    for level, number in combination_coefficients(levels if tops is None else tops).items():
        inside = np.repeat((levels <= np.array(level)).all(axis=1), n)
        places = np.flatnonzero(inside)
        total[np.ix_(places, places)] += number * np.linalg.inv(B[np.ix_(places, places)])
    return total


def with_flow():
    """Advection with inflow: 1-D matrices far from normal in both modes."""
    axes = x, y = [Axis("x", 0, 1), Axis("y", 0, 1)]
    own = {"boundary": (Dirichlet(), Neumann())}
    terms = [div(x, -1.0, **own), div(y, -0.5, **own)]
    return PDE(axes, terms, boundary=Dirichlet(), initial=0.0)


def with_pitch():
    """A mode p whose 1-D matrices do not commute and need dense inverses; z is symmetric."""
    axes = p, z = [Axis("p", 0.5, 2), Axis("z", -1, 1)]
    terms = [
        div(p, -1.0, boundary=(Dirichlet(), Neumann())),
        mass(p, lambda s: 1 / s) @ div(z) @ mass(z, lambda s: 1 - s**2) @ grad(z),
    ]
    return PDE(axes, terms, boundary=Neumann(), initial=0.0)


def on_a_torus():
    """1-D matrices with complex eigenvalues."""
    axes = x, y = [Axis("x", 0, 1), Axis("y", 0, 1)]
    terms = [*laplacian(axes, 1e-2), div(x, -1.0), div(y, -1.0)]
    return PDE(axes, terms, boundary="periodic", initial=0.0)


def of_two_scales():
    """A different matrix in each mode, so that no two modes share an eigenbasis."""
    axes = x, y = [Axis("x", 0, 1), Axis("y", 0, 1)]
    terms = [3.0 * div(x) @ grad(x), div(y) @ grad(y)]
    return PDE(axes, terms, boundary=Dirichlet(), initial=0.0)


@pytest.mark.parametrize(
    "make",
    [
        "diffusion-1d",
        "diffusion-2d",
        "diffusion-3d",
        with_flow,
        with_pitch,
        on_a_torus,
        of_two_scales,
    ],
)
def test_combination_is_exact_on_its_full_grids(make):
    if callable(make):
        problem = make().discretize(level=3, degree=1)
    else:
        problem = gallery.make(make, level=2, degree=1)
    M = CombinationPreconditioner(problem.operator, 0.01)
    expected = reference(problem, 0.01)
    np.testing.assert_allclose(as_matrix(M), expected, atol=1e-9 * np.abs(expected).max())
    again = M.shifted(0.3)
    expected = reference(problem, 0.3)
    np.testing.assert_allclose(as_matrix(again), expected, atol=1e-8 * np.abs(expected).max())


@pytest.mark.parametrize("make", ["diffusion-2d", "diffusion-3d", with_pitch, on_a_torus])
def test_composed_combinations_leave_the_product_of_what_their_parts_leave(make):
    """I - M B of a composition is the product of the I - M_i B of its parts."""
    if callable(make):
        problem = make().discretize(level=3, degree=1)
    else:
        problem = gallery.make(make, level=3, degree=1)
    groups = coloured_levels(levels_of(problem))
    assert len(groups) == 2
    one = np.eye(problem.unknowns)
    B = one - 0.02 * problem.operator.to_dense()
    parts = [reference(problem, 0.02, tops) for tops in groups]
    first, second = parts if groups[0].max() < groups[1].max() else parts[::-1]
    for composition, order in (
        ("multiplicative", [first, second]),
        ("symmetric", [first, second, first]),
    ):
        left = one
        for part in order:
            left = left - part @ B @ left
        M = CombinationPreconditioner(problem.operator, 0.5, composition=composition)
        found = one - as_matrix(M.shifted(0.02)) @ B
        np.testing.assert_allclose(found, left, atol=1e-7)


def test_composed_combination_of_negative_terms_alone_and_in_single_precision(rng):
    problem = gallery.make("diffusion-2d", level=4)
    A = problem.operator
    b = rng.standard_normal(problem.unknowns)
    M = preconditioners.make("auto", A)
    assert gmres(A, b, M=M, rtol=1e-8).iterations <= 12
    single = preconditioners.make("auto", A, 0.01, dtype=np.float32)
    double = preconditioners.make("auto", A, 0.01)
    x = b.astype(np.float32)
    assert single.matvec(x).dtype == np.float32
    np.testing.assert_allclose(single.matvec(x), double.matvec(b), atol=1e-3 * np.abs(b).max())


def test_auto_for_terms_alone_and_for_many_systems(rng):
    heat = gallery.make("diffusion-2d", level=3)
    x = rng.standard_normal(heat.initial.size)
    terms = heat.operator.kronecker_terms()
    np.testing.assert_array_equal(
        preconditioners.make("auto", terms, 0.01).matvec(x),
        preconditioners.make("combination", terms, 0.01).matvec(x),
    )
    factor = np.diag([1.0, 2.0])
    many = bk.KroneckerSum([np.stack([factor, 3 * factor]), factor])
    with pytest.warns(preconditioners.PreconditionerWarning, match="'none' here: .*systems"):
        assert preconditioners.make("auto", many) is None


@pytest.mark.parametrize("name", ["combination", "symmetric-combination"])
def test_complex_scales_and_vectors(rng, name):
    heat = gallery.make("diffusion-2d", level=3)
    x = rng.standard_normal(heat.initial.size)
    M = preconditioners.make(name, heat.operator, 0.005j)
    assert M.dtype == np.complex128
    A = np.eye(x.size) - 0.005j * heat.operator.to_dense()
    result = gmres(A, x + 0j, M=M, rtol=1e-8)
    assert result.converged
    assert result.iterations < 25
    with pytest.raises(TypeError, match="x has dtype complex128"):
        preconditioners.make(name, heat.operator, 0.005).matvec(x + 0j)


def test_auto_factorises_nothing_large(rng, monkeypatch):
    A = gallery.make("diffusion-2d", level=3, degree=1).operator
    x = rng.standard_normal(A.shape[0])
    expected = preconditioners.block_jacobi(A, 0.1).matvec(x)
    monkeypatch.setattr("batchkron.solvers.preconditioners.combination._MAX_ROWS", 15)
    found = preconditioners.make("auto", A, 0.1).matvec(x)
    np.testing.assert_array_equal(found, expected)


def test_composed_combination_needs_products():
    terms = gallery.make("diffusion-2d", level=2).operator.kronecker_terms()
    with pytest.raises(ValueError, match="needs products with A"):
        CombinationPreconditioner(terms, 0.1, composition="symmetric")
    with pytest.raises(ValueError, match="composition is 'sum'"):
        CombinationPreconditioner(terms, 0.1, composition="sum")


@pytest.mark.parametrize(
    ("name", "composition"),
    [("diffusion-1d", "additive"), ("diffusion-2d", "symmetric"), ("diffusion-3d", "additive")],
)
def test_auto_is_what_the_table_of_the_documentation_says(name, composition):
    A = gallery.make(name, level=3, degree=1).operator
    expected = as_matrix(CombinationPreconditioner(A, 0.1, composition=composition))
    found = as_matrix(preconditioners.make("auto", A, 0.1))
    np.testing.assert_allclose(found, expected, atol=1e-14)


def test_an_operator_at_a_time_is_preconditioned_with_all_its_terms():
    axes = x, y = [Axis("x", 0, 1), Axis("y", 0, 1)]
    growth = time.sin(3.0)
    terms = [*laplacian(axes, 0.1), 0.2 * growth * (div(x) @ grad(x))]
    problem = PDE(axes, terms, boundary=Dirichlet(), initial=0.0).discretize(level=2, degree=1)
    A = problem.operator_at(0.4)
    fixed = [0.1 * div(y) @ grad(y), (0.1 + 0.2 * np.sin(1.2)) * div(x) @ grad(x)]
    still = PDE(axes, fixed, boundary=Dirichlet(), initial=0.0).discretize(level=2, degree=1)
    expected = as_matrix(CombinationPreconditioner(still.operator, 0.05))
    np.testing.assert_allclose(as_matrix(CombinationPreconditioner(A, 0.05)), expected, atol=1e-10)


def test_combination_on_a_grid_with_gaps_is_that_of_the_whole_one_restricted():
    whole = gallery.make("diffusion-2d", level=3, degree=1)
    kept = np.sort(np.random.default_rng(4).permutation(whole.grid.num_cells)[:-5])
    kept = kept[kept > 0] if 0 in kept else kept
    cells = whole.grid.cells[np.concatenate([[0], kept])]
    terms = whole.operator.kronecker_terms()
    full = as_matrix(CombinationPreconditioner(terms, 0.01))
    partial = KroneckerTerms(terms.sizes, terms.terms, cells)
    assert {g.levels for g in subgrids(partial)} == {g.levels for g in subgrids(terms)}
    rows = (np.concatenate([[0], kept])[:, None] * 4 + np.arange(4)).ravel()
    found = as_matrix(CombinationPreconditioner(partial, 0.01))
    np.testing.assert_allclose(found, full[np.ix_(rows, rows)], atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("family", ["symmetric", "mixed", "far from normal"])
def test_exact_inverse_of_kronecker_sums(rng, family, dtype):
    far = [normal_far(rng, 6), normal_far(rng, 5)]
    near = [symmetric(rng, 6), symmetric(rng, 5)]
    factors = {"symmetric": near, "mixed": [near[0], far[1]], "far from normal": far}[family]
    if dtype == np.complex128:
        factors = [factor + 0.1j * np.diag(rng.random(len(factor))) for factor in factors]
    A = bk.KroneckerSum(factors)
    for scale in (0.3, None):
        B = A.to_dense() if scale is None else np.eye(30) - scale * A.to_dense()
        M = as_matrix(CombinationPreconditioner(A, scale))
        np.testing.assert_allclose(M @ B, np.eye(30), atol=1e-7)


def test_a_singular_operator_gets_a_finite_preconditioner():
    A = bk.KroneckerSum([np.diag([0.0, -1.0, -3.0])] * 2)
    M = as_matrix(CombinationPreconditioner(A))
    assert np.isfinite(M).all()
    assert np.linalg.matrix_rank(M) == 9


def test_nearest_product_is_the_dominant_singular_pair(rng):
    first, second = rng.standard_normal((4, 3, 3)), rng.standard_normal((4, 5, 5))
    first[0] += 2 * np.eye(3)
    second[0] += 2 * np.eye(5)
    X, Y = preconditioners.nearest_product([first, second])
    rearranged = np.einsum("tij,tkl->ijkl", first, second).reshape(9, 25)
    singular = np.linalg.svd(rearranged, compute_uv=False)
    left = np.linalg.norm(rearranged - np.outer(X.ravel(), Y.ravel()))
    assert left == pytest.approx(np.sqrt((singular[1:] ** 2).sum()), rel=1e-10)


def test_nearest_product_of_one_term_in_three_modes_is_the_term(rng):
    given = [np.abs(rng.standard_normal((1, n, n))) for n in (2, 3, 4)]
    found = preconditioners.nearest_product(given)
    expected = np.kron(np.kron(given[0][0], given[1][0]), given[2][0])
    np.testing.assert_allclose(np.kron(np.kron(*found[:2]), found[2]), expected, rtol=1e-12)


def test_nearest_sum_is_the_orthogonal_projection(rng):
    modes = [rng.standard_normal((3, n, n)) for n in (2, 3, 2)]
    K = preconditioners.nearest_sum(modes)
    whole = sum(np.kron(np.kron(a, b), c) for a, b, c in zip(*modes, strict=True))
    basis = []
    for mode, n in enumerate((2, 3, 2)):
        for i in range(n):
            for j in range(n):
                unit = np.zeros((n, n))
                unit[i, j] = 1
                factors = [unit if k == mode else np.eye(m) for k, m in enumerate((2, 3, 2))]
                basis.append(np.kron(np.kron(factors[0], factors[1]), factors[2]).ravel())
    basis = np.array(basis).T
    projected = basis @ np.linalg.lstsq(basis, whole.ravel(), rcond=None)[0]
    found = bk.KroneckerSum(K).to_dense()
    np.testing.assert_allclose(found, projected.reshape(12, 12), atol=1e-12)


def test_block_jacobi_inverts_the_nearest_products_of_the_cells_blocks():
    problem = gallery.make("diffusion-2d", level=2, degree=1)
    M = preconditioners.block_jacobi(problem.operator, 0.01)
    B = np.eye(problem.unknowns) - 0.01 * problem.operator.to_dense()
    found = M.to_dense()
    for cell in range(problem.grid.num_cells):
        own = slice(4 * cell, 4 * cell + 4)
        block = B[own, own].reshape(2, 2, 2, 2).transpose(0, 2, 1, 3).reshape(4, 4)
        u, s, vt = np.linalg.svd(block)
        best = s[0] * np.kron(u[:, 0].reshape(2, 2), vt[0].reshape(2, 2))
        np.testing.assert_allclose(found[own, own] @ best, np.eye(4), atol=1e-9)
        found[own, own] = 0
    assert not found.any()


@pytest.mark.parametrize("name", preconditioners.names())
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_name_gives_what_gmres_takes(name, dtype):
    problem = gallery.make("diffusion-2d", level=3)
    A = problem.operator.astype(dtype) if dtype == np.float64 else problem.operator
    M = preconditioners.make(name, A, 1e-3, dtype=dtype)
    b = np.random.default_rng(0).standard_normal(problem.unknowns).astype(dtype)
    B = np.eye(problem.unknowns) - 1e-3 * A.to_dense()
    result = gmres(B.astype(dtype), b, M=M, rtol=1e-4, restart=100)
    assert result.converged
    assert result.x.dtype == dtype
    assert M is None or (M.dtype == dtype and M.matvec(b).dtype == dtype)


def test_a_named_preconditioner_keeps_its_bases_while_the_operator_is_the_same(monkeypatch):
    problem = gallery.make("diffusion-2d", level=3)
    named = preconditioners.NamedPreconditioner("combination")
    first = named(problem.operator, 0.1)
    monkeypatch.setattr(np.linalg, "eigh", None)  # a second decomposition would fail
    second = named(problem.operator, 0.2)
    monkeypatch.undo()
    fresh = CombinationPreconditioner(problem.operator, 0.2)
    x = np.random.default_rng(0).standard_normal(problem.unknowns)
    np.testing.assert_array_equal(second.matvec(x), fresh.matvec(x))
    assert np.linalg.norm(first.matvec(x) - second.matvec(x)) > 0.01 * np.linalg.norm(x)


def test_modes_with_equal_matrices_share_a_basis(monkeypatch):
    problem = gallery.make("diffusion-2d", level=3)
    sizes, eigh = [], np.linalg.eigh

    def counted(matrix):
        sizes.append(len(matrix))
        return eigh(matrix)

    monkeypatch.setattr(np.linalg, "eigh", counted)
    CombinationPreconditioner(problem.operator, 0.1)
    assert sorted(sizes) == [3, 6, 12, 24]


MAKERS = (
    preconditioners.block_jacobi,
    preconditioners.CombinationPreconditioner,
    preconditioners.FibreInverse,
)


@pytest.mark.parametrize("make", MAKERS)
def test_scales_that_are_no_numbers_for_the_vectors(make):
    A = gallery.make("diffusion-2d", level=2, degree=1).operator
    assert make(A, 0.1j).dtype == np.complex128
    assert make(A, 0.1, dtype=np.float32).dtype == np.float32
    for scale, dtype, error, text in (
        (0.1j, np.float64, TypeError, "scale is complex, but the vectors are float64"),
        (np.nan, None, ValueError, "scale is nan; expected a finite number"),
        (-np.inf, np.complex128, ValueError, "scale is -inf; expected a finite number"),
        ("a", None, TypeError, "scale is str; expected a number"),
        (np.ones(3), None, TypeError, "scale is ndarray; expected a number"),
        (0.1, np.int64, TypeError, "dtype is int64; expected float32"),
    ):
        with pytest.raises(error, match=text):
            make(A, scale, dtype=dtype)
    if make is not preconditioners.block_jacobi:
        for scale, error in ((0.1j, TypeError), (np.nan, ValueError)):
            with pytest.raises(error, match="scale is"):
                make(A, 0.1, dtype=np.float64).shifted(scale)


def test_refusals():
    unknown = bk.KroneckerSum([np.eye(2), np.eye(2)]) @ bk.Identity(4)
    with pytest.raises(TypeError, match="does not know its Kronecker terms"):
        preconditioners.make("combination", unknown)
    with pytest.raises(TypeError, match="does not know its Kronecker terms"):
        preconditioners.block_jacobi(unknown)
    with pytest.warns(preconditioners.PreconditionerWarning, match="'none' here"):
        assert preconditioners.make("auto", unknown) is None
    with pytest.raises(ValueError, match="Did you mean 'combination'"):
        preconditioners.make("combinatoin", unknown)
    with pytest.raises(ValueError, match="local is"):
        CombinationPreconditioner(bk.KroneckerSum([np.eye(2)]), local="best")  # type: ignore
    with pytest.raises(ValueError, match="not square"):
        bk.KroneckerProduct([np.ones((2, 3))]).kronecker_terms()
    with pytest.raises(ValueError, match="more than 4096"):
        CombinationPreconditioner(bk.KroneckerSum([np.eye(4097)]))
    one, other = bk.KroneckerSum([np.eye(2), np.eye(6)]), bk.KroneckerSum([np.eye(3), np.eye(4)])
    with pytest.raises(TypeError, match="no common Kronecker terms"):
        (one + other).kronecker_terms()


@pytest.mark.parametrize("exponent", [532, -665, 996])
@pytest.mark.parametrize("local", ["exact", "product", "sum"])
def test_scales_of_factors_that_cancel(rng, exponent, local):
    """Bases and nearest products are those of factors of ordinary size."""
    K, M = ([definite(rng, n, np.float64) for n in (3, 4)] for _ in range(2))
    up = [times_power_of_two(factor, exponent) for factor in (*K, *M)]
    down = [times_power_of_two(factor, -exponent) for factor in (*K, *M)]
    plain = bk.KroneckerProduct(K[0], M[1]) + bk.KroneckerProduct(M[0], K[1])
    scaled = bk.KroneckerProduct(up[0], down[3]) + bk.KroneckerProduct(down[2], up[1])
    large = bk.KroneckerSum(up[:2])
    for scale in (None, -0.3):
        found, expected = (
            CombinationPreconditioner(op, scale, local=local) for op in (scaled, plain)
        )
        x = rng.standard_normal(12)
        np.testing.assert_allclose(found.matvec(x), expected.matvec(x), rtol=1e-9, atol=1e-12)
    whole = CombinationPreconditioner(large, local=local).matvec(x)
    expected = CombinationPreconditioner(bk.KroneckerSum(K), local=local).matvec(x)
    np.testing.assert_allclose(times_power_of_two(whole, exponent), expected, rtol=1e-9)


def test_scales_of_factors_that_cancel_to_one(rng):
    A, B = (np.eye(3) + 0.1 * rng.random((3, 3)) for _ in range(2))
    op = bk.KroneckerProduct(2.0**300 * A, 2.0**-300 * A) + bk.KroneckerProduct(B, B)
    M = CombinationPreconditioner(op)
    plain = CombinationPreconditioner(bk.KroneckerProduct(A, A) + bk.KroneckerProduct(B, B))
    np.testing.assert_allclose(as_matrix(M), as_matrix(plain), rtol=1e-9)


def test_vectors_of_another_length_are_refused():
    M = CombinationPreconditioner(make("diffusion-2d", level=3, degree=1).operator, 0.1)
    for shape in ((79,), (85,), (80, 2)):
        with pytest.raises(ValueError, match=r"expected \(80,\) or \(80, 1\)"):
            M.matvec(np.ones(shape))


def test_descriptions_of_scales():
    operator = make("diffusion-2d", level=3, degree=1).operator
    assert "(I - 0.1 A)⁻¹" in CombinationPreconditioner(operator, Fraction(1, 10)).describe()
    imaginary = CombinationPreconditioner(operator, -0.1j, dtype=complex)
    assert "(I - (-0-0.1j) A)⁻¹" in imaginary.describe()


@pytest.mark.parametrize("name", [name for name in preconditioners.names() if name != "none"])
def test_vectors_of_other_dtypes_and_outputs_of_other_shapes(rng, name):
    A = make("diffusion-2d", level=3, degree=1).operator
    M = preconditioners.make(name, A, -0.1)
    x, X = rng.standard_normal(A.shape[0]), rng.standard_normal((A.shape[0], 3))
    expected, columns = M.matvec(x.astype("f4").astype("f8")), M @ X.astype("f4").astype("f8")
    np.testing.assert_array_equal(M.matvec(x.astype("f4")), expected)
    np.testing.assert_array_equal(M @ X.astype("f4"), columns)
    np.testing.assert_array_equal(M.matvec(x.tolist()), M.matvec(x))
    for shape in ((1, x.size), (x.size, 1), (x.size - 1,)):
        with pytest.raises(ValueError, match=r"out has shape \("):
            M.matvec(x, np.empty(shape))


def test_a_combination_on_one_grid_refuses_outputs_of_other_shapes():
    M = preconditioners.make("kronecker-sum", bk.KroneckerSum(np.eye(2), np.eye(3)))
    with pytest.raises(ValueError, match=r"out has shape \(1, 6\); expected \(6,\), as x"):
        M.matvec(np.ones(6), np.empty((1, 6)))
