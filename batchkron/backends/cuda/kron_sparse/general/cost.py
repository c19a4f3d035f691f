"""The estimated time of the kernel for any sizes and dtype.

    time = launch + slowest(a thread's loads in turn, a multiprocessor's loads, memory)

Pure arithmetic on sizes, no device needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from batchkron.backends.cuda.costs import costs_for
from batchkron.backends.cuda.estimates import NANOSECOND, Count, ceil_div, slowest
from batchkron.backends.cuda.kron_sparse.kernel import SparseShape
from batchkron.backends.cuda.runtime.hardware import WARP, DeviceLimits

_RESIDENT_THREADS = 1024  # of a multiprocessor


@dataclass(frozen=True, slots=True)
class GeneralCosts:
    """Constants of the estimated time, in nanoseconds; the rate in bytes per nanosecond.

    Attributes
    ----------
    launch : float
        A kernel launch in a CUDA graph.
    load : float
        Latency of a thread's entry of x and the values that it is multiplied by.
    warp_load : float
        Time of a multiprocessor for each load of a warp, in words of 4 bytes.
    warp : float
        Time of a multiprocessor for each warp: to find its results, and to write them.
    memory_rate : float
        Bandwidth of memory.
    sharpness : float
        See `slowest`.
    """

    launch: float
    load: float
    warp_load: float
    warp: float
    memory_rate: float
    sharpness: float


class GeneralWork(NamedTuple):
    """Counts: entries that a thread reads in turn, a multiprocessor's warps and loads, bytes."""

    entries: Count
    loads: Count
    warps: Count
    moved: Count


@cache
def _costs(device: str) -> GeneralCosts:
    return GeneralCosts(**costs_for(device).families["kron_sparse"]["general"])


def general_seconds(shape: SparseShape, results: int, device: DeviceLimits) -> float:
    """Return the estimated seconds of a kernel with so many sums in a thread."""
    return float(seconds(general_work(shape, results, device), _costs(device.name)))


def seconds(work: GeneralWork, costs: GeneralCosts) -> Count:
    """Return the estimated seconds of one kernel, or of many at once."""
    total = costs.launch + slowest(
        costs.sharpness,
        costs.load * work.entries,
        costs.warp_load * work.loads + costs.warp * work.warps,
        work.moved / costs.memory_rate,
    )
    return total * NANOSECOND


def general_work(shape: SparseShape, results: int, device: DeviceLimits) -> GeneralWork:
    """Return the counts of a kernel with ``results`` sums in a thread."""
    threads = shape.columns * shape.a * shape.d * ceil_div(shape.b, results)
    rounds = ceil_div(threads, _RESIDENT_THREADS * device.multiprocessors)
    words = ceil_div(shape.itemsize, 4)
    warps = ceil_div(threads, WARP * device.multiprocessors)
    # single vectors with d = 1 are far apart in memory: each lane reads a line of its own
    apart = 8 if shape.d * shape.inner < WARP else 1
    loads = warps * shape.c * (results + apart) * words
    return GeneralWork(rounds * shape.c, loads, warps, shape.bytes)
