"""The estimated time of a register kernel of a Kron-Matmul.

    time = launch + factors + slowest(a tile's latency x rounds, a multiprocessor's work, memory)

where rounds is the number of tiles that a thread block computes one after another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from types import SimpleNamespace
from typing import NamedTuple

from batchkron.backends.cuda.estimates import (
    NANOSECOND,
    Count,
    ceil_div,
    moving,
    share_of_memory,
    slowest,
    warps_of,
)
from batchkron.backends.cuda.kron.registers.passes import RegisterPass, ThreadAxis, staged_elements
from batchkron.backends.cuda.kron.registers.variants import (
    RegisterVariant,
    is_in_cache,
    may_be_constant,
    tile_planner,
)
from batchkron.backends.cuda.runtime.hardware import (
    LINE,
    SECTOR,
    WARP,
    DeviceLimits,
    resident_blocks,
)
from batchkron.backends.cuda.steps import ModeRun

CONSTANTS = {
    "launch": (1000, "launch of an empty kernel in a CUDA graph"),
    "factor": (150, "latency of copying one factor to shared memory"),
    "factor_turn": (100, "one iteration of the loop in which a thread copies a factor"),
    "constant_line": (100, "latency of 128 bytes of factors from constant memory"),
    "turn": (120, "one iteration of a thread over its items of a pass: latency of loads, barrier"),
    "multiply_add": (0.6, "latency of a multiply-add that depends on the one before"),
    "tile": (20, "a multiprocessor's time for each tile"),
    "warp_multiply_add": (
        0.2,
        "its time for each multiply-add of a warp and word (4 bytes) of an element",
    ),
    "warp_factor": (0.1, "its time for each word of a factor that a warp reads from shared memory"),
    "line": (0.3, "its time for each 128-byte line of the array that a warp touches"),
    "memory_latency": (2500, "latency of memory, for data that is in no cache"),
    "memory_rate": (3000, "bandwidth of memory, bytes per nanosecond"),
    "cache_rate": (5000, "bandwidth of the second-level cache"),
    "cache_bytes": (7e6, "if this many bytes are read and written, half of them are in the cache"),
    "scattered": (
        0.1,
        "relative increase of the time of transfers if a warp writes to twice as many "
        "sectors as its data would fill",
    ),
    "sharpness": (1.7, "see `slowest`"),
}


def register_work(run: ModeRun, variant: RegisterVariant, device: DeviceLimits) -> SimpleNamespace:
    """Count what the kernel of a variant does: a thread, and all warps for a tile."""
    size, threads = run.itemsize, variant.threads
    sizes = run.inputs, run.outputs, variant.slices, variant.columns
    passes, factors, buffers = _tile(*sizes, size, variant.held, is_in_cache(run))
    constant = may_be_constant(run)
    factor_bytes = sum(factors) * size
    shared = buffers + (0 if constant else factor_bytes)
    blocks = max(1, min(variant.blocks, resident_blocks(shared, device)))
    tiles = ceil_div(run.L, variant.slices) * ceil_div(run.R, variant.columns)
    first, last = passes[0], passes[-1]
    turns = [ceil_div(one.items, threads) for one in passes]
    products = 4 if run.dtype.kind == "c" else 1  # real multiply-adds of one
    words = size / 4
    sectors = _pieces(last.threads, False, run.R, size, SECTOR)
    return SimpleNamespace(
        rounds=ceil_div(tiles, device.multiprocessors * blocks),
        tiles=ceil_div(tiles, device.multiprocessors),
        factors=0 if constant else len(run.inputs),
        factor_turns=0 if constant else sum(ceil_div(one, threads) for one in factors),
        constant_lines=factor_bytes / LINE if constant else 0,
        turns=sum(turns),
        multiply_adds=products
        * sum(turn * one.multiply_adds for turn, one in zip(turns, passes, strict=True)),
        warp_multiply_adds=math.sqrt(products)
        * words
        * sum(one.warps * one.multiply_adds for one in passes),
        warp_factors=0
        if constant
        else words * sum(one.warps * one.factor_elements for one in passes),
        lines=first.warps * first.inputs * _pieces(first.threads, True, run.R, size, LINE)
        + last.warps * last.outputs * _pieces(last.threads, False, run.R, size, LINE),
        moved=run.bytes,
        scattered=max(0.0, sectors * SECTOR / (min(WARP, last.items) * size) - 1),
    )


def register_seconds(work: SimpleNamespace, costs: SimpleNamespace) -> Count:
    """Return the estimated seconds of a launch."""
    share = share_of_memory(work.moved, costs.cache_bytes)
    latency = costs.turn * work.turns + costs.multiply_add * work.multiply_adds
    busy = (
        costs.tile
        + costs.warp_multiply_add * work.warp_multiply_adds
        + costs.warp_factor * work.warp_factors
        + costs.line * work.lines
    )
    memory = moving(work.moved, share, costs.memory_rate, costs.cache_rate)
    memory = memory * (1 + costs.scattered * work.scattered) + costs.memory_latency * share
    begin = (
        costs.launch
        + costs.factor * work.factors
        + costs.factor_turn * work.factor_turns
        + costs.constant_line * work.constant_lines
    )
    total = begin + slowest(costs.sharpness, work.rounds * latency, work.tiles * busy, memory)
    return total * NANOSECOND


class _Pass(NamedTuple):
    """Counts of a pass: items of a tile, and for each item its elements and multiply-adds."""

    items: int
    inputs: int
    outputs: int
    multiply_adds: int
    factor_elements: int
    threads: tuple[ThreadAxis, ...]

    @property
    def warps(self) -> int:
        """Number of warps that the items fill."""
        return warps_of(self.items)


@lru_cache(maxsize=4096)
def _tile(
    inputs: tuple[int, ...],
    outputs: tuple[int, ...],
    slices: int,
    columns: int,
    itemsize: int,
    held: int,
    cached: bool,
) -> tuple[tuple[_Pass, ...], tuple[int, ...], int]:
    """Return passes, elements of each factor in shared memory, and bytes of buffers."""
    planner = tile_planner(inputs, outputs, slices, columns, itemsize, held, cached)
    pads = planner.unpadded()
    passes = tuple(map(_counted, planner.passes(pads)))
    factors = tuple(
        staged_elements((C,), (K,), itemsize) for C, K in zip(inputs, outputs, strict=True)
    )
    return passes, factors, planner.shared_bytes(pads, constant=True)


def _counted(one: RegisterPass) -> _Pass:
    inputs = elements = math.prod(axis.C for axis in one.registers)
    multiply_adds = factor_elements = 0
    for axis in one.registers:
        if axis.factor >= 0:
            elements = elements // axis.C * axis.K
            multiply_adds += elements * axis.C
            factor_elements += axis.C * axis.K
    items = math.prod(axis.size for axis in one.threads)
    return _Pass(items, inputs, elements, multiply_adds, factor_elements, one.threads)


def _pieces(axes: Sequence[ThreadAxis], reads: bool, R: int, itemsize: int, piece: int) -> int:
    """Return how many aligned pieces of ``piece`` bytes of the array a warp touches at once."""
    places = [0]
    for axis in axes:
        stride = (axis.from_ if reads else axis.to) * (1 if axis.bound == 2 else R)
        count = min(axis.size, WARP // len(places))
        if count > 1:
            places = [n * stride + place for n in range(count) for place in places]
        if count < axis.size:
            break
    return len({place * itemsize // piece for place in places})
