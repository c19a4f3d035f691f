"""Batch lists applied to one vector at a time."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np

from batchkron.backends.cuda.batch.kernel import WORD
from batchkron.backends.cuda.kernel import Kernel
from batchkron.backends.cuda.runtime.device import (
    DeviceArray,
    device_errors,
    load_kernel,
    prefer_shared_memory,
    ready_stream,
    runtime,
)
from batchkron.backends.cuda.runtime.hardware import MAX_GRID_YZ
from batchkron.backends.cuda.runtime.launch import (
    BoundedCache,
    Launch,
    ScalarArguments,
    batch_scalars,
)


class SingleVectors:
    """A batch list on the device for a kernel that takes one vector at a time.

    With ``owner`` the kernel takes the list as records, sorted by output; else it takes the list's
    numbers in the user's order, and adds products atomically. Pools and weights belong to the
    caller.
    """

    def __init__(self, kernel: Kernel, device: int, arrays: dict[str, DeviceArray]) -> None:
        """Take "list", "starts" and "unit_weights", or "ids", "inputs" and "outputs" of int32.

        Ids are by step, and -1 for an identity.
        """
        shape = kernel.work
        self.kernel = kernel
        self._device = device
        self._code: Any = None
        self._launches: BoundedCache[int, Launch] = BoundedCache()
        self._scalars = (
            batch_scalars(shape.dtype)
            if shape.owner
            else _atomic_scalars(shape.products, shape.dtype)
        )
        self._arrays = arrays
        self._arguments = kernel.arguments.copy()
        for key, array in arrays.items():
            self._arguments[key] = array.data.ptr

    def with_kernel(self, kernel: Kernel, code: Any = None) -> SingleVectors:
        """Return the same list and values with another kernel, and its code if compiled."""
        other = copy(self)
        other.kernel, other._code, other._launches = kernel, code, BoundedCache()
        other._arguments = self._arguments.copy()
        return other

    def set_values(self, pools: list[tuple[int, int]], weights: DeviceArray) -> None:
        """Set address and system stride of each pool, and the weights (systems or 1, products)."""
        self._launches.clear()
        arguments, shape = self._arguments, self.kernel.work
        if shape.owner:
            arguments["pools"] = pools
        else:
            arguments["pools"], arguments["pool_systems"] = zip(*pools, strict=True)
        arguments["weights"] = weights.data.ptr
        arguments["weight_system"] = shape.products if len(weights) > 1 else 0

    def prepare(self) -> Any:
        """Return the kernel's code, compiled on the first request."""
        if self._code is None:
            code = load_kernel(self.kernel.program, self._device)
            with device_errors():
                prefer_shared_memory(code, self.kernel.launch.carveout)
            self._code = code
        return self._code

    def _launch(self, outer: int) -> Launch:
        launch = self._launches.get(outer)
        if launch is None:
            how, arguments = self.kernel.launch, self._arguments.copy()
            arguments["outer"] = outer
            grid = how.blocks, min(outer, MAX_GRID_YZ)
            scalars = "accumulate" if self.kernel.work.owner else "products"
            launch = Launch(
                self.prepare(), grid, how.threads, how.shared_bytes, arguments, 2, scalars
            )
            self._launches[outer] = launch
        return launch

    def takes(self, x: int, y: int) -> bool:
        """Whether the kernel takes vectors at these addresses."""
        return (x if self.kernel.work.owner else x | y) % WORD == 0

    def run(self, x: int, y: int, outer: int, alpha: complex, accumulate: bool) -> None:
        """Map x (outer, num_inputs, size) to alpha A x, added to y or overwriting it.

        x and y are addresses that the kernel takes.
        """
        launch, stream, shape = self._launch(outer), ready_stream(self._device), self.kernel.work
        if not (accumulate or shape.owner):
            elements = outer * shape.num_outputs * shape.output_size
            runtime.memsetAsync(y, 0, elements * shape.dtype.itemsize, stream)
        launch(stream, (x, y), self._scalars(alpha, accumulate))


def _atomic_scalars(products: int, dtype: np.dtype[Any]) -> ScalarArguments:
    """Return the scalars at the end of the kernel's arguments: products, and alpha in ``dtype``."""
    count = np.int64(products).tobytes()
    return ScalarArguments(lambda alpha, accumulate: count + np.array([alpha], dtype).tobytes())
