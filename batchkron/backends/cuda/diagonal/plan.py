"""Products with diagonal matrices, planned for one device."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from batchkron.backends.cuda.diagonal.kernel import diagonal_arguments, diagonal_program
from batchkron.backends.cuda.runtime.device import (
    DeviceArray,
    check_device,
    current_device,
    device_errors,
    device_limits,
    load_kernel,
    ready_stream,
)
from batchkron.backends.cuda.runtime.launch import BoundedCache, FastPath, Launch

_THREADS = 256  # threads of a thread block; chosen by hand
_BLOCKS_PER_PROCESSOR = 8  # largest number of thread blocks per multiprocessor; chosen by hand


class DiagonalProduct(FastPath):
    """The product with diagonal matrices of entries (systems…, N) on one device."""

    def __init__(self, entries: DeviceArray) -> None:
        super().__init__(current_device())
        self._entries = entries
        self._launches: BoundedCache[tuple[int, int], Launch] = BoundedCache()
        self._plain = self._scalars(1, False)

    def _scalars(self, alpha: complex, accumulate: bool) -> bytes:
        flags = np.array([alpha != 1, accumulate], np.int64)
        return flags.tobytes() + np.array([alpha], self._entries.dtype).tobytes()

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

    def run(
        self,
        x: DeviceArray,
        y: DeviceArray,
        outer: int,
        inner: int,
        alpha: complex,
        accumulate: bool,
    ) -> None:
        """Map x (outer, N, inner) to alpha diag(d) x, added to y or overwriting it."""
        check_device(self._device, x, y, self._entries)
        if x.size:
            with device_errors():
                launch = self._launch(x.size, inner)
                addresses = x.data.ptr, y.data.ptr
                launch(ready_stream(self._device), addresses, self._scalars(alpha, accumulate))

    def _fast_path(self, x: DeviceArray, out: DeviceArray) -> Callable[[int, int], None] | None:
        entries = self._entries
        fits = x.shape == out.shape and x.shape[-entries.ndim :] == entries.shape
        if not fits or x.dtype != entries.dtype:
            return None
        launch, device, plain = self._launch(x.size, 1), self._device, self._plain

        def run(source: int, target: int) -> None:
            launch(ready_stream(device), (source, target), plain)

        return run


def diagonal_product(entries: DeviceArray) -> DiagonalProduct:
    """Return the product with diagonal matrices of entries (systems…, N)."""
    return DiagonalProduct(entries)
