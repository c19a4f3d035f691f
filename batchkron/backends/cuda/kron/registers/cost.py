"""The estimated time of a register kernel of a Kron-Matmul.

    time = launch + factors + slowest(a tile's latency x rounds, a multiprocessor's work, memory)

where rounds is the number of tiles that a thread block computes one after another. Pure arithmetic
on sizes, no device needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

from batchkron.backends.cuda.costs import costs_for
from batchkron.backends.cuda.estimates import (
    NANOSECOND,
    Count,
    ceil_div,
    moving,
    share_of_memory,
    slowest,
    warps_of,
)
from batchkron.backends.cuda.kron.registers.passes import (
    RegisterPass,
    ThreadAxis,
    staged_elements,
)
from batchkron.backends.cuda.kron.registers.tile import (
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


@dataclass(frozen=True, slots=True)
class RegisterCosts:
    """Constants of the estimated time, in nanoseconds unless stated; a word has 4 bytes.

    Attributes
    ----------
    launch : float
        Launch of an empty kernel in a CUDA graph.
    factor : float
        Latency of copying one factor to shared memory.
    factor_turn : float
        One iteration of the loop in which a thread copies a factor.
    constant_line : float
        Latency of 128 bytes of factors from constant memory.
    turn : float
        One iteration of a thread over its items of a pass: latency of loads, barrier.
    multiply_add : float
        Latency of a multiply-add that depends on the one before.
    tile : float
        Time of a multiprocessor for each tile.
    warp_multiply_add : float
        Time of a multiprocessor for each multiply-add of a warp and word of an element.
    warp_factor : float
        Time of a multiprocessor for each word of a factor that a warp reads from shared memory.
    line : float
        Time of a multiprocessor for each 128-byte line of the array that a warp touches.
    memory_latency : float
        Latency of memory, for data that is in no cache.
    memory_rate, cache_rate : float
        Bandwidths of memory and of the second-level cache, bytes per nanosecond.
    cache_bytes : float
        If this many bytes are read and written, half of them are found in the cache.
    scattered : float
        Transfers take 1 + scattered * ``scattered`` times as long, see `RegisterWork`.
    sharpness : float
        See `slowest`.
    """

    launch: float
    factor: float
    factor_turn: float
    constant_line: float
    turn: float
    multiply_add: float
    tile: float
    warp_multiply_add: float
    warp_factor: float
    line: float
    memory_latency: float
    memory_rate: float
    cache_rate: float
    cache_bytes: float
    scattered: float
    sharpness: float


class RegisterWork(NamedTuple):
    """Counts of what a kernel does, for `RegisterCosts`.

    Attributes
    ----------
    rounds : number
        Tiles that a thread block computes one after another.
    tiles : number
        Tiles of a multiprocessor.
    factors, factor_turns : number
        Factors copied to shared memory; iterations of a thread that copies them.
    constant_lines : number
        128-byte lines of factors in constant memory.
    turns, multiply_adds : number
        What one thread does for a tile, one after another.
    warp_multiply_adds, warp_factors, lines : number
        What all warps together do for a tile.
    moved : number
        Bytes of the array that are read and written.
    scattered : number
        (Sectors that a warp touches when it writes) / (sectors that its data would fill) - 1.
    """

    rounds: Count
    tiles: Count
    factors: Count
    factor_turns: Count
    constant_lines: Count
    turns: Count
    multiply_adds: Count
    warp_multiply_adds: Count
    warp_factors: Count
    lines: Count
    moved: Count
    scattered: Count


@cache
def _costs(device: str) -> RegisterCosts:
    return RegisterCosts(**costs_for(device).families["kron"]["registers"])


def register_seconds(run: ModeRun, variant: RegisterVariant, device: DeviceLimits) -> float:
    """Return the estimated seconds of a variant that fits."""
    return float(seconds(register_work(run, variant, device), _costs(device.name)))


def seconds(work: RegisterWork, costs: RegisterCosts) -> Count:
    """Return the estimated seconds of one kernel, or of many at once."""
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


def register_work(run: ModeRun, variant: RegisterVariant, device: DeviceLimits) -> RegisterWork:
    """Return the counts of a variant's kernel."""
    size = run.itemsize
    tile = _tile(
        run.inputs,
        run.outputs,
        variant.slices,
        variant.columns,
        size,
        variant.held,
        is_in_cache(run),
    )
    constant = may_be_constant(run)
    shared = tile.buffer_bytes + (0 if constant else tile.factor_bytes)
    blocks = max(1, min(variant.blocks, resident_blocks(shared, device)))
    tiles = ceil_div(run.L, variant.slices) * ceil_div(run.R, variant.columns)
    first, last, threads = tile.passes[0], tile.passes[-1], variant.threads
    turns = [ceil_div(one.items, threads) for one in tile.passes]
    products = 4 if run.dtype.kind == "c" else 1
    words = size / 4
    return RegisterWork(
        rounds=ceil_div(tiles, device.multiprocessors * blocks),
        tiles=ceil_div(tiles, device.multiprocessors),
        factors=0 if constant else len(run.inputs),
        factor_turns=0 if constant else sum(ceil_div(one, threads) for one in tile.factors),
        constant_lines=tile.factor_bytes / LINE if constant else 0,
        turns=sum(turns),
        multiply_adds=products
        * sum(turn * one.multiply_adds for turn, one in zip(turns, tile.passes, strict=True)),
        warp_multiply_adds=math.sqrt(products) * words * tile.warp_multiply_adds,
        warp_factors=0 if constant else words * tile.warp_factors,
        lines=first.warps * first.inputs * _pieces(first.threads, True, run.R, size, LINE)
        + last.warps * last.outputs * _pieces(last.threads, False, run.R, size, LINE),
        moved=run.L * run.R * (math.prod(run.inputs) + math.prod(run.outputs)) * size,
        scattered=max(
            0.0,
            _pieces(last.threads, False, run.R, size, SECTOR)
            * SECTOR
            / (min(WARP, last.items) * size)
            - 1,
        ),
    )


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


class _Tile(NamedTuple):
    """Counts of a tile, which do not depend on the array, so that they can be cached."""

    passes: tuple[_Pass, ...]
    factors: tuple[int, ...]
    factor_bytes: int
    buffer_bytes: int
    warp_multiply_adds: int
    warp_factors: int


@lru_cache(maxsize=4096)
def _tile(
    inputs: tuple[int, ...],
    outputs: tuple[int, ...],
    slices: int,
    columns: int,
    itemsize: int,
    held: int,
    cached: bool,
) -> _Tile:
    planner = tile_planner(inputs, outputs, slices, columns, itemsize, held, cached)
    pads = planner.unpadded()
    passes = tuple(map(_counted, planner.passes(pads)))
    factors = tuple(
        staged_elements((C,), (K,), itemsize) for C, K in zip(inputs, outputs, strict=True)
    )
    return _Tile(
        passes,
        factors,
        sum(factors) * itemsize,
        planner.shared_bytes(pads, constant=True),
        sum(one.warps * one.multiply_adds for one in passes),
        sum(one.warps * one.factor_elements for one in passes),
    )


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
