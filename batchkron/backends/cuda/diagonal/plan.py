"""Products with diagonal matrices, planned for one device."""

from __future__ import annotations

import numpy as np

from batchkron.backends.cuda.diagonal.kernel import diagonal_arguments, diagonal_program
from batchkron.backends.cuda.kernel import THREADS, record
from batchkron.backends.cuda.kernel_launch import elements_launch
from batchkron.backends.cuda.runtime.device import (
    DeviceArray,
    check_device,
    current_device,
    ready_stream,
)
from batchkron.backends.cuda.runtime.launch import BoundedCache, Launch, ScalarArguments
from batchkron.backends.cuda.runtime.plan import LinearPlan


class DiagonalProduct(LinearPlan):
    """The product with diagonal matrices of entries (systems…, N) on one device."""

    def __init__(self, entries: DeviceArray) -> None:
        *systems, size = entries.shape
        super().__init__(current_device(), entries.dtype, (size,), (size,), tuple(systems))
        check_device(self._device, entries)
        self._entries = entries
        self._launches: BoundedCache[tuple[int, int], Launch] = BoundedCache(make=self._launch)
        self._scalars = ScalarArguments(self._packed)

    def _packed(self, alpha: complex, accumulate: bool) -> bytes:
        flags = np.array([alpha != 1, accumulate], np.int64)
        return flags.tobytes() + np.array([alpha], self._dtype).tobytes()

    def _launch(self, count: int, inner: int) -> Launch:
        """Return the launch for ``count`` elements; ``inner`` neighbours share an entry of d."""
        d, layout = self._entries, diagonal_arguments(self._dtype)
        program = diagonal_program(self._dtype, THREADS, inner > 1 or count != d.size)
        arguments = record(layout, d=d.data.ptr, count=count, period=d.size, inner=inner)
        return elements_launch(program, count, arguments, 2, "scaled")

    def _start(
        self, x: int, y: int, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        launch = self._launches[outer * self._given[0] * inner, inner]
        launch(ready_stream(self._device), (x, y), self._scalars(alpha, accumulate))
