"""Passes of Krylov methods on a device."""

from __future__ import annotations

from ctypes import memmove
from functools import lru_cache
from typing import Any

import numpy as np

from batchkron.backends.cuda.kernel import Kernel
from batchkron.backends.cuda.kernel_launch import launch_of
from batchkron.backends.cuda.kron_sum.plan import SumPlan
from batchkron.backends.cuda.krylov.kernels import (
    krylov_kernels,
    parts_of,
    rank_passes,
    rank_sums,
    systems_kernel,
)
from batchkron.backends.cuda.runtime.device import (
    DeviceArray,
    cupy,
    current_device,
    device_limits,
    ready_stream,
)
from batchkron.backends.kron_sum import ListedSum
from batchkron.backends.krylov_arguments import ARGUMENTS, Stage, max_sums
from batchkron.backends.protocol import Reduction
from batchkron.spec.kron import Array

_COLUMN = ARGUMENTS.fields["column"][1] // 8  # type: ignore[index]  # words before it


class Passes:
    """Passes of a Krylov method over vectors (systems, n)."""

    def __init__(
        self, names: tuple[str, ...], dtype: np.dtype[Any], n: int, systems: int, restart: int
    ) -> None:
        self._device = current_device()
        limits = device_limits(self._device)
        kernels = krylov_kernels(names, dtype, n, systems, restart, limits) if systems else []
        self._launches = [launch_of(kernel, self._device, 0) for kernel in kernels]

    def run(self, address: int) -> int:
        """Launch the kernels on the current stream; the arguments may be changed afterwards."""
        stream = ready_stream(self._device)
        for launch in self._launches:
            launch.run_with(stream, address)
        return -1


class RankPasses:
    """Passes over vectors (systems, n) of which each rank has n elements."""

    def __init__(
        self,
        names: tuple[str, ...],
        dtype: np.dtype[Any],
        n: int,
        systems: int,
        restart: int,
        ranks: Reduction,
    ) -> None:
        self._device, self._ranks = current_device(), ranks
        self._systems, self._dtype = systems, dtype
        limits = device_limits(self._device)
        passes = rank_passes(names, dtype, n, systems, restart, limits) if systems else []
        self._passes = [
            (
                launch_of(first, self._device, 0),
                None if after is None else launch_of(after, self._device, 0),
                name,
            )
            for first, after, name in passes
        ]
        count = systems * max_sums(restart, dtype)
        self._sums = cupy.zeros(count)
        self._gathered = cupy.zeros((ranks.size, count))

    def run(self, address: int) -> int:
        """Launch kernels and exchanges on the current stream; arguments may be changed then."""
        stream, given = ready_stream(self._device), ARGUMENTS.itemsize // 8
        words = np.empty(given + 4, np.uint64)
        memmove(words.ctypes.data, address, ARGUMENTS.itemsize)
        words[given:] = self._sums.data.ptr, self._gathered.data.ptr, self._ranks.size, 0
        column, record = int(words[_COLUMN]), words.ctypes.data
        for first, after, name in self._passes:
            words[-1] = count = rank_sums(name, column, self._dtype)
            first.run_with(stream, record)
            if after is not None:
                count *= self._systems
                gathered = self._gathered.reshape(-1)[: self._ranks.size * count]
                self._ranks.gather_into(self._sums[:count], gathered.reshape(-1, count))
                after.run_with(stream, record)
        return -1


class Iterations:
    """Whole iterations for the systems of a plan; the caller must keep the plan alive."""

    def __init__(self, plan: SumPlan, kernel: Kernel) -> None:
        self._device = current_device()
        self._launch = launch_of(kernel, self._device, 0)
        self._factors = plan.factors.view(np.uint64)  # addresses, which do not change

    def run(self, address: int) -> int:
        """Launch the kernel on the current stream; the arguments may be changed afterwards."""
        given, behind = ARGUMENTS.itemsize // 8, self._factors
        words = np.empty(given + behind.size, np.uint64)
        words[given:] = behind
        memmove(words.ctypes.data, address, ARGUMENTS.itemsize)
        self._launch.run_with(ready_stream(self._device), words.ctypes.data)
        return -1


def krylov_iterations(
    plan: SumPlan | ListedSum, stages: tuple[Stage, ...], kept: int, count: int
) -> Iterations | None:
    """Return whole iterations for the systems of a plan, None if one does not fit in a block."""
    if not isinstance(plan, SumPlan):
        return None
    of = plan.dtype, plan.tiling, plan.systems, stages, kept, count
    kernel = systems_kernel(*of, device_limits(current_device()))
    return None if kernel is None else Iterations(plan, kernel)


@lru_cache(maxsize=256)
def _passes_on(device: int, *of: Any) -> Passes:
    return Passes(*of)


def krylov_passes(
    names: tuple[str, ...],
    dtype: np.dtype[Any],
    n: int,
    systems: int,
    restart: int,
    reduction: Reduction | None = None,
) -> Passes | RankPasses:
    """Return the passes with these names in ``csrc/krylov``."""
    if reduction is not None:
        return RankPasses(names, dtype, n, systems, restart, reduction)
    return _passes_on(current_device(), names, dtype, n, systems, restart)


def krylov_parts(n: int, systems: int) -> int:
    """Return how many thread blocks share a system."""
    return parts_of(n, systems, device_limits(current_device()).multiprocessors)


class Reader:
    """Copies arrays to the host, to pinned memory, which is faster and grows as needed."""

    def __init__(self) -> None:
        self._memory: Any = np.empty(0, np.uint8)

    def __call__(self, array: DeviceArray) -> Array:
        """Return a host copy, in the current stream's order, valid until the next call."""
        if self._memory.nbytes < array.nbytes:
            pinned = cupy.cuda.alloc_pinned_memory(array.nbytes)
            self._memory = np.frombuffer(pinned, np.uint8, array.nbytes)
        target: Array = self._memory[: array.nbytes].view(array.dtype).reshape(array.shape)
        array.get(out=target)
        return target
