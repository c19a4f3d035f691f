"""The estimated time of a kernel whose tiles pass through shared memory slice by slice.

    time = launch and first slices + slowest(a multiprocessor's work, memory)

Pure arithmetic on sizes, no device needed.
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
    """Constants of the estimated time, in nanoseconds unless stated.

    Attributes
    ----------
    launch : float
        A kernel launch in a CUDA graph, with the loads of the first slices and the stores of the
        last ones.
    element : float
        Time of a multiprocessor for each element of a tile: copies, barriers.
    multiply_add : float
        Time of a multiprocessor for each multiply-add in double precision, on matrix units.
    single : float
        Factor of these two in single precision.
    memory_rate : float
        Bandwidth of memory, bytes per nanosecond.
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
    """Counts of what a kernel does, for `SliceCosts`.

    Attributes
    ----------
    elements, multiply_adds : number
        Those of all tiles of a multiprocessor.
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
    """Return the estimated seconds of one kernel, or of many at once."""
    busy = costs.element * work.elements + costs.multiply_add * work.multiply_adds
    busy = busy * (work.is_single * costs.single + 1 - work.is_single)
    total = costs.launch + slowest(costs.sharpness, busy, work.moved / costs.memory_rate)
    return total * NANOSECOND


def slice_work(part: ModeRun, tile: SliceTile, limits: DeviceLimits) -> SliceWork:
    """Return the counts of a kernel with this tile."""
    rounds = ceil_div(part.L * part.R // tile.columns, limits.multiprocessors)
    modes = [*tile.outer, *tile.inner, *([tile.lead] if tile.lead else [])]
    elements = rounds * tile.elements
    return SliceWork(
        elements,
        elements * sum(map(math.prod, modes)),
        int(part.itemsize == 4),
        2 * part.L * part.R * math.prod(part.inputs) * part.itemsize,
    )
