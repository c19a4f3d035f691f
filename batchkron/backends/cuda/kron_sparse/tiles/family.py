"""The family of kernels that multiply by panels, ``csrc/cuda/kron_sparse/tiles.cuh``.

    time = launch + slowest(a thread block's latency x rounds, a multiprocessor's work,
                            second-level cache, memory)

where rounds is the number of tiles that a place for a thread block computes one after another.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

from batchkron.backends.cuda.estimates import NANOSECOND, Count, ceil_div, slowest
from batchkron.backends.cuda.kernel import LaunchShape
from batchkron.backends.cuda.kron_sparse.kernel import (
    HALF_DTYPES,
    WORD,
    SparseFamily,
    SparseLaunch,
    SparseShape,
    common_pack,
)
from batchkron.backends.cuda.kron_sparse.tiles.tile import (
    SparseCut,
    TileVariant,
    operands,
    sparse_cut,
    tile_variants,
)
from batchkron.backends.cuda.runtime.hardware import LINE, SECTOR, WARP, DeviceLimits
from batchkron.backends.cuda.runtime.program import template_type

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
_LANES_DOWN = 8  # of a warp on ordinary cores, along rows k in kAlong
_HALF_SLOWER = 1.25  # time that kernels of 16 bits take by these counts; of 200 on an H200
_KEPT_FLOAT64 = 1.05  # the same of kernels in float64 that keep values, in kRows
_MANY = 8  # neighbouring j of a word


class Tiles(SparseFamily):
    """Kernels that multiply by panels, on matrix units in all real dtypes but float32."""

    name = "tiles"
    stored = "blocks"
    numbers = TileVariant._fields
    variant_type = TileVariant._make

    def variants(self, shape: SparseShape, device: DeviceLimits) -> list[TileVariant]:
        """Return the tiles that fit in shared memory and are not far too large."""
        return tile_variants(shape, device)

    def tile(
        self, shape: SparseShape, variant: TileVariant, device: DeviceLimits
    ) -> SparseCut | None:
        """Return what a variant is compiled for, None if it does not fit."""
        return sparse_cut(shape, variant, device)

    def counts(self, shape: SparseShape, tile: SparseCut, device: DeviceLimits) -> SimpleNamespace:
        """Count what a kernel does."""
        return _work(shape, tile, device)

    def seconds(self, work: Any, costs: Any) -> Count:
        """Return the estimated seconds of one kernel, or of many at once.

        ``costs.half``, ``tf32``, ``float64`` and ``core`` are multiply-adds of a multiprocessor in
        a nanosecond. Its times are those for a word of 4 bytes that a warp reads from shared memory
        (``fragment``), for a copy of a warp to shared memory and for each word of it (``copy``),
        for a cache line that a copy or store of a warp reaches (``line``), and for a store to y
        (``result``). ``panel`` is the latency of a panel, the barrier and waiting for copies, and
        ``tile`` that of finding a tile, and of its results.
        """
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
        return total * work.slower * NANOSECOND

    def launch(self, shape: SparseShape, tile: SparseCut, device: DeviceLimits) -> SparseLaunch:
        """Return template arguments, launch of a block for each place, tiles, those together."""
        columns, down, matrices = tile.tile_counts(shape)
        places = tile.blocks * device.multiprocessors
        together = tile.together(shape, places)
        tiles = ceil_div(columns, together) * together * down * matrices
        blocks = min(tiles // together if tile.kept else tiles, places)
        sizes = tile.group, tile.atom, tile.results, tile.columns, tile.depth
        warps = tile.warps_down, tile.warps_across
        others = tile.stages, tile.blocks, tile.pack, tile.products, tile.kept
        layout = f"batchkron::Layout::{tile.layout}"
        cut = template_type("SparseCut", layout, *sizes, *warps, *others)
        launch = LaunchShape(blocks, tile.threads, tile.blocks, tile.shared_bytes)
        return (cut,), launch, (tiles, together)


def _work(shape: SparseShape, cut: SparseCut, device: DeviceLimits) -> SimpleNamespace:
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
    slower = 1 + 1 / cut.pack if group else _HALF_SLOWER
    if size > 2:
        slower = _KEPT_FLOAT64 if cut.kept and layout == "kRows" and size == 8 else 1.0
    return SimpleNamespace(
        # tiles that a place computes one after another, and those of a multiprocessor, which are
        # counted as more where it has few warps
        rounds=rounds,
        tiles=of_each * busy,
        # of a tile: panels, multiply-adds by what does them, words that its warps read from shared
        # memory, copies with their words of 4 bytes, cache lines that copies and stores reach, and
        # stores
        panels=panels,
        **adds,
        fragments=reads,
        copies=copies,
        lines=_lines(shape, cut),
        results=written,
        # bytes: of the second-level cache, and of x, y and the values in memory
        cached=x_bytes + value_bytes + y_bytes,
        moved=shape.bytes + _completed(shape, cut) + _beside(shape, cut),
        # kernels of 16 bits take longer, with copies of single numbers much
        slower=slower,
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


def _beside(shape: SparseShape, cut: SparseCut) -> float:
    """Return the bytes of sectors that stores to y reach beside what they write.

    Each store of a warp has pieces of y, one of each lane, which lie together only where a lane has
    no other results between them and the next lane's.
    """
    core, most = _unit(cut) == "core", WORD // shape.itemsize
    if cut.layout == "kRows" or (core and cut.group == cut.atom == shape.d > 1):
        return 0.0
    if cut.layout == "kGroup":
        piece = _stored_together(shape, cut)
    else:
        run = cut.results // cut.warps_down // _LANES_DOWN if core else most
        piece = common_pack(most, math.gcd(run, shape.b))
        if piece >= run:
            return 0.0
    beside = max(0.0, SECTOR / (piece * shape.itemsize) - 1)
    if cut.layout == "kGroup":
        beside = min(1.0, beside)
    return beside * shape.columns * shape.a * shape.b * shape.d * shape.itemsize


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
