"""Transfer of a problem's parts and states to another grid, such as a refined or coarsened one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...grids.sparse_grid import SparseGrid
from ..levels import LevelParts
from ..value import ProblemValue

__all__ = ["carried_over", "parts_at_levels"]


def parts_at_levels(problem: ProblemValue, grid: SparseGrid) -> LevelParts:
    """Return the fields of a problem that differ at the finest levels of another grid.

    There are none if the levels are the problem's. Raises ValueError if they are others and the
    problem has only the 1-D operators of its own, or these are not those of its PDE.
    """
    if not isinstance(grid, SparseGrid):
        raise TypeError(f"grid must be a SparseGrid, got {type(grid).__name__}")
    if grid.levels == problem.grid.levels:
        return {}
    if problem.other_levels is None:
        raise ValueError(
            f"the grid has levels {grid.levels}; expected {problem.grid.levels}, those of the "
            "problem's 1-D operators: a problem that was not made by PDE.discretize, or comes "
            "from a file or a pickle, has no others. Discretize the PDE again, or with the finest "
            "levels that will be needed"
        )
    if not problem.knows_other_levels:
        raise ValueError(
            f"the grid has levels {grid.levels}; expected {problem.grid.levels}: terms or sources "
            "of the problem were replaced, and those of other levels are not known. State them in "
            "a PDE, and discretize that"
        )
    return problem.other_levels.parts(grid.levels)


def carried_over(u: NDArray[np.float64], old: SparseGrid, new: SparseGrid) -> NDArray[np.float64]:
    """Return a state on another grid: coefficients of common cells are kept, others are zero.

    It is the same function if the new grid has all cells of the old one, otherwise its L2
    projection, because the basis is orthonormal.
    """
    blocks = u.reshape(old.num_cells, -1)
    places = old.find(new.cells)
    return np.where(places[:, None] < 0, 0.0, blocks[places]).reshape(-1)
