"""The fibres of a set of cells, and the pairs of their cells that a 1-D operator couples."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from batchkron.operators.couplings import Connections, Ids, Part, joined, levels_of, narrow
from batchkron.operators.sparse_grid.fibre_profiles import Profiles, distinct_sets

__all__ = ["Edges", "Fibres", "is_closed_by_level"]


class Edges(NamedTuple):
    """Pairs of cells that a sweep couples, sorted by output, then by the input's 1-D index.

    ``outputs``, ``inputs`` (ndarray of int, (edges,)): the cells' numbers in the grid.
    ``blocks`` (ndarray of int, (edges,)): the block of the 1-D operator for each pair.
    """

    outputs: Ids
    inputs: Ids
    blocks: Ids


class Fibres:
    """The fibres of a grid along one mode.

    A fibre is a set of cells that differ in that mode's index only; its profile is the set of these
    indices.

    ``cells`` (ndarray of int64, (num_cells, modes)): multi-indices of the cells; rows are distinct.
    ``mode``: the mode along which fibres run.
    ``known``: profiles of another grid along this mode, whose couplings are reused.
    """

    def __init__(self, cells: Ids, mode: int, known: Profiles | None = None) -> None:
        others = np.delete(cells, mode, axis=1)
        order = np.lexsort((cells[:, mode], *others.T[::-1]))
        others = others[order]
        opens = np.ones(len(order), dtype=np.bool_)
        opens[1:] = (others[1:] != others[:-1]).any(axis=1)
        bounds = np.append(np.flatnonzero(opens), len(order))
        own = cells[order, mode]
        numbers, first = distinct_sets(own, bounds)
        starts, stops = bounds[first], bounds[first + 1]
        lengths = np.append(0, np.cumsum(stops - starts))
        self.profiles = Profiles(own[joined(starts, stops)[1]], lengths, known)
        self._mode = mode
        self._order = narrow(order)
        fibre = np.cumsum(opens) - 1
        begins = bounds[fibre]
        self._begins = np.empty_like(self._order)  # per cell, where its fibre begins in the order
        self._begins[order] = begins
        self._rows = np.empty_like(self._order)  # per cell, its row in the profiles' tables
        self._rows[order] = lengths[numbers[fibre]] + np.arange(len(order)) - begins

    def edges(self, connections: Connections, part: Part) -> Edges:
        """Return the pairs of cells that a part of a 1-D operator couples along the fibres.

        The parts are those of `Profiles.joins`.
        """
        starts, (inputs, blocks) = self.profiles.joins(connections, part)
        outputs, entries = joined(starts[self._rows], starts[self._rows + 1])
        places = self._begins[outputs] + inputs[entries]
        return Edges(narrow(outputs), self._order[places], blocks[entries])

    def num_missing(self, connections: Connections, half: Part) -> int:
        """Return the number of couplings to cells that the grid does not have, by a split sweep.

        A missing cell is not counted if no cell of the grid has its 1-D index: no other sweep could
        continue from it. The halves are those of `Profiles.absent`.
        """
        starts, (coarse,) = self.profiles.absent(connections, half)
        counts = np.append(0, np.cumsum(np.isin(coarse, self.profiles.cells)))[starts]
        return int(np.diff(counts)[self._rows].sum())


def is_closed_by_level(cells: Ids) -> bool:
    """Whether cells are all those of their level multi-indices, and of all coarser ones."""
    levels, counts = np.unique(levels_of(cells), axis=0, return_counts=True)
    if (np.log2(counts) != np.maximum(levels - 1, 0).sum(axis=1)).any():
        return False
    present = {row.tobytes() for row in levels}
    for mode in range(cells.shape[1]):
        coarser = levels[levels[:, mode] > 0].copy()
        coarser[:, mode] -= 1
        if any(row.tobytes() not in present for row in coarser):
            return False
    return True
