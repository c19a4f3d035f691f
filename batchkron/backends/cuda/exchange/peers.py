"""Memory of several devices of a machine that each of them can write to."""

from __future__ import annotations

import gc
import os
import platform
import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from batchkron.arrays import device_errors
from batchkron.backends.cuda.exchange.copies import copy_views
from batchkron.backends.cuda.runtime.device import DeviceArray, cupy, current_device, runtime
from batchkron.errors import BackendUnavailableError, ContextLostError
from batchkron.spec.kron import Array

_HANDLE_BYTES = 64  # CUDA_IPC_HANDLE_SIZE
_NAME_BYTES = 16  # of a machine or a process
_NUMBERS = 2 * _NAME_BYTES  # where device and address begin in a rank's record
_NO_MEMORY, _NOT_MAPPED = 1, 2  # what went wrong on a rank; 0: nothing
_LAZY_PEER_ACCESS = 1  # cudaIpcMemLazyEnablePeerAccess
_IMPORT = uuid.uuid4().bytes  # names this process, and those that are forked from it


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

    ``elements``: of each array, the same on all ranks. ``allgather(numbers)`` returns the numbers
    of all ranks, (ranks, count). All ranks call it. Raises MemoryError if a device has too little
    free memory; on every rank. Raises BackendUnavailableError if another rank's memory cannot be
    mapped here; on every rank.
    """
    size = max(elements * dtype.itemsize, 1)
    own, record, problem = None, np.zeros(_NUMBERS + 16 + _HANDLE_BYTES, np.uint8), None
    try:
        own = _exported(size)
        record = _record(own)
    except Exception as error:
        problem = error
    found: list[Any] = []
    records = allgather(np.append(record, np.uint8(_failure(problem))))
    if not records[:, -1].any():
        for other, each in enumerate(records[:, :-1]):
            try:
                memory = own if other == rank else _mapped(each, record, size)
                found.append(cupy.ndarray((elements,), dtype, memptr=memory))
            except Exception as error:
                problem = error
    failures = allgather(np.array([_failure(problem)], np.uint8))
    if (failures == _NO_MEMORY).any():
        raise MemoryError(
            f"a rank's device has too little free memory for {size} bytes that other ranks can "
            f"write to: {problem or 'another rank'}"
        )
    if failures.any():
        raise BackendUnavailableError(
            "the memory of other ranks' devices cannot be mapped here: "
            f"{problem or 'another rank has failed'}. Results can be stored straight to devices of "
            "one machine that can access each other; with stores=False they are sent by NCCL"
        )
    return found


def can_store(rank: int, ranks: int, allgather: Callable[[Array], Array]) -> bool:
    """Return whether ranks can write to each other's devices, by trying it. All ranks call it.

    Each rank stores a number to every other one, and looks at what has come: some machines map
    memory of devices that cannot reach each other.

    ``allgather``: as for `share_memory`. The result is the same on all ranks, and false if the
    environment variable NCCL_P2P_DISABLE is set to another number than 0: who sets it knows that
    devices do not reach each other. Raises ContextLostError if the stores have made this rank's
    device unusable. Other ranks return False.
    """
    refused = os.environ.get("NCCL_P2P_DISABLE", "0") not in ("", "0")
    if allgather(np.array([refused], np.uint8)).any():
        return False
    try:
        memory = share_memory(rank, ranks, np.dtype(np.uint32), allgather)
    except (BackendUnavailableError, MemoryError):
        return False
    problem: Exception | None = None
    own, came = memory[rank], False

    def trying(work: Callable[[], None]) -> None:
        """Do work, unless some failed before, and wait for all ranks, whatever happens."""
        nonlocal problem
        if problem is None:
            try:
                with device_errors():
                    work()
                    runtime.deviceSynchronize()
            except Exception as error:
                problem = error
        allgather(np.zeros(1, np.uint8))

    def store() -> None:
        number = cupy.full((1, 1, 1, 1), rank + 1, np.uint32)
        copy_views([(each[rank : rank + 1].reshape(1, 1, 1, 1), number) for each in memory])

    def look() -> None:
        nonlocal came
        came = np.array_equal(own.get(), np.arange(1, ranks + 1))

    for work in (lambda: own.fill(0), store, look):  # what came before may be there yet
        trying(work)
    memory.clear()  # unmapped here, before others free it
    able = bool(allgather(np.array([came], np.uint8)).all())
    if isinstance(problem, ContextLostError):
        raise problem
    return able


def _failure(problem: Exception | None) -> int:
    if problem is None:
        return 0
    return _NO_MEMORY if isinstance(problem, MemoryError) else _NOT_MAPPED


def _exported(size: int) -> Any:
    """Return new memory of this device, not of CuPy's pool: other processes map it."""

    def new() -> Any:
        with device_errors():
            return cupy.cuda.MemoryPointer(cupy.cuda.Memory(size), 0)

    try:
        return new()
    except MemoryError:
        gc.collect()  # operators that refer to their transposes
        cupy.get_default_memory_pool().free_all_blocks()  # which nothing uses
    return new()


def _record(own: Any) -> Array:
    """Return what other ranks need to map memory: machine, process, device, address, handle."""
    with device_errors():
        handle = np.frombuffer(runtime.ipcGetMemHandle(own.ptr), np.uint8, _HANDLE_BYTES)
    names = np.frombuffer(_machine() + _process(), np.uint8)
    numbers = np.array([current_device(), own.ptr], np.uint64)
    return np.concatenate([names, numbers.view(np.uint8), handle])


@cache
def _machine() -> bytes:
    """Return a name of the running machine, which containers on it share."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    text = boot.read_text() if boot.exists() else platform.node()
    return blake2b(text.encode(), digest_size=_NAME_BYTES).digest()


def _process() -> bytes:
    """Return a name of this process; in containers, several have one number."""
    return blake2b(_IMPORT + str(os.getpid()).encode(), digest_size=_NAME_BYTES).digest()


def _mapped(record: Array, own: Array, size: int) -> Any:
    """Return the memory of another rank, of this process or of another one."""
    machine, process = record[:_NAME_BYTES].tobytes(), record[_NAME_BYTES:_NUMBERS].tobytes()
    numbers = np.ascontiguousarray(record[_NUMBERS : _NUMBERS + 16]).view(np.uint64)
    device, address = (int(number) for number in numbers)
    owner: Any = None
    if machine != own[:_NAME_BYTES].tobytes():
        raise BackendUnavailableError("a rank's device is in another machine")
    if process == own[_NAME_BYTES:_NUMBERS].tobytes():
        _allow_access(device)
    else:
        owner = _Opened(record[_NUMBERS + 16 :].tobytes())
        address = owner.address
    return cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(address, size, owner), 0)


def _allow_access(device: int) -> None:
    """Let kernels of the current device write to the memory of another one of this process."""
    here = current_device()
    if device == here:
        return
    if not runtime.deviceCanAccessPeer(here, device):
        raise BackendUnavailableError(f"device {here} cannot access device {device}")
    with suppress(runtime.CUDARuntimeError):  # it is enabled already
        runtime.deviceEnablePeerAccess(device)
