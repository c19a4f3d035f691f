"""Kronecker terms that are found in lists of numbers: their sum is the list, or there are none."""

import copy
import pickle

import numpy as np
import pytest
from raw_lists import as_raw, dense_list, dense_terms

import batchkron as bk
from batchkron.operators.recovered_terms import factors as factors_module
from batchkron.problems import PDE, Axis, Dirichlet, Neumann, SparseGrid, gallery
from batchkron.problems.statement.terms import div, grad, laplacian, mass

EPS = np.finfo(np.float64).eps


def list_of(problem, t=0.3):
    """The batch list of a problem at a time; one of its lists if terms depend on time."""
    operator = problem.with_form("batch").operator_at(t)
    while not isinstance(operator, bk.BatchedKron):
        operator = operator.terms[-1] if hasattr(operator, "terms") else operator.operator
    return operator


def mixed_boundaries():
    axes = x, y = [Axis("x", 0, 1), Axis("y", 0, 1)]
    own = {"boundary": (Dirichlet(), Neumann())}
    terms = [div(x, -1.0, **own), div(y, -0.5, **own), div(x) @ grad(x), 0.3 * div(y) @ grad(y)]
    return PDE(axes, terms, boundary=Dirichlet(), initial=0.0).discretize(level=3, degree=1)


def of_unequal_levels():
    axes = [Axis("x", 0, 1), Axis("y", 0, 1)]
    pde = PDE(axes, laplacian(axes, 0.1), boundary="periodic", initial=0.0)
    return pde.discretize(level=(4, 2), degree=2)


def of_shared_factors():
    """Three modes; two terms have the same factor of x, and different ones of y and z."""
    axes = x, y, z = [Axis(name, 0, 1) for name in "xyz"]
    weight = mass(x, lambda s: 1 + s)
    terms = [
        weight @ mass(y, lambda s: 2 + s * s) @ div(z) @ grad(z),
        weight @ div(y) @ grad(y) @ mass(z, lambda s: 3 - s),
    ]
    return PDE(axes, terms, boundary=Neumann(), initial=0.0).discretize(level=2, degree=1)


def frozen(name):
    problem = gallery.make(name, level=2, degree=1)
    return problem.frozen(problem.initial)


def adapted():
    axes = [Axis("x", 0, 1), Axis("y", 0, 1)]
    pde = PDE(axes, laplacian(axes, 1.0), boundary=Dirichlet(), initial=0.0)
    cells, waiting = set(), [(9, 1), (3, 3), (1, 12)]
    while waiting:  # each cell brings all its ancestors
        first, second = waiting.pop()
        cells.add((first, second))
        waiting += [(first // 2, second)] * (first > 0) + [(first, second // 2)] * (second > 0)
    return pde.discretize(grid=SparseGrid.custom(sorted(cells), [4, 4]), degree=1)


PROBLEMS = {
    "diffusion-2d": lambda: gallery.make("diffusion-2d", level=3),
    "degree 0": lambda: gallery.make("advection-diffusion-2d", level=3, degree=0),
    "degree 4": lambda: gallery.make("diffusion-2d", level=2, degree=4),
    "diffusion-3d": lambda: gallery.make("diffusion-3d", level=2, degree=1),
    "continuity-3d": lambda: gallery.make("continuity-3d", level=2, degree=1),
    "one mode": lambda: gallery.make("diffusion-1d", level=4),
    "runaway": lambda: gallery.make("runaway", level=2, degree=1),
    "relaxation": lambda: frozen("relaxation-1x1v"),
    "two-stream": lambda: frozen("two-stream"),
    "mixed boundaries": mixed_boundaries,
    "unequal levels": of_unequal_levels,
    "shared factors": of_shared_factors,
    "adapted": adapted,
}


@pytest.fixture(scope="module", params=PROBLEMS)
def named(request):
    problem = PROBLEMS[request.param]()
    return problem, list_of(problem)


def assert_found(terms, operator, summands=1):
    """The terms are those of the list, up to rounding errors of as many summands."""
    expected = dense_list(operator)
    bound = 8 * EPS * (summands + len(terms.sizes)) * np.abs(expected).max()
    np.testing.assert_allclose(dense_terms(terms), expected, rtol=0, atol=bound)


def test_terms_of_lists_of_problems(named):
    _, operator = named
    raw = as_raw(operator)
    found = raw.recover_terms()
    assert_found(found, raw)
    assert len(found.terms) <= len(operator.kronecker_terms().terms)
    assert raw.kronecker_terms() is found


@pytest.mark.parametrize("change", ["weights", "order", "blocks", "halves"])
def test_terms_of_changed_lists(rng, named, change):
    problem, operator = named
    weights, cells = operator._spec.weights[0], problem.grid.cells
    if change == "weights":
        raw = as_raw(operator, weights=-1.7 * weights)
    elif change == "order":
        raw = as_raw(operator, order=rng.permutation(len(weights)))
    elif change == "blocks":
        numbers = rng.permutation(len(cells))
        cells = cells[np.argsort(numbers)]
        raw = as_raw(operator, order=rng.permutation(len(weights)), blocks=numbers)
    else:  # each product twice, with two parts of its weight
        order, part = rng.permutation(2 * len(weights)), rng.random(len(weights))
        parts = np.concatenate([part * weights, (1 - part) * weights])
        raw = as_raw(operator, order=order % len(weights))
        raw.update(weights=parts[order])
    assert_found(raw.recover_terms(cells=cells), raw, 2)


def two_terms(rng, dtype=np.float64):
    """A ⊗ B + C ⊗ I on a full grid of 2 × 4 cells, the mode sizes being 2 and 3."""
    A, C = rng.standard_normal((2, 2, 2, 2, 2)).astype(dtype)
    B = rng.standard_normal((4, 4, 3, 3)).astype(dtype)
    one = np.eye(3, dtype=dtype)
    products, inputs, outputs = [], [], []
    cells = [(i, j) for i in range(2) for j in range(4)]
    for target, (i, j) in enumerate(cells):
        for source, (k, m) in enumerate(cells):
            products.append([A[i, k], B[j, m]])
            if j == m:
                products.append([C[i, k], 3 * one])
            inputs += [source] * (1 + (j == m))
            outputs += [target] * (1 + (j == m))
    return products, np.array(inputs), np.array(outputs)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
def test_terms_of_lists_whose_matrices_are_not_shared(rng, dtype):
    products, inputs, outputs = two_terms(rng, dtype)
    op = bk.BatchedKron.from_products(products, inputs, outputs)
    found = op.recover_terms(levels=(1, 2))
    assert [term.modes for term in found.terms] == [(0,), (0, 1)]
    assert found.sizes == (2, 3)
    expected = dense_list(op)
    bound = 64 * np.finfo(dtype).eps * np.abs(expected).max()
    np.testing.assert_allclose(dense_terms(found), expected, rtol=0, atol=bound)


def test_the_order_tells_terms_of_common_blocks_apart():
    """Of degree 0 upwind fluxes in both directions have many blocks in common."""
    problem = gallery.make("two-stream", level=3, degree=0)
    operator = list_of(problem.frozen(problem.initial))
    raw = as_raw(operator)
    found = raw.recover_terms()
    assert len(found.terms) == len(operator.kronecker_terms().terms)
    assert_found(found, raw)
    mixed = as_raw(operator, order=np.random.default_rng(1).permutation(raw.num_products))
    with pytest.raises(TypeError, match="the products that act on modes"):
        mixed.recover_terms()


def test_multiples_of_the_identity_that_differ_from_cell_to_cell(rng):
    """A ⊗ D with blocks c_j I on the diagonal of D: only exact identities are no factors."""
    A = rng.standard_normal((2, 2, 2, 2))
    products, inputs, outputs = [], [], []
    for i, k, j in np.ndindex(2, 2, 4):
        products.append([A[i, k], (2.0 + j) * np.eye(3)])
        inputs.append(4 * k + j)
        outputs.append(4 * i + j)
    op = bk.BatchedKron.from_products(products, inputs, outputs)
    found = op.recover_terms(levels=(1, 2))
    assert [term.modes for term in found.terms] == [(0, 1)]
    assert_found(found, op)


def test_equal_terms_have_one_factor_and_exact_blocks(rng):
    raw = as_raw(list_of(gallery.make("diffusion-2d", level=3)))
    for term in raw.recover_terms(levels=3).terms:
        (mode,) = term.modes
        pool = {matrix.tobytes() for matrix in raw._spec.pools[mode][0]}
        assert all(block.tobytes() in pool for block in term.factors[mode].blocks)


def test_one_block_is_a_whole_tensor_product(rng):
    A, B = rng.standard_normal((3, 3)), rng.standard_normal((2, 2))
    pools = [np.stack([np.eye(3), A]), np.stack([2 * np.eye(2), B])]
    op = bk.BatchedKron(
        pools, [[1, 0], [0, 1], [1, 1], [1, 0]], [0] * 4, [0] * 4, weights=range(1, 5)
    )
    found = op.recover_terms()
    assert found.cells is None
    assert [term.modes for term in found.terms] == [(0,), (1,), (0, 1)]
    assert found.terms[0].coefficient == 10.0  # 2 · (1 + 4)
    total = sum(
        term.coefficient * np.kron(found.factor(t, 0), found.factor(t, 1))
        for t, term in enumerate(found.terms)
    )
    np.testing.assert_allclose(total, dense_list(op), rtol=1e-14)


def changed(products, inputs, outputs, number, matrix=None):
    """The list without a product, or with another first matrix of it."""
    if matrix is None:
        kept = np.delete(np.arange(len(products)), number)
        return [products[b] for b in kept], inputs[kept], outputs[kept]
    products = [list(product) for product in products]
    products[number][0] = matrix
    return products, inputs, outputs


@pytest.mark.parametrize("number", [0, 1, 17, 40])
@pytest.mark.parametrize("change", ["missing", "little"])
def test_what_differs_from_terms_is_refused(rng, number, change):
    products, inputs, outputs = two_terms(rng)
    matrix = products[number][0] * (1 + 1e-9) if change == "little" else None
    op = bk.BatchedKron.from_products(*changed(products, inputs, outputs, number, matrix))
    with pytest.raises(TypeError, match="no Kronecker terms that can be found: the products"):
        op.recover_terms(levels=(1, 2))
    assert "no Kronecker terms were found" in op.describe()
    with pytest.raises(TypeError, match="does not know"):
        op.kronecker_terms()


@pytest.mark.parametrize("number", [0, 1, 17, 40])
def test_rounding_errors_are_not(rng, number):
    products, inputs, outputs = two_terms(rng)
    matrix = products[number][0] * (1 + EPS)
    op = bk.BatchedKron.from_products(*changed(products, inputs, outputs, number, matrix))
    assert_found(op.recover_terms(levels=(1, 2)), op)


def test_another_grid_is_refused_quickly(rng):
    raw = as_raw(list_of(gallery.make("diffusion-2d", level=4)))
    wrong = rng.permutation(list_of(gallery.make("diffusion-2d", level=4)).kronecker_terms().cells)
    with pytest.raises(TypeError, match="no Kronecker terms"):
        raw.recover_terms(cells=wrong)


def test_sums_are_taken_in_parts(monkeypatch, rng):
    raw = as_raw(list_of(gallery.make("advection-diffusion-2d", level=3, degree=1)))
    whole = raw.recover_terms()
    monkeypatch.setattr(factors_module, "_CHUNK_BYTES", 100)
    parts = as_raw(raw).recover_terms()
    for first, second in zip(whole.terms, parts.terms, strict=True):
        (mode,) = first.modes
        assert first.factors[mode].equals(second.factors[mode])


@pytest.mark.parametrize("name", ["diffusion-3d", "mixed boundaries", "unequal levels", "adapted"])
def test_blocks_in_any_order_are_placed_on_a_grid(rng, name):
    """Products with identities in a mode tell which blocks have the same 1-D cell there."""
    problem = PROBLEMS[name]()
    count = problem.grid.num_cells
    raw = as_raw(list_of(problem), blocks=rng.permutation(count))
    found = raw.recover_terms()
    assert_found(found, raw)
    assert all(len(term.modes) == 1 for term in found.terms)
    for mode, given in zip(found.cells.T, problem.grid.cells.T, strict=True):
        counts = np.unique(given, return_counts=True)[1]
        np.testing.assert_array_equal(np.bincount(mode), np.sort(counts)[::-1])


def test_update_keeps_the_grid_and_forgets_the_terms():
    raw = as_raw(list_of(gallery.make("runaway", level=(3, 2), degree=1)))
    with pytest.raises(TypeError, match=r"recover_terms\(levels=…\)"):
        raw.recover_terms()
    raw.recover_terms(levels=(3, 2))
    raw.update(weights=np.full(raw.num_products, 2.0))
    with pytest.raises(TypeError, match="does not know"):
        raw.kronecker_terms()
    assert_found(raw.recover_terms(), raw)
    with pytest.raises(TypeError):
        raw.astype(np.float32).recover_terms()


def test_plans_and_copies_know_the_grid():
    """The grid of this list is not guessed; that of a copy is its own."""
    raw = as_raw(list_of(gallery.make("runaway", level=(3, 2), degree=1)))
    factored = raw.plan("factored")
    raw.recover_terms(levels=(3, 2))
    assert factored.kronecker_terms() is raw.kronecker_terms()
    assert "Kronecker terms were found" in factored.describe()
    raw.update(weights=np.full(raw.num_products, 2.0))
    others = [factored, raw.plan("auto"), pickle.loads(pickle.dumps(raw)), copy.copy(raw)]
    for other in others:
        with pytest.raises(TypeError, match="does not know"):
            other.kronecker_terms()
    for other in others[::-1]:
        assert_found(other.recover_terms(), raw)
    others[-1].update(weights=np.ones(raw.num_products))
    assert_found(raw.recover_terms(), raw)
    assert_found(others[-1].recover_terms(), others[-1])


def test_lists_without_a_chance():
    one = np.ones((1, 2, 2))
    many = bk.BatchedKron([np.ones((3, 1, 2, 2))], [[0]], [0], [0])
    wide = bk.BatchedKron([np.ones((1, 2, 3))], [[0]], [0], [0])
    other = bk.BatchedKron([one], [[0]], [0], [1])
    broken = bk.BatchedKron([one * np.nan], [[0]], [0], [0])
    heavy = bk.BatchedKron([one], [[0]], [0], [0], weights=[np.inf])
    for op, text in (
        (many, "several systems"),
        (wide, "not square"),
        (other, "not square"),
        (broken, r"pools\[0\] holds nan at \[0, 0, 0\], and values have to be finite"),
        (heavy, r"weights holds inf at \[0\], and values have to be finite"),
    ):
        with pytest.raises(TypeError, match=text):
            op.recover_terms()
    nothing = bk.BatchedKron([one], np.zeros((0, 1), int), [], [], num_inputs=3, num_outputs=3)
    assert nothing.recover_terms(cells=[[0], [1], [2]]).terms == ()


def test_a_list_without_structure_is_not_placed_on_the_diagonal_of_a_grid(rng):
    """There it would be one product, and of no use."""
    places = np.unique(rng.integers(0, 60, (300, 2)), axis=0).T
    ids = rng.integers(0, 50, (len(places[0]), 2))
    pools = rng.standard_normal((2, 50, 2, 2))
    op = bk.BatchedKron(list(pools), ids, *places, num_inputs=60, num_outputs=60)
    with pytest.raises(TypeError, match="no grid that could be guessed"):
        op.recover_terms()
    assert len(op.recover_terms(cells=np.arange(60)[:, None] + np.zeros(2, int)).terms) == 1


def test_more_terms_than_preconditioners_take(rng):
    pool = rng.standard_normal((300, 2, 2))
    ids = np.stack([np.arange(300), np.arange(300)], axis=1)
    op = bk.BatchedKron([pool, pool], ids, np.zeros(300, int), np.zeros(300, int))
    with pytest.raises(TypeError, match="more than 256 terms"):
        op.recover_terms()


@pytest.mark.parametrize(
    ("hint", "error", "text"),
    [
        ({"levels": 2}, ValueError, "sparse grid of these has 8 cells and the full one 16"),
        ({"levels": (1, 1, 1)}, ValueError, "one level for each of 2 modes"),
        ({"levels": 1.5}, TypeError, "levels is 1.5"),
        ({"levels": True}, TypeError, "levels is True"),
        ({"levels": -1}, ValueError, "one level for each"),
        ({"levels": 3, "cells": [[0, 0]]}, ValueError, "not both"),
        ({"cells": [[0, 0]]}, ValueError, r"cells has shape \(1, 2\); expected \(20, 2\)"),
        ({"cells": np.zeros((20, 2))}, TypeError, "dtype float64"),
        ({"cells": np.zeros((20, 2), int)}, ValueError, "equal rows"),
        ({"cells": np.arange(40).reshape(20, 2) - 1}, ValueError, "outside 0"),
    ],
)
def test_hints_that_do_not_fit(hint, error, text):
    raw = as_raw(list_of(gallery.make("diffusion-2d", level=3)))
    with pytest.raises(error, match=text):
        raw.recover_terms(**hint)
