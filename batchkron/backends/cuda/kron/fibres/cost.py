"""The estimated time of a kernel that multiplies fibres in shared memory.

    time = launch + factors + slowest(a team's tiles, a multiprocessor's work, memory)

where a team computes its tiles one after another. Pure arithmetic on sizes, no device needed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from batchkron.backends.cuda.costs import costs_for
from batchkron.backends.cuda.estimates import (
    NANOSECOND,
    Count,
    ceil_div,
    moving,
    share_of_memory,
    slowest,
)
from batchkron.backends.cuda.kron.fibres.cuts import LANES, Cut, Fragment, Shape, adds_without_carry
from batchkron.backends.cuda.runtime.hardware import SECTOR, WARP, DeviceLimits

_NARROW_BYTES = 64  # memory is slower if the rows of a tile have fewer contiguous bytes


@dataclass(frozen=True, slots=True)
class FibreCosts:
    """Constants of the estimated time, in nanoseconds; rates in bytes per nanosecond.

    Matrix units do multiply-adds of 16 x 8 x 4 in double precision, of 16 x 8 x 8 in TF32.

    Attributes
    ----------
    launch : float
        A kernel launch in a CUDA graph, until the kernel loads its factors.
    factor_kilobyte : float
        Loading 1024 bytes of factors.
    factor_word : float
        Each 16-byte word of factors that a thread copies to shared memory.
    multiply_add : float
        Latency of a multiply-add in single precision.
    store : float
        Latency of a result of a thread in single precision.
    step : float
        Latency between two multiply-adds to the same sum.
    unit_store : float
        Latency of four results of a thread in double precision.
    tf32_load : float
        Latency of a word that a thread reads for TF32 multiply-adds.
    place : float
        Latency of an integer division, to find where a fibre begins.
    warp_multiply_add : float
        Time of a multiprocessor for each multiply-add of a warp in single precision.
    warp_unit, warp_tf32_unit : float
        Time of a multiprocessor for each multiply-add of matrix units, in double precision and in
        TF32.
    warp_convert : float
        Time of a multiprocessor for each word of float32 that a warp converts to float64.
    warp_item : float
        Time of a multiprocessor for each iteration of a warp over groups of fibres.
    thread_copy : float
        Time of a multiprocessor for each element or word that a thread copies from or to the array.
    memory_latency : float
        Latency of memory, for data that is in no cache.
    memory_rate, cache_rate : float
        Bandwidths of memory and of the second-level cache.
    cache_bytes : float
        If this many bytes are read and written, half of them are found in the cache.
    narrow, unaligned : float
        Transfers take 1 + narrow * ``short`` + unaligned * ``cut`` times as long, see `FibreWork`.
    sharpness : float
        See `slowest`.
    """

    launch: float
    factor_kilobyte: float
    factor_word: float
    multiply_add: float
    store: float
    step: float
    unit_store: float
    tf32_load: float
    place: float
    warp_multiply_add: float
    warp_unit: float
    warp_tf32_unit: float
    warp_convert: float
    warp_item: float
    thread_copy: float
    memory_latency: float
    memory_rate: float
    cache_rate: float
    cache_bytes: float
    narrow: float
    unaligned: float
    sharpness: float


class PassWork(NamedTuple):
    """Counts of what a warp does for a tile, in one pass or in all.

    Attributes
    ----------
    multiply_adds, stores : number
        Multiply-adds and results of a thread in single precision.
    steps : number
        Multiply-adds to the same sum, one after another.
    units, unit_stores : number
        Multiply-adds of matrix units in double precision; a thread's stores of four results.
    converts : number
        Words of float32 that a thread converts to float64.
    tf32_units, tf32_loads : number
        Multiply-adds of matrix units in TF32; words that a thread reads for them.
    items : number
        Iterations over groups of fibres.
    places : number
        Integer divisions to find where fibres begin.
    """

    multiply_adds: Count = 0
    stores: Count = 0
    steps: Count = 0
    units: Count = 0
    unit_stores: Count = 0
    converts: Count = 0
    tf32_units: Count = 0
    tf32_loads: Count = 0
    items: Count = 0
    places: Count = 0


class FibreWork(NamedTuple):
    """Counts of what a kernel does, for `FibreCosts`.

    Attributes
    ----------
    warp : PassWork
        Counts of a warp for a tile.
    warps : number
        Warps of a team.
    rounds : number
        Tiles of a multiprocessor.
    turns : number
        Tiles that a team computes one after another.
    overlapped : number
        1 if a team loads a tile while it multiplies another, otherwise 0.
    uneven : number
        Warps of the busiest of a multiprocessor's four schedulers, over the mean of all four.
    copies : number
        Elements or words of a tile that are copied from and to the array.
    tile_bytes, moved : number
        Bytes of a tile, and of the whole array, that are read and written.
    short : number
        64 bytes / (bytes of a row of the tile) - 1 if rows are shorter, else 0.
    cut : number
        One sector over the length of a row of the tile, 0 if rows are aligned to sectors.
    factor_bytes, staged_words : number
        Bytes of the factors; 16-byte words of them that each thread copies.
    multiprocessors : number
        Multiprocessors of the device.
    """

    warp: PassWork
    warps: Count
    rounds: Count
    turns: Count
    overlapped: Count
    uneven: Count
    copies: Count
    tile_bytes: Count
    moved: Count
    short: Count
    cut: Count
    factor_bytes: Count
    staged_words: Count
    multiprocessors: Count


@cache
def _costs(device: str) -> FibreCosts:
    return FibreCosts(**costs_for(device).families["kron"]["fibres"])


def fibre_seconds(shape: Shape, cut: Cut, device: DeviceLimits) -> float:
    """Return the estimated seconds of the kernel of a cut."""
    return float(seconds(fibre_work(shape, cut, device), _costs(device.name)))


def seconds(work: FibreWork, costs: FibreCosts) -> Count:
    """Return the estimated seconds of one kernel, or of many at once."""
    one = work.warp
    multiplying = (
        costs.multiply_add * one.multiply_adds
        + costs.store * one.stores
        + costs.step * one.steps
        + costs.unit_store * one.unit_stores
        + costs.tf32_load * one.tf32_loads
        + costs.place * one.places
    )
    busy = work.warps * (
        costs.warp_multiply_add * one.multiply_adds
        + costs.warp_unit * one.units
        + costs.warp_tf32_unit * one.tf32_units
        + costs.warp_convert * one.converts
        + costs.warp_item * one.items
    )
    busy = (busy + costs.thread_copy * work.copies) * work.uneven
    share = share_of_memory(work.moved, costs.cache_bytes)
    narrow = 1 + costs.narrow * work.short + costs.unaligned * work.cut
    memory = narrow * moving(work.moved, share, costs.memory_rate, costs.cache_rate)
    loading = costs.memory_latency * share
    loading = loading + narrow * work.tile_bytes * work.multiprocessors / costs.cache_rate
    in_turn = multiplying + loading
    at_once = slowest(costs.sharpness, multiplying, loading)
    alone = work.overlapped * at_once + (1 - work.overlapped) * in_turn
    begin = (
        costs.launch
        + costs.factor_kilobyte * work.factor_bytes / 1024
        + costs.factor_word * work.staged_words
    )
    total = begin + slowest(costs.sharpness, work.turns * alone, work.rounds * busy, memory)
    return total * NANOSECOND


def fibre_work(shape: Shape, cut: Cut, limits: DeviceLimits) -> FibreWork:
    """Return the counts of the kernel of a cut."""
    size = shape.itemsize
    tiles = ceil_div(shape.L, cut.slices) * ceil_div(shape.R, cut.columns)
    rounds = ceil_div(tiles, limits.multiprocessors)
    turns = ceil_div(rounds, cut.teams)
    working = min(cut.teams, rounds) * cut.warps
    moved = math.prod(shape.inputs) + math.prod(shape.outputs)
    elements = cut.slices * cut.columns * moved
    word = shape.word(cut.columns)
    in_words = cut.columns == 1 or shape.R % word == 0
    width = cut.columns * size
    whole = cut.columns == shape.R
    staged = sum(one.staged for one in cut.fragments) * size
    return FibreWork(
        _all_passes(shape, cut),
        cut.warps,
        rounds,
        turns,
        int(cut.stages > 1 and turns > 1),
        ceil_div(working, 4) * 4 / working,
        elements / word if in_words else elements,
        elements * size,
        shape.L * shape.R * moved * size,
        0 if whole else max(0.0, _NARROW_BYTES / width - 1),
        0 if whole or shape.R * size % SECTOR == 0 else SECTOR / width,
        sum(C * K for C, K in zip(shape.inputs, shape.outputs, strict=True)) * size,
        staged / (16 * cut.teams * cut.warps * WARP),
        limits.multiprocessors,
    )


def _all_passes(shape: Shape, cut: Cut) -> PassWork:
    counts = [0.0] * len(PassWork._fields)
    for (mode, sizes), fragment in zip(shape.steps(), cut.fragments, strict=True):
        C, K = shape.inputs[mode], shape.outputs[mode]
        fibres = cut.slices * math.prod(sizes) // C * cut.columns
        if fragment.products:
            one = _tf32(C, K, fibres, cut.warps, fragment)
        elif fragment.split:
            one = _split(C, K, fibres, cut.warps, fragment, shape.itemsize == 4)
        elif shape.itemsize == 8:
            axes = [size for m, size in enumerate(sizes) if m != mode and size > 1]
            one = _double(C, K, fibres, cut.warps, fragment, axes[::-1])
        else:
            one = _single(C, K, fibres, cut.warps, fragment)
        counts = [sum(pair) for pair in zip(counts, one, strict=True)]
    return PassWork(*counts)


def _single(C: int, K: int, fibres: int, warps: int, one: Fragment) -> PassWork:
    lanes = next(lanes for lanes in LANES if lanes * one.columns >= K)
    items = ceil_div(ceil_div(fibres, WARP // lanes * one.rows), warps)
    sums = one.rows * one.columns
    return PassWork(
        multiply_adds=items * C * sums,
        stores=items * sums,
        steps=items * C,
        items=items,
    )


def _double(C: int, K: int, fibres: int, warps: int, one: Fragment, axes: list[int]) -> PassWork:
    steps, tiles = ceil_div(C, 4), ceil_div(K, 8)
    items = ceil_div(ceil_div(fibres, 8 * one.rows), warps)
    return PassWork(
        steps=items * tiles * steps / one.columns,
        units=items * tiles * steps * (one.rows // 2),
        unit_stores=items * tiles * one.rows,
        items=items,
        places=0 if adds_without_carry(axes, 8 * one.rows) else items * one.rows * (len(axes) - 1),
    )


def _split(C: int, K: int, fibres: int, warps: int, one: Fragment, converts: bool) -> PassWork:
    steps, mine = ceil_div(C, 4), ceil_div(ceil_div(K, 8), warps)
    items = ceil_div(fibres, 8 * one.rows)
    return PassWork(
        steps=items * steps,
        units=items * steps * max(one.rows // 2 * mine, 1),
        unit_stores=items * one.rows * mine,
        converts=items * steps * one.rows if converts else 0,
        items=items,
    )


def _tf32(C: int, K: int, fibres: int, warps: int, one: Fragment) -> PassWork:
    steps, tiles = ceil_div(C, 8), ceil_div(ceil_div(K, 8), one.split)
    items = ceil_div(ceil_div(fibres, 16 * one.rows), warps // one.split)
    return PassWork(
        tf32_units=items * steps * one.products * one.rows * tiles,
        tf32_loads=items * steps * (4 * one.rows + 2 * tiles),
        items=items,
    )
