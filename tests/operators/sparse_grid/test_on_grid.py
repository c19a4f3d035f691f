"""`on_grid`: the operator equals a new one, and finds couplings of changed fibres only."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sweep_oracle import operator_of

import batchkron as bk
from batchkron.operators.sparse_grid import fibres
from batchkron.problems import SparseGrid


def assert_same(op, new, rng):
    """The same bits, with the same number of operations."""
    x = rng.standard_normal((op.shape[0], 2))
    for one, other in ((op, new), (op.T, new.T)):
        np.testing.assert_array_equal(one @ x[:, 0], other @ x[:, 0])
        np.testing.assert_array_equal(one @ x, other @ x)
    assert op.num_added_cells == new.num_added_cells
    assert op.num_sweeps == new.num_sweeps
    assert op.multiply_adds == new.multiply_adds
    assert op.num_profiles == new.num_profiles == new.num_new_profiles
    np.testing.assert_array_equal(op.diagonal(), new.diagonal())
    assert op.validate(samples=3).ok


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_grids_one_after_another(data):
    """Closed or with gaps, with fluxes in several modes or in one, with identities."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    modes = data.draw(st.integers(1, 4))
    levels = [{1: 5, 2: 4, 3: 3, 4: 2}[modes]] * modes
    kinds = ["volume", "full"]
    pool = [
        [None, *(operator_of(rng, level, n, kind) for kind in kinds)]
        for level, n in zip(levels, [2, 1, 2, 1][:modes], strict=True)
    ]
    picks = data.draw(
        st.lists(st.tuples(*[st.integers(0, 2)] * modes), min_size=1, max_size=4), "terms"
    )
    terms = [[pool[k][number] for k, number in enumerate(pick)] for pick in picks]
    sizes, scale = [2, 1, 2, 1][:modes], rng.standard_normal(len(terms))
    operator = None
    for _ in range(3):
        cells = rng.integers(0, 2 ** levels[0], (data.draw(st.integers(1, 12)), modes))
        grid = SparseGrid.custom(cells, levels)
        grid = grid.closed() if data.draw(st.booleans()) else grid
        new = bk.SparseGridOperator(grid, terms, sizes, coefficients=scale)
        operator = new if operator is None else operator.on_grid(grid)
        assert_same(operator, new, rng)


def refined(grid, chosen):
    """With the children of some cells along every axis, closed."""
    found = [grid.cells]
    for axis in range(grid.dimensions):
        for side in (0, 1):
            cells = grid.cells[chosen].copy()
            cells[:, axis] = np.maximum(2 * cells[:, axis] + side, 1)
            found.append(cells[cells[:, axis] < 1 << grid.levels[axis]])
    return SparseGrid.custom(np.vstack(found), grid.levels).closed()


@pytest.fixture
def looked_up(monkeypatch):
    """For each table of couplings that is computed, the number of its 1-D cells."""
    found = []
    original = fibres.Profiles._found

    def counted(self, key):
        found.append(len(self.cells))
        return original(self, key)

    monkeypatch.setattr(fibres.Profiles, "_found", counted)
    return found


def advection(rng, modes, level):
    """One term for each mode, on a sparse grid that can be refined by two levels."""
    terms = [
        [operator_of(rng, level, 2, "full") if k == mode else None for k in range(modes)]
        for mode in range(modes)
    ]
    cells = SparseGrid.sparse([level - 2] * modes).cells
    return SparseGrid.custom(cells, [level] * modes), terms


@pytest.mark.parametrize(("modes", "level"), [(2, 8), (3, 6)])
def test_only_changed_fibres_are_looked_up(rng, looked_up, modes, level):
    grid, terms = advection(rng, modes, level)
    op = bk.SparseGridOperator(grid, terms, 2)
    everything = sum(looked_up)
    looked_up.clear()
    same = op.on_grid(grid)
    assert same.num_new_profiles == sum(looked_up) == 0
    finer = op.on_grid(refined(grid, [grid.num_cells - 1]))
    assert 0 < finer.num_new_profiles < finer.num_profiles
    assert 0 < sum(looked_up) < everything
    looked_up.clear()
    back = finer.on_grid(refined(grid, [0]))  # whose children are there
    assert back.num_new_profiles <= modes  # the longest fibres, of which there is one each
    assert_same(back, bk.SparseGridOperator(grid, terms, 2), rng)


def test_one_more_level_needs_one_more_profile(rng):
    """A sparse grid of level l has l + 1 profiles along each mode."""
    _, terms = advection(rng, 2, 7)
    op = bk.SparseGridOperator(SparseGrid.sparse([4, 4]), terms, 2)
    assert (op.num_profiles, op.num_new_profiles) == (10, 10)
    finer = op.on_grid(SparseGrid.sparse([5, 5]))
    assert (finer.num_profiles, finer.num_new_profiles) == (12, 2)
    coarser = finer.on_grid(SparseGrid.sparse([4, 4]))
    assert (coarser.num_profiles, coarser.num_new_profiles) == (10, 0)
    assert_same(coarser, op, rng)


def test_operators_on_two_grids_share_matrices_until_one_is_updated(rng):
    grid, terms = advection(rng, 2, 5)
    op = bk.SparseGridOperator(grid, terms, 2)
    finer = op.on_grid(refined(grid, [5]))
    assert all(
        a.blocks is b.blocks for a, b in zip(op._spec.matrices, finer._spec.matrices, strict=True)
    )
    before = op.to_dense()
    finer.update(coefficients=[2.0, 3.0])
    np.testing.assert_array_equal(op.to_dense(), before)
    new = bk.SparseGridOperator(refined(grid, [5]), terms, 2, coefficients=[2.0, 3.0])
    assert_same(finer, new, rng)


def test_sets_of_one_key_are_told_apart(rng, monkeypatch):
    """Fibres whose hashes collide are compared cell by cell."""
    grid, terms = advection(rng, 2, 5)
    expected = bk.SparseGridOperator(grid, terms, 2)
    finer = refined(grid, [7, 9])
    new = bk.SparseGridOperator(finer, terms, 2)

    def key(cells, bounds):
        return np.zeros(len(bounds) - 1, np.uint64)

    monkeypatch.setattr(fibres, "_keys", key)
    op = bk.SparseGridOperator(grid, terms, 2)
    x = rng.standard_normal(op.shape[0])
    np.testing.assert_array_equal(op @ x, expected @ x)
    x = rng.standard_normal(new.shape[0])
    np.testing.assert_array_equal(op.on_grid(finer) @ x, new @ x)


def test_cells_beside_the_grid_can_be_refused(rng):
    terms = [[operator_of(rng, 4, 2, "full") for _ in range(2)]]
    op = bk.SparseGridOperator(SparseGrid.sparse([4, 4]), terms, 2, extend=False)
    grid = SparseGrid.custom([[8, 8], [15, 15]], [4, 4]).closed()
    assert op.on_grid(grid).num_added_cells > 0
    with pytest.raises(ValueError, match="cells that the grid of"):
        op.on_grid(grid, extend=False)


@pytest.mark.parametrize(
    ("cells", "error", "text"),
    [
        ([[0.0, 0.0]], TypeError, "cells have dtype float64"),
        ([[0]], ValueError, "the grid has 1 axes; expected 2"),
        ([[0, 0], [0, -1]], IndexError, r"cells\[1, 1\] is -1"),
        ([[0, 0], [0, 0]], ValueError, r"cells\[1\] is cells\[0\] again"),
    ],
)
def test_wrong_grids_are_named(rng, cells, error, text):
    grid, terms = advection(rng, 2, 4)
    op = bk.SparseGridOperator(grid, terms, 2)
    with pytest.raises(error, match=text):
        op.on_grid(cells)


def test_a_long_chain_of_grids_keeps_no_old_tables(rng):
    """With an identity in every mode, whose connections change with the grid."""
    one = operator_of(rng, 4, 2, "volume")
    terms = [[one, None], [None, one], [None, None]]
    grid = SparseGrid.sparse([4, 4])
    operator = bk.SparseGridOperator(grid, terms, 2)
    maximum = 0
    for turn in range(6):
        chosen = rng.permutation(len(grid.cells))[: len(grid.cells) // 2]
        cells = SparseGrid.custom(grid.cells[chosen], [4, 4]).closed()
        operator = operator.on_grid(cells)
        known = [table for profiles in operator._known[:2] for table in profiles.values()]
        tables = sum(len(each._tables) for each in known)
        maximum = tables if turn == 0 else maximum
        assert tables <= maximum
