"""Ranks that are threads of one process: for tests, for examples, and to plan a run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

import numpy as np

from batchkron.arrays import array_module
from batchkron.distributed.communication.communicator import Communicator, Parts, Pending, Traffic
from batchkron.spec.kron import Array

__all__ = ["SimulatedCommunicator", "simulate"]

Result = TypeVar("Result")


class _Machine:
    """What all ranks of a simulation share: whether one of them has failed."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.failed: int | None = None

    def fail(self, rank: int) -> None:
        with self.changed:
            if self.failed is None:
                self.failed = rank
            self.changed.notify_all()


class _Group:
    """The ranks of one communicator: what each of them brings to each meeting."""

    def __init__(self, machine: _Machine, size: int) -> None:
        self.machine, self.size = machine, size
        self._brought: dict[int, list[Any]] = {}
        self._arrived: dict[int, int] = {}
        self._left: dict[int, int] = {}

    def bring(self, meeting: int, rank: int, what: Any) -> None:
        """Leave something for the others; returns at once."""
        with self.machine.changed:
            self._brought.setdefault(meeting, [None] * self.size)[rank] = what
            self._arrived[meeting] = self._arrived.get(meeting, 0) + 1
            self.machine.changed.notify_all()

    def collect(self, meeting: int) -> list[Any]:
        """Return what all have brought, once they have."""
        self._wait(lambda: self._arrived.get(meeting, 0) == self.size)
        return self._brought[meeting]

    def leave(self, meeting: int) -> None:
        """Return once all are done with what was brought."""
        with self.machine.changed:
            self._left[meeting] = self._left.get(meeting, 0) + 1
            self.machine.changed.notify_all()
        self._wait(lambda: self._left.get(meeting, 0) >= self.size)
        with self.machine.changed:
            self._left[meeting] += 1
            if self._left[meeting] == 2 * self.size:  # the last one to know
                for kept in (self._brought, self._arrived, self._left):
                    del kept[meeting]

    def _wait(self, ready: Callable[[], bool]) -> None:
        machine = self.machine
        with machine.changed:
            machine.changed.wait_for(lambda: ready() or machine.failed is not None)
            if not ready():
                raise RuntimeError(f"rank {machine.failed} has ended with an exception")


class SimulatedCommunicator(Communicator):
    """A rank of `simulate`; with no arguments the only rank of a process of its own.

    Ranks also exchange arrays of one device, or of a device each, but wait for these on the host.
    With ``stores = True`` on all ranks, products write results straight to their owners' memory;
    with ``shares_memory = True`` those on sparse grids read vectors of others where they are.

    Examples
    --------
    >>> from batchkron.distributed import SimulatedCommunicator
    >>> alone = SimulatedCommunicator()
    >>> alone.rank, alone.size
    (0, 1)
    """

    capturable = False

    def __init__(
        self, group: _Group | None = None, rank: int = 0, traffic: Traffic | None = None
    ) -> None:
        self._group = _Group(_Machine(), 1) if group is None else group
        super().__init__(rank, self._group.size, traffic)
        self._meetings = 0

    def _next_meeting(self) -> int:
        self._meetings += 1
        return self._meetings

    def _share(self, what: Any) -> list[Any]:
        """Return what every rank passes, in their order."""
        meeting = self._next_meeting()
        self._group.bring(meeting, self.rank, what)
        shared = list(self._group.collect(meeting))
        self._group.leave(meeting)
        return shared

    def _begin_alltoallv(self, sent: Parts, received: Parts) -> Pending:
        meeting = self._next_meeting()
        send, counts = sent
        _wait_for_device(send)
        self._group.bring(meeting, self.rank, (send, list(counts)))
        array, counts = received
        return Pending(partial(self._end_alltoallv, meeting, array, list(counts)))

    def _end_alltoallv(self, meeting: int, received: Array, counts: Sequence[int]) -> None:
        """Copy what the other ranks have brought to a meeting."""
        place = 0
        for (send, send_counts), count in zip(self._group.collect(meeting), counts, strict=True):
            begin = sum(send_counts[: self.rank])
            if send_counts[self.rank] != count:
                raise ValueError(
                    f"rank {self.rank} expects {count} elements of a rank that sends "
                    f"{send_counts[self.rank]}"
                )
            _copy(received[place : place + count], send[begin : begin + count])
            place += count
        _wait_for_device(received)
        self._group.leave(meeting)

    def allgather(self, values: Array) -> Array:
        """Return the arrays (n,) of all ranks as (size, n)."""
        gathered = np.empty((self.size, *values.shape), values.dtype)
        self.gather_into(values, gathered)
        return gathered

    def gather_into(self, values: Array, gathered: Array) -> None:
        """Write the arrays (n,) of all ranks to one, (size, n), on the host or on devices."""
        given = values.copy()
        _wait_for_device(given)
        meeting = self._next_meeting()
        self._group.bring(meeting, self.rank, given)
        for row, other in zip(gathered, self._group.collect(meeting), strict=True):
            _copy(row, other)
        _wait_for_device(gathered)
        self._group.leave(meeting)

    def share_memory(self, elements: int, dtype: np.dtype[Any], module: Any) -> list[Array]:
        """Return new memory of each rank, to which all threads can write."""
        return self._share(module.empty(elements, dtype))

    def _new_common_memory(self, size: int) -> Array:
        """Return new memory, to which all threads can write."""
        memory: Array = self._share(np.empty(size, np.uint8) if self.rank == 0 else None)[0]
        return memory

    def meet(self, like: Array) -> None:
        """Wait on the host until all ranks and their devices have come here."""
        _wait_for_device(like)
        self._share(None)

    def broadcast(self, value: Any, root: int) -> Any:
        """Return what the rank ``root`` passes, on every rank."""
        return self._share(value)[root]

    def split(self, group: int) -> SimulatedCommunicator:
        """Return the communicator of the ranks that pass the same number, in their order."""
        members = [rank for rank, other in enumerate(self._share(group)) if other == group]
        made = _Group(self._group.machine, len(members)) if members[0] == self.rank else None
        chosen = self._share(made)[members[0]]
        return SimulatedCommunicator(chosen, members.index(self.rank), self.traffic)


def _wait_for_device(array: Array) -> None:
    """Return when all work on the current stream of an array's device is done."""
    module = array_module(array)
    if module is not np:
        module.cuda.get_current_stream().synchronize()


def _copy(target: Array, source: Array) -> None:
    """Copy a contiguous array, which may be on another device."""
    if isinstance(target, np.ndarray):
        target[...] = source
    elif target.size:
        device: Any = target
        stream = array_module(target).cuda.get_current_stream()
        device.data.copy_from_device_async(source.data, source.nbytes, stream)


def simulate(size: int, program: Callable[[SimulatedCommunicator], Result]) -> list[Result]:
    """Run a program on simulated ranks, each a thread of this process.

    Parameters
    ----------
    size : int
        The number of ranks, at least 1.
    program : callable
        ``program(communicator)``, called once on each rank.

    Returns
    -------
    list
        What each rank returned, in the order of ranks.

    Raises
    ------
    ValueError
        If there is no rank.
    Exception
        What the first rank that failed raised; the others are stopped where they next wait.

    Examples
    --------
    >>> from batchkron.distributed import simulate
    >>> simulate(3, lambda communicator: communicator.broadcast(10 * communicator.rank, root=2))
    [20, 20, 20]
    """
    if size < 1:
        raise ValueError(f"size is {size}; expected at least 1 rank")
    machine = _Machine()
    group = _Group(machine, size)
    results: list[Any] = [None] * size
    failures: dict[int, BaseException] = {}

    def run(rank: int) -> None:
        try:
            results[rank] = program(SimulatedCommunicator(group, rank))
        except BaseException as error:
            failures[rank] = error
            machine.fail(rank)

    contexts = [copy_context() for _ in range(size)]
    threads = [
        threading.Thread(target=context.run, args=(run, rank), name=f"rank {rank}", daemon=True)
        for rank, context in enumerate(contexts)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if machine.failed is not None:
        raise failures[machine.failed]
    return results
