"""The estimated time of a Kron-Matmul's kernel that works in registers.

    time = launch + factors + slowest(one tile's latency x rounds, a multiprocessor's work, memory)

Pure arithmetic on sizes, without any device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

from batchkron.backends.cuda.costs import costs_for
from batchkron.backends.cuda.estimates import (
    LINE,
    NANOSECOND,
    SECTOR,
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
    TilePlanner,
    staged_elements,
)
from batchkron.backends.cuda.kron.registers.tile import (
    RegisterVariant,
    is_in_cache,
    may_be_constant,
)
from batchkron.backends.cuda.runtime.hardware import WARP, DeviceLimits, resident_blocks
from batchkron.backends.cuda.steps import ModeRun


@dataclass(frozen=True, slots=True)
class RegisterCosts:
    """Times of what these kernels do, in nanoseconds; a word has four bytes.

    Attributes
    ----------
    launch : float
        ns of a kernel in a graph that does nothing.
    factor : float
        ns until one factor has come to shared memory.
    factor_turn : float
        ns of each turn of a thread that copies a factor there.
    constant_line : float
        ns until 128 bytes of factors that are constants of the kernel have come.
    turn : float
        ns of a thread's turn to other elements in a pass: waiting for memory, barrier.
    multiply_add : float
        ns of a multiply-add, where a thread waits for the one before.
    tile : float
        ns of a multiprocessor for a tile.
    warp_multiply_add : float
        ns of a multiprocessor for a warp's multiply-add, by words of an element.
    warp_factor : float
        ns of a multiprocessor for a word of a factor that a warp reads in shared memory.
    line : float
        ns of a multiprocessor for each line of 128 bytes that a warp touches in the array.
    memory_latency : float
        ns until the first data have come from memory, where no cache has them.
    memory_rate, cache_rate : float
        Bytes a nanosecond of memory, and of the second-level cache.
    cache_bytes : float
        Bytes read and written of which half come from the cache.
    scattered : float
        Of the time of moving data, how much more for each sector more than needed that a warp
        writes.
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
    """What a kernel does.

    Attributes
    ----------
    rounds : number
        Tiles one after another of a thread block.
    tiles : number
        Of a multiprocessor.
    factors, factor_turns : number
        Copied to shared memory; turns of a thread that copies them.
    constant_lines : number
        Of 128 bytes, of factors that are constants.
    turns, multiply_adds : number
        Of a thread for a tile, one after another.
    warp_multiply_adds, warp_factors, lines : number
        Of all warps for a tile.
    moved : number
        Bytes of the array that are read and written.
    scattered : number
        Sectors that a warp writes for each one that it fills, less one.
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
    """Return the estimated seconds of a kernel, or of many."""
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
    """Return what a variant's kernel does."""
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
    """A pass: items of a tile, and of each its elements before and after, multiply-adds."""

    items: int
    inputs: int
    outputs: int
    multiply_adds: int
    factor_elements: int
    threads: tuple[ThreadAxis, ...]

    @property
    def warps(self) -> int:
        """Warps, or turns of them, that the items are."""
        return warps_of(self.items)


class _Tile(NamedTuple):
    """What does not depend on the array: passes, shared memory, elements of each factor."""

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
    planner = TilePlanner(0, inputs, outputs, slices, columns, itemsize, held, cached)
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
    """Return the pieces of so many bytes in which a warp's elements of the array lie."""
    places = [0]
    for axis in axes:
        stride = (axis.from_ if reads else axis.to) * (1 if axis.bound == 2 else R)
        count = min(axis.size, WARP // len(places))
        if count > 1:
            places = [n * stride + place for n in range(count) for place in places]
        if count < axis.size:
            break
    return len({place * itemsize // piece for place in places})
