"""The estimated time of a kernel of one large factor, cut in panels.

    time = launch + slowest(a tile's latency x rounds, a multiprocessor's work, memory)

Pure arithmetic on sizes, without any device.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from batchkron.backends.cuda.costs import costs_for
from batchkron.backends.cuda.estimates import (
    NANOSECOND,
    SECTOR,
    Count,
    ceil_div,
    moving,
    share_of_memory,
    slowest,
)
from batchkron.backends.cuda.kron.panels.tile import PanelTile
from batchkron.backends.cuda.runtime.hardware import WARP, DeviceLimits
from batchkron.backends.cuda.steps import ModeRun

_MULTIPLY_ADDS = {"float32": 1, "complex64": 4, "complex128": 8}  # of single precision


@dataclass(frozen=True, slots=True)
class PanelCosts:
    """Times of what these kernels do, in nanoseconds; rates in bytes a nanosecond.

    A multiply-add of units is one of 8 x 8 x 4 in double precision. One of complex numbers is four
    of real ones, in double precision each is two.

    Attributes
    ----------
    launch : float
        ns of a kernel in a graph.
    multiply_add : float
        ns of a multiply-add in single precision, where a warp waits for the one before.
    unit : float
        ns of a multiply-add of units, where a warp waits.
    tile : float
        ns of a multiprocessor for a tile.
    warp_multiply_add : float
        ns of a multiprocessor for a warp's multiply-add in single precision.
    factor_word : float
        ns of a multiprocessor for 16 bytes of the factor that come to shared memory at once.
    result_word : float
        ns of a multiprocessor for 16 bytes of results that are written at once.
    complex : float
        Of the time of multiply-adds, what is left with complex numbers.
    memory_latency : float
        ns until data have come from memory, where no cache has them.
    memory_rate, cache_rate : float
        Of memory, and of the second-level cache.
    cache_bytes : float
        Bytes read and written of which half come from the cache.
    unaligned : float
        Of the time of moving data, how much more for each sector of a row of fibres that does not
        begin with one.
    sharpness : float
        See `slowest`.
    """

    launch: float
    multiply_add: float
    unit: float
    tile: float
    warp_multiply_add: float
    factor_word: float
    result_word: float
    complex: float
    memory_latency: float
    memory_rate: float
    cache_rate: float
    cache_bytes: float
    unaligned: float
    sharpness: float


class PanelWork(NamedTuple):
    """What a kernel does.

    Attributes
    ----------
    rounds : number
        Tiles one after another of a thread block.
    tiles : number
        Of a multiprocessor.
    warps : number
        Of a thread block.
    multiply_adds : number
        Of all warps for a tile in single precision: of a thread.
    units : number
        Of all warps for a tile in double precision.
    factor_words, result_words : number
        Of 16 bytes, of a tile; 0 where elements are copied one by one.
    is_complex : number
        1 with complex numbers, otherwise 0.
    moved : number
        Bytes of the array that are read and written.
    cut : number
        Sectors of a row of fibres, where it does not begin with one.
    """

    rounds: Count
    tiles: Count
    warps: Count
    multiply_adds: Count
    units: Count
    factor_words: Count
    result_words: Count
    is_complex: Count
    moved: Count
    cut: Count


@cache
def _costs(device: str) -> PanelCosts:
    return PanelCosts(**costs_for(device).families["kron"]["panels"])


def panel_seconds(run: ModeRun, tile: PanelTile, device: DeviceLimits) -> float:
    """Return the estimated seconds of a kernel with this tile."""
    return float(seconds(panel_work(run, tile, device), _costs(device.name)))


def seconds(work: PanelWork, costs: PanelCosts) -> Count:
    """Return the estimated seconds of a kernel, or of many."""
    share = share_of_memory(work.moved, costs.cache_bytes)
    less = work.is_complex * costs.complex + 1 - work.is_complex
    latency = (
        costs.memory_latency * share
        + (less * costs.multiply_add * work.multiply_adds + costs.unit * work.units) / work.warps
    )
    busy = (
        costs.tile
        + less * costs.warp_multiply_add * work.multiply_adds
        + costs.factor_word * work.factor_words
        + costs.result_word * work.result_words
    )
    memory = moving(work.moved, share, costs.memory_rate, costs.cache_rate)
    memory = memory * (1 + costs.unaligned * work.cut)
    total = costs.launch + slowest(
        costs.sharpness, work.rounds * latency, work.tiles * busy, memory
    )
    return total * NANOSECOND


def panel_work(part: ModeRun, tile: PanelTile, limits: DeviceLimits) -> PanelWork:
    """Return what a group's kernel with this tile does."""
    cut, size, C, K = tile.cut, part.itemsize, tile.C, tile.K
    tiles = ceil_div(part.L * part.R, cut.fibres) * ceil_div(K, cut.results)
    of_each = ceil_div(tiles, limits.multiprocessors)
    entries = ceil_div(C, cut.depth) * cut.depth
    warps = cut.threads // WARP
    pack = 16 // size
    multiply_adds = units = 0.0
    if tile.dtype == np.float64:
        units = warps * entries / 4 * ceil_div(cut.rows, 8) * ceil_div(cut.columns, 8)
    else:
        products = _MULTIPLY_ADDS[tile.dtype.name]
        multiply_adds = warps * entries * products * cut.rows * cut.columns
    together = 1 if tile.along else min(part.R, cut.fibres)
    aligned = tile.along or part.R * size % SECTOR == 0
    return PanelWork(
        ceil_div(of_each, cut.blocks),
        of_each,
        warps,
        multiply_adds,
        units,
        _words(entries * cut.results, C, pack),
        _words(cut.fibres * min(K, cut.results), K if tile.along else part.R, pack),
        int(tile.dtype.kind == "c"),
        part.L * part.R * (C + K) * size,
        0 if aligned else SECTOR / (together * size),
    )


def _words(elements: int, row: int, pack: int) -> float:
    """Return how many words of ``pack`` elements there are, 0 where rows are not whole words."""
    return 0 if row % pack else elements / pack
