"""Blocks of vectors that ranks send each other: taken out of a vector, and put into one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from batchkron.arrays import array_module
from batchkron.backends import Backend
from batchkron.distributed.communication.communicator import Communicator
from batchkron.spec.kron import Array

__all__ = ["BlockExchange", "take_blocks"]


class BlockExchange:
    """The exchange of blocks of vectors, as one rank makes it.

    ``sent`` (sequence of ndarray of int, one for each rank): the blocks that go to each rank, as
      numbers among those that `make` is given.
    ``received`` (sequence of int, one for each rank): how many blocks come from each.
    ``backend``: where the vectors are.
    """

    def __init__(self, sent: Sequence[Array], received: Sequence[int], backend: Backend) -> None:
        self._counts = [len(chosen) for chosen in sent]
        self._received = [int(count) for count in received]
        self.sent, self.received = sum(self._counts), sum(self._received)
        self._begins = [0, *accumulate(self._counts)][:-1]
        self._copies: _HostCopies | Any
        if backend.name == "cuda":
            from batchkron.backends.cuda.interface.device import BlockCopies

            self._copies = BlockCopies(sent)
        else:
            self._copies = _HostCopies(sent)

    def make(
        self, communicator: Communicator, own: Array, scratch: tuple[Array, Array], target: Array
    ) -> None:
        """Exchange blocks.

        ``own`` (ndarray, (outer, blocks, size)): what blocks are taken of.
        ``scratch`` (tuple of ndarray, flat): of at least outer · size · sent and outer · size ·
          received elements.
        ``target`` (ndarray, (outer, received, size)): overwritten with the blocks of all ranks, in
          their order; it may be a view.
        """
        self._send(communicator, own, scratch, target)
        self._unpack(scratch[1], target)

    def begin(
        self, communicator: Communicator, own: Array, scratch: tuple[Array, Array], target: Array
    ) -> Callable[[], None]:
        """Begin the exchange of `make`, on a device beside what follows; return what ends it.

        Until that has been called, ``own`` must not change, and neither the scratch memory nor the
        target be touched.
        """
        pending = communicator.beside(
            lambda: self._send(communicator, own, scratch, target), last=False
        )

        def end() -> None:
            if pending is not None:
                pending.wait()
            self._unpack(scratch[1], target)

        return end

    def store(
        self,
        communicator: Communicator,
        own: Array,
        memories: Sequence[Array],
        places: Sequence[int],
    ) -> None:
        """Write blocks straight to the memory of the ranks that need them.

        Ranks have to meet before, when all have used up what is there, and afterwards.

        ``own`` (ndarray, (outer, blocks, size)): what blocks are taken of.
        ``memories`` (sequence of ndarray, (outer, blocks, size)): each rank's, which may have
          different numbers of blocks.
        ``places`` (sequence of int, one for each rank): where this rank's blocks begin there.
        """
        scale = own.shape[0] * own.shape[2]
        counts = [scale * count for count in self._counts]
        communicator.traffic.count(communicator.rank, counts, own.itemsize)
        ends = zip(memories, places, self._counts, strict=True)
        self._copies.run(own, [memory[:, begin : begin + count] for memory, begin, count in ends])

    def _send(
        self, communicator: Communicator, own: Array, scratch: tuple[Array, Array], target: Array
    ) -> None:
        """Pack and exchange blocks; those of several vectors arrive in the scratch memory."""
        outer, _, size = own.shape
        scale = outer * size
        out, direct = scratch[0][: scale * self.sent], outer == 1
        targets = [
            out[scale * begin : scale * (begin + count)].reshape(outer, count, size)
            for begin, count in zip(self._begins, self._counts, strict=True)
        ]
        self._copies.run(own, targets)
        received = target.reshape(-1) if direct else scratch[1][: scale * self.received]
        sent, arriving = (
            [scale * count for count in counts] for counts in (self._counts, self._received)
        )
        communicator.alltoallv(out, sent, received, arriving)

    def _unpack(self, received: Array, target: Array) -> None:
        """Put blocks of several vectors from the scratch memory to their places."""
        outer, _, size = target.shape
        scale, place = outer * size, 0
        for count in () if outer == 1 else self._received:
            part = received[scale * place : scale * (place + count)].reshape(outer, count, size)
            target[:, place : place + count] = part
            place += count


class _HostCopies:
    """Copies of the blocks chosen for each rank to its part, on the host."""

    def __init__(self, chosen: Sequence[Array]) -> None:
        self._chosen = [np.asarray(each, np.int64) for each in chosen]

    def run(self, own: Array, targets: Sequence[Array]) -> None:
        """Write the blocks of vectors (outer, blocks, size) to targets of the same axes."""
        for chosen, target in zip(self._chosen, targets, strict=True):
            take_blocks(own, chosen, target)


def take_blocks(vectors: Array, chosen: Array, out: Array) -> None:
    """Write chosen blocks of vectors (outer, blocks, size) to ``out``, without a copy between."""
    module: Any = array_module(out)
    if not out.size:
        return
    if module is np:
        np.take(vectors, chosen, 1, out, mode="clip")  # other modes make a copy
    else:
        module.take(vectors, chosen, 1, out)
