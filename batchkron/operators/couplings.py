"""The pairs of 1-D cells that a 1-D operator couples, independent of any grid.

A 1-D operator consists of blocks; each maps one 1-D cell (input) to another (output). A cell's
ancestors and neighbours on coarser levels are called coarser cells here.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Connections", "Ids", "Part", "joined", "levels_of", "narrow", "row_range"]

Ids: TypeAlias = NDArray[np.int64]  # or int32 for arrays that are stored, see `narrow`
Part: TypeAlias = Literal["upper", "lower", "full"]


class Connections:
    """The pairs of cells that a 1-D operator couples, and their upper and lower part.

    ``rows``, ``columns`` (ndarray of int64, (blocks,)): 1-D index of the output and of the input
      cell of each block; they are not modified.
    """

    def __init__(self, rows: Ids, columns: Ids) -> None:
        self.rows = rows
        self.columns = columns

    def __reduce__(self) -> tuple[Any, ...]:
        return Connections, (self.rows, self.columns)

    def transpose(self) -> Connections:
        """Return the pairs of the transposed operator, with the blocks in the same order."""
        return Connections(self.columns, self.rows)

    def half(self, part: Part) -> tuple[Ids, Ids, Ids]:
        """Return the part "upper" or "lower", its blocks sorted by the finer cell.

        That are the finer 1-D cell of each block, or its input if both have the same level; the
        other cell; and the index of each block, each (count,).

        Blocks of the upper part map a cell to a coarser level, so that the input is the finer cell;
        those of the lower part map to a finer level. Those that keep the level are in the upper
        part, or in the lower one if there are no others in the upper, so that one part is empty.
        """
        if part == "upper":
            return self.columns[self._upper], self.rows[self._upper], self._upper
        return self.rows[self._lower], self.columns[self._lower], self._lower

    @cached_property
    def _upper(self) -> Ids:
        return _order(self.columns, self._steps < self._is_lower)

    @cached_property
    def _lower(self) -> Ids:
        return _order(self.rows, self._steps >= self._is_lower)

    @cached_property
    def _steps(self) -> Ids:
        """By how many levels the output of each block is finer than the input."""
        return levels_of(self.rows) - levels_of(self.columns)

    @cached_property
    def _is_lower(self) -> int:
        """The smallest step of the lower part: 0 if blocks map to finer levels and none back."""
        return 1 if (self._steps < 0).any() or not (self._steps > 0).any() else 0


def _order(fine: Ids, kept: NDArray[np.bool_]) -> Ids:
    """Return the indices of the kept blocks, sorted by their finer cell."""
    chosen = np.flatnonzero(kept)
    return narrow(chosen[np.argsort(fine[chosen], kind="stable")])


def narrow(numbers: Ids) -> Ids:
    """Return numbers as int32 if they fit, to save memory in arrays that are stored."""
    if numbers.size and numbers.max() > np.iinfo(np.int32).max:
        return numbers
    return numbers.astype(np.int32)


def levels_of(cells: Ids) -> Ids:
    """Return the level of 1-D cells: 0 for cell 0, else l with 2^(l-1) ≤ cell < 2^l."""
    return np.frexp(cells.astype(np.float64))[1].astype(np.int64)


def joined(starts: Ids, stops: Ids) -> tuple[Ids, Ids]:
    """Return all pairs (i, j) with starts[i] ≤ j < stops[i], as the array of i and that of j."""
    counts = stops - starts
    owners = np.repeat(np.arange(counts.size), counts)
    before = np.cumsum(counts) - counts
    return owners, np.arange(owners.size) - (before - starts)[owners]


def row_range(keys: Ids, width: int, rows: Ids, last_columns: Ids) -> tuple[Ids, Ids]:
    """Return where the pairs of rows, up to a last column in each, begin and end: (first, stop).

    The keys row * width + column of the pairs ascend; width is more than the largest column.
    """
    starts = rows * np.int64(width)
    first = np.searchsorted(keys, starts)
    stop = np.searchsorted(keys, starts + last_columns, side="right")
    return first.astype(np.int64), stop.astype(np.int64)
