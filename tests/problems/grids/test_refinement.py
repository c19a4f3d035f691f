"""Children of cells, and the closed grids that hold them."""

import numpy as np
import pytest

from batchkron.problems import SparseGrid
from batchkron.problems.grids.refinement import children, finest_levels, united


def support(cell):
    """The part of [0, 1) on which a 1-D cell's functions live."""
    if cell == 0:
        return 0.0, 1.0
    count = 1 << (int(cell).bit_length() - 1)
    return (cell - count) / count, (cell - count + 1) / count


def is_child(child, parent):
    """Whether a 1-D cell is one level finer than another, inside its support."""
    inside = support(parent)[0] <= support(child)[0] and support(child)[1] <= support(parent)[1]
    return int(child).bit_length() == int(parent).bit_length() + 1 and inside


@pytest.mark.parametrize("limits", [(4,), (0, 3), (3, 2, 1)])
def test_children_are_the_halves_along_one_axis(rng, limits):
    every = SparseGrid.full(limits).cells
    some = every[rng.random(len(every)) < 0.3]
    expected = [
        cell
        for cell in every.tolist()
        if any(
            is_child(cell[k], parent[k])
            and cell[:k] + cell[k + 1 :] == parent[:k] + parent[k + 1 :]
            for parent in some.tolist()
            for k in range(len(limits))
        )
    ]
    np.testing.assert_array_equal(children(some, limits).reshape(-1, len(limits)), expected)


def test_cells_at_the_largest_level_have_no_children():
    assert children(np.array([[3], [1]]), [2]).tolist() == [[2], [3]]
    assert children(np.empty((0, 2), dtype=np.int64), [3, 3]).shape == (0, 2)


def test_united_grids_are_closed(rng):
    first, second = rng.integers(0, 32, (2, 6, 2))
    grid = united(first, second)
    assert grid.is_downward_closed
    assert (grid.find(np.vstack((first, second))) >= 0).all()
    assert grid.levels == finest_levels(np.vstack((first, second)))
    for cell in grid.cells.tolist():  # nothing is in it that no cell needs
        assert any(
            all(c >> s == k for c, s, k in zip(given, shifts, cell, strict=True))
            for given in np.vstack((first, second)).tolist()
            for shifts in np.ndindex(6, 6)
        )
    assert united(first, levels=[7, 8]).levels == (7, 8)
