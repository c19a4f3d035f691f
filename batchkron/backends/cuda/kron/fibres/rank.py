"""The rank of a fibre kernel among the variants of its run: the smaller, the faster.

Ranks are cycles of a multiprocessor of an H200. Their weights were fitted together to 2350 kernels,
so that the fastest variant of a run comes first; a single number need not be physical, and ranks
are no times to compare with other families: those are the family's estimated seconds. Over the
measured kernels the variant of the best rank takes 4.2 and 5.8 % longer than the best one (H200,
H100), that of the least estimate 4.9 and 8.3 %. One model in seconds for both chose variants as
good, but worse groups of modes: 109 random products took 2 % longer, one of them twice as long.
Pure arithmetic on sizes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from batchkron.backends.cuda.estimates import ceil_div, slowest
from batchkron.backends.cuda.kron.fibres.passes import (
    RING,
    FibreVariant,
    Share,
    divisions_of,
    extents_of,
    factor_fragments,
)
from batchkron.backends.cuda.runtime.hardware import WARP, DeviceLimits
from batchkron.backends.cuda.steps import ModeRun

Way = tuple[FibreVariant, tuple[Share, ...]]  # a variant, and a warp's share of each pass

NARROW_BYTES = 64  # memory is slower if the rows of a tile have fewer contiguous bytes

_BYTES_A_CYCLE = 21.6  # bandwidth of memory for each multiprocessor, bytes per cycle
_FULL_TILE_SLOWDOWN = 0.7  # relative increase of memory time if tiles fill shared memory
_CACHED_BYTES_A_CYCLE = 44  # the same bandwidth of the second-level cache
_LATENCY = 1480  # from a tile's first request to the second-level cache to the last answer
# Time of multiplying a tile while another one is loaded: the p-norm of both times, with this p.
_COPY_OVERLAP_NORM = 2.2
_ROW_OVERHEAD_BYTES = 22  # extra time of each row of a tile, in bytes that it would transfer
# Division by the size of a tile's axis, for each fibre of a thread; nothing hides its latency.
_AXIS_DIVISION = 130
# Factor of the time of passes while copies run at the same time, by bytes of an element.
_COPY_INTERFERENCE = {4: 1.27, 8: 1.41}
# Relative increase of that time for each mode beyond the first, where tiles have one column.
_STRIDED_COST = 0.11
_IDLE_WARPS = 1.2  # warps that could issue in the cycles in which a multiprocessor issues nothing
# Power of the imbalance (warps rounded up to a multiple of the four schedulers, over warps).
_IMBALANCE_POWER = 1.45
_RESOURCE_NORM = 3  # p of the p-norm by which the times of several resources are combined
# Factor of the time of passes in a ring, whose warps need not wait for each other.
_RING_FACTOR = 0.75
_LAUNCH = 4000  # a kernel's launch, and its first loads
# Latency of the second-level cache, for each batch of factor values that a thread loads.
_STAGING_LATENCY = 800
_STAGING_BATCH = 8  # values of such a batch
_REGISTER_FACTOR_LOAD = 65  # loading a value of a factor that a thread keeps in registers
_TAIL = 0.22  # share of a thread group's tiles that run with no other one on the multiprocessor
# Relative increase of the time if every access to shared memory has a two-way bank conflict.
_BANK_CONFLICT_COST = 0.18


def ranks(run: ModeRun, ways: Sequence[Way], device: DeviceLimits) -> list[float]:
    """Return the ranks of variants with their shares, without bank conflicts."""
    numbers: Any = np.array([variant for variant, _ in ways]).T
    slices, columns, teams, warps, stages, _ = numbers
    size, width = run.itemsize, columns * run.itemsize
    moved = slices * (math.prod(run.inputs) + math.prod(run.outputs)) * width * 1.0
    narrow = np.maximum(1.0, NARROW_BYTES / width) + _ROW_OVERHEAD_BYTES / width
    moved *= np.where(columns < run.R, narrow, 1.0)
    tiles = ceil_div(run.L, slices) * ceil_div(run.R, columns)
    rounds = ceil_div(tiles, device.multiprocessors)
    turns, busy_teams = ceil_div(rounds, teams), np.minimum(teams, rounds)
    together = busy_teams * warps
    buffers = teams * stages * slices * math.prod(extents_of(run)) * width
    memory = moved / _BYTES_A_CYCLE
    memory *= 1 + _FULL_TILE_SLOWDOWN * (buffers / device.shared_bytes)
    cycles = np.array([sum(share.cycles for share in shares) for _, shares in ways])
    cycles *= _COPY_INTERFERENCE[size]
    cycles *= np.where(columns == 1, 1 + _STRIDED_COST * (len(run.inputs) - 1), 1.0)
    cycles *= np.where(stages == RING, _RING_FACTOR, 1.0)
    waiting = moved / _CACHED_BYTES_A_CYCLE + _LATENCY
    overlapped = slowest(_COPY_OVERLAP_NORM, cycles, waiting)
    alone = np.where((stages == 1) | (turns == 1), cycles + waiting, overlapped)
    uneven = (ceil_div(together, 4) * 4 / together) ** _IMBALANCE_POWER
    busy = (1 + _IDLE_WARPS / together) * cycles * warps / 4 * uneven
    each = slowest(_RESOURCE_NORM, busy, memory, alone / busy_teams)
    last = alone * np.maximum(1, _TAIL * turns)
    last += _AXIS_DIVISION * np.array([divisions_of(run, *way) for way in ways])
    staging = np.array([_staging(run, *way) for way in ways])
    found: list[float] = (staging + memory + np.maximum(rounds * each, last)).tolist()
    return found


def slower_by_conflicts(conflicts: float) -> float:
    """Return the factor of a rank by its bank conflicts: the mean length of accesses."""
    return 1 + _BANK_CONFLICT_COST * (conflicts - 1)


def _staging(run: ModeRun, variant: FibreVariant, shares: Sequence[Share]) -> float:
    """Return the cycles until the factors are where a kernel reads them."""
    staged = sum(share.staged for share in shares)
    threads = variant.teams * variant.warps * WARP
    total = _LAUNCH + staged * run.itemsize / _CACHED_BYTES_A_CYCLE
    total += _STAGING_LATENCY * ceil_div(staged, _STAGING_BATCH * threads)
    if shares[0].factor_in_registers:
        (C,), (K,) = run.inputs, run.outputs
        total += C * K * run.itemsize / _CACHED_BYTES_A_CYCLE
        total += _REGISTER_FACTOR_LOAD * math.prod(factor_fragments(C, K, variant.warps))
    return total
