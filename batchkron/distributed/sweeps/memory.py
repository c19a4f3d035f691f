"""Where ranks have the blocks of the vectors that sweeps read."""

from __future__ import annotations

import numpy as np

from batchkron.distributed.sweeps.sweeps_plan import SweepsPlan, X, Y
from batchkron.operators.couplings import Ids

__all__ = ["Places", "arrival_places", "common_places", "own_places"]


class Places:
    """Where a rank finds the vectors of a list of sweeps, in blocks. y is not among them.

    ``is_common``: whether it is memory of all ranks.
    ``has_x``: whether the rank's own blocks of x are there.
    ``starts``, ``owned`` (list of int, one for each vector): the place of the first block that the
      rank computes, and their number.
    ``arrived`` (list of int, one for each vector): the place of the first block that the rank is
      sent.
    ``blocks``: of all vectors.
    """

    def __init__(self, is_common: bool, has_x: bool) -> None:
        self.is_common, self.has_x, self.blocks = is_common, has_x, 0
        self.starts: list[int] = []
        self.owned: list[int] = []
        self.arrived: list[int] = []
        self._of_vectors: list[Ids] = []

    def add(self, places: Ids, kept: int, own: Ids, first: int, arrived: int) -> None:
        """Add a vector with ``kept`` blocks; places, -1 for none, are counted from its first."""
        self.starts.append(self.blocks + first)
        self.owned.append(len(own))
        self.arrived.append(self.blocks + arrived)
        self._of_vectors.append(np.where(places < 0, -1, self.blocks + places))
        self.blocks += kept

    def of(self, number: int, blocks: Ids) -> Ids:
        """Return where blocks of a vector lie; -1 for those that are not there."""
        return self._of_vectors[number][blocks]


def own_places(plan: SweepsPlan, rank: int, *, has_x: bool) -> Places:
    """Return where a rank has its own blocks of each vector, then those that it is sent."""
    found = Places(False, has_x)
    for number, halo in enumerate(plan.halos):
        own = halo.owned(rank)
        none = own[:0]
        sent = none if number == Y else halo.received(rank)
        every = np.concatenate((own if number > Y or (number == X and has_x) else none, sent))
        places = np.full(len(halo.owners), -1)
        places[every] = np.arange(len(every))
        found.add(places, len(every), own, 0, len(every) - len(sent))
    return found


def arrival_places(plan: SweepsPlan, *, has_x: bool) -> tuple[Ids, Ids]:
    """Return where each rank of `own_places` is sent blocks of each vector, and its blocks.

    Returns ndarray of int64, (vectors, ranks) and (ranks,).
    """
    received = np.array([halo.counts.sum(axis=0) for halo in plan.halos])
    kept = np.array([np.bincount(halo.owners, minlength=plan.parts) for halo in plan.halos])
    if not has_x:
        kept[X] = 0
    received[Y] = kept[Y] = 0
    ends = np.cumsum(kept + received, axis=0)
    return ends - received, ends[-1]


def common_places(plan: SweepsPlan, rank: int) -> Places:
    """Return where all ranks have all blocks of each vector, those of the first rank first."""
    found = Places(True, True)
    for number, halo in enumerate(plan.halos):
        places = np.full(len(halo.owners), -1)
        kept = 0 if number == Y else len(places)
        if kept:
            places[np.argsort(halo.owners, kind="stable")] = np.arange(kept)
        before = int(np.count_nonzero(halo.owners < rank)) if kept else 0
        found.add(places, kept, halo.owned(rank), before, 0)
    return found
