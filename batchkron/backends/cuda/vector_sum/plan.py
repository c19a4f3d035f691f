"""Linear combinations of vectors, launched on the device that these are on."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from batchkron.backends.cuda.kernel import THREADS, record
from batchkron.backends.cuda.kernel_launch import elements_launch
from batchkron.backends.cuda.runtime.device import (
    DeviceArray,
    check_device,
    current_device,
    device_errors,
    ready_stream,
)
from batchkron.backends.cuda.runtime.launch import Launch
from batchkron.backends.cuda.vector_sum.kernel import (
    MAX_VECTORS,
    vector_sum_arguments,
    vector_sum_program,
)

_ELEMENTS = 4  # that a thread has at once, in the kernel


def sum_vectors(factors: Sequence[float], vectors: Sequence[DeviceArray], out: DeviceArray) -> None:
    """Write Σ factors[k] vectors[k] to ``out``, which may be one of the vectors.

    All are contiguous, of one size, and real.

    Raises ValueError if a vector overlaps ``out`` without being it.
    """
    device = current_device()
    check_device(device, out, *vectors)
    if not out.size:
        return
    with device_errors():
        stream, target = ready_stream(device), out.data.ptr
        given = list(zip(map(float, factors), (v.data.ptr for v in vectors), strict=True))
        for k, (_, address) in enumerate(given):
            if 0 < abs(address - target) < out.nbytes:
                raise ValueError(f"out overlaps vectors[{k}] in memory; pass an array of its own")
        if len(given) > MAX_VECTORS:  # what is overwritten is read by the first kernel
            given.sort(key=lambda term: term[1] != target)
        while given:
            now, given = given[:MAX_VECTORS], given[MAX_VECTORS:]
            launch = _launch(device, out.dtype, out.size, len(now))
            scalars = np.array([factor for factor, _ in now], out.dtype).tobytes()
            launch(stream, (*(address for _, address in now), target), scalars)
            if given:  # go on from what there is
                given.insert(0, (1.0, target))


@lru_cache(maxsize=256)
def _launch(device: int, dtype: np.dtype[np.generic], count: int, vectors: int) -> Launch:
    """Return the launch on a device, which is the current one."""
    program = vector_sum_program(dtype, THREADS, vectors)
    arguments = record(vector_sum_arguments(dtype, vectors), count=count)
    return elements_launch(program, -(-count // _ELEMENTS), arguments, vectors + 1, "factors")
