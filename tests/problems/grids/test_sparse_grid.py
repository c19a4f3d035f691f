from itertools import product

import numpy as np
import pytest

from batchkron.problems.grids.sparse_grid import SparseGrid, levels_of_cells


def level_of(cell):
    return int(cell).bit_length()


def all_cells(levels):
    return product(*(range(2**level) for level in levels))


@pytest.mark.parametrize("levels", [[0], [3], [2, 2], [3, 3, 3], [2] * 5])
def test_isotropic_sparse_grids_hold_the_cells_of_small_level_sum(levels):
    grid = SparseGrid.sparse(levels)
    expected = [cell for cell in all_cells(levels) if sum(map(level_of, cell)) <= max(levels)]
    np.testing.assert_array_equal(grid.cells, expected)
    assert grid.kind == "sparse"
    assert grid.levels == tuple(levels)
    assert grid.is_downward_closed


@pytest.mark.parametrize("levels", [[4, 2], [1, 3, 2], [0, 3], [5, 3]])
def test_anisotropic_sparse_grids_weigh_levels(levels):
    grid = SparseGrid.sparse(levels)
    largest = max(levels)
    expected = [
        cell
        for cell in all_cells(levels)
        if sum(
            largest * level_of(c) / limit for c, limit in zip(cell, levels, strict=True) if limit
        )
        <= largest + 1e-9
    ]
    np.testing.assert_array_equal(grid.cells, expected)
    assert grid.is_downward_closed
    np.testing.assert_array_equal(grid.cell_levels.max(axis=0), levels)


def test_full_grids_hold_everything():
    grid = SparseGrid.full([2, 0, 1])
    np.testing.assert_array_equal(grid.cells, list(all_cells([2, 0, 1])))
    assert grid.dimensions == 3
    assert grid.is_downward_closed


@pytest.mark.parametrize(
    ("dimensions", "level", "degree", "unknowns"),
    [(2, 6, 2, 2304), (6, 3, 2, 100_602), (6, 4, 2, 365_229)],
)
def test_numbers_of_unknowns_are_the_known_ones(dimensions, level, degree, unknowns):
    grid = SparseGrid.sparse([level] * dimensions)
    assert grid.num_cells * (degree + 1) ** dimensions == unknowns


def test_custom_grids_are_sorted_and_may_have_holes():
    grid = SparseGrid.custom([[3, 1], [0, 0], [1, 0], [3, 1]], [2, 1])
    np.testing.assert_array_equal(grid.cells, [[0, 0], [1, 0], [3, 1]])
    assert grid.kind == "custom"
    assert not grid.is_downward_closed
    closed = SparseGrid.custom([[0, 0], [1, 0], [3, 0]], [2, 1])
    assert closed.is_downward_closed


def test_a_product_pairs_every_cell():
    position, velocity = SparseGrid.sparse([2, 2]), SparseGrid.full([1])
    grid = SparseGrid.product(position, velocity)
    expected = [(*a, *b) for a in position.cells for b in velocity.cells]
    np.testing.assert_array_equal(grid.cells, expected)
    assert grid.levels == (2, 2, 1)
    assert grid.is_downward_closed


def test_levels_of_cells():
    cells = np.concatenate([np.arange(70), [2**30 - 1, 2**30, 2**52 - 1]])
    np.testing.assert_array_equal(levels_of_cells(cells), [level_of(cell) for cell in cells])


def test_level_sets_are_those_that_occur():
    np.testing.assert_array_equal(
        SparseGrid.sparse([2, 2]).level_sets, [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [2, 0]]
    )


@pytest.mark.parametrize(
    "grid",
    [
        SparseGrid.sparse([4, 4]),
        SparseGrid.full([2, 1, 2]),
        SparseGrid.sparse([2] * 40),  # 80 bits: no single key holds a cell
        SparseGrid.custom([[2**30 - 1, 5, 2**30 - 1], [7, 2**30 - 1, 0]], [30, 30, 30]),
    ],
    ids=["sparse", "full", "forty axes", "fine axes"],
)
def test_find_inverts_the_list_and_misses_what_is_absent(grid):
    np.testing.assert_array_equal(grid.find(grid.cells), np.arange(grid.num_cells))
    generator = np.random.default_rng(2)
    picked = generator.permutation(grid.num_cells)[:10].reshape(-1, 2)
    np.testing.assert_array_equal(grid.find(grid.cells[picked]), picked)
    members = {tuple(cell) for cell in grid.cells.tolist()}
    changed = grid.cells[generator.integers(0, grid.num_cells, 300)]
    axes = generator.integers(0, grid.dimensions, 300)
    changed[np.arange(300), axes] = generator.integers(-2, 6, 300)
    changed[0, 0] = -1
    changed[1, 0] = 2**31
    found = grid.find(changed)
    for cell, position in zip(changed.tolist(), found, strict=True):
        assert (position >= 0) == (tuple(cell) in members)
        assert position < 0 or grid.cells[position].tolist() == cell
    assert (found < 0).any()


def test_find_takes_a_single_cell():
    assert SparseGrid.sparse([1, 1]).find([1, 0]) == 2
    assert SparseGrid.sparse([1, 1]).find([1, 1]) == -1


def test_cells_are_copied_and_read_only():
    cells = np.array([[0], [1]])
    grid = SparseGrid(cells, (1,), "custom")
    cells[...] = 0
    np.testing.assert_array_equal(grid.cells, [[0], [1]])
    with pytest.raises(ValueError, match="read-only"):
        grid.cells[0] = 1


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: SparseGrid.sparse([]), ValueError, "levels is empty"),
        (lambda: SparseGrid.sparse([2, -1]), ValueError, "level is -1"),
        (lambda: SparseGrid.full([1.5]), TypeError, "level is float"),
        (lambda: SparseGrid.custom([[0, 2]], [1, 1]), IndexError, r"cells\[0, 1\] is 2; expected"),
        (lambda: SparseGrid.custom([[0.0]], [1]), TypeError, "dtype float64; expected integers"),
        (lambda: SparseGrid.custom([[0]], [1, 1]), ValueError, r"expected \(num_cells, 2\)"),
        (lambda: SparseGrid.product(), ValueError, "no grid given"),
        (
            lambda: SparseGrid(np.array([[1], [0]]), (1,), "custom"),
            ValueError,
            r"cells\[1\] does not come after cells\[0\]",
        ),
        (
            lambda: SparseGrid(np.array([[1, 1], [1, 1]]), (1, 1), "custom"),
            ValueError,
            r"cells\[1\] does not come after cells\[0\]",
        ),
        (lambda: SparseGrid(np.array([[0]]), (1,), "dense"), ValueError, "kind is 'dense'"),
        (lambda: SparseGrid.full([1]).find([[0, 0]]), ValueError, r"expected \(..., 1\)"),
    ],
)
def test_wrong_arguments_are_named(call, error, text):
    with pytest.raises(error, match=text):
        call()
