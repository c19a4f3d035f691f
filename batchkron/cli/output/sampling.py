"""Data of plots of a grid: the norms of a state's blocks in a plane."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from batchkron.problems import Problem
from batchkron.problems.grids.sparse_grid import levels_of_cells

__all__ = ["plane_cells"]


def plane_cells(
    problem: Problem, u: NDArray[np.float64], axes: tuple[int, int] = (0, 1)
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return the cells of a grid projected to two axes.

    ``problem``: with two axes or more.
    ``u`` (ndarray, shape (N,), float64): a state.
    ``axes``: the numbers of the axes.

    Returns ``levels, positions`` (ndarray, shape (m, 2), int64): levels along the two axes, and
    positions among the cells of these levels, from 0; ``norms`` (ndarray, shape (m,), float64):
    euclidean norms of the coefficients of all cells with the same projection.
    """
    pairs, place = np.unique(problem.grid.cells[:, list(axes)], axis=0, return_inverse=True)
    blocks = u.reshape(problem.grid.num_cells, -1)
    largest = float(np.abs(blocks).max()) or 1.0
    squares = np.sum((blocks / largest) ** 2, axis=1)
    norms = largest * np.sqrt(np.bincount(place.reshape(-1), weights=squares))
    levels = levels_of_cells(pairs)
    first = np.where(pairs > 0, 1 << np.maximum(levels - 1, 0), 0)
    return levels, pairs - first, norms
