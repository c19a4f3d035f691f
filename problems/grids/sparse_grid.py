"""Sparse, full, mixed and custom grids: sets of multi-indices of 1-D hierarchical cells."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from batchkron.operators.grid_cells import cells_of_levels, count_cells_of_levels

from ..statement.text import count
from .levels import check_level

GridKind: TypeAlias = Literal["sparse", "full", "mixed", "custom"]
GRID_KINDS = ("sparse", "full", "mixed", "custom")
_KEY_BITS = 62  # bits of a key in int64 by which cells are searched; see `_stages`


def levels_of_cells(cells: ArrayLike) -> NDArray[np.int64]:
    """Return the levels of 1-D cells: 0 for cell 0, else l with 2^(l-1) ≤ cell < 2^l.

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
        1-D cell indices: 0 for level 0, and 2^(l-1) + position for level l. The rows are sorted
        lexicographically (the first axis is the slowest) and distinct.
    levels : tuple of int
        Largest level of each axis.
    kind : {"sparse", "full", "mixed", "custom"}
        How the set was made; "mixed" is a product of other grids.

    Raises
    ------
    TypeError
        If the cells are not integers.
    IndexError
        If a cell is not in 0 … 2^level - 1 of its axis.
    ValueError
        If shapes do not agree, the rows are not sorted and distinct, or the kind is unknown.

    Notes
    -----
    Grids are built with `sparse`, `full`, `custom` and `product`. The arrays are read-only.

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
        """Return the grid of all cells with Σ l_i / L_i ≤ 1; with equal L_i this is Σ l_i ≤ L.

        Parameters
        ----------
        levels : sequence of int
            Largest level L_i of each axis. An axis of level 0 has cell 0 only.

        Returns
        -------
        SparseGrid
            It is downward closed.

        Raises
        ------
        TypeError, ValueError
            If there is no axis, or a level is not an integer or out of range.
        """
        limits = _check_levels(levels)
        return cls(cells_of_levels("sparse", limits), limits, "sparse")

    @classmethod
    def full(cls, levels: Sequence[int]) -> "SparseGrid":
        """Return the grid of all cells with l_i ≤ L_i.

        Parameters
        ----------
        levels : sequence of int
            Largest level L_i of each axis.

        Returns
        -------
        SparseGrid
            It has Π 2^L_i cells.

        Raises
        ------
        TypeError, ValueError
            If there is no axis, or a level is not an integer or out of range.
        """
        limits = _check_levels(levels)
        return cls(cells_of_levels("full", limits), limits, "full")

    @classmethod
    def custom(cls, cells: ArrayLike, levels: Sequence[int]) -> "SparseGrid":
        """Return the grid of any set of cells.

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
        """Return the tensor product of grids, such as one for position and one for velocity.

        Parameters
        ----------
        *grids : SparseGrid
            At least one.
        order : sequence of int, optional
            Concatenate the axes of all grids and number them; axis k of the product is axis
            ``order[k]``. By default the axes keep this order.

        Returns
        -------
        SparseGrid
            Of kind "mixed".

        Raises
        ------
        ValueError
            If no grid is given, or the order is not a permutation of the axes.

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
        """The distinct level multi-indices of the cells, int64 (count, dimensions), sorted."""
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
        """Return the smallest downward closed grid that contains this one.

        Returns
        -------
        SparseGrid
            ``self`` if it is downward closed already, else one of kind "custom".

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
        """Return the positions of multi-indices in the grid.

        Parameters
        ----------
        cells : array_like, integer (..., dimensions)
            Multi-indices of 1-D cells; they may be outside the range of an axis.

        Returns
        -------
        int64 (...)
            Row of `cells`, -1 if the grid does not contain the multi-index.

        Raises
        ------
        TypeError, ValueError
            If the multi-indices are not integers or have the wrong length.

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
        """Ranges (first, last) of axes that are searched together.

        A multi-index as one integer may not fit into 64 bits. So it is searched in stages: a key of
        at most 62 bits is made of the rank that the search for the earlier axes gave and the 1-D
        cells of this range of axes.
        """
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
        """For each stage the sorted distinct keys of the cells; a key's rank is its index."""
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
    """Return a rank and the 1-D cells after it as one integer, in lexicographic order."""
    key = ranks
    for axis, level in enumerate(levels):
        key = (key << level) + cells[..., axis]
    return key


def count_cells(kind: Literal["sparse", "full"], levels: Sequence[int]) -> int:
    """Return the number of cells of a grid without making it.

    ``kind`` ({"sparse", "full"}): as of `SparseGrid.sparse` and `SparseGrid.full`.
    ``levels``: largest level of each axis.

    Raises `TypeError`, `ValueError` if there is no axis, or a level is not an integer or out of
    range.

    Examples
    --------
    >>> count_cells("sparse", [6, 6]), count_cells("full", [30])
    (256, 1073741824)
    """
    limits = _check_levels(levels)
    return count_cells_of_levels(kind, limits)


def grid_text(grid: SparseGrid) -> str:
    """Return one line with the kind, the finest levels and the number of cells of a grid."""
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


def full_axes(grid: SparseGrid) -> tuple[int, ...]:
    """Return the axes along which a grid has all cells beside each cell of the other axes.

    An axis of level 0, which has one cell, counts only if all axes have all cells.
    """
    if grid.num_cells == 1 << sum(grid.levels):
        return tuple(range(grid.dimensions))
    found = []
    for k, level in enumerate(grid.levels):
        lines = len(np.unique(np.delete(grid.cells, k, axis=1), axis=0))
        if level > 0 and lines << level == grid.num_cells:
            found.append(k)
    return tuple(found)
