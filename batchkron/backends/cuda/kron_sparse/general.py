"""The family of kernels for any sizes and dtype, ``csrc/cuda/kron_sparse/general.cuh``.

time = launch + slowest(a thread's loads in turn, a multiprocessor's loads, memory)
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from batchkron.backends.cuda.estimates import NANOSECOND, Count, ceil_div, slowest
from batchkron.backends.cuda.kernel import LaunchShape
from batchkron.backends.cuda.kron_sparse.kernel import SparseFamily, SparseLaunch, SparseShape
from batchkron.backends.cuda.runtime.hardware import LINE, WARP, DeviceLimits

_RESULTS = (1, 4, 8)  # choices for the sums of a thread
_THREADS = 128  # of a thread block
_BLOCKS = 64  # thread blocks for each multiprocessor; with more, they take several turns
_RESIDENT_THREADS = 1024  # of a multiprocessor


class General(SparseFamily):
    """Kernels for whatever no other family takes."""

    name = "general"
    numbers = ("results",)  # the sums of a thread

    def variants(self, shape: SparseShape, device: DeviceLimits) -> list[tuple[int]]:
        """Return the numbers of sums, up to the first that is not smaller than b."""
        least = next((one for one in _RESULTS if one >= shape.b), _RESULTS[-1])
        return [(one,) for one in _RESULTS if one <= least]

    def tile(
        self, shape: SparseShape, variant: tuple[int], device: DeviceLimits
    ) -> tuple[int] | None:
        """Return the variant itself, None if there is no such kernel."""
        return variant if variant[0] in _RESULTS else None

    def counts(self, shape: SparseShape, tile: tuple[int], device: DeviceLimits) -> SimpleNamespace:
        """Count what a kernel does."""
        (results,) = tile
        threads = shape.columns * shape.a * shape.d * ceil_div(shape.b, results)
        words = ceil_div(shape.itemsize, 4)
        warps = ceil_div(threads, WARP * device.multiprocessors)
        # single vectors with d = 1 are far apart in memory: each lane reads a line of its own, and
        # the results of its thread lie between those of others
        beside = shape.d * shape.inner
        apart = 8 if beside < WARP else 1
        lines = min(ceil_div(WARP, beside), ceil_div(WARP * results * shape.itemsize, LINE))
        stores = results * lines if beside < WARP else 0
        return SimpleNamespace(
            # entries that a thread reads in turn
            entries=ceil_div(threads, _RESIDENT_THREADS * device.multiprocessors) * shape.c,
            # a multiprocessor's loads of warps, in words of 4 bytes, and its warps
            loads=warps * (shape.c * (results + apart) + stores) * words,
            warps=warps,
            moved=shape.bytes,
        )

    def seconds(self, work: Any, costs: Any) -> Count:
        """Return the estimated seconds of one kernel, or of many at once.

        ``costs.load`` is the latency of an entry of x and its values; ``warp`` is a
        multiprocessor's time to find a warp's results, and to write them.
        """
        total = costs.launch + slowest(
            costs.sharpness,
            costs.load * work.entries,
            costs.warp_load * work.loads + costs.warp * work.warps,
            work.moved / costs.memory_rate,
        )
        return total * NANOSECOND

    def launch(self, shape: SparseShape, tile: tuple[int], device: DeviceLimits) -> SparseLaunch:
        """Return template arguments, launch and tiles: a thread for some results, within limits."""
        (results,) = tile
        threads = shape.columns * shape.a * shape.d * ceil_div(shape.b, results)
        blocks = min(ceil_div(threads, _THREADS), _BLOCKS * device.multiprocessors)
        return (results, _THREADS), LaunchShape(blocks, _THREADS, 1, 0), (0, 1)
