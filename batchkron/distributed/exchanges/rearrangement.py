"""Elements of vectors that ranks have, brought to the ranks and places where they are needed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from batchkron.backends import Backend
from batchkron.distributed.communication.communicator import Communicator
from batchkron.distributed.exchanges.blocks import BlockExchange, take_blocks
from batchkron.spec.kron import Array

__all__ = ["ElementMove", "ElementSum", "Elements", "Rearrangement"]

Elements = NDArray[np.int64]


class Rearrangement:
    """Who sends which elements of a vector to whom, each at most once to each rank.

    ``has`` (sequence of ndarray of int, one for each rank): the elements that each rank has, in the
      order of its block; each one is on one rank.
    ``needs`` (sequence of ndarray of int, one for each rank): the distinct elements that each rank
      needs, in the order in which it needs them; an element may be needed by several ranks.
    """

    def __init__(self, has: Sequence[Elements], needs: Sequence[Elements]) -> None:
        self.parts = len(has)
        size = sum(len(own) for own in has)
        self._has, self._needs = tuple(has), tuple(needs)
        self._owners, self._places = np.empty(size, np.int64), np.empty(size, np.int64)
        for rank, own in enumerate(has):
            self._owners[own] = rank
            self._places[own] = np.arange(len(own))

    @cached_property
    def is_needed(self) -> bool:
        """Whether a rank needs anything else, or in another order, than it has."""
        pairs = zip(self._has, self._needs, strict=True)
        return not all(np.array_equal(own, needed) for own, needed in pairs)

    @cached_property
    def counts(self) -> Elements:
        """How many elements each rank sends to each one, (parts, parts)."""
        found = [np.bincount(self._owners[need], minlength=self.parts) for need in self._needs]
        return np.stack(found, axis=1)

    def sent(self, rank: int) -> int:
        """Return how many elements of a vector a rank sends to others."""
        return int(self.counts[rank].sum() - self.counts[rank, rank])

    def received(self, rank: int) -> int:
        """Return how many elements of a vector a rank gets from others."""
        return int(self.counts[:, rank].sum() - self.counts[rank, rank])

    def sent_places(self, rank: int) -> list[Elements]:
        """Return for each rank which elements of a rank's block it is sent, in their order."""
        return [self._places[need[self._owners[need] == rank]] for need in self._needs]

    def order(self, rank: int) -> Elements:
        """Return where each needed element is among those that come from ranks in their order."""
        arriving = np.argsort(self._owners[self._needs[rank]], kind="stable")
        places = np.empty_like(arriving)
        places[arriving] = np.arange(len(arriving))
        return places


class ElementMove:
    """A rearrangement as one rank makes it.

    ``backend``: where the vectors are.
    """

    def __init__(self, plan: Rearrangement, rank: int, backend: Backend) -> None:
        self._blocks = BlockExchange(plan.sent_places(rank), plan.counts[:, rank].tolist(), backend)
        order = plan.order(rank)
        self._in_order = bool(np.array_equal(order, np.arange(len(order))))
        (self._order,) = backend.place([order])
        self.sent, self.received = self._blocks.sent, self._blocks.received

    def scratch(self, vectors: int) -> int:
        """Return the elements of memory that `make` needs for so many vectors."""
        return vectors * (self.sent + 2 * self.received)

    def make(self, communicator: Communicator, own: Array, scratch: Array, target: Array) -> None:
        """Bring elements to their places.

        ``own`` (ndarray, (outer, elements, inner)): this rank's block.
        ``scratch`` (ndarray, flat): of at least `scratch` (outer · inner) elements.
        ``target`` (ndarray, (outer, needed, inner), contiguous): overwritten.
        """
        vectors = own.shape[0] * own.shape[2]
        ends = [0, *accumulate(vectors * n for n in (self.sent, self.received, self.received))]
        out, into, arrived = (scratch[ends[k] : ends[k + 1]] for k in range(3))
        ordered = target if self._in_order else arrived.reshape(target.shape)
        self._blocks.make(communicator, own, (out, into), ordered)
        if not self._in_order:
            take_blocks(ordered, self._order, target)


class ElementSum:
    """A rearrangement the other way: what ranks have computed is added up where elements belong.

    ``backend``: where the vectors are.
    ``scratch``: the elements of memory that `make` needs.
    """

    def __init__(self, plan: Rearrangement, rank: int, backend: Backend) -> None:
        self._sends = plan.counts[:, rank].tolist()
        self._receives = plan.counts[rank].tolist()
        (self._order,) = backend.place([np.argsort(plan.order(rank))])
        self._places = list(backend.place(plan.sent_places(rank)))
        self.scratch = sum(self._sends) + sum(self._receives)

    def make(self, communicator: Communicator, part: Array, scratch: Array, target: Array) -> None:
        """Add parts of all ranks to blocks, in the order of ranks.

        ``part`` (ndarray, (needed,)): what this rank has computed of the elements that it needs.
        ``scratch`` (ndarray, flat): of at least ``scratch`` elements.
        ``target`` (ndarray, (elements,)): this rank's block.
        """
        sent = scratch[: sum(self._sends)]
        received = scratch[sum(self._sends) :][: sum(self._receives)]
        take_blocks(part.reshape(1, -1, 1), self._order, sent.reshape(1, -1, 1))
        communicator.alltoallv(sent, self._sends, received, self._receives)
        begin = 0
        for count, places in zip(self._receives, self._places, strict=True):
            target[places] += received[begin : begin + count]  # places of one rank are distinct
            begin += count
