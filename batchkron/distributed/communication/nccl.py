"""Ranks with a device each, by NCCL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from batchkron.backends import backend_on
from batchkron.distributed.communication.communicator import Communicator, Parts, Pending, Traffic
from batchkron.spec.kron import Array

__all__ = ["NcclCommunicator", "current_device"]


def current_device() -> int:
    """Return the number of CuPy's current device."""
    return int(backend_on("cuda").current_device().partition(":")[2])


class NcclCommunicator(Communicator):
    """Ranks that exchange arrays of their devices by NCCL; all of them make it at the same time.

    Nothing waits on the host: exchanges are enqueued on CuPy's current stream, or beside it while
    the next chunk is multiplied, and can be captured in a CUDA graph. Numbers on the host, and what
    is pickled, go through the communicator that it is made of.

    Parameters
    ----------
    host : Communicator
        The same ranks: of MPI, or threads of `simulate`. The current device of each is its own.
    traffic : Traffic, optional
        Where what this rank sends is counted.
    stores : bool, optional
        Whether products write their results straight to the memory of the devices that own them,
        in place of sending them by NCCL: for devices of one machine that can access each other. By
        default they do where a trial says that all of them can; so does each group of ranks that
        share vectors.

    Attributes
    ----------
    overlaps : bool
        Whether an exchange may go on beside the work that follows it.
    stores : bool
        Whether products write to other devices' memory.

    Raises
    ------
    BackendUnavailableError
        If there is no CuPy or NCCL, or two ranks have one device.
    """

    def __init__(
        self, host: Communicator, traffic: Traffic | None = None, *, stores: bool | None = None
    ) -> None:
        from batchkron.backends.cuda.interface.device import NcclRanks

        super().__init__(host.rank, host.size, traffic)
        self.host, self.overlaps = host, True
        self._ranks = NcclRanks(host.rank, host.size, lambda value: host.broadcast(value, 0))
        self._chosen, self._can_store = stores, stores is None and self._tried_to_store()

    @property
    def stores(self) -> bool:
        """Whether products write to other devices' memory; to be set on all ranks alike."""
        return self._can_store if self._chosen is None else self._chosen

    @stores.setter
    def stores(self, chosen: bool) -> None:
        self._chosen = chosen

    def _tried_to_store(self) -> bool:
        """Whether all ranks can write to each other's devices; all of them call it."""
        from batchkron.backends.cuda.interface.device import can_store

        return self.size > 1 and can_store(self.rank, self.size, self.host.allgather)

    def _follow(self, whole: Communicator) -> None:
        """Do as the communicator that this one is a part of, where its user has chosen."""
        if isinstance(whole, NcclCommunicator):
            self.overlaps, self._chosen = whole.overlaps, whole._chosen

    @property
    def place_on_machine(self) -> int:
        """The rank's number among those of its machine, by which ranks choose devices."""
        return self.host.place_on_machine

    def alltoallv(
        self, send: Array, send_counts: Sequence[int], receive: Array, receive_counts: Sequence[int]
    ) -> None:
        """Send a part of an array to each rank, and receive one from each; see `ialltoallv`."""
        self.traffic.count(self.rank, send_counts, send.itemsize)
        self._ranks.exchange(send, send_counts, receive, receive_counts)

    def _begin_alltoallv(self, sent: Parts, received: Parts) -> Pending:
        given = *sent, *received
        if not self.overlaps:
            self._ranks.exchange(*given)
            return Pending(lambda: None)  # what follows on the stream comes after it
        return self._event(self._ranks.aside(lambda: self._ranks.exchange(*given)))

    def _event(self, event: Any) -> Pending:
        """Return work on a stream of its own, for which the current stream waits, not the host."""
        return Pending(partial(self._ranks.wait_for, event))

    def allgather(self, values: Array) -> Array:
        """Return the arrays (n,) of all ranks, on the host, as (size, n)."""
        return self.host.allgather(values)

    def gather_into(self, values: Array, gathered: Array) -> None:
        """Write the arrays (n,) of all ranks' devices to one, (size, n)."""
        self._ranks.gather(values, gathered)

    def share_memory(self, elements: int, dtype: np.dtype[Any], module: Any) -> list[Array]:
        """Return new memory of each rank's device that all of them can write to.

        Raises
        ------
        MemoryError
            If a device has too little free memory; on every rank.
        BackendUnavailableError
            If a device cannot access another one, or is in another machine; on every rank.
        """
        from batchkron.backends.cuda.interface.device import share_memory

        return share_memory(self.rank, elements, dtype, self.host.allgather)

    def beside(self, work: Callable[[], object], last: bool, lane: int = 0) -> Pending | None:
        """Do work beside what follows, on a stream of exchanges."""
        if last or not self.overlaps:
            work()
            return None
        return self._event(self._ranks.aside(work, lane))

    def meet(self, like: Array) -> None:
        """Let the current stream go on when those of all ranks have come here."""
        self._ranks.meet()

    def broadcast(self, value: Any, root: int) -> Any:
        """Return what the rank ``root`` passes, on every rank."""
        return self.host.broadcast(value, root)

    def split(self, group: int) -> NcclCommunicator:
        """Return the communicator of the ranks that pass the same number, in their order."""
        part = NcclCommunicator(self.host.split(group), self.traffic, stores=self._chosen)
        part.overlaps = self.overlaps
        return part
