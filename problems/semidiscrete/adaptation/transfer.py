"""Transfer of states and operators to another grid, such as a refined or coarsened one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from batchkron.operators import SparseGridOperator
from batchkron.storage import StoredGrid

from ...grids.refinement import finest_levels
from ...grids.sparse_grid import SparseGrid
from ..operators import TermGroup
from ..system import SemidiscreteSystem

__all__ = ["GridTransfer", "carried_over", "knows_other_levels"]


class GridTransfer(SemidiscreteSystem):
    """The part of a problem that moves it to another grid."""

    def check_interval(self, t0: float, until: float) -> None:
        """Check that the problem can be solved from t0 to ``until``.

        Parameters
        ----------
        t0, until : float
            The run's beginning and end.

        Raises
        ------
        ValueError
            If a tabulated function does not cover the interval; if a term with one-sided traces, or
            the only diffusion along an axis, has a negative coefficient at some time, for which it
            is unstable; or if the sum of the diffusion is backward at some time. A problem from a
            file or pickle does not know that sum, but until when it has been found forward.
        """
        super().check_interval(t0, until)
        if self.other_levels is not None and knows_other_levels(self):
            self.other_levels.check_interval(t0, until)

    def _known_well_posed_until(self) -> float | None:
        if self.other_levels is not None and knows_other_levels(self):
            return self.other_levels.well_posed_until
        return self.well_posed_until

    def on_grid(
        self, grid: SparseGrid, u: NDArray[np.float64] | None = None, t: float | None = None
    ) -> Self:
        """Return the problem on another grid, such as a refined or coarsened one.

        With the same finest levels, the 1-D operators, the sources and the exact solution stay the
        same, and operators that have been assembled are converted by
        `batchkron.SparseGridOperator.on_grid`. With other levels they are those that
        `PDE.discretize` makes on this grid, and so is the default step. With the same ones, and a
        rule of its own (`with_adapt`), the default step is that for the grid's finest cells.

        Parameters
        ----------
        grid : SparseGrid
            The new grid. Its finest levels may be others if the problem has ``other_levels``, as
            those of `PDE.discretize`.
        u : ndarray, shape (N,), float64, optional
            The state on the present grid with which the new problem begins; by default `initial`.
            The coefficients of cells that both grids have are kept; those of new cells are zero.
        t : float, optional
            The new problem's initial time, by default `t0`.

        Returns
        -------
        Problem

        Raises
        ------
        TypeError
            If ``grid`` is not a SparseGrid.
        ValueError
            If the grid has other levels and the problem no ``other_levels``, the state has another
            shape, or the new problem is too large for its form.

        Examples
        --------
        >>> from batchkron.problems import SparseGrid, make
        >>> problem = make("continuity-2d", 4, 1)
        >>> cells = problem.grid.cells
        >>> coarser = SparseGrid.custom(cells[cells.max(axis=1) < 8], problem.grid.levels)
        >>> problem.unknowns, problem.on_grid(coarser).unknowns
        (192, 128)
        """
        parts = _parts_at_levels(self, grid)
        state = self._on_host(self.initial if u is None else u)
        begin = self.t0 if t is None else t
        initial = carried_over(state, self.grid, grid)
        step = None if self.adapt is None or parts else self.adapt.step(finest_levels(grid.cells))
        changes = parts if step is None else {"stepper": replace(self.stepper, dt=step)}
        moved = replace(self, grid=grid, initial=initial, t0=begin, **changes)
        if not parts:
            _take_operators(moved, self)
        return moved

    def stored_grid(self) -> StoredGrid:
        """Return the grid as result files and checkpoints hold it."""
        grid = self.grid
        levels = np.array(grid.levels, dtype=np.int64)
        return StoredGrid(grid.cells, levels, np.zeros(grid.num_cells, dtype=np.int64))

    def on_stored_grid(self, stored: StoredGrid) -> Self:
        """Return the problem on the grid of a result file or checkpoint.

        Parameters
        ----------
        stored : StoredGrid
            As in `batchkron.storage.ResultFile`.

        Returns
        -------
        Problem
            Cells that the present grid lacks begin at 0.

        Raises
        ------
        ValueError
            If the grid has another number of axes or cells in another order, or as for `on_grid`.

        Examples
        --------
        >>> from batchkron.problems import make
        >>> problem = make("continuity-2d", 4, 1)
        >>> coarser = make("continuity-2d", 3, 1)
        >>> problem.on_stored_grid(coarser.stored_grid()).unknowns == coarser.unknowns
        True
        """
        if stored.cells.shape[1] != len(self.axes):
            raise ValueError(
                f"the stored grid has {stored.cells.shape[1]} axes; the problem has "
                f"{len(self.axes)}"
            )
        grid = SparseGrid.custom(stored.cells, stored.levels.tolist())
        if not np.array_equal(grid.cells, stored.cells):
            raise ValueError("the stored grid is not sorted, or has a cell twice")
        return self.on_grid(grid)


def knows_other_levels(problem: SemidiscreteSystem) -> bool:
    """Return whether a problem can be moved to other finest levels than its own."""
    if problem.other_levels is None:
        return False
    own = problem.other_levels.parts(problem.grid.levels)
    return problem.terms is own.terms and problem.sources is own.sources


def _parts_at_levels(problem: SemidiscreteSystem, grid: SparseGrid) -> dict[str, Any]:
    """Return the fields of a problem that differ at the finest levels of another grid.

    Parameters
    ----------
    problem : Problem
        The problem.
    grid : SparseGrid
        The grid.

    Returns
    -------
    dict
        Empty if the levels are the problem's.

    Raises
    ------
    TypeError
        If it is not a SparseGrid.
    ValueError
        If the levels are others and the problem has only the 1-D operators of its own, or these
        are not those of its PDE.
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
    if not knows_other_levels(problem):
        raise ValueError(
            f"the grid has levels {grid.levels}; expected {problem.grid.levels}: terms or sources "
            "of the problem were replaced, and those of other levels are not known. State them in "
            "a PDE, and discretize that"
        )
    parts = problem.other_levels.parts(grid.levels)
    return {entry.name: getattr(parts, entry.name) for entry in fields(parts)}


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


def _take_operators(moved: SemidiscreteSystem, problem: SemidiscreteSystem) -> None:
    """Give ``moved`` the assembled operators of ``problem``, which is the same on another grid.

    Only operators in the form of sweeps can be converted. Others are assembled from the terms when
    they are needed.
    """
    if moved._form == problem._form == "sweep":
        for name in ("_groups", "_implicit_groups"):
            if name in problem.__dict__:
                moved.__dict__[name] = _moved(problem.__dict__[name], moved.grid)
        following = problem.__dict__.get("_field_terms")
        if following is not None:
            moved.__dict__["_field_terms"] = following.on_grid(moved.grid)


def _moved(groups: Sequence[TermGroup], grid: SparseGrid) -> tuple[TermGroup, ...]:
    found = []
    for group in groups:
        assert isinstance(group.operator, SparseGridOperator)
        found.append(TermGroup(group.time, group.operator.on_grid(grid)))
    return tuple(found)
