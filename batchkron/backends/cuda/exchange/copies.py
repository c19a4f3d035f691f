"""Copies of rectangles and of blocks on a device, or to others whose memory is mapped."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from batchkron.arrays import on_host_layout
from batchkron.backends.cuda.exchange.block_kernel import MAX_RANKS, arguments_of, block_program
from batchkron.backends.cuda.exchange.kernel import copies_of
from batchkron.backends.cuda.kernel import THREADS
from batchkron.backends.cuda.kernel_launch import elements_launch
from batchkron.backends.cuda.runtime.device import (
    DeviceArray,
    current_device,
    device_errors,
    device_limits,
    load_kernel,
    place,
    ready_stream,
)
from batchkron.backends.cuda.runtime.launch import Launch
from batchkron.spec.kron import Array

_BLOCK_COPIES_PER_PROCESSOR = 4  # more are not faster, to three other devices (H200, 2026-11)


def copy_views(pairs: Sequence[tuple[Array | DeviceArray, Array | DeviceArray]]) -> None:
    """Copy arrays (a, b, c, i) to others on the current stream, all in few launches.

    ``pairs``: of one shape and one dtype of 4, 8 or 16 bytes, the last axis contiguous: CuPy
    arrays, or their layouts (`batchkron.arrays.on_host_layout`). Targets do not overlap sources.
    """
    device = current_device()
    layouts = [(on_host_layout(target), on_host_layout(source)) for target, source in pairs]
    with device_errors():
        for copies in copies_of(layouts):
            none, turns = np.empty(0, np.uint8), copies.tiles * THREADS
            shared = copies.shared_bytes
            launch = elements_launch(copies.program(), turns, none, 0, shared_bytes=shared)
            launch.run_with(ready_stream(device), copies.arguments.ctypes.data)


class BlockCopies:
    """Copies of chosen blocks to the memory of each rank; see `BlockExchange`."""

    def __init__(self, chosen: Sequence[Array]) -> None:
        self._begins = np.cumsum([0, *map(len, chosen)]).tolist()
        (self._chosen,) = place([np.concatenate([np.zeros(0, np.int64), *chosen])])

    def run(self, source: DeviceArray, targets: Sequence[DeviceArray]) -> None:
        """Enqueue the copies on the current stream."""
        device = current_device()
        layouts = [on_host_layout(target) for target in targets]
        own, chosen = on_host_layout(source), on_host_layout(self._chosen)
        maximum = _BLOCK_COPIES_PER_PROCESSOR * device_limits(device).multiprocessors
        with device_errors():
            for first in range(0, len(layouts), MAX_RANKS):
                some = layouts[first : first + MAX_RANKS]
                word, arguments = arguments_of(own, chosen, self._begins[first:], some)
                pieces = int(arguments["ranks"][0] * arguments["most"][0])
                if pieces:
                    kernel = load_kernel(block_program(word), device)
                    grid, none = (min(maximum, pieces), 1), np.empty(0, np.uint8)
                    launch = Launch(kernel, grid, THREADS, 0, none, 0)
                    launch.run_with(ready_stream(device), arguments.ctypes.data)
