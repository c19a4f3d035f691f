"""Sweeps along fibres equal the restricted Kronecker sum, on any grid."""

import pickle
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sweep_oracle import apply_term, as_dict, levels_of, operator_of, restricted

import batchkron as bk
from batchkron.problems import SparseGrid
from batchkron.problems.discretization.matrices.mode_operator import ModeOperator
from batchkron.problems.grids.sparse_grid import levels_of_cells


def dense_sum(cells, terms, sizes, coefficients=None):
    scale = np.ones(len(terms)) if coefficients is None else coefficients
    size = len(cells) * int(np.prod(sizes))
    return sum(
        (
            c * restricted(cells, [as_dict(mode) for mode in modes], sizes)
            for c, modes in zip(scale, terms, strict=True)
        ),
        np.zeros((size, size)),
    )


def check(op, expected, rng):
    """The operator equals a matrix, as itself, transposed, added, and on several vectors."""
    tolerance = 1e3 * np.finfo(op.dtype).eps * max(1.0, np.abs(expected).max())
    x, y = (rng.standard_normal(op.shape[0]).astype(op.dtype) for _ in range(2))
    out = np.full_like(x, np.nan)
    np.testing.assert_allclose(op.matvec(x, out=out), expected @ x, atol=tolerance)
    np.testing.assert_allclose(op.T @ x, expected.T @ x, atol=tolerance)
    np.testing.assert_allclose(y @ (op @ x), (op.T @ y) @ x, rtol=1e-3, atol=tolerance * len(x))
    many = rng.standard_normal((op.shape[0], 3)).astype(op.dtype)
    np.testing.assert_allclose(op @ many, expected @ many, atol=tolerance)
    np.testing.assert_allclose(op.diagonal(), expected.diagonal(), atol=tolerance)
    assert op.validate().ok
    blocks = np.stack([x, y]).reshape(2, *op._input_shape)
    result = op.accumulate(blocks, blocks.copy())
    np.testing.assert_allclose(
        result.reshape(2, -1), np.stack([x, y]) @ (expected.T + np.eye(len(x))), atol=tolerance
    )


@st.composite
def closed_sets(draw):
    """A downward closed set of 1 to 5 modes, and the finest level of each."""
    modes = draw(st.integers(1, 5))
    largest = {1: 5, 2: 4, 3: 3, 4: 2, 5: 2}[modes]
    levels = [draw(st.integers(0, largest)) for _ in range(modes)]
    cell = st.tuples(*[st.integers(0, 2**level - 1) for level in levels])
    cells = draw(st.lists(cell, min_size=1, max_size=6))
    grid = SparseGrid.custom(np.array(cells).reshape(-1, modes), levels).closed()
    order = draw(st.permutations(range(grid.num_cells))) if draw(st.booleans()) else None
    return (grid.cells if order is None else grid.cells[list(order)]), levels


@settings(max_examples=150, deadline=None)
@given(closed_sets(), st.data())
def test_any_closed_set_and_terms(drawn, data):
    cells, levels = drawn
    if len(cells) > 60:
        cells = SparseGrid.sparse([min(level, 2) for level in levels]).cells
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    sizes = [data.draw(st.integers(1, 2)) for _ in levels]
    kinds = ["volume", "full", "full"]
    pool = [
        [None, *(operator_of(rng, level, n, kind) for kind in kinds)]
        for level, n in zip(levels, sizes, strict=True)
    ]
    chosen = st.tuples(*[st.sampled_from(range(4)) for _ in levels])
    picks = data.draw(st.lists(chosen, min_size=0, max_size=4))
    terms = [[pool[k][number] for k, number in enumerate(pick)] for pick in picks]
    scale = rng.standard_normal(len(terms))
    op = bk.SparseGridOperator(cells, terms, sizes, coefficients=scale)
    check(op, dense_sum(cells, terms, sizes, scale), rng)
    if all(sum(number > 1 for number in pick) <= 1 for pick in picks):
        assert op.num_added_cells == 0


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_sets_with_gaps(data):
    """Any set of cells: sweeps pass through cells that the set lacks."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    levels = [3, 2, 2][: data.draw(st.integers(1, 3))]
    cells = np.array(list(np.ndindex(*(2**level for level in levels))))
    kept = rng.permutation(len(cells))[: data.draw(st.integers(1, min(40, len(cells))))]
    operators = [operator_of(rng, level, 2, "full") for level in levels]
    terms = [operators, [operators[0], *[None] * (len(levels) - 1)]]
    op = bk.SparseGridOperator(cells[kept], terms, 2)
    check(op, dense_sum(cells[kept], terms, [2] * len(levels)), rng)


def test_the_algorithm_on_one_page(rng):
    """The algorithm in SciPy, `sweep_oracle.apply_term`, and the operator equal a dense matrix."""
    grid = SparseGrid.custom([[3, 4, 1], [5, 1, 0], [0, 6, 2]], [3, 3, 2]).closed()
    sizes = [2, 1, 3]
    terms = [
        [
            operator_of(rng, level, n, kind)
            for level, n, kind in zip([3, 3, 2], sizes, kinds, strict=True)
        ]
        for kinds in (("volume", "full", "volume"), ("full", "volume", "volume"))
    ]
    terms.append([terms[0][0], None, terms[1][2]])
    x = rng.standard_normal(grid.num_cells * 6)
    for modes, full in zip(terms, (1, 0, 0), strict=True):
        factors = [as_dict(mode) for mode in modes]
        expected = restricted(grid.cells, factors, sizes) @ x
        np.testing.assert_allclose(
            apply_term(grid.cells, factors, full, sizes, x), expected, atol=1e-12
        )
        op = bk.SparseGridOperator(grid, [modes], sizes)
        np.testing.assert_allclose(op @ x, expected, atol=1e-12)
        assert op.num_added_cells == 0


@pytest.mark.parametrize("modes", [1, 2, 3, 4, 5, 6])
def test_how_many_sweeps(rng, modes):
    grid = SparseGrid.full([1] * modes)
    one, other = (operator_of(rng, 1, 1, "volume") for _ in range(2))
    term = [one] * modes
    assert bk.SparseGridOperator(grid, [term], 1).num_sweeps == 3 * 2 ** (modes - 1) - 2
    each = [[one if axis == k else None for axis in range(modes)] for k in range(modes)]
    assert bk.SparseGridOperator(grid, each, 1).num_sweeps == modes
    twice = bk.SparseGridOperator(grid, [term, [*term[:-1], other]], 1)
    assert twice.num_sweeps == 3 * 2 ** (modes - 1) - 2  # they differ in the last factor only
    nothing = [[None] * modes]
    assert bk.SparseGridOperator(grid, [*each, *nothing], 1).num_sweeps == modes
    assert bk.SparseGridOperator(grid, nothing, 1).num_sweeps == 1


def test_a_term_of_forty_modes(rng):
    """Of the 3 · 2^39 - 2 sweeps that splitting makes, few have any work on a grid of level 1."""
    grid = SparseGrid.sparse([1] * 40)
    term = [operator_of(rng, 1, 1, "full") for _ in range(40)]
    op = bk.SparseGridOperator(grid, [term], 1)
    assert op.num_sweeps < 40**2
    expected = restricted(grid.cells, [as_dict(mode) for mode in term], [1] * 40)
    np.testing.assert_allclose(op.to_dense(), expected, rtol=1e-11)


def test_grids_with_all_cells_of_a_level_need_no_other(rng):
    for grid in (SparseGrid.sparse([4, 4]), SparseGrid.full([2, 3]), SparseGrid.sparse([3, 4, 2])):
        term = [operator_of(rng, level, 1, "full") for level in grid.levels]
        assert bk.SparseGridOperator(grid, [term], 1).num_added_cells == 0


def test_added_cells_are_few_and_can_be_refused(rng):
    cells = SparseGrid.custom([[8, 8], [15, 15]], [4, 4]).closed().cells
    fluxes = [operator_of(rng, 4, 2, "full") for _ in range(2)]
    op = bk.SparseGridOperator(cells, [fluxes], 2)
    assert 0 < op.num_added_cells < 3 * len(cells)
    assert f"{op.num_added_cells} added cells" in op.describe()
    with pytest.raises(ValueError, match=rf"terms \[0\] pass through {op.num_added_cells} cells"):
        bk.SparseGridOperator(cells, [fluxes], 2, extend=False)
    alone = [[fluxes[0], None], [None, fluxes[1]]]
    assert bk.SparseGridOperator(cells, alone, 2, extend=False).num_added_cells == 0


def test_dtypes(rng, dtype, backend):
    grid = SparseGrid.sparse([2, 2])
    terms = [[operator_of(rng, 2, 2, "full", dtype) for _ in range(2)], [None, None]]
    op = bk.SparseGridOperator(grid, terms, 2)
    assert op.dtype == dtype
    check(op, dense_sum(grid.cells, terms, [2, 2]), rng)
    expected = dense_sum(grid.cells, terms, [2, 2])
    x = rng.standard_normal(op.shape[0]) + 1j * rng.standard_normal(op.shape[0])
    wide = 1e-4 if dtype in ("float32", "complex64") else 1e-11
    np.testing.assert_allclose(op.H @ x, expected.conj().T @ x, atol=wide)
    np.testing.assert_allclose(op @ x, expected @ x, atol=wide)
    np.testing.assert_allclose(op.astype("complex128") @ x, expected @ x, atol=wide)


def test_updates_reach_all_relatives(rng):
    grid = SparseGrid.custom([[5, 1], [3, 6]], [3, 3]).closed()
    first, second = (operator_of(rng, 3, 2, kind) for kind in ("volume", "full"))
    terms = [[first, second], [second, None], [None, None], [first, first]]
    op = bk.SparseGridOperator(grid, terms, 2)
    relatives = [op, op.T, op.astype("float32"), op.T.T, 2 * op]
    for operator in (first, second):
        operator.blocks = rng.standard_normal(operator.blocks.shape)
    scale = rng.standard_normal(4)
    op.update(blocks=[first.blocks, second.blocks])
    op.update(coefficients=scale)
    expected = dense_sum(grid.cells, terms, [2, 2], scale)
    wanted = [expected, expected.T, expected, expected, 2 * expected]
    for relative, matrix in zip(relatives, wanted, strict=True):
        np.testing.assert_allclose(relative.to_dense(), matrix, atol=1e-4)
    np.testing.assert_allclose(op.to_dense(), expected, atol=1e-12)
    copied = pickle.loads(pickle.dumps(op))
    np.testing.assert_array_equal(copied.to_dense(), op.to_dense())
    with pytest.raises(ValueError, match="blocks has 1 entries; expected 2"):
        op.update(blocks=[first.blocks])
    with pytest.raises(ValueError, match=r"coefficients has shape \(3,\)"):
        op.update(coefficients=[1, 2, 3])


def test_operators_that_are_made_while_they_are_read(rng):
    """An operator is not taken for one freed before, at the same place in memory."""
    dense, grid = rng.standard_normal((20, 8, 8)), SparseGrid.sparse([3, 3])
    new = ModeOperator.from_dense
    kept = bk.SparseGridOperator(grid, [(new(m, 1), new(m.T, 1)) for m in dense], 1)
    read = bk.SparseGridOperator(grid, ((new(m, 1), new(m.T, 1)) for m in dense), 1)
    np.testing.assert_array_equal(read.to_dense(), kept.to_dense())


def test_wider_relatives_get_rounded_values():
    one = SimpleNamespace(rows=[0], columns=[0], blocks=np.ones((1, 1, 1), "f4"))
    op = bk.SparseGridOperator([[0]], [(one,)], 1)
    wide = op.astype(np.float64)
    op.update(blocks=[[[[0.1]]]], coefficients=[0.3])
    expected = float(np.float32(0.1)) * float(np.float32(0.3))
    assert (wide @ np.ones(1))[0] == expected
    op.update(coefficients=[0.3])
    assert (wide @ np.ones(1))[0] == expected


def test_nothing_gives_zero(rng):
    grid = SparseGrid.sparse([2, 1])
    zero = SimpleNamespace(
        rows=np.zeros(0, int), columns=np.zeros(0, int), blocks=np.zeros((0, 2, 2))
    )
    for terms in ([], [[zero, None]], [[zero, zero]], [[zero, operator_of(rng, 1, 2, "full")]]):
        op = bk.SparseGridOperator(grid, terms, 2)
        check(op, np.zeros(op.shape), rng)
        assert op.num_sweeps == op.multiply_adds == 0


def test_levels_are_those_of_the_grid():
    cells = np.arange(70)
    np.testing.assert_array_equal(levels_of(cells), levels_of_cells(cells))


OPERATOR = SimpleNamespace(rows=[0, 1], columns=[0, 1], blocks=np.ones((2, 2, 2)))
TWICE = SimpleNamespace(rows=[1, 1], columns=[0, 0], blocks=np.ones((2, 2, 2)))


@pytest.mark.parametrize(
    ("cells", "terms", "n", "error", "text"),
    [
        ([[0.0]], [], 1, TypeError, "cells have dtype float64; expected integers"),
        ([0], [], 1, ValueError, r"cells have shape \(1,\)"),
        ([[0], [-1]], [], 1, IndexError, r"cells\[1, 0\] is -1"),
        ([[1], [0], [1]], [], 1, ValueError, r"cells\[2\] is cells\[0\] again"),
        ([[0]], [[None, None]], 1, ValueError, r"terms\[0\] has 2 modes; expected 1"),
        ([[0]], [[1.0]], 1, TypeError, r"terms\[0\]\[0\] is float"),
        ([[0]], [[OPERATOR]], 3, ValueError, r"terms\[0\]\[0\] has 2×2 blocks; expected 3×3"),
        ([[0]], [[TWICE]], 2, ValueError, "two blocks for row 1, column 0"),
        ([[0]], [OPERATOR], 1, TypeError, r"terms\[0\] is a SimpleNamespace; expected a sequence"),
        ([[0]], None, 1, TypeError, "terms is a NoneType; expected a sequence"),
        ([[0]], [], [1, 2], ValueError, "n has 2 entries; expected 1"),
        ([[0]], [], 0, ValueError, "at least one function"),
        ([[0]], [], 1.5, TypeError, "n is 1.5"),
    ],
)
def test_wrong_arguments_are_named(cells, terms, n, error, text):
    with pytest.raises(error, match=text):
        bk.SparseGridOperator(cells, terms, n)


def test_coefficients_are_checked():
    with pytest.raises(ValueError, match=r"coefficients has shape \(2,\); expected \(1,\)"):
        bk.SparseGridOperator([[0]], [[None]], 1, coefficients=[1.0, 2.0])


def large(rng):
    grid = SparseGrid.sparse([4, 4, 4])
    operators = [operator_of(rng, 4, 3, "full") for _ in range(3)]
    return bk.SparseGridOperator(grid, [operators, [operators[0], None, None]], 3)


def test_validation_finds_faults(rng):
    op = large(rng)
    report = op.validate(samples=5)
    assert report.ok
    assert report.samples == 5
    assert report.products > 5
    with pytest.raises(ValueError, match="samples is 0; expected 1 or more, or None for every"):
        op.validate(samples=0)
    matrix = op._spec.matrices[0]
    matrix.blocks.flags.writeable = True
    matrix.blocks[np.flatnonzero((matrix.rows == 0) & (matrix.columns == 0))] += 1e-6
    assert not op.validate().ok
    with pytest.raises(ValueError, match="samples is -1"):
        op.validate(samples=-1)


@pytest.mark.parametrize("modes", [1, 2, 40])
def test_the_finest_cells(rng, modes):
    """No array has an entry for each 1-D index up to the largest, which may be 2^52 - 1."""
    chain = np.array([0, 1, 3, 2**40 + 5, 2**51, 2**52 - 1])
    rows, columns = (part.ravel() for part in np.meshgrid(chain, chain, indexing="ij"))
    one = SimpleNamespace(rows=rows, columns=columns, blocks=rng.standard_normal((len(rows), 1, 1)))
    cells = np.repeat(chain[:, None], modes, axis=1)
    cells[:, 2:] = chain[-1]
    terms = [[one if mode < 2 else None for mode in range(modes)], [None] * modes]
    dense = one.blocks.reshape(6, 6) ** min(modes, 2) + np.eye(6)
    tracemalloc.start()
    try:
        op = bk.SparseGridOperator(cells, terms, 1)
        check(op, dense, rng)
        assert op.on_grid(cells[2:]).validate().ok
        assert tracemalloc.get_traced_memory()[1] < 1 << 22
    finally:
        tracemalloc.stop()


def test_bits_do_not_depend_on_threads(rng, threads):
    op = large(rng)
    x = rng.standard_normal((4, op.shape[0]))
    results = []
    for count in (1, 2, 3):
        threads(count)
        results.append(op.matmat(x.T))
        with ThreadPoolExecutor(4) as pool:
            results.append(np.stack(list(pool.map(op.matvec, x)), axis=1))
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)


def test_out_allocates_nothing(rng):
    op = large(rng)
    x, y = rng.standard_normal((2, op.shape[0]))
    X, Y = rng.standard_normal((2, op.shape[0], 3))
    blocks, result = x.reshape(op._input_shape), y.reshape(op._input_shape)
    for call in (
        lambda: op.matvec(x, out=y),
        lambda: op.matmat(X, out=Y),
        lambda: op.apply(blocks, out=result),
        lambda: op.accumulate(blocks, result),
    ):
        call()
        tracemalloc.start()
        try:
            call()
            assert tracemalloc.get_traced_memory()[1] < x.nbytes / 10
        finally:
            tracemalloc.stop()


def test_views_of_read_only_arrays_change_nothing(rng):
    """A read-only array may change through views taken before, so the operator copies it."""
    blocks = rng.standard_normal((4, 2, 2))
    rows, columns = np.repeat([0, 1], 2), np.tile([0, 1], 2)
    views = [array[:] for array in (blocks, rows, columns)]
    for array in (blocks, rows, columns):
        array.flags.writeable = False
    matrix = SimpleNamespace(rows=rows, columns=columns, blocks=blocks)
    op = bk.SparseGridOperator(np.indices((2, 2)).reshape(2, -1).T, [[matrix, matrix]], 2)
    dense, diagonal = op.to_dense().copy(), op.diagonal().copy()
    for view in views:
        view[...] = 0
    np.testing.assert_array_equal(op.T.to_dense(), dense.T)
    np.testing.assert_array_equal(op.diagonal(), diagonal)
    assert op.validate().ok


def test_relatives_are_not_built_while_values_change(rng, monkeypatch):
    matrix = operator_of(rng, 1, 1, "volume")
    op = bk.SparseGridOperator([[0], [1]], [[matrix]], 1)
    built, updated = threading.Event(), threading.Event()
    build = bk.SparseGridOperator._build_transpose

    def slowly(self):
        found = build(self)
        built.set()
        updated.wait(0.2)  # the update waits for this
        return found

    monkeypatch.setattr(bk.SparseGridOperator, "_build_transpose", slowly)
    builder = threading.Thread(target=lambda: op.T)
    builder.start()
    built.wait()
    op.update(blocks=[10 * matrix.blocks])
    updated.set()
    builder.join()
    np.testing.assert_array_equal(op.T.to_dense(), op.to_dense().T)


@pytest.mark.parametrize("modes", [1, 2, 3])
@pytest.mark.parametrize("part", ["lower", "upper"])
def test_terms_of_triangular_operators_take_a_sweep_for_each_mode(rng, part, modes):
    """Their diagonal belongs to the part that they have."""
    grid = SparseGrid.sparse([3] * modes)
    levels = np.repeat(levels_of_cells(np.arange(8)), 2)
    steps = levels[:, None] - levels
    kept = steps > 0 if part == "lower" else steps < 0
    factors = [
        np.where(kept, rng.standard_normal((16, 16)), 0.0)
        + np.kron(np.eye(8), rng.standard_normal((2, 2)))
        for _ in range(modes)
    ]
    terms = [[ModeOperator.from_dense(factor, 2) for factor in factors]]
    op = bk.SparseGridOperator(grid, terms, 2)
    assert op.num_sweeps == modes
    check(op, dense_sum(grid.cells, terms, (2,) * modes), rng)


def rectangular(rng, cells, mode, sizes, rows):
    """An operator along one mode whose blocks are (rows, sizes[mode]), and its dense matrix."""
    levels = [4, 3, 3][: cells.shape[1]]
    wide = [max(n, rows) if k == mode else n for k, n in enumerate(sizes)]
    square = operator_of(rng, levels[mode], wide[mode], "full")
    part = SimpleNamespace(
        rows=square.rows, columns=square.columns, blocks=square.blocks[:, :rows, : sizes[mode]]
    )
    made = [rows if k == mode else n for k, n in enumerate(sizes)]
    modes = [part if k == mode else None for k in range(len(sizes))]
    op = bk.SparseGridOperator(cells, [modes, modes], made, coefficients=[1.0, 0.5], inputs=sizes)
    whole = [square if k == mode else None for k in range(len(sizes))]
    dense = 1.5 * restricted(cells, [as_dict(own) for own in whole], wide)
    shape = (len(cells), *wide)
    places = np.arange(dense.shape[0]).reshape(shape)
    kept = [places[(slice(None), *(slice(n) for n in own))].ravel() for own in (made, sizes)]
    return op, dense[np.ix_(*kept)]


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("rows", [1, 2, 4, 6])
def test_blocks_that_are_not_square(rng, mode, rows):
    """Products, transposes, multiples, pickles and other grids of m × n blocks along one mode."""
    sizes = (3, 2, 3)
    grid = SparseGrid.sparse([4, 3, 3])
    op, expected = rectangular(rng, grid.cells, mode, sizes, rows)
    assert op.shape == expected.shape
    x, y = (rng.standard_normal(size) for size in expected.shape[::-1])
    for own in (op, pickle.loads(pickle.dumps(op))):
        out = np.full(op.shape[0], np.nan)
        np.testing.assert_allclose(own.matvec(x, out), expected @ x, atol=1e-12)
    np.testing.assert_allclose(op.T @ y, expected.T @ y, atol=1e-12)
    np.testing.assert_allclose(op.T.T @ x, expected @ x, atol=1e-12)
    several = rng.standard_normal((op.shape[1], 3))
    np.testing.assert_allclose(op @ several, expected @ several, atol=1e-12)
    np.testing.assert_allclose(op.accumulate(x, y.copy()), y + expected @ x, atol=1e-12)
    np.testing.assert_allclose((2 * op.T @ op) @ x, 2 * expected.T @ (expected @ x), atol=1e-11)
    np.testing.assert_allclose(op.to_dense(), expected, atol=1e-13)
    assert op.validate().ok
    other = SparseGrid.sparse([3, 2, 2])
    places = grid.find(other.cells)
    size = int(np.prod(sizes))
    given = np.zeros((grid.num_cells, size))
    given[places] = rng.standard_normal((other.num_cells, size))
    found = op.on_grid(other).apply(given[places])
    np.testing.assert_allclose(found, op.apply(given)[places], atol=1e-12)
    if rows != sizes[mode]:
        with pytest.raises(ValueError, match="expected a square one"):
            op.diagonal()


def test_blocks_that_are_not_square_act_along_one_mode(rng):
    part = SimpleNamespace(rows=[0], columns=[0], blocks=np.ones((1, 3, 2)))
    square = SimpleNamespace(rows=[0], columns=[0], blocks=np.ones((1, 2, 2)))
    for term, inputs in (((part, square), (2, 2)), ((None, None), (2, 2)), ((part, None), (2, 1))):
        with pytest.raises(ValueError, match=r"does not act along one axis alone"):
            bk.SparseGridOperator([[0, 0]], [term], (3, 2), inputs=inputs)
    with pytest.raises(ValueError, match=r"has 3×2 blocks; expected 3×3, n functions"):
        bk.SparseGridOperator([[0, 0]], [(part, None)], (3, 2))
    with pytest.raises(ValueError, match="inputs has 3 entries; expected 2"):
        bk.SparseGridOperator([[0, 0]], [(part, None)], (3, 2), inputs=(2, 2, 2))


def test_the_identity_is_added_without_products(rng):
    """As one more term, in products, transposes, diagonals, multiples and after updates."""
    grid, sizes = SparseGrid.sparse([3, 2, 2]), (2, 3, 1)
    levels = [3, 2, 2]
    volumes = [operator_of(rng, level, n, "volume") for level, n in zip(levels, sizes, strict=True)]
    fluxes = [operator_of(rng, level, n, "full") for level, n in zip(levels, sizes, strict=True)]
    several = [[fluxes[0], *volumes[1:]], [None, fluxes[1], None]]
    for terms in (several, several[1:], []):
        op = bk.SparseGridOperator(grid, terms, sizes, plus_identity=True)
        plain = bk.SparseGridOperator(grid, [*terms, [None] * 3], sizes)
        assert op.multiply_adds <= plain.multiply_adds
        check(op, plain.to_dense(), rng)
        twice = [2.0 * matrix.blocks for matrix in op._spec.matrices]
        if twice:
            op.update(twice)
            plain.update(twice)
            check(op, plain.to_dense(), rng)
            check(op.on_grid(SparseGrid.sparse([2, 1, 1])),
                  plain.on_grid(SparseGrid.sparse([2, 1, 1])).to_dense(), rng)  # fmt: skip
    part = SimpleNamespace(rows=[0], columns=[0], blocks=np.ones((1, 3, 2)))
    with pytest.raises(ValueError, match="there is no identity to add"):
        bk.SparseGridOperator([[0]], [(part,)], 3, inputs=2, plus_identity=True)
