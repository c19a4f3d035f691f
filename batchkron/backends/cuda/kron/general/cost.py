"""The estimated time of the general kernel of a Kron-Matmul.

    time = launch + factors + slowest(a tile's latency x rounds, a multiprocessor's work, memory)

Pure arithmetic on sizes, without any device.
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

_MAX_THREADS = 2048  # of a multiprocessor
_MAX_BLOCKS = 32  # thread blocks of a multiprocessor


@dataclass(frozen=True, slots=True)
class GeneralCosts:
    """Times of what this kernel does, in nanoseconds; a word has four bytes.

    Attributes
    ----------
    launch : float
        ns of a kernel in a graph.
    factor : float
        ns until one factor has come to shared memory.
    factor_turn : float
        ns of each turn of a thread that copies a factor there.
    turn : float
        ns of a thread's turn to other results in a step: addresses, barrier.
    multiply_add : float
        ns of a multiply-add, where a thread waits for the one before.
    copy : float
        ns of an element that a thread copies from or to the array.
    warp_word : float
        ns of a multiprocessor for a word that a warp loads or multiplies.
    warp_copy : float
        ns of a multiprocessor for what a warp copies at once from or to the array.
    memory_rate : float
        Bytes a nanosecond of memory.
    sharpness : float
        See `slowest`.
    """

    launch: float
    factor: float
    factor_turn: float
    turn: float
    multiply_add: float
    copy: float
    warp_word: float
    warp_copy: float
    memory_rate: float
    sharpness: float


class GeneralWork(NamedTuple):
    """What a kernel does.

    Attributes
    ----------
    rounds : number
        Tiles one after another of a team of threads.
    tiles : number
        Of a multiprocessor.
    factors, factor_turns : number
        Copied to shared memory; turns of a thread that copies them.
    turns, multiply_adds, copies : number
        Of a thread for a tile, one after another.
    warp_words, warp_copies : number
        Of all warps for a tile.
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
    """Return the estimated seconds of a kernel, or of many."""
    latency = (
        costs.turn * work.turns + costs.multiply_add * work.multiply_adds + costs.copy * work.copies
    )
    busy = costs.warp_word * work.warp_words + costs.warp_copy * work.warp_copies
    begin = costs.launch + costs.factor * work.factors + costs.factor_turn * work.factor_turns
    total = begin + slowest(
        costs.sharpness, work.rounds * latency, work.tiles * busy, work.moved / costs.memory_rate
    )
    return total * NANOSECOND


def general_work(run: ModeRun, tiling: Tiling, limits: DeviceLimits) -> GeneralWork:
    """Return what a kernel with this tiling does."""
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
    of_each = ceil_div(ceil_div(columns, tiling.columns), limits.multiprocessors)
    return GeneralWork(
        ceil_div(of_each, max(1, blocks)),
        of_each,
        len(steps) if tiling.staged else 0,
        sum(ceil_div(step.staged(size), threads) for step in steps) if tiling.staged else 0,
        sum(turns),
        sum(turn * step.C * step.tile for turn, step in zip(turns, steps, strict=True)),
        ceil_div(copied, threads),
        size
        / 4
        * sum(
            warps_of(one) * step.C * (1 + step.tile) for one, step in zip(items, steps, strict=True)
        ),
        warps_of(copied),
        columns * (tiling.input_size + tiling.output_size) * size,
    )
