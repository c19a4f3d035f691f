"""What distributed operators need from ranks that send each other data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from batchkron.errors import BackendUnavailableError
from batchkron.spec.kron import Array

__all__ = ["Communicator", "Parts", "Pending", "Traffic"]

Parts: TypeAlias = tuple[Array, Sequence[int]]
"""A flat array, and the numbers of elements of its parts, one for each rank."""


class Pending:
    """An exchange under way; its arrays must not be touched before it has been waited for.

    ``wait``: returns when all has been received, and what was sent may be overwritten.
    """

    def __init__(self, wait: Callable[[], Any]) -> None:
        self.wait: Callable[[], Any] = wait


@dataclass
class Traffic:
    """What a rank has sent to other ranks by exchanges since its communicator was made.

    What launches of CUDA graphs send is not counted.

    Attributes
    ----------
    elements, bytes, messages : int
    """

    elements: int = 0
    bytes: int = 0
    messages: int = 0

    def count(self, rank: int, counts: Sequence[int], itemsize: int) -> None:
        """Add an exchange in which a rank sends these numbers of elements."""
        others = [count for other, count in enumerate(counts) if other != rank and count]
        self.elements += sum(others)
        self.bytes += sum(others) * itemsize
        self.messages += len(others)


class Communicator(ABC):
    """A group of ranks, all of which call each function in the same order.

    Attributes
    ----------
    rank, size : int
        This rank's number, and the number of ranks.
    traffic : Traffic
        What this rank has sent, also by the communicators that were split off this one.
    shares_memory : bool
        Whether operators on sparse grids that are made from now on let ranks read each other's
        vectors on the CPU where they are, if they are on one machine; to be set on all ranks alike.
    """

    rank: int
    size: int
    traffic: Traffic
    capturable = True  # whether exchanges of device arrays may be captured in a CUDA graph
    stores: bool = False  # whether products write results straight to the memory of their owners
    shares_memory: bool = False

    def __init__(self, rank: int, size: int, traffic: Traffic | None) -> None:
        self.rank, self.size = rank, size
        self.traffic = Traffic() if traffic is None else traffic
        self._neighbours: dict[int, Communicator] = {}
        self._common: list[Array] = []  # two, which products take in turn

    def neighbours(self, count: int) -> Communicator:
        """Return the ``count`` ranks beside each other that this rank is one of.

        It is made on the first request and then kept: MPI libraries have a few thousand
        communicators, and operators may be made again and again.

        Parameters
        ----------
        count : int
            A divisor of ``size``.

        Returns
        -------
        Communicator
        """
        if count == self.size:
            return self
        if count not in self._neighbours:
            self._neighbours[count] = self.split(self.rank // count)
        self._neighbours[count]._follow(self)
        return self._neighbours[count]

    def _follow(self, whole: Communicator) -> None:
        """Do as the communicator that this one is a part of."""
        self.stores, self.shares_memory = whole.stores, whole.shares_memory

    def ialltoallv(
        self, send: Array, send_counts: Sequence[int], receive: Array, receive_counts: Sequence[int]
    ) -> Pending:
        """Begin to send a part of an array to each rank, and to receive one from each.

        Parameters
        ----------
        send, receive : ndarray, flat and contiguous, of one dtype
            The parts lie one after another, in the order of ranks.
        send_counts, receive_counts : sequence of int, (size,)
            Their numbers of elements.

        Returns
        -------
        Pending
        """
        self.traffic.count(self.rank, send_counts, send.itemsize)
        return self._begin_alltoallv((send, send_counts), (receive, receive_counts))

    def alltoallv(
        self, send: Array, send_counts: Sequence[int], receive: Array, receive_counts: Sequence[int]
    ) -> None:
        """Send a part of an array to each rank, and receive one from each; see `ialltoallv`."""
        self.ialltoallv(send, send_counts, receive, receive_counts).wait()

    def allreduce(self, values: Array, *, maxima: bool = False) -> None:
        """Replace numbers by their sums over the ranks, or maxima, in place.

        Every rank adds in the order of ranks, so that all of them have the same bits, in every run.

        Parameters
        ----------
        values : ndarray, (n,), contiguous, on the host
        maxima : bool
        """
        if self.size == 1:
            return
        gathered = self.allgather(values)
        total = gathered[0].copy()
        for other in gathered[1:]:
            if maxima:
                np.maximum(total, other, out=total)
            else:
                total += other
        values[...] = total

    def gather_into(self, values: Array, gathered: Array) -> None:
        """Write the arrays of all ranks to one, on the host or on devices.

        Parameters
        ----------
        values : ndarray, (n,), contiguous
        gathered : ndarray, (size, n), contiguous
        """
        gathered[...] = self.allgather(values)

    def share_memory(self, elements: int, dtype: np.dtype[Any], module: Any) -> list[Array]:
        """Return new memory of each rank that all of them can write to, if ``stores``.

        Parameters
        ----------
        elements : int
            The same on all ranks.
        dtype : numpy.dtype
        module : module
            NumPy or CuPy.

        Returns
        -------
        list of ndarray, (elements,)
            In the order of ranks. They are kept as long as this rank's own array.

        Raises
        ------
        BackendUnavailableError
            If the memory of a rank cannot be mapped here.
        """
        raise BackendUnavailableError(
            f"ranks of a {type(self).__name__} cannot write to each other's memory"
        )

    def has_common_memory(self, size: int) -> bool:
        """Whether there are so many bytes for `common_memory`. All ranks call it."""
        if not self.shares_memory:
            return False
        known = self._common[0].size if self._common else 0
        if known < size:
            self._common.clear()  # there may not be enough for both
            if not self._make_common(size) and known:
                self._make_common(known)
        return bool(self._common) and self._common[0].size >= size

    def _make_common(self, size: int) -> bool:
        """Make the two pieces of common memory; return whether there is so much."""
        made = [self._new_common_memory(size) for _ in range(2)]
        if all(memory is not None for memory in made):
            self._common = [memory for memory in made if memory is not None]
        return bool(self._common)

    def common_memory(self, size: int) -> Array:
        """Return memory that all ranks read and write, for one product with `meet` in it.

        Two products that follow each other have different memory. So a rank may write to its own
        part at once, and read those of others after the ranks have met: none of them is still in
        the product before the last one.

        Raises
        ------
        MemoryError
            If there is too little; on every rank.
        """
        if not self.has_common_memory(size):
            raise MemoryError(
                f"there are no {size} bytes of memory that all ranks can read and write; set "
                "shares_memory = False of the communicator on all ranks, and distribute again"
            )
        self._common.reverse()
        return self._common[0]

    def _new_common_memory(self, size: int) -> Array | None:
        """Return new memory, (at least size,) of uint8; None on all ranks if there is none."""
        return None

    def beside(self, work: Callable[[], object], last: bool, lane: int = 0) -> Pending | None:
        """Do work on what has been computed, beside what follows; None if it is done at once.

        ``last``: nothing follows that it could go on beside. ``lane`` ({0, 1}): work of one lane
        is done in order.
        """
        work()
        return None

    def meet(self, like: Array) -> None:
        """Let each rank go on when all have come here: what they have stored is there then.

        ``like``: an array where the work is done; on a device, work goes on, not the host.
        """
        self.allgather(np.zeros(1))

    @property
    def place_on_machine(self) -> int:
        """The rank's number among those of its machine, by which ranks choose devices."""
        return self.rank

    def of_devices(self) -> Communicator:
        """Return the communicator of the same ranks for arrays on devices. All ranks call it.

        Raises
        ------
        BackendUnavailableError
            If there is none.
        """
        return self

    @abstractmethod
    def _begin_alltoallv(self, sent: Parts, received: Parts) -> Pending:
        """Begin `ialltoallv`."""

    @abstractmethod
    def allgather(self, values: Array) -> Array:
        """Return the arrays (n,) of all ranks as (size, n)."""

    @abstractmethod
    def broadcast(self, value: Any, root: int) -> Any:
        """Return what the rank ``root`` passes, on every rank: an object that can be pickled."""

    @abstractmethod
    def split(self, group: int) -> Communicator:
        """Return the communicator of the ranks that pass the same number, in their order."""
