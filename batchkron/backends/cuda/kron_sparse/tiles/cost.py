"""The estimated time of a Kronecker-sparse product by panels.

    time = launch + slowest(a thread block's latency x rounds, a multiprocessor's work,
                            second-level cache, memory)

where rounds is the number of tiles that a place for a thread block computes one after another. Pure
arithmetic on sizes, no device needed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from batchkron.backends.cuda.costs import costs_for
from batchkron.backends.cuda.estimates import NANOSECOND, Count, ceil_div, slowest
from batchkron.backends.cuda.kron_sparse.kernel import (
    HALF_DTYPES,
    WORD,
    SparseShape,
    common_pack,
)
from batchkron.backends.cuda.kron_sparse.tiles.tile import SparseCut, operands
from batchkron.backends.cuda.runtime.hardware import LINE, SECTOR, WARP, DeviceLimits

_ACCESS = 2 * SECTOR  # bytes that memory transfers at once
_SCHEDULERS = 4  # of a multiprocessor
# Chosen by hand: how much longer multiprocessors are busy in kGroup, on ordinary cores and with
# matrix units, and again where several tiles read the same vectors and write at least as much; the
# warps below which they often wait there; how much longer ordinary cores take where a tile's
# columns are vectors that do not lie together, and fragments of matrix units where a word has many
# neighbouring j.
_GROUP = {"core": 1.1, "units": 1.25}
_GROUP_AGAIN = {"core": 1.0, "half": 1.15, "tf32": 1.15, "float64": 1.35}
_GROUP_WARPS = 8
_COLUMNS_APART = 1.2
_FRAGMENTS_OF_MANY = 1.75
_MANY = 8  # neighbouring j of a word


@dataclass(frozen=True, slots=True)
class TileCosts:
    """Constants of the estimated time, in nanoseconds; rates of the device in bytes per nanosecond.

    Attributes
    ----------
    launch : float
        A kernel launch in a CUDA graph.
    half, tf32, float64, core : float
        Multiply-adds of a multiprocessor in a nanosecond: on matrix units with numbers of 16 bits,
        in TF32 and in float64, and on ordinary cores.
    fragment : float
        Time of a multiprocessor for each word of 4 bytes that a warp reads from shared memory.
    copy : float
        Time of a multiprocessor for each copy of a warp to shared memory, and for each word of it.
    line : float
        Time of a multiprocessor for each cache line that a copy or store of a warp reaches.
    result : float
        Time of a multiprocessor for each store of a warp to y.
    panel : float
        Latency of a panel: the barrier, and waiting for its copies.
    tile : float
        Latency of a tile: finding it, and its results.
    memory_rate, cache_rate : float
        Bandwidths of memory and of the second-level cache.
    sharpness : float
        See `slowest`.
    """

    launch: float
    half: float
    tf32: float
    float64: float
    core: float
    fragment: float
    copy: float
    line: float
    result: float
    panel: float
    tile: float
    memory_rate: float
    cache_rate: float
    sharpness: float


class TileWork(NamedTuple):
    """Counts of what a kernel does, for `TileCosts`.

    Attributes
    ----------
    rounds : number
        Tiles that a place for a thread block computes one after another.
    tiles : number
        Tiles of a multiprocessor; more where it has few warps.
    panels : number
        Panels of a tile.
    half, tf32, float64, core : number
        Multiply-adds of a tile by what does them.
    fragments : number
        Words that the warps of a tile read from shared memory.
    copies : number
        Copies of a tile's warps, and their words of 4 bytes.
    lines : number
        Cache lines that these copies and stores reach, each by itself.
    results : number
        Stores of the warps of a tile.
    cached : number
        Bytes between multiprocessors and the second-level cache.
    moved : number
        Bytes of x, y and the values.
    """

    rounds: Count
    tiles: Count
    panels: Count
    half: Count
    tf32: Count
    float64: Count
    core: Count
    fragments: Count
    copies: Count
    lines: Count
    results: Count
    cached: Count
    moved: Count


@cache
def _costs(device: str) -> TileCosts:
    return TileCosts(**costs_for(device).families["kron_sparse"]["tiles"])


def tile_seconds(shape: SparseShape, cut: SparseCut, device: DeviceLimits) -> float:
    """Return the estimated seconds of a kernel with this cut."""
    return float(seconds(tile_work(shape, cut, device), _costs(device.name)))


def seconds(work: TileWork, costs: TileCosts) -> Count:
    """Return the estimated seconds of one kernel, or of many at once."""
    units = work.half / costs.half + work.tf32 / costs.tf32 + work.float64 / costs.float64
    units = units + work.core / costs.core
    shared = costs.fragment * work.fragments + costs.copy * work.copies
    shared = shared + costs.line * work.lines + costs.result * work.results
    busy = work.tiles * slowest(costs.sharpness, units, shared)
    latency = work.rounds * (costs.tile + costs.panel * work.panels)
    total = costs.launch + slowest(
        costs.sharpness,
        latency,
        busy,
        work.cached / costs.cache_rate,
        work.moved / costs.memory_rate,
    )
    return total * NANOSECOND


def tile_work(shape: SparseShape, cut: SparseCut, device: DeviceLimits) -> TileWork:
    """Return the counts of a kernel with this cut."""
    size, layout = shape.itemsize, cut.layout
    columns, down, matrices = cut.tile_counts(shape)
    tiles = columns * down * matrices
    of_each = ceil_div(tiles, device.multiprocessors)
    rounds = ceil_div(of_each, cut.blocks)
    with_values = tiles
    if cut.kept:
        together = cut.together(shape, cut.blocks * device.multiprocessors)
        with_values = ceil_div(columns, together) * down * matrices
        of_each = ceil_div(with_values, device.multiprocessors) * together
        rounds = ceil_div(with_values, device.multiprocessors * cut.blocks) * together
    panels = ceil_div(shape.c, cut.depth)
    entries = panels * cut.depth
    outputs = cut.group * cut.results * cut.columns
    adds: dict[str, Count] = dict.fromkeys(("half", "tf32", "float64", "core"), 0.0)
    adds[_unit(cut)] = outputs * entries * max(1, cut.products)
    adds["core"] *= 1 if layout == "kRows" else _COLUMNS_APART
    # with fewer warps than a multiprocessor has schedulers, some wait
    warps = cut.blocks * cut.threads / WARP
    adds[_unit(cut)] *= max(1.0, _SCHEDULERS / warps)
    busy = 1.0
    if layout == "kGroup":
        busy = _GROUP["core" if _unit(cut) == "core" else "units"] * max(1.0, _GROUP_WARPS / warps)
        if down > 1 and (shape.b > shape.c or (shape.b == shape.c and shape.d == cut.group)):
            busy *= _GROUP_AGAIN[_unit(cut)]
    part = cut.results // cut.warps_down, cut.columns // cut.warps_across
    reads = operands(layout, cut.dtype, cut.products, *part) * size / 4 * entries
    reads *= cut.group * cut.warps_down * cut.warps_across
    if _unit(cut) == "core":
        reads *= (1 + 1 / cut.atom) / 2  # entries of all j of an atom are read once
    elif cut.atom >= _MANY:
        reads *= _FRAGMENTS_OF_MANY
    # each copy of a warp takes the shared memory some time, and more for each word of 4 bytes
    x_copies = cut.columns / cut.pack * (1 + max(1, cut.pack * size / 4))
    value_copies = cut.results * size / WORD * (1 + WORD / 4) * with_values / tiles
    copies = entries * cut.group * (x_copies + value_copies) / WARP
    group = layout == "kGroup"
    written = outputs / WARP / _stored_together(shape, cut)
    # times that what lies between neighbours is moved with them: by a thread block that reads, and
    # by a warp that writes
    apart = group and shape.d != cut.group
    reads_more = max(1, _ACCESS // (cut.group * size)) if apart else 1
    x_bytes = columns * down * matrices * cut.columns * cut.group * shape.c * size * reads_more
    value_bytes = with_values * cut.group * cut.results * shape.c * size
    apart = group and shape.d != cut.atom
    writes_more = max(1, SECTOR // (cut.atom * size)) if apart else 1
    y_bytes = shape.columns * shape.a * shape.b * shape.d * size * writes_more
    return TileWork(
        rounds,
        of_each * busy,
        panels,
        adds["half"],
        adds["tf32"],
        adds["float64"],
        adds["core"],
        reads,
        copies,
        _lines(shape, cut),
        written,
        x_bytes + value_bytes + y_bytes,
        shape.bytes + _completed(shape, cut),
    )


def _completed(shape: SparseShape, cut: SparseCut) -> float:
    """Return the bytes that memory moves because sectors of y are written in parts.

    For each part the second-level cache often reads what lies around it, and writes all of it.
    """
    piece, row = cut.group * shape.itemsize, shape.d * shape.itemsize
    if cut.layout != "kGroup" or piece >= row:
        return 0.0
    step = math.gcd(piece, row, SECTOR)  # pieces begin at all its multiples equally often
    edges = SECTOR // step - 1  # in so many pieces and one, those that do not begin with a sector
    parts = edges + min(edges, piece // step)  # one more than edges in each of their sectors
    return 2.0 * _ACCESS * parts / (piece * (edges + 1)) * shape.columns * shape.a * shape.b * row


def _lines(shape: SparseShape, cut: SparseCut) -> float:
    """Return the cache lines that copies of x and stores of y by the warps of a tile reach."""
    size, panels = shape.itemsize, ceil_div(shape.c, cut.depth)
    if cut.layout == "kRows":
        of_row = cut.columns * size / LINE
        return of_row * (panels * cut.depth + cut.results)
    each = shape.d * size / LINE  # lines from one entry of a vector to the next
    turns = max(1.0, cut.atom / cut.pack)  # copies that reach the same lines
    x_lines = panels * turns * min(cut.depth, max(1.0, cut.depth * each))
    y_lines = cut.group * cut.results / _stored_together(shape, cut) * min(1.0, each)
    return cut.columns * (x_lines + y_lines)


def _stored_together(shape: SparseShape, cut: SparseCut) -> int:
    """Return how many neighbours in y a thread writes together."""
    if cut.layout != "kGroup":
        return 2
    return common_pack(min(shape.pack, cut.atom), shape.d)


def _unit(cut: SparseCut) -> str:
    """Return what does the multiply-adds."""
    if cut.dtype in HALF_DTYPES:
        return "half"
    if cut.dtype == "float64":
        return "float64"
    return "tf32" if cut.products else "core"
