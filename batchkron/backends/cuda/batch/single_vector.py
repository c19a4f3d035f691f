"""Batch lists applied to one vector at a time, by kernels that take the list as records."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np

from batchkron.backends.cuda.batch.kernel import BatchKernel
from batchkron.backends.cuda.batch.records import WORD, register_batch_arguments
from batchkron.backends.cuda.runtime.device import (
    DeviceArray,
    device_errors,
    device_limits,
    load_kernel,
    prefer_shared_memory,
    ready_stream,
)
from batchkron.backends.cuda.runtime.hardware import MAX_GRID_YZ
from batchkron.backends.cuda.runtime.launch import BoundedCache, Launch, batch_scalars


class RegisterBatch:
    """A batch list on the device, sorted by output.

    It owns the list's records; pools and weights belong to the caller.
    """

    def __init__(self, kernel: BatchKernel, device: int, arrays: dict[str, DeviceArray]) -> None:
        """Take the arrays "list", "starts" and "unit_weights"."""
        shape = kernel.shape
        self.kernel = kernel
        self._device = device
        self._code: Any = None
        self._launches: BoundedCache[int, Launch] = BoundedCache()
        self._scalars = batch_scalars(shape.dtype)
        self._arrays = arrays
        self._arguments = np.zeros(1, register_batch_arguments(shape.dtype, len(shape.steps)))
        for key, array in arrays.items():
            self._arguments[key] = array.data.ptr
        self._arguments["slots"] = kernel.slots()
        for key in ("systems", "num_inputs", "num_outputs"):
            self._arguments[key] = getattr(shape, key)

    def cut_as(self, kernel: BatchKernel, code: Any = None) -> RegisterBatch:
        """Return the same list and values with another kernel, and its code if compiled."""
        other = copy(self)
        other.kernel, other._code, other._launches = kernel, code, BoundedCache()
        other._arguments = self._arguments.copy()
        return other

    def set_values(self, pools: list[tuple[int, int]], weights: DeviceArray) -> None:
        """Set address and system stride of each pool, and the weights (systems or 1, products)."""
        self._launches.clear()
        self._arguments["pools"] = pools
        self._arguments["weights"] = weights.data.ptr
        self._arguments["weight_system"] = self.kernel.shape.products if len(weights) > 1 else 0

    def prepare(self) -> Any:
        """Return the kernel's code, compiled on the first request."""
        if self._code is None:
            code = load_kernel(self.kernel.program(), self._device)
            with device_errors():
                prefer_shared_memory(code, self.kernel.launch(device_limits(self._device)).carveout)
            self._code = code
        return self._code

    def _launch(self, outer: int) -> Launch:
        launch = self._launches.get(outer)
        if launch is None:
            how, arguments = self.kernel.launch(device_limits(self._device)), self._arguments.copy()
            arguments["outer"] = outer
            grid = how.blocks, min(outer, MAX_GRID_YZ)
            launch = Launch(
                self.prepare(), grid, how.threads, how.shared_bytes, arguments, 2, "accumulate"
            )
            self._launches[outer] = launch
        return launch

    def takes(self, x: int, y: int) -> bool:
        """Whether the kernel takes vectors at these addresses."""
        return x % WORD == 0

    def run(self, x: int, y: int, outer: int, alpha: complex, accumulate: bool) -> None:
        """Map x (outer, num_inputs, size) to alpha A x, added to y or overwriting it.

        x and y are addresses, x a multiple of `WORD`.
        """
        launch = self._launch(outer)
        launch(ready_stream(self._device), (x, y), self._scalars(alpha, accumulate))
