"""Batch lists in no order on the device, whose products are added atomically."""

from __future__ import annotations

from typing import Any

import numpy as np

from batchkron.backends.cuda.batch.kernel import BatchKernel
from batchkron.backends.cuda.batch.records import WORD, unsorted_arguments
from batchkron.backends.cuda.runtime.device import (
    DeviceArray,
    device_limits,
    load_kernel,
    ready_stream,
    runtime,
)
from batchkron.backends.cuda.runtime.hardware import MAX_GRID_YZ
from batchkron.backends.cuda.runtime.launch import BoundedCache, Launch, ScalarArguments


class UnsortedBatch:
    """A batch list on the device, in the user's order.

    It owns the list's numbers; pools and weights belong to the caller.
    """

    def __init__(self, kernel: BatchKernel, device: int, arrays: dict[str, DeviceArray]) -> None:
        """Take the arrays "ids" (by step, -1 for an identity), "inputs" and "outputs", of int32."""
        shape = kernel.shape
        self.kernel = kernel
        self._device = device
        self._code: Any = None
        self._launches: BoundedCache[int, Launch] = BoundedCache()
        self._scalars = _scalars(shape.products, shape.dtype)
        self._arrays = arrays
        steps = len(shape.steps)
        self._arguments = np.zeros(1, unsorted_arguments(shape.dtype, steps))
        for key, array in arrays.items():
            self._arguments[key] = array.data.ptr
        for key in ("systems", "num_inputs", "num_outputs"):
            self._arguments[key] = getattr(shape, key)
        self._arguments["columns"] = np.arange(steps)
        self._arguments["limits"] = np.iinfo(np.int32).max  # ids are checked when a list is built

    def set_values(self, pools: list[tuple[int, int]], weights: DeviceArray) -> None:
        """Set address and system stride of each pool, and the weights (systems or 1, products)."""
        self._launches.clear()
        self._arguments["pools"], self._arguments["pool_systems"] = zip(*pools, strict=True)
        self._arguments["weights"] = weights.data.ptr
        self._arguments["weight_system"] = self.kernel.shape.products if len(weights) > 1 else 0

    def prepare(self) -> Any:
        """Return the kernel's code, compiled on the first request."""
        if self._code is None:
            self._code = load_kernel(self.kernel.program(), self._device)
        return self._code

    def _launch(self, outer: int) -> Launch:
        launch = self._launches.get(outer)
        if launch is None:
            how, arguments = self.kernel.launch(device_limits(self._device)), self._arguments.copy()
            arguments["outer"] = outer
            grid = how.blocks, min(outer, MAX_GRID_YZ)
            launch = Launch(
                self.prepare(), grid, how.threads, how.shared_bytes, arguments, 2, "products"
            )
            self._launches[outer] = launch
        return launch

    def takes(self, x: int, y: int) -> bool:
        """Whether the kernel takes vectors at these addresses."""
        return x % WORD == 0 and y % WORD == 0

    def run(self, x: int, y: int, outer: int, alpha: complex, accumulate: bool) -> None:
        """Map x (outer, num_inputs, size) to alpha A x, added to y or overwriting it.

        x and y are addresses, multiples of `WORD`.
        """
        launch, stream, shape = self._launch(outer), ready_stream(self._device), self.kernel.shape
        if not accumulate:
            elements = outer * shape.num_outputs * shape.output_size
            runtime.memsetAsync(y, 0, elements * shape.dtype.itemsize, stream)
        launch(stream, (x, y), self._scalars(alpha, accumulate))


def _scalars(products: int, dtype: np.dtype[Any]) -> ScalarArguments:
    """Return the scalars at the end of the kernel's arguments: products, and alpha in ``dtype``."""
    count = np.int64(products).tobytes()
    return ScalarArguments(lambda alpha, accumulate: count + np.array([alpha], dtype).tobytes())
