"""The fibres of a set of cells, and the pairs of their cells that a 1-D operator couples.

Many fibres of a grid have the same profile, a set of 1-D cells, and a refined or coarsened grid has
most profiles of the old one; so the couplings are found once for each profile and kept. Where a
fibre's cells lie in a grid does not matter for them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from batchkron.operators.couplings import Connections, Ids, Part, joined, levels_of, narrow

__all__ = ["Edges", "Fibres", "Profiles", "Table", "is_closed_by_level"]

# A table's key: the operator, its part, and whether the table is of absent cells.
_Key: TypeAlias = tuple[Connections, Part, bool]


class Table(NamedTuple):
    """A list of entries for each cell of all profiles.

    ``starts`` (ndarray of int, (cells + 1,)): cell i has the entries ``starts[i]`` to
      ``starts[i + 1] - 1``.
    ``columns`` (tuple of ndarray of int, (entries,)): the components of each entry, one array per
      component.
    """

    starts: Ids
    columns: tuple[Ids, ...]

    def rows(self, chosen: Ids) -> Table:
        """Return the table of the chosen cells, in the order in which they are given."""
        owners, entries = joined(self.starts[chosen], self.starts[chosen + 1])
        return _table(len(chosen), owners, tuple(column[entries] for column in self.columns))

    def followed_by(self, other: Table) -> Table:
        """Return this table followed by another one."""
        columns = tuple(map(np.concatenate, zip(self.columns, other.columns, strict=True)))
        starts = np.append(self.starts, other.starts[1:] + np.int64(self.starts[-1]))
        return Table(starts, columns)


class Profiles:
    """Distinct sets of 1-D cells.

    ``cells`` (ndarray of int64, (count,)): the sets one after another, each ascending.
    ``bounds`` (ndarray of int64, (sets + 1,)): set i is ``cells[bounds[i]:bounds[i + 1]]``.
    ``known``: profiles of another grid; the tables of sets that occur there are copied.
    ``num_new``: number of sets that do not occur in ``known``.
    """

    def __init__(self, cells: Ids, bounds: Ids, known: Profiles | None = None) -> None:
        self.cells = cells
        self.bounds = bounds
        self._keys = _keys(cells, bounds)
        self._tables: dict[_Key, Table] = {}
        places = np.full(len(self), -1) if known is None else self._places_in(known)
        self.num_new = int((places < 0).sum())
        if known is not None:
            self._take(known, places)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def joins(self, connections: Connections, part: Part) -> Table:
        """Return the input cells, within its set, that a 1-D operator couples to each output cell.

        The part is of blocks to the same or a coarser level ("upper"), to a finer level ("lower"),
        or all ("full"). An entry is the input's position in the set, and the block, sorted by
        input.
        """
        return self._table((connections, part, False))

    def absent(self, connections: Connections, half: Part) -> Table:
        """Return the coarser cells that an operator couples to each cell and its set does not have.

        "upper" are coarser outputs of a cell as input; "lower" coarser inputs of it as output.
        """
        return self._table((connections, half, True))

    def _table(self, key: _Key) -> Table:
        if key not in self._tables:
            self._tables[key] = self._found(key)
        return self._tables[key]

    def forget_others(self, wanted: Collection[Connections]) -> None:
        """Drop the tables of all other operators."""
        self._tables = {key: table for key, table in self._tables.items() if key[0] in wanted}

    def _take(self, known: Profiles, places: Ids) -> None:
        """Copy all tables of other profiles, and compute their rows for sets that are new here.

        ``places`` has for each set its number in ``known``, -1 if it is new.
        """
        old = np.flatnonzero(places >= 0)
        old_cells = joined(known.bounds[places[old]], known.bounds[places[old] + 1])[1]
        own_cells = joined(self.bounds[old], self.bounds[old + 1])[1]
        fresh = self._some(np.flatnonzero(places < 0))
        new_cells = np.ones(len(self.cells), dtype=np.bool_)
        new_cells[own_cells] = False
        order = np.empty(len(self.cells), dtype=np.int64)
        order[own_cells] = np.arange(len(own_cells))
        order[new_cells] = np.arange(len(own_cells), len(order))
        for key, table in known._tables.items():
            found = table.rows(old_cells)
            if self.num_new:
                found = found.followed_by(fresh._found(key))
            self._tables[key] = found.rows(order)

    def _some(self, chosen: Ids) -> Profiles:
        """Return the chosen sets as profiles."""
        starts, stops = self.bounds[chosen], self.bounds[chosen + 1]
        return Profiles(self.cells[joined(starts, stops)[1]], _starts(stops - starts))

    def _places_in(self, known: Profiles) -> Ids:
        """Return for each set its number in ``known``, -1 if it does not occur there."""
        order = np.argsort(known._keys)
        rank = np.minimum(np.searchsorted(known._keys[order], self._keys), len(order) - 1)
        places = order[rank]
        places[_unlike(self.cells, self.bounds, known.cells, known.bounds, places)] = -1
        return places

    def _found(self, key: _Key) -> Table:
        """Compute a table."""
        connections, part, of_absent = key
        found = []
        for half in ("upper", "lower"):
            if part in (half, "full"):
                anchors, others, coarse, blocks = self._candidates(connections, half)
                here = (others < 0) == of_absent
                if of_absent:
                    return _table(len(self.cells), anchors[here], (coarse[here],))
                ends = (others[here], anchors[here])
                outputs, inputs = ends if half == "upper" else ends[::-1]
                found.append((outputs, inputs, blocks[here]))
        outputs, inputs, blocks = (np.concatenate(parts) for parts in zip(*found, strict=True))
        # Sort by output, then by input; no pair occurs twice.
        order = np.argsort(outputs * np.int64(len(self.cells)) + inputs)
        outputs, inputs = outputs[order], inputs[order]
        sets = np.repeat(np.arange(len(self)), np.diff(self.bounds))
        inputs = inputs - self.bounds[sets[inputs]]
        return _table(len(self.cells), outputs, (inputs, blocks[order]))

    def _candidates(self, connections: Connections, part: Part) -> tuple[Ids, Ids, Ids, Ids]:
        """Return all pairs of a cell and a coarser cell that a block couples, with the block.

        The result is: position of the cell; position of the coarser cell, -1 if the set does not
        have it; the coarser 1-D cell; the block. A cell is coupled to few coarser cells on each
        level, so there are few pairs, and most coarser cells are in the set.
        """
        fine, coarse, blocks = connections.half(part)
        first = np.searchsorted(fine, self.cells)
        stop = np.searchsorted(fine, self.cells, side="right")
        anchors, entries = joined(first, stop)
        sets = np.repeat(np.arange(len(self)), np.diff(self.bounds))
        wanted = coarse[entries]
        return anchors, self._find(sets, anchors, wanted), wanted, blocks[entries]

    def _find(self, sets: Ids, anchors: Ids, wanted: Ids) -> Ids:
        """Return the positions of the wanted cells in the anchors' sets, -1 if they are missing."""
        own = sets[anchors]
        place = np.minimum(self.bounds[own] + wanted, self.bounds[own + 1] - 1)
        hit = self.cells[place] == wanted
        lost = np.flatnonzero(~hit)
        if lost.size:  # never if sets have all cells up to a level
            distinct, ranks = np.unique(self.cells, return_inverse=True)
            keys = sets * len(distinct) + ranks
            rank = np.minimum(np.searchsorted(distinct, wanted[lost]), len(distinct) - 1)
            key = own[lost] * len(distinct) + rank
            place[lost] = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
            hit[lost] = (keys[place[lost]] == key) & (distinct[rank] == wanted[lost])
        return np.where(hit, place, -1)


def distinct_sets(cells: Ids, bounds: Ids) -> tuple[Ids, Ids]:
    """Return a number for each set, the same for equal ones, and where each first occurs."""
    _, first, numbers = np.unique(_keys(cells, bounds), return_index=True, return_inverse=True)
    wrong = np.flatnonzero(_unlike(cells, bounds, cells, bounds, first[numbers]))
    numbers[wrong] = len(first) + np.arange(len(wrong))  # different sets with the same hash
    return numbers, np.concatenate((first, wrong))


def _keys(cells: Ids, bounds: Ids) -> NDArray[np.uint64]:
    """Return a hash of each set: the sum of its cells' scrambled bits."""
    if len(bounds) == 1:
        return np.zeros(0, np.uint64)
    mixed = (cells.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(32)
    return np.add.reduceat(mixed, bounds[:-1])


def _unlike(
    cells: Ids, bounds: Ids, others: Ids, other_bounds: Ids, places: Ids
) -> NDArray[np.bool_]:
    """Return for each set i whether it differs from set ``places[i]`` of others."""
    lengths = np.diff(bounds)
    result: NDArray[np.bool_] = lengths != np.diff(other_bounds)[places]
    owners = np.repeat(np.arange(len(lengths)), lengths)
    shift = other_bounds[places] - bounds[:-1]
    place = np.minimum(np.arange(len(cells)) + shift[owners], len(others) - 1)
    result[owners[others[place] != cells]] = True
    return result


def _table(count: int, owners: Ids, columns: tuple[Ids, ...]) -> Table:
    """Return the table of entries that are sorted by their owner, the cell they belong to."""
    starts = _starts(np.bincount(owners, minlength=count))
    return Table(narrow(starts), tuple(map(narrow, columns)))


def _starts(counts: Ids) -> Ids:
    """Return the start of each list of the given length, and the end of the last one."""
    result = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=result[1:])
    return result


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
