"""The estimated time of the general kernel of a Kron-Matmul.

    time = launch + factors + slowest(a tile's latency x rounds, a multiprocessor's work, memory)

where rounds is the number of tiles that a team of threads computes one after another. Pure
arithmetic on sizes, no device needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from batchkron.backends.cuda.costs import costs_for
from batchkron.backends.cuda.estimates import (
    NANOSECOND,
    Count,
    ceil_div,
    slowest,
    warps_of,
)
from batchkron.backends.cuda.general_kernel import Tiling
from batchkron.backends.cuda.runtime.hardware import DeviceLimits, resident_blocks
from batchkron.backends.cuda.steps import ModeRun

_MAX_THREADS = 2048  # resident threads of a multiprocessor, a limit of the hardware
_MAX_BLOCKS = 32  # resident thread blocks of a multiprocessor, a limit of the hardware


@dataclass(frozen=True, slots=True)
class GeneralCosts:
    """Constants of the estimated time, in nanoseconds unless stated; a word has 4 bytes.

    Attributes
    ----------
    launch : float
        A kernel launch in a CUDA graph.
    factor : float
        Latency of copying one factor to shared memory.
    factor_turn : float
        One iteration of the loop in which a thread copies a factor.
    turn : float
        One iteration of a thread over its results of a step: addresses, barrier.
    multiply_add : float
        Latency of a real multiply-add that depends on the one before; a complex one is four.
    copy : float
        Latency of an element that a thread copies from or to the array.
    tile : float
        Time of a multiprocessor for each tile.
    warp_word : float
        Time of a multiprocessor for each word that a warp loads or multiplies.
    warp_copy : float
        Time of a multiprocessor for each copy instruction of a warp from or to the array.
    memory_rate : float
        Bandwidth of memory, bytes per nanosecond.
    sharpness : float
        See `slowest`.
    """

    launch: float
    factor: float
    factor_turn: float
    turn: float
    multiply_add: float
    copy: float
    tile: float
    warp_word: float
    warp_copy: float
    memory_rate: float
    sharpness: float


class GeneralWork(NamedTuple):
    """Counts of what a kernel does, for `GeneralCosts`.

    Attributes
    ----------
    rounds : number
        Tiles that a team of threads computes one after another.
    tiles : number
        Tiles of a multiprocessor.
    factors, factor_turns : number
        Factors copied to shared memory; iterations of a thread that copies them.
    turns, multiply_adds, copies : number
        What one thread does for a tile, one after another.
    warp_words, warp_copies : number
        What all warps together do for a tile.
    moved : number
        Bytes of the array that are read and written.
    """

    rounds: Count
    tiles: Count
    factors: Count
    factor_turns: Count
    turns: Count
    multiply_adds: Count
    copies: Count
    warp_words: Count
    warp_copies: Count
    moved: Count


@cache
def _costs(device: str) -> GeneralCosts:
    return GeneralCosts(**costs_for(device).families["kron"]["general"])


def general_seconds(run: ModeRun, tiling: Tiling, device: DeviceLimits) -> float:
    """Return the estimated seconds of a kernel with this tiling."""
    return float(seconds(general_work(run, tiling, device), _costs(device.name)))


def seconds(work: GeneralWork, costs: GeneralCosts) -> Count:
    """Return the estimated seconds of one kernel, or of many at once."""
    latency = (
        costs.turn * work.turns + costs.multiply_add * work.multiply_adds + costs.copy * work.copies
    )
    busy = costs.tile + costs.warp_word * work.warp_words + costs.warp_copy * work.warp_copies
    begin = costs.launch + costs.factor * work.factors + costs.factor_turn * work.factor_turns
    total = begin + slowest(
        costs.sharpness, work.rounds * latency, work.tiles * busy, work.moved / costs.memory_rate
    )
    return total * NANOSECOND


def general_work(run: ModeRun, tiling: Tiling, limits: DeviceLimits) -> GeneralWork:
    """Return the counts of a kernel with this tiling."""
    columns = run.L * run.R
    threads, size, steps = tiling.threads, tiling.itemsize, tiling.steps
    items = [step.items(tiling.width) for step in steps]
    turns = [ceil_div(one, threads) for one in items]
    blocks = min(
        resident_blocks(tiling.shared_bytes, limits), _MAX_THREADS // tiling.block, _MAX_BLOCKS
    )
    if not tiling.in_shared:
        blocks = 1
    copied = (tiling.input_size + tiling.output_size) * tiling.width
    real_ones = 4 if run.dtype.kind == "c" else 1  # multiply-adds of one element
    of_each = ceil_div(ceil_div(columns, tiling.columns), limits.multiprocessors)
    return GeneralWork(
        ceil_div(of_each, max(1, blocks)),
        of_each,
        len(steps) if tiling.staged else 0,
        sum(ceil_div(step.staged(size), threads) for step in steps) if tiling.staged else 0,
        sum(turns),
        real_ones * sum(turn * step.C * step.tile for turn, step in zip(turns, steps, strict=True)),
        ceil_div(copied, threads),
        size
        / 4
        * sum(
            warps_of(one) * step.C * (1 + step.tile) for one, step in zip(items, steps, strict=True)
        ),
        warps_of(copied),
        columns * (tiling.input_size + tiling.output_size) * size,
    )
