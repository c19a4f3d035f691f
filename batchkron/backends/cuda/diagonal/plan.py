"""Products with diagonal matrices, planned for one device."""

from __future__ import annotations

import numpy as np

from batchkron.backends.cuda.diagonal.kernel import diagonal_arguments, diagonal_program
from batchkron.backends.cuda.runtime.device import (
    DeviceArray,
    check_device,
    current_device,
    device_limits,
    load_kernel,
    ready_stream,
)
from batchkron.backends.cuda.runtime.launch import BoundedCache, Launch, ScalarArguments
from batchkron.backends.cuda.runtime.plan import LinearPlan

_THREADS = 256  # threads of a thread block; chosen by hand
_BLOCKS_PER_PROCESSOR = 8  # largest number of thread blocks per multiprocessor; chosen by hand


class DiagonalProduct(LinearPlan):
    """The product with diagonal matrices of entries (systems…, N) on one device."""

    def __init__(self, entries: DeviceArray) -> None:
        *systems, size = entries.shape
        super().__init__(current_device(), entries.dtype, (size,), (size,), tuple(systems))
        check_device(self._device, entries)
        self._entries = entries
        self._launches: BoundedCache[tuple[int, int], Launch] = BoundedCache()
        self._scalars = ScalarArguments(self._packed)

    def _packed(self, alpha: complex, accumulate: bool) -> bytes:
        flags = np.array([alpha != 1, accumulate], np.int64)
        return flags.tobytes() + np.array([alpha], self._dtype).tobytes()

    def _launch(self, count: int, inner: int) -> Launch:
        """Return the launch for ``count`` elements; ``inner`` neighbours share an entry of d."""
        known = self._launches.get((count, inner))
        if known is None:
            d = self._entries
            repeated = inner > 1 or count != d.size
            kernel = load_kernel(diagonal_program(d.dtype, _THREADS, repeated), self._device)
            arguments = np.zeros(1, diagonal_arguments(d.dtype))
            arguments["d"], arguments["count"] = d.data.ptr, count
            arguments["period"], arguments["inner"] = d.size, inner
            maximum = _BLOCKS_PER_PROCESSOR * device_limits(self._device).multiprocessors
            blocks = min(maximum, -(-count // _THREADS))
            known = Launch(kernel, (blocks, 1), _THREADS, 0, arguments, 2, "scaled")
            self._launches[count, inner] = known
        return known

    def _start(
        self, x: int, y: int, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        launch = self._launch(outer * self._given[0] * inner, inner)
        launch(ready_stream(self._device), (x, y), self._scalars(alpha, accumulate))


def diagonal_product(entries: DeviceArray) -> DiagonalProduct:
    """Return the product with diagonal matrices of entries (systems…, N)."""
    return DiagonalProduct(entries)
