"""A problem on a grid that follows its solution: which cells are added, and which are removed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module, to_host
from batchkron.operators import on_device
from batchkron.storage import StoredGrid

from ...discretization.checks.cell_widths import check_cell_widths, finest_resolved
from ...grids.levels import MAX_LEVEL
from ...grids.refinement import children, finest_levels, united
from ...grids.sparse_grid import SparseGrid, levels_of_cells
from ...statement.axis import Axis
from ...statement.number_checks import check_integer
from .cell_weights import CellWeight, cell_weight
from .transfer import carried_over

__all__ = ["AdaptiveProblem", "adaptive_problem"]

Problem: TypeAlias = Any  # `batchkron.problems.Problem`, whose module imports this one

_Weights: TypeAlias = Callable[[SparseGrid], NDArray[np.float64]]  # of the cells, for a state

# Levels beyond the problem's finest that a grid may reach if the user gives no largest level.
_MORE_LEVELS = 3
# Shares of the tolerance, chosen by runs of two-stream until 20 and of continuity-2d from zero: a
# child enters the grid if its own indicator is above the first, on the initial grid above the
# second, and cells are removed if theirs is below the third.
_ENTERING, _FIRST, _COARSENING = 0.7, 0.2, 0.1
# Number of successive adaptations at which a cell is below it before it is removed. A new cell
# begins at -1, so that it stays for at least three adaptations.
_CALM, _NEW = 2, -1


def adaptive_problem(
    problem: Problem,
    tol: float,
    relative: bool,
    max_level: int | Sequence[int] | None,
    keep: Iterable[Axis | str] | Axis | str,
    weight: Any = None,
    fields: Any = (),
) -> AdaptiveProblem:
    """Return a problem with a checked rule; the arguments are those of `Problem.adaptive`."""
    if problem._form == "dense":
        raise ValueError(
            "the problem's operators are dense, and a grid that grows may have too many unknowns "
            "for that; take with_form('sweep') to adapt the grid"
        )
    if problem.limiter is not None:
        raise ValueError(
            f"the problem has limiter={problem.limiter!r}, which needs all cells of an axis, and a "
            "grid that follows the solution has only some; leave out one of limiter= and adapt="
        )
    if not problem.grid.is_downward_closed:
        raise ValueError(
            "the problem's grid is not closed downward: a cell has no parent in it; take "
            "grid.closed() to adapt it"
        )
    kept = _kept_axes(problem.axes, keep)
    weighting = cell_weight(problem.output, weight, fields)
    limits, calm = _limits(problem, max_level), np.zeros(problem.grid.num_cells, dtype=np.int8)
    return AdaptiveProblem(problem, tol, relative, limits, kept, weighting, calm)


@dataclass(frozen=True, eq=False)
class AdaptiveProblem:
    """A problem on the present grid, and what is remembered of its cells; it cannot be changed.

    Parameters
    ----------
    problem : Problem
        The problem. Its ``initial`` and ``t0`` are the state and time of the last change.
    tol : float
        Cells whose indicator is larger are refined.
    relative : bool
        Whether ``tol`` is relative to the norm of the indicators of all cells.
    limits : tuple of int
        Largest level along each axis.
    kept : tuple of int
        Axes: cells whose 1-D index is 0 along all of them are never removed; none if empty.
    weight : CellWeight or None
        By what indicators are multiplied.
    calm : int8 (num_cells,)
        For each cell the number of successive adaptations at which its indicator was below a tenth
        of the tolerance; -1 for a new cell.
    missed : bool
        Whether cells that were added last would have exceeded the tolerance in the interval before.
    is_finer : bool
        Whether the last change added level multi-indices, so that a time step may be too long now.
    added, removed : int
        Number of cells added and removed by the last change.
    limited : int
        Number of cells with an indicator beyond the tolerance that were not refined along an axis,
        because they have the largest level there.
    excess : float
        The largest indicator of these cells, relative to the tolerance.
    probe : Problem or None
        The problem on the grid on which the rates of children were computed last; it is kept
        because the next adaptation often needs the same one.
    """

    problem: Problem
    tol: float
    relative: bool
    limits: tuple[int, ...]
    kept: tuple[int, ...]
    weight: CellWeight | None
    calm: NDArray[np.int8] = field(repr=False)
    missed: bool = False
    is_finer: bool = False
    added: int = 0
    removed: int = 0
    limited: int = 0
    excess: float = 0.0
    probe: Problem | None = field(default=None, repr=False)

    def started(self, horizon: float) -> AdaptiveProblem:
        """Return the problem on the grid for its initial state; τ of the indicator is the horizon.

        If that is the state that its PDE gives, it is projected on the grid, and cells are refined
        until none needs it. Otherwise new cells begin at 0, and are refined once. Children whose
        own indicator is small are left out. Cells are only added: it is ``self`` if the grid has
        all that it needs.
        """
        now, stated = self, _begins_as_stated(self.problem)
        while True:
            problem = now.problem
            sizes, tol = self._measured_initial(problem, horizon)
            now = now._limited_by(sizes, tol)
            more = children(problem.grid.cells[sizes > tol], self.limits)
            if (problem.grid.find(more) >= 0).all():
                break
            grid = self._united(problem.grid.cells, more)
            wide = now._on(grid, problem.initial, problem.t0, project=stated)
            sizes, _ = self._measured_initial(wide.problem, horizon)
            is_new = problem.grid.find(grid.cells) < 0
            entering = grid.cells[is_new & (sizes > _FIRST * tol)]
            if not len(entering):
                break
            grid = self._united(problem.grid.cells, entering)
            now = wide._on(grid, wide.problem.initial, problem.t0)
            if not stated:
                break
        if now is self:
            return self
        if stated:
            now = replace(now, calm=np.zeros_like(now.calm))
        return now._compared_with(self)

    def changed(self, u: Any, t: float, horizon: float, interval: float) -> AdaptiveProblem:
        """Return the problem on the grid for a state at time t, which is carried over.

        The horizon is τ of the indicator, the interval the time since the last adaptation, for
        ``missed``. The problem is the present one if the grid does not change; otherwise it begins
        at t.

        Notes
        -----
        The children of large cells are first added to a grid on which only rates are computed.
        Those that have a large rate there enter the grid.
        """
        problem, cells = self.problem, self.problem.grid.cells
        # The rate of a cell that began at 0 is at first that of its way to a balance with the other
        # cells, which takes less than the horizon: only the interval tells what it will become.
        horizons = np.where(self.calm == _NEW, interval, horizon)
        weight = self._weight(problem, u, t)
        sizes, tol = self._measured(problem, u, t, horizons, weight)
        known = self._limited_by(sizes, tol)
        calm = np.where(sizes < _COARSENING * tol, self.calm + 1, 0).astype(np.int8)
        calm = np.minimum(calm, np.int8(_CALM))
        needed = calm < _CALM
        if self.kept:
            needed |= (cells[:, list(self.kept)] == 0).all(axis=1)
        origin = np.zeros((1, cells.shape[1]), dtype=np.int64)
        staying = np.vstack([cells[needed], origin])
        wanted = children(cells[sizes > tol], self.limits)
        now = replace(known, calm=calm, missed=False)
        while True:
            grid = self._united(staying, wanted)
            is_new = problem.grid.find(grid.cells) < 0
            if not is_new.any():
                grid = self._united(staying)
                break
            now, rates = now._probed(grid, u, t, weight)
            grown = is_new & (interval * rates > tol)
            more = children(grid.cells[grown], self.limits)
            if (grid.find(more) >= 0).all():
                entering = is_new & (horizon * rates > _ENTERING * tol)
                grid = self._united(staying, grid.cells[entering | grown])
                now = replace(now, missed=bool(grown.any()))
                break
            wanted = np.vstack([wanted, more])
        return now._on(grid, u, t)._compared_with(self)

    def _probed(
        self, grid: SparseGrid, u: Any, t: float, weight: _Weights | None
    ) -> tuple[AdaptiveProblem, NDArray[np.float64]]:
        """Return this with the problem on a wider grid, and the rates of all its cells."""
        probe = self.probe
        if probe is None or not np.array_equal(probe.grid.cells, grid.cells):
            probe = self.problem.on_grid(grid, u, t)
            state = probe.initial
        else:
            on_host = carried_over(self.problem._on_host(u), self.problem.grid, grid)
            state = on_device(on_host, self.problem.device)
        return replace(self, probe=probe), _weighted(_rates(probe, state, t), grid, weight)

    def extended(self, u: Any, t: float, other: AdaptiveProblem) -> AdaptiveProblem:
        """Return this problem, with a state at time t, on a grid with the cells of ``other``, too.

        It is for the repetition of an interval, after which ``other`` is the problem.
        """
        grid = self._united(self.problem.grid.cells, other.problem.grid.cells)
        return self._on(grid, u, t)._compared_with(self)

    def saved(self) -> StoredGrid:
        """Return the grid, and what is remembered of its cells, for a checkpoint."""
        stored: StoredGrid = self.problem.stored_grid()
        return replace(stored, calm=self.calm.astype(np.int64))

    def restored(self, grid: StoredGrid, u: NDArray[np.float64], t: float) -> AdaptiveProblem:
        """Return the problem on a grid that `saved` has returned, with the state on it at time t.

        Raises ValueError if the grid is not one of this problem and rule.
        """
        problem = self.problem
        for axis, level, limit in zip(problem.axes, grid.levels, self.limits, strict=False):
            if level > limit:
                raise ValueError(
                    f"the stored grid has level {level} along {axis.name}; the rule's max_level "
                    f"is {limit}. Go on with the rule of the first run"
                )
        moved = problem.on_stored_grid(grid)
        if not moved.grid.is_downward_closed:
            raise ValueError("the stored grid is not closed downward: a cell has no parent in it")
        if u.shape != moved.initial.shape:
            raise ValueError(
                f"the stored state has shape {u.shape}; expected {moved.initial.shape} on its grid"
            )
        moved = replace(moved, initial=u, t0=t)
        return replace(self, problem=moved, calm=grid.calm.astype(np.int8), missed=False)

    def _united(self, *sets: NDArray[np.int64]) -> SparseGrid:
        """Return the closed grid of cells, with the problem's levels if it has no others."""
        cells = np.vstack(sets)
        levels, own = finest_levels(cells), self.problem.grid.levels
        if not self.problem.knows_other_levels:
            levels = own
        return united(cells, levels=levels)

    def _on(self, grid: SparseGrid, u: Any, t: float, *, project: bool = False) -> AdaptiveProblem:
        """Return the problem on a grid, with its cells' memory; the same one on an equal grid."""
        old = self.problem
        if grid.num_cells == old.grid.num_cells and np.array_equal(grid.cells, old.grid.cells):
            return self
        moved = old.on_grid(grid, u, t)
        if project:
            moved = replace(moved, initial=old.other_levels.initial(grid))
        places = old.grid.find(grid.cells)
        calm = np.where(places < 0, _NEW, self.calm[places]).astype(np.int8)
        return replace(self, problem=moved, calm=calm)

    def _compared_with(self, before: AdaptiveProblem) -> AdaptiveProblem:
        """Return this with the counts of cells that differ from those of another grid."""
        old, new = before.problem.grid, self.problem.grid
        if new is old:
            return replace(self, is_finer=False, added=0, removed=0)
        added = int((old.find(new.cells) < 0).sum())
        known = {tuple(row) for row in old.level_sets.tolist()}
        is_finer = any(tuple(row) not in known for row in new.level_sets.tolist())
        removed = old.num_cells + added - new.num_cells
        return replace(self, is_finer=is_finer, added=added, removed=removed)

    def _limited_by(self, sizes: NDArray[np.float64], tol: float) -> AdaptiveProblem:
        """Return this with the cells that the largest level keeps from being refined.

        On an axis whose largest level is 0 there is nothing but the coarsest cell, whose indicator
        says nothing of finer ones.
        """
        limits = np.array(self.limits)
        at_limit = (levels_of_cells(self.problem.grid.cells) >= limits) & (limits > 0)
        beyond = sizes[at_limit.any(axis=1) & (sizes > tol)]
        if len(beyond) == self.limited == 0:
            return self
        return replace(self, limited=len(beyond), excess=float(beyond.max(initial=0.0)) / tol)

    def _measured_initial(
        self, problem: Problem, horizon: float
    ) -> tuple[NDArray[np.float64], float]:
        """Return each cell's indicator for the problem's initial state, and the tolerance."""
        u, t = problem.initial, problem.t0
        return self._measured(problem, u, t, horizon, self._weight(problem, u, t))

    def _measured(
        self,
        problem: Problem,
        u: Any,
        t: float,
        horizon: float | NDArray[np.float64],
        weight: _Weights | None,
    ) -> tuple[NDArray[np.float64], float]:
        """Return each cell's indicator, with one τ or one for each, and the absolute tolerance."""
        sizes = np.maximum(_block_norms(problem, u), horizon * _rates(problem, u, t))
        sizes = _weighted(sizes, problem.grid, weight)
        tol = self.tol * float(np.linalg.norm(sizes)) if self.relative else self.tol
        return sizes, tol

    def _weight(self, problem: Problem, u: Any, t: float) -> _Weights | None:
        """Return the weight for a state, if there is one."""
        return None if self.weight is None else self.weight.for_state(problem.output, u, t)


def _rates(problem: Problem, u: Any, t: float) -> NDArray[np.float64]:
    """Return the norm of each block of A(t) u + s(t)."""
    rate = array_module(u).empty_like(u)
    problem.rhs(t, u, rate)
    return _block_norms(problem, rate)


def _weighted(
    sizes: NDArray[np.float64], grid: SparseGrid, weight: _Weights | None
) -> NDArray[np.float64]:
    """Return numbers of cells times the cells' weights."""
    return sizes if weight is None else sizes * weight(grid)


def _begins_as_stated(problem: Problem) -> bool:
    """Whether a problem's initial state is that of its PDE, which can be projected on any grid."""
    if not problem.knows_other_levels:
        return False
    stated = problem.other_levels.initial(problem.grid)
    return np.array_equal(stated, to_host(problem.initial, "initial"))


def _block_norms(problem: Problem, u: Any) -> NDArray[np.float64]:
    """Return ‖u_b‖₂ of every block b, on the CPU."""
    blocks = u.reshape(problem.grid.num_cells, -1)
    norms = array_module(u).linalg.norm(blocks, axis=1)
    return np.asarray(to_host(norms, "u"), dtype=np.float64)


def _kept_axes(axes: Sequence[Axis], keep: Iterable[Axis | str] | Axis | str) -> tuple[int, ...]:
    """Return the numbers of the axes of ``keep``, which are given as objects or names."""
    given = (keep,) if isinstance(keep, (Axis, str)) else tuple(keep)
    names = [axis.name for axis in axes]
    found = []
    for entry in given:
        if not isinstance(entry, (Axis, str)):
            raise TypeError(
                f"keep holds {type(entry).__name__}; expected axes or their names, as in keep=[v]"
            )
        name = entry if isinstance(entry, str) else entry.name
        if name not in names:
            raise ValueError(f"keep names the axis {name!r}; the problem has {', '.join(names)}")
        found.append(names.index(name))
    return tuple(sorted(set(found)))


def _limits(problem: Problem, max_level: int | Sequence[int] | None) -> tuple[int, ...]:
    """Return the largest level along each axis."""
    own: tuple[int, ...] = problem.grid.levels
    others = problem.knows_other_levels
    if max_level is None:
        if not others:
            return own
        pairs = zip(problem.axes, own, strict=True)
        return tuple(min(level + _MORE_LEVELS, finest_resolved(axis)) for axis, level in pairs)
    if isinstance(max_level, (int, np.integer)):
        max_level = (max_level,) * len(own)
    if isinstance(max_level, str) or not isinstance(max_level, Sequence | np.ndarray):
        raise TypeError(f"max_level is {max_level!r}; expected an integer, or one per axis")
    if len(max_level) != len(own):
        raise ValueError(
            f"max_level has {len(max_level)} entries; expected one for each of the {len(own)} axes"
        )
    limits = tuple(check_integer("max_level", level, MAX_LEVEL) for level in max_level)
    check_cell_widths(problem.axes, limits)
    present = finest_levels(problem.grid.cells)
    for axis, limit, level, finest in zip(problem.axes, limits, own, present, strict=True):
        if limit < finest:
            raise ValueError(
                f"max_level is {limit} for {axis.name}, where the grid has cells of level "
                f"{finest}; expected at least that"
            )
        if limit > level and not others:
            raise ValueError(
                f"max_level is {limit} for {axis.name}, and the problem knows its 1-D operators up "
                f"to level {level} only: it was not made by PDE.discretize, comes from a file "
                "or a pickle, or its terms or sources were replaced. Discretize the PDE again, or "
                "with the finest levels that will be needed"
            )
    return limits
