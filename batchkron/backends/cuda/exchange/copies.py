"""Copies of rectangles between arrays on a device, or on several whose memory is mapped."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from batchkron.arrays import on_host_layout
from batchkron.backends.cuda.exchange.kernel import THREADS, copies_of
from batchkron.backends.cuda.runtime.device import (
    DeviceArray,
    current_device,
    device_errors,
    device_limits,
    load_kernel,
    ready_stream,
)
from batchkron.backends.cuda.runtime.launch import Launch
from batchkron.spec.kron import Array

__all__ = ["copy_views"]

_BLOCKS_PER_PROCESSOR = 8  # largest number of thread blocks per multiprocessor; chosen by hand


def copy_views(pairs: Sequence[tuple[Array | DeviceArray, Array | DeviceArray]]) -> None:
    """Copy arrays (a, b, c, i) to others on the current stream, all in few launches.

    ``pairs``: of one shape and one dtype of 4, 8 or 16 bytes, the last axis contiguous: CuPy
    arrays, or their layouts (`batchkron.arrays.on_host_layout`). Targets do not overlap sources.
    """
    device = current_device()
    layouts = [(on_host_layout(target), on_host_layout(source)) for target, source in pairs]
    maximum = _BLOCKS_PER_PROCESSOR * device_limits(device).multiprocessors
    with device_errors():
        for copies in copies_of(layouts):
            kernel = load_kernel(copies.program(), device)
            grid, none = (min(maximum, copies.tiles), 1), np.empty(0, np.uint8)
            launch = Launch(kernel, grid, THREADS, copies.shared_bytes, none, 0)
            launch.run_with(ready_stream(device), copies.arguments.ctypes.data)
