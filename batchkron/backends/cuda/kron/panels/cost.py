"""The estimated time of a kernel for one factor in panels.

    time = launch + slowest(a tile's latency x rounds, a multiprocessor's work, memory)

where rounds is the number of tiles that a thread block computes one after another. Pure arithmetic
on sizes, no device needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from batchkron.backends.cuda.costs import costs_for
from batchkron.backends.cuda.estimates import (
    NANOSECOND,
    Count,
    ceil_div,
    moving,
    share_of_memory,
    slowest,
)
from batchkron.backends.cuda.kron.panels.tile import PanelTile
from batchkron.backends.cuda.runtime.hardware import SECTOR, WARP, DeviceLimits
from batchkron.backends.cuda.steps import ModeRun

# Multiply-adds counted for one in this dtype, in units of one in float32.
_MULTIPLY_ADDS = {"float32": 1, "complex64": 4, "complex128": 8}


@dataclass(frozen=True, slots=True)
class PanelCosts:
    """Constants of the estimated time, in nanoseconds; rates in bytes per nanosecond.

    Matrix units do multiply-adds of 8 x 8 x 4 in double precision. A complex multiply-add counts as
    four real ones, in double precision each of them as two.

    Attributes
    ----------
    launch : float
        A kernel launch in a CUDA graph.
    multiply_add : float
        Latency of a multiply-add in single precision.
    unit : float
        Latency of a multiply-add of matrix units.
    tile : float
        Time of a multiprocessor for each tile.
    warp_multiply_add : float
        Time of a multiprocessor for each multiply-add of a warp in single precision.
    factor_word : float
        Time of a multiprocessor for each 16-byte copy of the factor to shared memory.
    result_word : float
        Time of a multiprocessor for each 16-byte store of results.
    complex : float
        Factor of the time of multiply-adds with complex numbers.
    memory_latency : float
        Latency of memory, for data that is in no cache.
    memory_rate, cache_rate : float
        Bandwidths of memory and of the second-level cache.
    cache_bytes : float
        If this many bytes are read and written, half of them are found in the cache.
    unaligned : float
        Transfers take 1 + unaligned * ``cut`` times as long, see `PanelWork`.
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
    """Counts of what a kernel does, for `PanelCosts`.

    Attributes
    ----------
    rounds : number
        Tiles that a thread block computes one after another.
    tiles : number
        Tiles of a multiprocessor.
    warps : number
        Warps of a thread block.
    multiply_adds : number
        Multiply-adds of warps for a tile, all warps together, not on matrix units.
    units : number
        Multiply-adds of matrix units for a tile.
    factor_words, result_words : number
        16-byte words of the factor and of the results of a tile; 0 if single elements are copied.
    is_complex : number
        1 with complex numbers, otherwise 0.
    moved : number
        Bytes of the array that are read and written.
    cut : number
        One sector over the length of a row of fibres, 0 if rows are aligned to sectors.
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
    """Return the estimated seconds of one kernel, or of many at once."""
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
    """Return the counts of a kernel with this tile."""
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
    """Return the number of words of ``pack`` elements, 0 if rows are not whole words."""
    return 0 if row % pack else elements / pack
