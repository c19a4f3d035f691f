"""NCCL's communicators, through CuPy: sends and receives between devices, a rank each."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from batchkron.backends.cuda.runtime.device import (
    DeviceArray,
    check_device,
    cupy,
    current_device,
    device_errors,
    nccl_module,
    runtime,
)
from batchkron.errors import BackendUnavailableError

_BYTES = 1  # ncclUint8: all is sent as bytes
_HIGHEST = -100  # priority of a stream; the runtime takes the highest one of the device


class NcclRanks:
    """Ranks with a device each; all functions only enqueue work, on the current stream or beside.

    ``broadcast(value)`` returns on every rank what rank 0 passes. Raises
    BackendUnavailableError if CuPy finds no NCCL, or two ranks have one device; on every rank. Only
    sends and receives are used, no collective functions of NCCL: their results would not have the
    same bits for all algorithms that it chooses between, and some use NVLink's multicast, which can
    put a machine's devices out of service where several programs share them. Multicast is switched
    off unless ``NCCL_NVLS_ENABLE`` is set. So is the registration of buffers in CUDA graphs, unless
    ``NCCL_GRAPH_REGISTER`` is set: NCCL needs it on both sides of a message, but a rank may launch
    a graph while another one does the same work without.
    """

    def __init__(self, rank: int, size: int, broadcast: Callable[[Any], Any]) -> None:
        self.rank, self.size, self.device = rank, size, current_device()
        self._nccl = nccl = nccl_module()
        os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
        os.environ.setdefault("NCCL_GRAPH_REGISTER", "0")
        identifier = broadcast(nccl.get_unique_id() if rank == 0 else None)
        try:
            self._ranks = nccl.NcclCommunicator(size, identifier, rank)
        except nccl.NcclError as error:
            raise BackendUnavailableError(
                f"NCCL cannot connect {size} ranks: {error}. Each rank needs a device of its own; "
                "choose_device(comm) of batchkron.distributed gives the ranks of a machine one each"
            ) from error
        # Sends come before the thread blocks of a kernel beside them that wait for their turn.
        self._lanes = [cupy.cuda.Stream(non_blocking=True, priority=_HIGHEST) for _ in range(2)]
        self._mark = cupy.zeros((1,), np.uint32)
        self._marks = cupy.zeros((size,), np.uint32)

    def exchange(
        self,
        send: DeviceArray,
        send_counts: Sequence[int],
        receive: DeviceArray,
        receive_counts: Sequence[int],
    ) -> None:
        """Send parts of an array, and receive others, on the current stream."""
        check_device(self.device, send, receive)
        with device_errors():
            stream = cupy.cuda.get_current_stream()
            sent, received = _parts(send, send_counts), _parts(receive, receive_counts)
            (own, size), (place, _) = sent[self.rank], received[self.rank]
            self._copy(own, place, size, stream)
            self._group(sent, received, stream)

    def aside(self, work: Callable[[], object], lane: int = 0) -> Any:
        """Enqueue work on a stream of its own, after that of the current one so far.

        ``lane`` ({0, 1}): which stream. The event is there when the work is done.
        """
        with device_errors():
            stream = self._lanes[lane]
            stream.wait_event(_event(cupy.cuda.get_current_stream()))
            with stream:
                work()
            return _event(stream)

    def wait_for(self, event: Any) -> None:
        """Let the current stream wait for an event."""
        cupy.cuda.get_current_stream().wait_event(event)

    def meet(self) -> None:
        """Let the current stream go on when those of all ranks have come here."""
        self._send_all(self._mark, self._marks)

    def gather(self, values: DeviceArray, gathered: DeviceArray) -> None:
        """Write the values (n,) of all ranks to ``gathered``, (size, n)."""
        check_device(self.device, values, gathered)
        size = values.nbytes
        with device_errors():
            stream = cupy.cuda.get_current_stream()
            self._copy(values.data.ptr, gathered.data.ptr + self.rank * size, size, stream)
        self._send_all(values, gathered)

    def _send_all(self, values: DeviceArray, gathered: DeviceArray) -> None:
        """Write the values (n,) of the other ranks to ``gathered``, (size, n)."""
        size, first = values.nbytes, gathered.data.ptr
        with device_errors():
            self._group(
                [(values.data.ptr, size)] * self.size,
                [(first + other * size, size) for other in range(self.size)],
                cupy.cuda.get_current_stream(),
            )

    def _copy(self, source: int, target: int, size: int, stream: Any) -> None:
        if size:
            runtime.memcpyAsync(target, source, size, runtime.memcpyDeviceToDevice, stream.ptr)

    def _group(
        self, sent: Sequence[tuple[int, int]], received: Sequence[tuple[int, int]], stream: Any
    ) -> None:
        """Enqueue all sends and receives, (address, bytes) for each rank, as one group."""
        self._nccl.groupStart()
        try:
            # begin with the next rank: not all ranks send to the same one at first
            for other in ((self.rank + k) % self.size for k in range(1, self.size)):
                address, size = sent[other]
                if size:
                    self._ranks.send(address, size, _BYTES, other, stream.ptr)
                address, size = received[other]
                if size:
                    self._ranks.recv(address, size, _BYTES, other, stream.ptr)
        finally:
            self._nccl.groupEnd()


def _parts(array: DeviceArray, counts: Sequence[int]) -> list[tuple[int, int]]:
    """Return address and bytes of each of the parts that lie one after another."""
    item, first = array.itemsize, int(array.data.ptr)
    begins = [0, *accumulate(counts)][:-1]
    return [
        (first + item * begin, item * count) for begin, count in zip(begins, counts, strict=True)
    ]


def _event(stream: Any) -> Any:
    """Return an event that is there when all work of a stream so far is done."""
    event = cupy.cuda.Event(disable_timing=True)
    event.record(stream)
    return event
