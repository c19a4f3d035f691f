"""Refined grids: the hierarchical children of cells, and the cells that a grid needs with them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .sparse_grid import SparseGrid, levels_of_cells

__all__ = ["children", "finest_levels", "united"]


def children(cells: NDArray[np.int64], limits: Sequence[int]) -> NDArray[np.int64]:
    """Return the hierarchical children of cells in every direction, up to each axis's limit.

    The children of the 1-D cell c ≥ 1 are 2c and 2c + 1, the halves of its support; cell 0 has one
    child, 1, with the same support. They are distinct and sorted.

    Examples
    --------
    >>> children(np.array([[0, 1]]), [3, 3]).tolist()
    [[0, 2], [0, 3], [1, 1]]
    """
    found = [np.empty((0, len(limits)), dtype=np.int64)]
    for axis, limit in enumerate(limits):
        for side in (0, 1):
            some = cells.copy()
            some[:, axis] = np.maximum(2 * some[:, axis] + side, 1)
            found.append(some[some[:, axis] < 1 << limit])
    return np.unique(np.vstack(found), axis=0)


def united(*sets: NDArray[np.int64], levels: Sequence[int] | None = None) -> SparseGrid:
    """Return the smallest downward closed grid that contains sets of cells."""
    cells = np.vstack(sets)
    return SparseGrid.custom(cells, finest_levels(cells) if levels is None else levels).closed()


def finest_levels(cells: NDArray[np.int64]) -> tuple[int, ...]:
    """Return the largest level of the cells (count, dimensions) along each axis."""
    return tuple(map(int, levels_of_cells(cells).max(axis=0)))
