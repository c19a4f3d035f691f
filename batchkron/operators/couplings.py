"""The pairs of cells that a 1-D operator joins, without any grid."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Connections", "Half", "Ids", "Part", "joined", "levels_of", "narrow"]

Ids: TypeAlias = NDArray[np.int64]  # or of int32, where it is kept for long
Part: TypeAlias = Literal["upper", "lower", "full"]


class Half(NamedTuple):
    """Blocks that join cells to coarser ones, sorted by the finer cell.

    Attributes
    ----------
    fine, coarse : ndarray of int64, (count,)
        The finer 1-D cell of a block, or its input where both are of one level, and the other one.
    blocks : ndarray of int64, (count,)
        The block.
    """

    fine: Ids
    coarse: Ids
    blocks: Ids


class Connections:
    """The pairs of cells that a 1-D operator joins, and their parts.

    Parameters
    ----------
    rows, columns : ndarray of int64, (blocks,)
        1-D index of the output and input cell of each block; not written to.
    """

    def __init__(self, rows: Ids, columns: Ids) -> None:
        self.rows = rows
        self.columns = columns

    def __reduce__(self) -> tuple[Any, ...]:
        return Connections, (self.rows, self.columns)

    def transpose(self) -> Connections:
        """Return those of the transpose, the blocks in the same order."""
        return Connections(self.columns, self.rows)

    def half(self, part: Part) -> Half:
        """Return a part, "upper" or "lower", by finer cells.

        The finer cell is the input of blocks in the upper part, which do not make the level finer,
        the output of those in the lower one, which do.
        """
        if part == "upper":
            return Half(self.columns[self._upper], self.rows[self._upper], self._upper)
        return Half(self.rows[self._lower], self.columns[self._lower], self._lower)

    @cached_property
    def _upper(self) -> Ids:
        return _order(self.columns, levels_of(self.rows) <= levels_of(self.columns))

    @cached_property
    def _lower(self) -> Ids:
        return _order(self.rows, levels_of(self.rows) > levels_of(self.columns))


def _order(fine: Ids, kept: NDArray[np.bool_]) -> Ids:
    """Return the blocks of a part, sorted by the finer cell."""
    chosen = np.flatnonzero(kept)
    return narrow(chosen[np.argsort(fine[chosen], kind="stable")])


def narrow(numbers: Ids) -> Ids:
    """Return numbers that are kept for long in 32 bits, if they have room there."""
    if numbers.size and numbers.max() > np.iinfo(np.int32).max:
        return numbers
    return numbers.astype(np.int32)


def levels_of(cells: Ids) -> Ids:
    """Return the level of 1-D cells: 0 for cell 0, else l with 2^(l-1) ≤ cell < 2^l."""
    return np.frexp(cells.astype(np.float64))[1].astype(np.int64)


def joined(starts: Ids, stops: Ids) -> tuple[Ids, Ids]:
    """All j with starts[i] ≤ j < stops[i], for every i: the i's and the j's."""
    counts = stops - starts
    owners = np.repeat(np.arange(counts.size), counts)
    before = np.cumsum(counts) - counts
    return owners, np.arange(owners.size) - (before - starts)[owners]
