"""The estimated time of a kernel that keeps small matrices in registers.

    time = launch + slowest(a thread's latency x rounds, accesses of a multiprocessor, memory)

Pure arithmetic on sizes, no device needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from batchkron.backends.cuda.costs import costs_for
from batchkron.backends.cuda.estimates import NANOSECOND, Count, ceil_div, slowest
from batchkron.backends.cuda.kron_sparse.kernel import SparseShape, sum_dtype
from batchkron.backends.cuda.kron_sparse.registers.tile import RegisterTile
from batchkron.backends.cuda.runtime.hardware import WARP, DeviceLimits

_RESIDENT_THREADS = 512  # of a multiprocessor, with as many registers as these kernels may take


@dataclass(frozen=True, slots=True)
class RegisterCosts:
    """Constants of the estimated time, in nanoseconds; the rate in bytes per nanosecond.

    Attributes
    ----------
    launch : float
        A kernel launch in a CUDA graph.
    memory_latency : float
        Latency of memory, for the values and for each turn.
    access : float
        Time of a multiprocessor for each access of a warp to memory.
    multiply_add : float
        Time of a multiprocessor for each multiply-add of a warp, in words of 4 bytes.
    memory_rate : float
        Bandwidth of memory.
    sharpness : float
        See `slowest`.
    """

    launch: float
    memory_latency: float
    access: float
    multiply_add: float
    memory_rate: float
    sharpness: float


class RegisterWork(NamedTuple):
    """Counts: rounds of threads with their turns, accesses and multiply-adds of warps, bytes."""

    rounds: Count
    turns: Count
    accesses: Count
    multiply_adds: Count
    moved: Count


@cache
def _costs(device: str) -> RegisterCosts:
    return RegisterCosts(**costs_for(device).families["kron_sparse"]["registers"])


def register_seconds(shape: SparseShape, tile: RegisterTile, device: DeviceLimits) -> float:
    """Return the estimated seconds of a kernel with this tile."""
    return float(seconds(register_work(shape, tile, device), _costs(device.name)))


def seconds(work: RegisterWork, costs: RegisterCosts) -> Count:
    """Return the estimated seconds of one kernel, or of many at once."""
    total = costs.launch + slowest(
        costs.sharpness,
        costs.memory_latency * work.rounds * (1 + work.turns / 2),
        costs.access * work.accesses + costs.multiply_add * work.multiply_adds,
        work.moved / costs.memory_rate,
    )
    return total * NANOSECOND


def register_work(shape: SparseShape, tile: RegisterTile, device: DeviceLimits) -> RegisterWork:
    """Return the counts of a kernel with this tile."""
    b, c, width = tile.b, tile.c, tile.width
    places = shape.a * shape.d * shape.inner // width
    threads = places * ceil_div(shape.outer, tile.turns)
    warps = ceil_div(threads, WARP * device.multiprocessors)
    resident = _RESIDENT_THREADS * device.multiprocessors
    turns = min(tile.turns, shape.outer)
    real = 4 if shape.dtype.startswith("complex") else 1
    adds = turns * b * c * width * real * sum_dtype(shape.dtype).itemsize // 4
    values = threads * b * c * (1 if tile.shared_j else width) * shape.itemsize
    return RegisterWork(
        ceil_div(threads, resident),
        turns,
        warps * (b * c + turns * (b + c)),
        warps * adds,
        shape.bytes + 0.5 * values,
    )
