"""The estimated time of a Kron-Matmul's kernel whose tiles come slice by slice.

    time = launch + first slices + slowest(a multiprocessor's tiles, memory)

Pure arithmetic on sizes, without any device.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from batchkron.backends.cuda.costs import costs_for
from batchkron.backends.cuda.estimates import NANOSECOND, Count, ceil_div, slowest
from batchkron.backends.cuda.kron.slices.tile import SliceTile
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.steps import ModeRun


@dataclass(frozen=True, slots=True)
class SliceCosts:
    """Times of what these kernels do, in nanoseconds.

    Attributes
    ----------
    launch : float
        ns of a kernel in a graph, until the first slices have come and the last ones have gone.
    element : float
        ns of a multiprocessor for an element of a tile: copies, barriers.
    multiply_add : float
        ns of a multiprocessor for a multiply-add in double precision, on matrix units.
    single : float
        Of these, what is left in single precision.
    memory_rate : float
        Bytes a nanosecond of memory.
    sharpness : float
        See `slowest`.
    """

    launch: float
    element: float
    multiply_add: float
    single: float
    memory_rate: float
    sharpness: float


class SliceWork(NamedTuple):
    """What a kernel does.

    Attributes
    ----------
    elements, multiply_adds : number
        Of all tiles of a multiprocessor.
    is_single : number
        1 in single precision, otherwise 0.
    moved : number
        Bytes of the array that are read and written.
    """

    elements: Count
    multiply_adds: Count
    is_single: Count
    moved: Count


@cache
def _costs(device: str) -> SliceCosts:
    return SliceCosts(**costs_for(device).families["kron"]["slices"])


def slice_seconds(run: ModeRun, tile: SliceTile, device: DeviceLimits) -> float:
    """Return the estimated seconds of a kernel with this tile."""
    return float(seconds(slice_work(run, tile, device), _costs(device.name)))


def seconds(work: SliceWork, costs: SliceCosts) -> Count:
    """Return the estimated seconds of a kernel, or of many."""
    busy = costs.element * work.elements + costs.multiply_add * work.multiply_adds
    busy = busy * (work.is_single * costs.single + 1 - work.is_single)
    total = costs.launch + slowest(costs.sharpness, busy, work.moved / costs.memory_rate)
    return total * NANOSECOND


def slice_work(part: ModeRun, tile: SliceTile, limits: DeviceLimits) -> SliceWork:
    """Return what a group's kernel with this tile does."""
    rounds = ceil_div(part.L * part.R // tile.columns, limits.multiprocessors)
    modes = [*tile.outer, *tile.inner, *([tile.lead] if tile.lead else [])]
    elements = rounds * tile.elements
    return SliceWork(
        elements,
        elements * sum(map(math.prod, modes)),
        int(part.itemsize == 4),
        2 * part.L * part.R * math.prod(part.inputs) * part.itemsize,
    )
