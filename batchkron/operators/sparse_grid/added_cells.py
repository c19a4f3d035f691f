"""The cells beside a grid that sweeps may pass through."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from batchkron.operators.couplings import Ids, Part, joined
from batchkron.operators.sparse_grid.fibre_profiles import Profiles
from batchkron.operators.sparse_grid.order import HALVES, Cells, Word
from batchkron.operators.sparse_grid.spec import BlockMatrix

__all__ = ["extended"]

# Cells that sweeps may add to a grid: the first number, or the second times its cells if larger.
_MAX_ADDED_CELLS = 1 << 22
_MAX_ADDED_PER_CELL = 8
_PORTION = 1 << 20  # joined cells that are looked at in one go
_MAX_LABEL = 1 << 62


def extended(
    grid: Cells,
    words: Sequence[Word],
    matrices: Sequence[BlockMatrix],
    known: Mapping[int, Profiles],
) -> Cells:
    """Return the grid's cells followed by those that sweeps of terms may pass through beside.

    Parameters
    ----------
    grid : Cells
        The operator's cells.
    words : sequence of Word
        Order of the terms' sweeps.
    matrices : sequence of BlockMatrix
        The 1-D operators.
    known : mapping of int to Profiles
        As of `Cells`, for the result.

    Returns
    -------
    Cells
        The grid itself if nothing is missing. There may be cells that no sweep needs in the end:
        whether the unsplit modes join what the split ones lead to is not looked at.

    Raises
    ------
    ValueError
        If there are too many.

    Notes
    -----
    A cell in the middle has some indices of the input cell that it comes from, and all others of
    the output cell that it leads to. So the cells that inputs lead to are kept where an output
    has their indices along all modes that are done, and the other way round. Without that, a few
    cells of fine levels in many modes would lead to all their ancestors.
    """
    lacking = [word for word in words if word.missing]
    if not lacking:
        return grid
    growth = _Growth(grid.cells, matrices)
    for word in lacking:
        growth.follow(word)
    added = growth.added()
    return Cells(np.concatenate((grid.cells, added)), known) if len(added) else grid


class _Growth:
    """Collects cells beside a grid; a cell is given by the ranks of its indices among the grid's.

    Parameters
    ----------
    cells : ndarray of int64, (num_cells, modes)
        The grid's.
    matrices : sequence of BlockMatrix
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
        """Return the cells that were collected, (count, modes)."""
        columns = zip(self._indices, self._added.T, strict=True)
        return np.stack([indices[ranks] for indices, ranks in columns], axis=1)

    def follow(self, word: Word) -> None:
        """Collect the cells that one term's sweeps may pass through."""
        acting = {mode for mode, number in (*word.split, word.full) if self._joins(mode, number)}
        done = [mode for mode in range(len(self._indices)) if mode not in acting]
        self._follow(word, 0, self._grid, self._grid, done)

    def _joins(self, mode: int, number: int) -> bool:
        """Whether an operator joins different ones of the grid's indices."""
        if number < 0:
            return False
        connections, indices = self._matrices[number].connections, self._indices[mode]
        rows, columns = connections.rows, connections.columns
        apart = rows != columns
        return bool((np.isin(rows[apart], indices) & np.isin(columns[apart], indices)).any())

    def _follow(self, word: Word, place: int, given: Ids, wanted: Ids, done: list[int]) -> None:
        """Go through the split modes from a place on.

        Both sets of cells agree along the modes that are done: for each one of either there is
        one of the other.
        """
        if place == len(word.split):
            return
        mode, number = word.split[place]
        done = [*done, mode]
        for half in HALVES:
            begin, end = (given, wanted) if half == "upper" else (wanted, given)
            reached = self._reached(word, self._coarser(mode, number, half), begin, end, done)
            if not len(reached):
                continue
            self._add(word, reached)
            if place + 1 < len(word.split):
                end = end[self._agree(end, reached, done)]
                both = (reached, end) if half == "upper" else (end, reached)
                self._follow(word, place + 1, *both, done)

    def _coarser(self, mode: int, number: int, half: Part) -> tuple[Ids, Ids]:
        """Return of each rank where its coarser ones begin, and these one after another."""
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
        self, word: Word, coarser: tuple[Ids, Ids], begin: Ids, end: Ids, done: list[int]
    ) -> Ids:
        """Return the cells that a half joins cells to, where others agree with them."""
        mode, (starts, coarse) = done[-1], coarser
        first, stop = starts[begin[:, mode]], starts[begin[:, mode] + 1]
        reached = begin[:0]
        for portion in _portions(stop - first, max(_PORTION, len(begin) + len(end))):
            owners, entries = joined(first[portion], stop[portion])
            cells = begin[portion][owners]
            cells[:, mode] = coarse[entries]
            cells = cells[self._agree(cells, end, done)]
            reached = self._distinct(np.concatenate((reached, cells)))
            self._check(word, len(reached) - len(self._grid))
        return reached

    def _add(self, word: Word, cells: Ids) -> None:
        """Collect those of some cells that the grid has not."""
        everywhere = range(len(self._indices))
        beside = cells[~self._agree(cells, self._grid, everywhere)]
        if len(beside):
            self._added = self._distinct(np.concatenate((self._added, beside)))
            self._check(word, len(self._added))

    def _check(self, word: Word, count: int) -> None:
        if count > self._max_cells:
            raise ValueError(
                f"sweeps of terms[{word.term}] may pass through more than {self._max_cells} cells "
                f"that the grid of {len(self._grid)} lacks; close the grid downward (a "
                f"SparseGrid's closed()), or use a BatchedKron (a Problem's form 'batch')"
            )

    def _agree(self, cells: Ids, others: Ids, modes: Sequence[int]) -> NDArray[np.bool_]:
        """Whether one of others has a cell's indices along some modes."""
        labels = self._labels(np.concatenate((cells, others)), modes)
        return np.isin(labels[: len(cells)], labels[len(cells) :])

    def _distinct(self, cells: Ids) -> Ids:
        """Return each cell once, in order."""
        labels = self._labels(cells, range(len(self._indices)))
        return cells[np.unique(labels, return_index=True)[1]]

    def _labels(self, cells: Ids, modes: Sequence[int]) -> Ids:
        """Return numbers that are equal for cells with the same indices along some modes."""
        labels, count = np.zeros(len(cells), dtype=np.int64), 1
        for mode in modes:
            width = len(self._indices[mode])
            if count * width > _MAX_LABEL:  # of what is there only
                distinct, labels = np.unique(labels, return_inverse=True)
                count = len(distinct)
            labels = labels * width + cells[:, mode]
            count *= width
        return labels


def _portions(counts: Ids, maximum: int) -> Iterator[slice]:
    """Cut a list so that the counts of each portion add up to a limit, or it is one entry."""
    stops = np.cumsum(counts)
    begin = 0
    while begin < len(counts):
        before = stops[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(stops, before + maximum, side="right")))
        yield slice(begin, end)
        begin = end
