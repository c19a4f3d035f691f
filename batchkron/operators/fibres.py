"""The fibres of a set of cells, and which of their cells a 1-D operator joins."""

from __future__ import annotations

from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from batchkron.operators.sweep_spec import Ids, levels_of

__all__ = ["Edges", "Fibres", "Part", "is_closed_by_level", "joined"]

Part: TypeAlias = Literal["upper", "lower", "full"]


class Edges(NamedTuple):
    """Pairs of cells that a sweep joins, sorted by output, then by input.

    Attributes
    ----------
    outputs, inputs : ndarray of int64, (edges,)
        Cells of the grid.
    blocks : ndarray of int64, (edges,)
        Blocks of the 1-D operator.
    """

    outputs: Ids
    inputs: Ids
    blocks: Ids


class Fibres:
    """The cells of a grid, fibre by fibre along one mode.

    A fibre holds the cells that differ in that mode's index only.

    Parameters
    ----------
    cells : ndarray of int64, (num_cells, modes)
        Distinct rows.
    mode : int
        The mode along which fibres run.
    """

    def __init__(self, cells: Ids, mode: int) -> None:
        others = np.delete(cells, mode, axis=1)
        order = np.lexsort((cells[:, mode], *others.T[::-1]))
        others = others[order]
        opens = np.ones(len(order), dtype=np.bool_)
        opens[1:] = (others[1:] != others[:-1]).any(axis=1)
        self._cells = cells
        self._mode = mode
        self._order = order
        self._sorted = cells[order, mode]
        self._bounds = np.append(np.flatnonzero(opens), len(order))
        self._fibre = np.empty(len(order), dtype=np.int64)
        self._fibre[order] = np.cumsum(opens) - 1

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def edges(self, rows: Ids, columns: Ids, part: Part) -> Edges:
        """Return the pairs of cells of one fibre that part of a 1-D operator joins.

        Parameters
        ----------
        rows, columns : ndarray of int64, (blocks,)
            The operator's pairs of 1-D cells.
        part : {"upper", "lower", "full"}
            Blocks that do not make the level finer, those that do, or all.

        Returns
        -------
        Edges
            Pairs with both cells in the grid.
        """
        found = []
        for half in ("upper", "lower"):
            if part in (half, "full"):
                anchors, others, blocks = self._candidates(rows, columns, half)
                here = others >= 0
                pair = (others[here], anchors[here])
                outputs, inputs = pair if half == "upper" else pair[::-1]
                found.append((outputs, inputs, blocks[here]))
        outputs, inputs, blocks = (np.concatenate(parts) for parts in zip(*found, strict=True))
        order = np.argsort(outputs * np.int64(len(self._cells)) + inputs)  # no pair is there twice
        return Edges(outputs[order], inputs[order], blocks[order])

    def missing(self, rows: Ids, columns: Ids, part: Part) -> Ids:
        """Return the multi-indices that a split sweep would pass through and the grid lacks.

        Parameters
        ----------
        rows, columns : ndarray of int64, (blocks,)
        part : {"upper", "lower"}
            From a cell as input the coarser outputs, or from one as output the coarser inputs.

        Returns
        -------
        ndarray of int64, (count, modes)
            In no order, and perhaps repeated.
        """
        anchors, others, blocks = self._candidates(rows, columns, part)
        absent = others < 0
        cells = self._cells[anchors[absent]]
        coarse = rows if part == "upper" else columns
        cells[:, self._mode] = coarse[blocks[absent]]
        return cells

    def _candidates(self, rows: Ids, columns: Ids, part: str) -> tuple[Ids, Ids, Ids]:
        """For each cell and each block that joins it to a coarser one: both cells, the block.

        The finer one is an input in the upper part, an output in the lower one; the coarser one is
        -1 where the grid lacks it. A cell has few coarser ones on each level, so that there are
        few candidates, most of them in the grid.
        """
        if part == "upper":
            chosen = np.flatnonzero(levels_of(rows) <= levels_of(columns))
            fine, coarse = columns[chosen], rows[chosen]
        else:
            chosen = np.flatnonzero(levels_of(rows) > levels_of(columns))
            fine, coarse = rows[chosen], columns[chosen]
        order = np.argsort(fine, kind="stable")
        fine, coarse, chosen = fine[order], coarse[order], chosen[order]
        own = self._cells[:, self._mode]
        first, stop = np.searchsorted(fine, own), np.searchsorted(fine, own, side="right")
        anchors, entries = joined(first, stop)
        return anchors, self._find(self._fibre[anchors], coarse[entries]), chosen[entries]

    @cached_property
    def _keys(self) -> tuple[Ids, Ids]:
        """Keys of (fibre, cell), ascending, and the distinct 1-D cells that they number."""
        distinct, ranks = np.unique(self._sorted, return_inverse=True)
        fibres = np.repeat(np.arange(len(self)), np.diff(self._bounds))
        return fibres * len(distinct) + ranks, distinct

    def _find(self, fibres: Ids, wanted: Ids) -> Ids:
        """Find the cells of fibres whose 1-D cell is the wanted one; -1 where there is none."""
        place = np.minimum(self._bounds[fibres] + wanted, self._bounds[fibres + 1] - 1)
        hit = self._sorted[place] == wanted
        lost = np.flatnonzero(~hit)
        if lost.size:  # never, where fibres have all cells up to a level
            keys, distinct = self._keys
            rank = np.minimum(np.searchsorted(distinct, wanted[lost]), len(distinct) - 1)
            key = fibres[lost] * len(distinct) + rank
            place[lost] = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
            hit[lost] = (keys[place[lost]] == key) & (distinct[rank] == wanted[lost])
        return np.where(hit, self._order[place], -1)


def joined(starts: Ids, stops: Ids) -> tuple[Ids, Ids]:
    """All j with starts[i] ≤ j < stops[i], for every i: the i's and the j's."""
    counts = stops - starts
    owners = np.repeat(np.arange(counts.size), counts)
    before = np.cumsum(counts) - counts
    return owners, np.arange(owners.size) - (before - starts)[owners]


def is_closed_by_level(cells: Ids) -> bool:
    """Whether a set of cells has all cells of its levels, and all coarser levels.

    Parameters
    ----------
    cells : ndarray of int64, (num_cells, modes)
        Distinct rows.

    Returns
    -------
    bool
    """
    levels, counts = np.unique(levels_of(cells), axis=0, return_counts=True)
    if (counts != np.exp2(np.maximum(levels - 1, 0).sum(axis=1))).any():
        return False
    present = {row.tobytes() for row in levels}
    for mode in range(cells.shape[1]):
        coarser = levels[levels[:, mode] > 0].copy()
        coarser[:, mode] -= 1
        if any(row.tobytes() not in present for row in coarser):
            return False
    return True
