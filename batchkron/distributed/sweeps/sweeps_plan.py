"""Which rank computes which cells of each vector of a list of sweeps, and what it is sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from batchkron.distributed.vectors.partition import balanced_bounds
from batchkron.operators.couplings import Ids, joined
from batchkron.operators.sparse_grid.listing import SweepListing, SweepSum
from batchkron.spec.kron import Array
from batchkron.spec.sweeps import SweepList, SweepPart

__all__ = [
    "Halo",
    "SweepsPlan",
    "cell_bounds",
    "moved_bounds",
    "plan_sweeps",
    "work_of_cells",
]

X, Y = 0, 1  # numbers of the vectors x and y in a list of sweeps


def work_of_cells(listing: SweepListing, cells: Ids) -> Array:
    """Return the multiply-adds of a product for each cell of the grid.

    ``cells`` (ndarray of int64, (cells, modes)): the grid's cells, then added ones, whose work
      counts for the cell before them.

    Returns ndarray of float64, (cells of the grid,): at least one for each element, for what is
    done with vectors besides.
    """
    sweeps = listing.sweeps
    work = np.zeros(len(cells))
    for step in sweeps.steps:
        for part in step.parts:
            work[listing.cells[step.target]] += np.diff(part.starts) * sweeps.sizes[part.mode]
    own = len(listing.cells[X])
    place = _place_in_grid(cells, own)
    return sweeps.block_size * (1.0 + np.bincount(place, work, minlength=own))


def cell_bounds(work: Array, cells: Ids, parts: int) -> tuple[int, ...]:
    """Return where the ranks' cells begin and end, (parts + 1,).

    ``work`` (ndarray, (cells of the grid,)): the work of each cell.
    ``cells`` (ndarray of int64, (cells, modes)): they stay together along the last mode where that
      leaves the work balanced.
    ``parts``: the number of ranks that a vector is spread over.
    """
    own = cells[: len(work), :-1]
    starts = 1 + np.flatnonzero((own[1:] != own[:-1]).any(axis=1))
    return balanced_bounds(work, parts, starts)


def moved_bounds(before: Ids, bounds: Sequence[int], cells: Ids) -> tuple[int, ...]:
    """Return where the ranks' cells begin and end when each rank keeps its cells on another grid.

    New cells go to the rank that has the cell before them, or to the first one.

    ``before``, ``cells`` (ndarray of int64, (cells, modes)): those of the old and of the new grid,
      both sorted lexicographically.
    ``bounds`` (sequence of int, (parts + 1,)): of the ranks' old cells.

    Returns tuple of int, (parts + 1,).

    Examples
    --------
    >>> import numpy as np
    >>> moved_bounds(np.array([[0], [2], [4]]), (0, 1, 3), np.array([[0], [1], [2], [3], [5]]))
    (0, 2, 5)
    """
    order = np.lexsort(np.concatenate((before, cells)).T[::-1])  # stable: an old cell comes first
    is_new = order >= len(before)
    new_before = np.empty(len(before) + 1, np.int64)
    new_before[order[~is_new]] = np.cumsum(is_new)[~is_new]
    new_before[-1] = len(cells)
    found = new_before[list(bounds)]
    found[0] = 0
    return tuple(found.tolist())


class Halo:
    """The blocks of one vector that ranks need of others.

    ``owners`` (ndarray of int, (blocks,)): the rank that has each block of the vector.
    ``needs``: what `SweepsPlan.needs` returns of each part that reads the vector.
    ``ranks``, ``blocks`` (ndarray of int, (needs,)): a rank, and a block of another one that it
      needs: sorted by rank, then by the block's owner, then by block.
    ``parts``: the number of ranks.
    """

    def __init__(self, owners: Ids, needs: Sequence[Ids], parts: int) -> None:
        keys = np.unique(np.concatenate([np.zeros(0, np.int64), *needs]))
        ranks, blocks = np.divmod(keys, max(len(owners), 1))
        order = np.lexsort((blocks, owners[blocks], ranks))
        self.owners, self.parts = owners, parts
        self.ranks, self.blocks = ranks[order], blocks[order]

    @cached_property
    def counts(self) -> Array:
        """How many blocks each rank sends to each other one, (parts, parts)."""
        pairs = self.owners[self.blocks] * self.parts + self.ranks
        return np.bincount(pairs, minlength=self.parts**2).reshape(self.parts, self.parts)

    def owned(self, rank: int) -> Ids:
        """Return the blocks that a rank has, ascending."""
        return np.flatnonzero(self.owners == rank)

    def received(self, rank: int) -> Ids:
        """Return the blocks that a rank is sent, in the order of their owners."""
        found: Ids = self.blocks[self.ranks == rank]
        return found

    def sent(self, rank: int) -> Ids:
        """Return the blocks that a rank sends, in the order of those that it sends them to."""
        found: Ids = self.blocks[self.owners[self.blocks] == rank]
        return found


@dataclass(frozen=True)
class SweepsPlan:
    """A list of sweeps whose vectors are spread over ranks.

    A rank owns consecutive cells of the grid, of x and y as well as of the vectors between sweeps.
    It sums the blocks of its cells, in the order of the list. What it reads of other ranks comes
    from their owners, each block once, before the first sweep that reads the vector.

    ``sweeps``, ``sums``, ``cells``: the whole list, as of `SweepListing`.
    ``bounds`` (tuple of int, (parts + 1,)): of the ranks' cells of x and y.
    ``owners`` (tuple of ndarray of int, one for each vector): the rank that has each of its blocks.

    The alternative is to bring each vector to ranks that have whole fibres along the mode of the
    next sweep. Counted for products of two to four 1-D operators on sparse and full grids of 63 to
    1024 cells and for 2, 4 and 8 ranks, this sends 1.1 to 2.1 times as much, even if the 1-D
    operators couple all cells: fibres are cut in a few places only, or nearly all blocks move.
    """

    sweeps: SweepList
    sums: tuple[SweepSum, ...]
    cells: tuple[Ids, ...]
    bounds: tuple[int, ...]
    owners: tuple[Ids, ...]

    @property
    def parts(self) -> int:
        """The number of ranks that a vector is spread over."""
        return len(self.bounds) - 1

    @cached_property
    def halos(self) -> tuple[Halo, ...]:
        """What of each vector ranks need of others."""
        needs: list[list[Ids]] = [[] for _ in self.owners]
        for step in self.sweeps.steps:
            for part in step.parts:
                needs[part.source].append(self.needs(part, self.owners[step.target]))
        pairs = zip(self.owners, needs, strict=True)
        return tuple(Halo(owners, own, self.parts) for owners, own in pairs)

    def needs(self, part: SweepPart, targets: Ids) -> Ids:
        """Return the distinct needs of a sweep, as rank times the source's blocks plus block.

        ``targets`` (ndarray of int): the rank that has each block of its target.
        """
        owners = self.owners[part.source]
        reader = np.repeat(targets, np.diff(part.starts))
        away = owners[part.children] != reader
        return np.unique(reader[away] * np.int64(len(owners)) + part.children[away])

    @property
    def num_exchanges(self) -> int:
        """How many vectors ranks need of each other."""
        return sum(len(halo.blocks) > 0 for halo in self.halos)

    def sent(self, rank: int) -> int:
        """Return the elements of a vector that a rank sends to others, in all exchanges."""
        blocks = sum(int(halo.counts[rank].sum()) for halo in self.halos)
        return blocks * self.sweeps.block_size

    @cached_property
    def work(self) -> Array:
        """The multiply-adds of a vector by each rank, (parts,)."""
        sweeps, found = self.sweeps, np.zeros(self.parts)
        for step in sweeps.steps:
            for part in step.parts:
                counts = np.diff(part.starts) * float(sweeps.sizes[part.mode])
                found += np.bincount(self.owners[step.target], counts, minlength=self.parts)
        return found * sweeps.block_size

    @property
    def multiply_adds(self) -> float:
        """Those of a vector by the busiest rank."""
        return float(self.work.max())

    def local_part(self, part: SweepPart, target: Ids) -> tuple[Ids, Ids, Ids]:
        """Return a sweep's starts, ids and children for some blocks of its target."""
        _, edges = joined(part.starts[target], part.starts[target + 1])
        counts = np.diff(part.starts)[target]
        starts = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))
        return starts, part.ids[edges], part.children[edges]


def plan_sweeps(listing: SweepListing, cells: Ids, bounds: tuple[int, ...]) -> SweepsPlan:
    """Return the plan of a list of sweeps for some ranks.

    ``cells`` (ndarray of int64, (cells, modes)): the grid's cells, then added ones.
    ``bounds`` (tuple of int, (parts + 1,)): of the ranks' cells.
    """
    place = _place_in_grid(cells, len(listing.cells[X]))
    owners = np.searchsorted(bounds, place, side="right") - 1
    of_vectors = tuple(owners[own] for own in listing.cells)
    return SweepsPlan(listing.sweeps, listing.sums, listing.cells, bounds, of_vectors)


def _place_in_grid(cells: Ids, own: int) -> Ids:
    """Return for each cell its number in the grid; for an added one that of a cell before it.

    It is the last cell of the grid before it in lexicographic order, the first one if none is.
    """
    places = np.arange(len(cells))
    if len(cells) == own:
        return places
    order = np.lexsort(cells.T[::-1])
    before = np.maximum.accumulate(np.where(order < own, np.arange(len(order)), -1))
    found = order[np.maximum(before, 0)]
    places[order] = np.where(before >= 0, found, order[np.argmax(order < own)])
    return places
