"""Sparse, full, mixed and custom grids: sets of multi-indices of 1-D hierarchical cells."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import lcm
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..statement.text import count
from .levels import check_level

GridKind: TypeAlias = Literal["sparse", "full", "mixed", "custom"]
GRID_KINDS = ("sparse", "full", "mixed", "custom")
_KEY_BITS = 62


def levels_of_cells(cells: ArrayLike) -> NDArray[np.int64]:
    """Levels of one-dimensional cells: 0 for cell 0, else l with 2^(l-1) ≤ cell < 2^l.

    Parameters
    ----------
    cells : array_like, integer (...)
        1-D cell indices, at least 0.

    Returns
    -------
    int64 (...)
        Levels.

    Examples
    --------
    >>> levels_of_cells([0, 1, 2, 3, 4])
    array([0, 1, 2, 2, 3])
    """
    return np.frexp(np.asarray(cells, dtype=np.float64))[1].astype(np.int64)


@dataclass(frozen=True, eq=False)
class SparseGrid:
    """A set of cells, each a multi-index of one-dimensional hierarchical cells.

    Parameters
    ----------
    cells : int64 (num_cells, dimensions)
        1-D cell indices: 0 for level 0, else 2^(l-1) + position. Sorted lexicographically, first
        axis slowest, no row twice.
    levels : tuple of int
        Largest level of each axis.
    kind : {"sparse", "full", "mixed", "custom"}
        How the set came about; "mixed" is a product of others.

    Raises
    ------
    TypeError
        If the cells are no integers.
    IndexError
        If a cell is not in 0 … 2^level - 1 of its axis.
    ValueError
        If shapes do not agree, the rows are not sorted and distinct, or the kind is unknown.

    Notes
    -----
    `sparse`, `full`, `custom` and `product` build grids. The arrays are read-only.

    Examples
    --------
    >>> SparseGrid.sparse([6, 6]).num_cells
    256
    """

    cells: NDArray[np.int64]
    levels: tuple[int, ...]
    kind: GridKind

    def __post_init__(self) -> None:
        """Copy the cells and check them."""
        levels = _check_levels(self.levels)
        cells = _check_cells(self.cells, levels).copy()
        cells.setflags(write=False)
        object.__setattr__(self, "levels", levels)
        object.__setattr__(self, "cells", cells)
        if self.kind not in GRID_KINDS:
            raise ValueError(
                f"kind is {self.kind!r}; expected one of {', '.join(map(repr, GRID_KINDS))}"
            )
        step = np.diff(cells, axis=0)
        first = np.argmax(step != 0, axis=1)[:, None]
        wrong = np.flatnonzero(np.take_along_axis(step, first, axis=1) <= 0)
        if wrong.size:
            raise ValueError(
                f"cells[{wrong[0] + 1}] does not come after cells[{wrong[0]}]; expected rows "
                "sorted lexicographically and distinct, as SparseGrid.custom makes them"
            )

    def __repr__(self) -> str:
        return f"<SparseGrid: {grid_text(self)}>"

    @classmethod
    def sparse(cls, levels: Sequence[int]) -> "SparseGrid":
        """All cells with Σ l_i / L_i ≤ 1, l_i ≤ L_i; with equal L_i this is Σ l_i ≤ L.

        Parameters
        ----------
        levels : sequence of int
            Largest level L_i of each axis. An axis of level 0 has cell 0 alone.

        Returns
        -------
        SparseGrid
            Closed downward.

        Raises
        ------
        TypeError, ValueError
            If there is no axis or a level is no integer or out of range.

        Notes
        -----
        Σ L_max l_i / L_i ≤ L_max, L_max = max L_i, is the same condition; it is decided in
        integers.
        """
        limits = _check_levels(levels)
        return cls(_cells_within(limits, *_sparse_costs(limits)), limits, "sparse")

    @classmethod
    def full(cls, levels: Sequence[int]) -> "SparseGrid":
        """All cells with l_i ≤ L_i.

        Parameters
        ----------
        levels : sequence of int
            Largest level L_i of each axis.

        Returns
        -------
        SparseGrid
            With Π 2^L_i cells.

        Raises
        ------
        TypeError, ValueError
            If there is no axis or a level is no integer or out of range.
        """
        limits = _check_levels(levels)
        return cls(_cells_within(limits, (0,) * len(limits), 0), limits, "full")

    @classmethod
    def custom(cls, cells: ArrayLike, levels: Sequence[int]) -> "SparseGrid":
        """Any set of cells.

        Parameters
        ----------
        cells : array_like, integer (num_cells, dimensions)
            1-D cell indices, in any order; repeated rows count once.
        levels : sequence of int
            Largest level of each axis; the one-dimensional operators have 2^level cells.

        Returns
        -------
        SparseGrid
            Not necessarily closed downward, see `is_downward_closed`.

        Raises
        ------
        TypeError, IndexError, ValueError
            As the class.
        """
        limits = _check_levels(levels)
        return cls(np.unique(_check_cells(cells, limits), axis=0), limits, "custom")

    @classmethod
    def product(cls, *grids: "SparseGrid", order: Sequence[int] | None = None) -> "SparseGrid":
        """All pairs of cells of several grids, such as one for position and one for velocity.

        Parameters
        ----------
        *grids : SparseGrid
            At least one.
        order : sequence of int, optional
            Axis k of the product is axis ``order[k]`` of all grids' axes one after another, the
            order that they have by default.

        Returns
        -------
        SparseGrid
            Of kind "mixed".

        Raises
        ------
        ValueError
            If no grid is given, or the order is no permutation of the axes.

        Examples
        --------
        >>> SparseGrid.product(SparseGrid.sparse([1, 1]), SparseGrid.sparse([2])).num_cells
        12
        """
        if not grids:
            raise ValueError("no grid given; expected at least one")
        cells = np.zeros((1, 0), dtype=np.int64)
        for grid in grids:
            earlier = np.repeat(cells, grid.num_cells, axis=0)
            cells = np.hstack((earlier, np.tile(grid.cells, (len(cells), 1))))
        levels = tuple(level for grid in grids for level in grid.levels)
        if order is None:
            return cls(cells, levels, "mixed")
        if sorted(order) != list(range(len(levels))):
            raise ValueError(
                f"order is {list(order)}; expected each of 0 … {len(levels) - 1} once, the axes "
                "of the grids"
            )
        cells = cells[:, list(order)]
        cells = cells[np.lexsort(cells.T[::-1])]
        return cls(cells, tuple(levels[k] for k in order), "mixed")

    @property
    def num_cells(self) -> int:
        """Number of cells."""
        return int(self.cells.shape[0])

    @property
    def dimensions(self) -> int:
        """Number of axes."""
        return len(self.levels)

    @cached_property
    def cell_levels(self) -> NDArray[np.int64]:
        """Level multi-index of every cell, int64 (num_cells, dimensions)."""
        return levels_of_cells(self.cells)

    @cached_property
    def level_sets(self) -> NDArray[np.int64]:
        """Level multi-indices that occur, int64 (count, dimensions), sorted and distinct."""
        return np.unique(self.cell_levels, axis=0)

    @property
    def is_downward_closed(self) -> bool:
        """Whether the parent of every cell in every direction is in the grid."""
        for axis in range(self.dimensions):
            children = self.cells[self.cells[:, axis] > 0].copy()
            children[:, axis] >>= 1
            if (self.find(children) < 0).any():
                return False
        return True

    def closed(self) -> "SparseGrid":
        """Smallest downward closed grid that holds this one.

        Returns
        -------
        SparseGrid
            The grid itself if it is closed already, else one of kind "custom".

        Examples
        --------
        >>> SparseGrid.custom([[2, 0]], [2, 0]).closed().cells[:, 0]
        array([0, 1, 2])
        """
        if self.is_downward_closed:
            return self
        cells = self.cells
        for axis in range(self.dimensions):
            for _ in range(self.levels[axis]):
                parents = cells.copy()
                parents[:, axis] >>= 1
                cells = np.unique(np.vstack((cells, parents)), axis=0)
        return SparseGrid(cells, self.levels, "custom")

    def find(self, cells: ArrayLike) -> NDArray[np.int64]:
        """Positions of multi-indices in the grid.

        Parameters
        ----------
        cells : array_like, integer (..., dimensions)
            Multi-indices of 1-D cells; they may lie outside the range of an axis.

        Returns
        -------
        int64 (...)
            Row of `cells`, -1 where the grid does not hold the multi-index.

        Raises
        ------
        TypeError, ValueError
            If the multi-indices are no integers or have the wrong length.

        Examples
        --------
        >>> SparseGrid.full([1, 1]).find([[1, 0], [2, 0]])
        array([ 2, -1])
        """
        wanted = _as_integers(cells)
        if wanted.ndim < 1 or wanted.shape[-1] != self.dimensions:
            raise ValueError(
                f"cells have shape {wanted.shape}; expected (..., {self.dimensions}), a 1-D index "
                "per axis"
            )
        counts = np.array([1 << level for level in self.levels], dtype=np.int64)
        absent = np.asarray(((wanted < 0) | (wanted >= counts)).any(axis=-1))
        safe = np.where(absent[..., None], 0, wanted)
        ranks = np.zeros(wanted.shape[:-1], dtype=np.int64)
        for (first, last), keys in zip(self._stages, self._stage_keys, strict=True):
            key = _stage_key(ranks, safe[..., first:last], self.levels[first:last])
            ranks = np.minimum(np.searchsorted(keys, key), keys.size - 1)
            absent |= keys[ranks] != key
        return np.where(absent, -1, ranks).astype(np.int64)

    @cached_property
    def _stages(self) -> tuple[tuple[int, int], ...]:
        """Ranges of axes whose cells, with the rank of what precedes, fit one 62-bit key."""
        rank_bits = self.num_cells.bit_length()
        stages, first, bits = [], 0, 0
        for axis, level in enumerate(self.levels):
            if bits + level > _KEY_BITS:
                stages.append((first, axis))
                first, bits = axis, rank_bits
            bits += level
        return (*stages, (first, self.dimensions))

    @cached_property
    def _stage_keys(self) -> tuple[NDArray[np.int64], ...]:
        """For each stage its sorted distinct keys; a key's place is its rank."""
        ranks = np.zeros(self.num_cells, dtype=np.int64)
        found = []
        for first, last in self._stages:
            key = _stage_key(ranks, self.cells[:, first:last], self.levels[first:last])
            keys, ranks = np.unique(key, return_inverse=True)
            found.append(keys)
        return tuple(found)


def _stage_key(
    ranks: NDArray[np.int64], cells: NDArray[np.int64], levels: tuple[int, ...]
) -> NDArray[np.int64]:
    """Mixed-radix number of a rank followed by 1-D cells; its order is lexicographic."""
    key = ranks
    for axis, level in enumerate(levels):
        key = (key << level) + cells[..., axis]
    return key


def count_cells(kind: Literal["sparse", "full"], levels: Sequence[int]) -> int:
    """Return how many cells a grid would have, without making it.

    Parameters
    ----------
    kind : {"sparse", "full"}
        As of `SparseGrid.sparse` and `SparseGrid.full`.
    levels : sequence of int
        Largest level of each axis.

    Returns
    -------
    int

    Raises
    ------
    TypeError, ValueError
        If there is no axis or a level is no integer or out of range.

    Examples
    --------
    >>> count_cells("sparse", [6, 6]), count_cells("full", [30])
    (256, 1073741824)
    """
    limits = _check_levels(levels)
    costs, budget = _sparse_costs(limits) if kind == "sparse" else ((0,) * len(limits), 0)
    ways = {budget: 1}  # cells along the axes so far, by what is left of the budget
    for limit, cost in zip(limits, costs, strict=True):
        more: Counter[int] = Counter()
        for left, number in ways.items():
            for level in range(min(limit, left // cost if cost else limit) + 1):
                more[left - cost * level] += number * (1 << max(level - 1, 0))
        ways = more
    return sum(ways.values())


def _sparse_costs(limits: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """Costs of a level along each axis, and the budget that the levels of a cell may cost."""
    budget = lcm(*(limit for limit in limits if limit > 0))
    return tuple(budget // limit if limit else 0 for limit in limits), budget


def _cells_within(
    limits: tuple[int, ...], costs: tuple[int, ...], budget: int
) -> NDArray[np.int64]:
    """All cells with l_i ≤ limits[i] and Σ costs[i] l_i ≤ budget, in lexicographic order."""
    cells = np.zeros((1, 0), dtype=np.int64)
    left = np.array([budget], dtype=np.int64)
    for limit, cost in zip(limits, costs, strict=True):
        largest = np.minimum(left // cost, limit) if cost else np.full(left.size, limit)
        counts = np.int64(1) << largest
        stops = np.cumsum(counts)
        new = np.arange(stops[-1]) - np.repeat(stops - counts, counts)
        cells = np.column_stack((np.repeat(cells, counts, axis=0), new))
        left = np.repeat(left, counts) - cost * levels_of_cells(new)
    return cells


def grid_text(grid: SparseGrid) -> str:
    """Return kind, finest levels and number of cells of a grid, in a line."""
    levels = ", ".join(map(str, grid.levels))
    return f"{grid.kind}, finest levels {levels}, {count(grid.num_cells, 'cell')}"


def _check_levels(levels: Sequence[int]) -> tuple[int, ...]:
    checked = tuple(check_level(level) for level in levels)
    if not checked:
        raise ValueError("levels is empty; expected one level per axis")
    return checked


def _as_integers(cells: ArrayLike) -> NDArray[np.int64]:
    array = np.asarray(cells)
    if array.dtype.kind not in "iu":
        raise TypeError(f"cells have dtype {array.dtype}; expected integers")
    return array.astype(np.int64, copy=False)


def _check_cells(cells: ArrayLike, levels: tuple[int, ...]) -> NDArray[np.int64]:
    array = _as_integers(cells)
    if array.ndim != 2 or array.shape[1] != len(levels) or array.shape[0] == 0:
        raise ValueError(
            f"cells have shape {array.shape}; expected (num_cells, {len(levels)}) with at least "
            f"one cell, for {len(levels)} levels"
        )
    counts = np.array([1 << level for level in levels], dtype=np.int64)
    wrong = np.argwhere((array < 0) | (array >= counts))
    if wrong.size:
        row, axis = wrong[0]
        raise IndexError(
            f"cells[{row}, {axis}] is {array[row, axis]}; expected 0 … {counts[axis] - 1} for "
            f"level {levels[axis]}"
        )
    return array
