"""Transfer of states and operators to another grid, such as a refined or coarsened one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from batchkron.operators import SparseGridOperator

from ..grids.sparse_grid import SparseGrid
from .operators import TermGroup
from .system import SemidiscreteSystem

__all__ = ["carried_over", "check_levels", "take_operators"]


def check_levels(grid: SparseGrid, old: SparseGrid) -> None:
    """Refuse a grid on which the same 1-D operators cannot be used.

    Raises
    ------
    TypeError
        If it is not a SparseGrid.
    ValueError
        If its finest levels are others.
    """
    if not isinstance(grid, SparseGrid):
        raise TypeError(f"grid must be a SparseGrid, got {type(grid).__name__}")
    if grid.levels != old.levels:
        raise ValueError(
            f"the grid has levels {grid.levels}; expected {old.levels}, those of the problem's "
            f"1-D operators; discretize with the finest levels that will be needed"
        )


def carried_over(u: NDArray[np.float64], old: SparseGrid, new: SparseGrid) -> NDArray[np.float64]:
    """Return a state on another grid: coefficients of common cells are kept, others are zero.

    Parameters
    ----------
    u : ndarray, shape (old.num_cells * block,), float64
        Coefficients of the state.
    old, new : SparseGrid
        The state's grid, and the new one.

    Returns
    -------
    ndarray, shape (new.num_cells * block,), float64
        The same function if the new grid has all cells of the old one, otherwise its L2 projection,
        because the basis is orthonormal.
    """
    blocks = u.reshape(old.num_cells, -1)
    places = old.find(new.cells)
    return np.where(places[:, None] < 0, 0.0, blocks[places]).reshape(-1)


def take_operators(moved: SemidiscreteSystem, problem: SemidiscreteSystem) -> None:
    """Give ``moved`` the assembled operators of ``problem``, which is the same on another grid.

    Only operators in the form of sweeps can be converted. Others are assembled from the terms when
    they are needed.
    """
    if moved._form == problem._form == "sweep":
        for name in ("_groups", "_implicit_groups"):
            if name in problem.__dict__:
                moved.__dict__[name] = _moved(problem.__dict__[name], moved.grid)


def _moved(groups: Sequence[TermGroup], grid: SparseGrid) -> tuple[TermGroup, ...]:
    found = []
    for group in groups:
        assert isinstance(group.operator, SparseGridOperator)
        found.append(TermGroup(group.time, group.operator.on_grid(grid)))
    return tuple(found)
