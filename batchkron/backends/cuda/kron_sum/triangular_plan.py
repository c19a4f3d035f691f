"""Systems with Kronecker sums of upper triangular matrices on one device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from batchkron.backends.cuda.kron_sum.back_substitution import (
    THREADS,
    back_substitution_arguments,
    back_substitution_blocks,
    back_substitution_program,
    levels,
)
from batchkron.backends.cuda.runtime.device import (
    DeviceArray,
    check_device,
    current_device,
    device_errors,
    device_limits,
    load_kernel,
    place,
    ready_stream,
)
from batchkron.backends.cuda.runtime.launch import BoundedCache, Launch
from batchkron.spec.kron import Array


class TriangularSum:
    """(T_1 ⊕ … ⊕ T_d + shift) x = b by back substitution, a launch for each sum of indices.

    ``triangles``: upper triangular, of one complex dtype, on the host.
    """

    def __init__(self, triangles: Sequence[Array]) -> None:
        self._device = current_device()
        self._triangles = place([np.ascontiguousarray(one) for one in triangles])
        self._sizes = tuple(map(len, triangles))
        self._dtype = triangles[0].dtype
        self._launches: BoundedCache[int, Launch] = BoundedCache()

    def _launch(self, inner: int) -> Launch:
        """Return the launch for so many vectors."""
        known = self._launches.get(inner)
        if known is None:
            modes = len(self._sizes)
            arguments = np.zeros(1, back_substitution_arguments(self._dtype, modes))
            arguments["triangles"] = [one.data.ptr for one in self._triangles]
            arguments["sizes"], arguments["inner"] = self._sizes, inner
            limits = device_limits(self._device)
            blocks = back_substitution_blocks(self._sizes, inner, limits)
            kernel = load_kernel(back_substitution_program(self._dtype, modes), self._device)
            known = Launch(kernel, (blocks, 1), THREADS, 0, arguments, 1, "level")
            self._launches[inner] = known
        return known

    def solve(self, x: DeviceArray, shift: complex) -> None:
        """Overwrite b (N, K), C-contiguous, with the solutions."""
        check_device(self._device, x)
        if not x.size:
            return
        with device_errors():
            launch, stream = self._launch(x.shape[1]), ready_stream(self._device)
            end = np.array([shift], self._dtype).tobytes()
            for level in levels(self._sizes):
                launch(stream, (x.data.ptr,), np.int64(level).tobytes() + end)
