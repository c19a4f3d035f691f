"""Added cells: those outside the grid that sweeps pass through, and no others."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sweep_oracle import cells_beside, operator_of

import batchkron as bk
from batchkron.operators.sparse_grid import added_cells as sweep_hull
from batchkron.operators.sparse_grid.order import Cells, sweep_orders
from batchkron.problems import SparseGrid


def as_pairs(operator):
    if operator is None:
        return None
    return set(zip(operator.rows.tolist(), operator.columns.tolist(), strict=True))


def needed_beside(op, terms):
    """For each term, the cells outside the grid that its sweeps need in their order."""
    orders = sweep_orders(op._spec, Cells(op._spec.cells, {}))
    order = {one.term: one.full[0] for one in orders}
    return [
        cells_beside(op._spec.cells, [as_pairs(mode) for mode in modes], order[term])
        for term, modes in enumerate(terms)
    ]


def chain(rng, level):
    """A 1-D operator that couples all cells of a chain, one a level, and these cells."""
    cells = np.array([0] + [1 << other for other in range(level)])
    rows, columns = (part.ravel() for part in np.meshgrid(cells, cells, indexing="ij"))
    blocks = rng.standard_normal((len(rows), 1, 1))
    return SimpleNamespace(rows=rows, columns=columns, blocks=blocks), cells


def along_axes(cells, modes):
    """The grid of cells that are of level 0 along all modes but one."""
    found = [np.where(np.arange(modes) == k, cells[:, None], 0) for k in range(modes)]
    return np.unique(np.concatenate(found), axis=0)


@pytest.mark.parametrize("modes", [1, 2, 3, 4, 5, 6])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_only_cells_that_are_needed_are_counted(modes, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    level = {1: 5, 2: 4, 3: 3}.get(modes, 2)
    cells = rng.integers(0, 2**level, (data.draw(st.integers(1, 6)), modes))
    cells[rng.random(cells.shape) < data.draw(st.sampled_from([0.0, 0.5, 0.8]))] = 0
    grid = SparseGrid.custom(cells, [level] * modes)
    closed = grid.closed()
    if data.draw(st.booleans()) and closed.num_cells <= 40:
        grid = closed
    pool = [operator_of(rng, level, 1, kind) for kind in ("volume", "full", "full")] + [None]
    picks = data.draw(st.lists(st.tuples(*[st.sampled_from(range(4))] * modes), max_size=3))
    terms = [[pool[number] for number in pick] for pick in picks]
    op = bk.SparseGridOperator(grid, terms, 1)
    beside = needed_beside(op, terms)
    assert op.num_added_cells == len(set().union(*beside))
    if op.num_added_cells:
        guilty = sorted(term for term, needed in enumerate(beside) if needed)
        with pytest.raises(ValueError, match="pass through") as caught:
            bk.SparseGridOperator(grid, terms, 1, extend=False)
        named = str(caught.value).split("[")[1].split("]")[0]
        assert sorted(map(int, named.split(", "))) == guilty
    else:
        bk.SparseGridOperator(grid, terms, 1, extend=False)


def test_neighbours_that_lead_nowhere_are_no_reason_to_refuse(rng):
    """A grid refined along its axes lacks cells that fluxes reach, and needs none of them."""
    flux = operator_of(rng, 5, 2, "full")
    cells = np.flatnonzero(np.isin(np.arange(32), [0, 1, 2, 5, 11, 22]))
    for modes in (2, 3, 6):
        grid = along_axes(cells, modes)
        op = bk.SparseGridOperator(grid, [[flux] * modes], 2, extend=False)
        assert op.num_added_cells == 0
        assert op.validate(samples=4).ok


@pytest.mark.parametrize("modes", [2, 6, 12])
def test_one_far_cell_needs_no_other(rng, modes):
    """Its ancestors, of which there are 9^modes, lead to no cell of the grid."""
    volume = operator_of(rng, 8, 1, "volume")
    op = bk.SparseGridOperator([[200] * modes], [[volume] * modes], 1, extend=False)
    own = volume.blocks[(volume.rows == 200) & (volume.columns == 200)][0]
    np.testing.assert_allclose(op.to_dense(), own**modes, rtol=1e-13)


def test_fine_chains_in_six_modes(rng):
    """25 levels have 25^6 combinations in six modes; sweeps need only those of pairs of cells."""
    operator, cells = chain(rng, 24)
    axes = along_axes(cells, 6)
    assert bk.SparseGridOperator(axes, [[operator] * 6], 1, extend=False).num_added_cells == 0
    diagonal = np.repeat(cells[:, None], 6, axis=1)
    op = bk.SparseGridOperator(diagonal, [[operator] * 6], 1)
    assert op.num_added_cells == 5 * 25 * 24 // 2  # five on the way between two cells
    np.testing.assert_allclose(op.to_dense(), operator.blocks.reshape(25, 25) ** 6, rtol=1e-12)


def test_too_many_cells_are_refused_before_they_are_made(rng, monkeypatch):
    operator, cells = chain(rng, 8)
    diagonal = np.repeat(cells[:, None], 3, axis=1)
    op = bk.SparseGridOperator(diagonal, [[operator] * 3], 1)
    monkeypatch.setattr(sweep_hull, "_MAX_ADDED_PER_CELL", 0)
    monkeypatch.setattr(sweep_hull, "_MAX_ADDED_CELLS", op.num_added_cells - 1)
    with pytest.raises(ValueError, match=r"terms\[1\] may pass through more than \d+ cells"):
        bk.SparseGridOperator(diagonal, [[operator, None, None], [operator] * 3], 1)


def test_portions_and_many_modes_change_nothing(rng, monkeypatch):
    """Cells are handled in portions, and labels that would overflow 64 bits are renumbered."""
    level, modes = 3, 4
    cells = np.unique(rng.integers(0, 2**level, (60, modes)), axis=0)
    terms = [[operator_of(rng, level, 1, "full") for _ in range(modes)]]
    op = bk.SparseGridOperator(cells, terms, 1)
    monkeypatch.setattr(sweep_hull, "_PORTION", 1)
    monkeypatch.setattr(sweep_hull, "_MAX_LABEL", 1 << 8)
    again = bk.SparseGridOperator(cells, terms, 1)
    assert again.num_added_cells == op.num_added_cells > 0
    x = rng.standard_normal(len(cells))
    np.testing.assert_array_equal(op @ x, again @ x)


def test_operators_that_join_nothing_else_lead_to_no_cells(rng, monkeypatch):
    """A diagonal factor needs no more cells than an identity, wherever its mode comes."""
    monkeypatch.setattr(sweep_hull, "_MAX_ADDED_CELLS", 1000)
    monkeypatch.setattr(sweep_hull, "_MAX_ADDED_PER_CELL", 1)
    full = SparseGrid.full([2] * 4).cells
    fine = np.unique(rng.integers(64, 128, (400, 4)), axis=0)
    cells = np.concatenate((np.pad(full, ((0, 0), (0, 1))), np.insert(fine, 4, 1, axis=1)))
    volume = operator_of(rng, 7, 1, "volume")
    factor = SimpleNamespace(rows=[0, 1], columns=[0, 1], blocks=rng.standard_normal((2, 1, 1)))
    factor = SimpleNamespace(**{k: np.asarray(v) for k, v in vars(factor).items()})
    op = bk.SparseGridOperator(cells, [[volume] * 4 + [factor]], 1, extend=False)
    assert op.num_added_cells == 0
    x = rng.standard_normal(op.shape[0])
    plain = bk.SparseGridOperator(cells, [[volume] * 4 + [None]], 1, extend=False)
    scale = factor.blocks[cells[:, 4], 0, 0]
    np.testing.assert_allclose(op @ x, scale * (plain @ x), rtol=1e-12, atol=1e-12)


def test_too_many_sweeps_are_refused(rng, monkeypatch):
    cells = np.unique(rng.integers(0, 2, (40, 8)), axis=0)
    both = operator_of(rng, 1, 1, "volume")
    monkeypatch.setattr("batchkron.operators.sparse_grid.schedule._MAX_MASK_BYTES", 2**15)
    with pytest.raises(ValueError, match="too many sweeps on this grid; use a BatchedKron"):
        bk.SparseGridOperator(cells, [[both] * 8], 1)
