"""Memory of several devices of a machine that each of them can write to."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from batchkron.arrays import device_errors
from batchkron.backends.cuda.runtime.device import DeviceArray, cupy, current_device, runtime
from batchkron.errors import BackendUnavailableError
from batchkron.spec.kron import Array

__all__ = ["share_memory"]

_HANDLE_BYTES = 64  # CUDA_IPC_HANDLE_SIZE
_LAZY_PEER_ACCESS = 1  # cudaIpcMemLazyEnablePeerAccess


class _Opened:
    """Memory of another process that is mapped here until nothing uses it."""

    def __init__(self, handle: bytes) -> None:
        self.address = int(runtime.ipcOpenMemHandle(handle, _LAZY_PEER_ACCESS))

    def __del__(self) -> None:
        with suppress(Exception):  # the context may be gone already
            runtime.ipcCloseMemHandle(self.address)


def share_memory(
    rank: int, elements: int, dtype: np.dtype[Any], allgather: Callable[[Array], Array]
) -> list[DeviceArray]:
    """Return new memory of each rank's device, mapped here.

    Parameters
    ----------
    rank : int
    elements : int
        Of each array, the same on all ranks.
    dtype : numpy.dtype
    allgather : callable
        ``allgather(numbers)`` returns the numbers of all ranks, (ranks, count). All ranks call it.

    Returns
    -------
    list of cupy.ndarray, (elements,)

    Raises
    ------
    BackendUnavailableError
        If another rank's memory cannot be mapped here; on every rank.
    """
    size = max(elements * dtype.itemsize, 1)
    with device_errors():
        own = cupy.cuda.MemoryPointer(cupy.cuda.Memory(size), 0)  # not of the pool: it is exported
        handle = np.frombuffer(runtime.ipcGetMemHandle(own.ptr), np.uint8, _HANDLE_BYTES)
        numbers = np.array([os.getpid(), current_device(), own.ptr], np.uint64)
    record = np.concatenate([numbers.view(np.uint8), handle])
    found: list[Any] = []
    problem: Exception | None = None
    for other, each in enumerate(allgather(record)):
        try:
            memory = own if other == rank else _mapped(each, size)
            found.append(cupy.ndarray((elements,), dtype, memptr=memory))
        except Exception as error:
            problem = error
    if allgather(np.array([problem is not None], np.uint8)).any():
        raise BackendUnavailableError(
            f"the memory of other ranks' devices cannot be mapped here: {problem or 'see others'}. "
            "Results can be stored straight to devices of one machine that can access each other; "
            "leave stores=True out to send them by NCCL"
        )
    return found


def _mapped(record: Array, size: int) -> Any:
    """Return the memory of another rank, of this process or of another one."""
    numbers, handle = np.ascontiguousarray(record[:24]).view(np.uint64), record[24:].tobytes()
    process, device, address = (int(number) for number in numbers)
    if process == os.getpid():
        here = current_device()
        if device != here:
            with suppress(runtime.CUDARuntimeError):  # it is enabled already
                runtime.deviceEnablePeerAccess(device)
        owner: Any = None
    else:
        owner = _Opened(handle)
        address = owner.address
    return cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(address, size, owner), 0)
