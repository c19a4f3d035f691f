"""Added cells: cells outside a grid that the vectors between sweeps may need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from batchkron.operators.couplings import Ids, Part, joined
from batchkron.operators.sparse_grid.fibres import Profiles
from batchkron.operators.sparse_grid.order import HALVES, Cells, SweepOrder
from batchkron.operators.sparse_grid.spec import BlockMatrix

__all__ = ["extended"]

# Largest number of added cells: the first number, or the second one times the grid's cells if that
# is larger; chosen by hand.
_MAX_ADDED_CELLS = 1 << 22
_MAX_ADDED_PER_CELL = 8
_PORTION = 1 << 20  # cells that are handled at a time, to limit memory; chosen by hand
_MAX_LABEL = 1 << 62  # labels of cells stay below, so that they do not overflow 64 bits


def extended(
    grid: Cells,
    orders: Sequence[SweepOrder],
    matrices: Sequence[BlockMatrix],
    known: Mapping[int, Profiles],
) -> Cells:
    """Return the grid's cells, followed by the cells outside it that sweeps may need.

    ``orders`` has the order of each term's sweeps, and ``known`` profiles for the result, as in
    `Cells`. It is the grid itself if no cell is missing. Some added cells may turn out not to be
    needed: it is not checked whether the unsplit modes couple the cells that the split modes reach.
    Raises ValueError if too many cells would be added.

    An intermediate cell has some indices of an input cell, and all others of an output cell. So a
    cell that is reached from an input is kept only if some output has the same indices along all
    modes that are applied already, and the other way round. Without this test, a few cells of fine
    levels in many modes would add all their ancestors.
    """
    lacking = [order for order in orders if order.missing]
    if not lacking:
        return grid
    growth = _Growth(grid.cells, matrices)
    for order in lacking:
        growth.follow(order)
    added = growth.added()
    return Cells(np.concatenate((grid.cells, added)), known) if len(added) else grid


class _Growth:
    """Collects added cells of a grid.

    In each mode a cell's 1-D index is represented by its rank among the grid's distinct indices.

    ``cells`` (ndarray of int64, (num_cells, modes)): the grid's cells.
    ``matrices``: the 1-D operators.
    """

    def __init__(self, cells: Ids, matrices: Sequence[BlockMatrix]) -> None:
        columns = [np.unique(column, return_inverse=True) for column in cells.T]
        self._indices = [indices for indices, _ in columns]
        self._grid = np.stack([ranks for _, ranks in columns], axis=1)
        self._matrices = matrices
        self._coarser_ones: dict[tuple[int, int, Part], tuple[Ids, Ids]] = {}
        self._added = self._grid[:0]
        self._max_cells = max(_MAX_ADDED_CELLS, _MAX_ADDED_PER_CELL * len(cells))

    def added(self) -> Ids:
        """Return the added cells, (count, modes), as 1-D indices."""
        columns = zip(self._indices, self._added.T, strict=True)
        return np.stack([indices[ranks] for indices, ranks in columns], axis=1)

    def follow(self, order: SweepOrder) -> None:
        """Collect the cells that the sweeps of one term may need."""
        acting = {mode for mode, number in (*order.split, order.full) if self._joins(mode, number)}
        done = [mode for mode in range(len(self._indices)) if mode not in acting]
        self._follow(order, 0, self._grid, self._grid, done)

    def _joins(self, mode: int, number: int) -> bool:
        """Whether a 1-D operator couples different indices that occur in the grid."""
        if number < 0:
            return False
        connections, indices = self._matrices[number].connections, self._indices[mode]
        rows, columns = connections.rows, connections.columns
        apart = rows != columns
        return bool((np.isin(rows[apart], indices) & np.isin(columns[apart], indices)).any())

    def _follow(
        self, order: SweepOrder, place: int, given: Ids, wanted: Ids, done: list[int]
    ) -> None:
        """Apply the split modes from position ``place`` on, and collect the cells that are reached.

        For every cell in ``given`` there is one in ``wanted`` with the same indices along the modes
        in ``done``, and the other way round.
        """
        if place == len(order.split):
            return
        mode, number = order.split[place]
        done = [*done, mode]
        for half in HALVES:
            begin, end = (given, wanted) if half == "upper" else (wanted, given)
            reached = self._reached(order, self._coarser(mode, number, half), begin, end, done)
            if not len(reached):
                continue
            self._add(order, reached)
            if place + 1 < len(order.split):
                end = end[self._agree(end, reached, done)]
                both = (reached, end) if half == "upper" else (end, reached)
                self._follow(order, place + 1, *both, done)

    def _coarser(self, mode: int, number: int, half: Part) -> tuple[Ids, Ids]:
        """Return the coarser ranks to which an operator couples each rank.

        The result is (starts, ranks): those of rank i are ``ranks[starts[i] : starts[i + 1]]``.
        """
        key = (mode, number, half)
        if key not in self._coarser_ones:
            indices = self._indices[mode]
            fine, coarse, _ = self._matrices[number].connections.half(half)
            kept = np.isin(fine, indices) & np.isin(coarse, indices)
            ranks = np.searchsorted(indices, fine[kept])
            starts = np.searchsorted(ranks, np.arange(len(indices) + 1))
            self._coarser_ones[key] = (starts, np.searchsorted(indices, coarse[kept]))
        return self._coarser_ones[key]

    def _reached(
        self, order: SweepOrder, coarser: tuple[Ids, Ids], begin: Ids, end: Ids, done: list[int]
    ) -> Ids:
        """Return the cells that ``begin`` is coupled to and that agree with a cell of ``end``."""
        mode, (starts, coarse) = done[-1], coarser
        first, stop = starts[begin[:, mode]], starts[begin[:, mode] + 1]
        reached = begin[:0]
        for portion in _portions(stop - first, max(_PORTION, len(begin) + len(end))):
            owners, entries = joined(first[portion], stop[portion])
            cells = begin[portion][owners]
            cells[:, mode] = coarse[entries]
            cells = cells[self._agree(cells, end, done)]
            reached = self._distinct(np.concatenate((reached, cells)))
            self._check(order, len(reached) - len(self._grid))
        return reached

    def _add(self, order: SweepOrder, cells: Ids) -> None:
        """Add the cells that are not in the grid."""
        everywhere = range(len(self._indices))
        beside = cells[~self._agree(cells, self._grid, everywhere)]
        if len(beside):
            self._added = self._distinct(np.concatenate((self._added, beside)))
            self._check(order, len(self._added))

    def _check(self, order: SweepOrder, count: int) -> None:
        if count > self._max_cells:
            raise ValueError(
                f"sweeps of terms[{order.term}] may pass through more than {self._max_cells} cells "
                f"that the grid of {len(self._grid)} lacks; close the grid downward (a "
                f"SparseGrid's closed()), or use a BatchedKron (a Problem's form 'batch')"
            )

    def _agree(self, cells: Ids, others: Ids, modes: Sequence[int]) -> NDArray[np.bool_]:
        """Return for each cell whether one of ``others`` has the same indices along ``modes``."""
        labels = self._labels(np.concatenate((cells, others)), modes)
        return np.isin(labels[: len(cells)], labels[len(cells) :])

    def _distinct(self, cells: Ids) -> Ids:
        """Return the distinct cells, sorted."""
        labels = self._labels(cells, range(len(self._indices)))
        return cells[np.unique(labels, return_index=True)[1]]

    def _labels(self, cells: Ids, modes: Sequence[int]) -> Ids:
        """Return numbers that are equal if and only if cells have the same indices along modes."""
        labels, count = np.zeros(len(cells), dtype=np.int64), 1
        for mode in modes:
            width = len(self._indices[mode])
            if count * width > _MAX_LABEL:  # renumber the labels that occur, to avoid overflow
                distinct, labels = np.unique(labels, return_inverse=True)
                count = len(distinct)
            labels = labels * width + cells[:, mode]
            count *= width
        return labels


def _portions(counts: Ids, maximum: int) -> Iterator[slice]:
    """Divide a list into portions whose counts add up to at most ``maximum``, or single entries."""
    stops = np.cumsum(counts)
    begin = 0
    while begin < len(counts):
        before = stops[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(stops, before + maximum, side="right")))
        yield slice(begin, end)
        begin = end
