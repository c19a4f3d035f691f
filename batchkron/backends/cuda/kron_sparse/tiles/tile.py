"""Tilings of Kronecker-sparse products by panels, ``csrc/cuda/kron_sparse/tiles.cuh``.

Tiles that keep their values gain 8 % in the mean of the products that choose them (H100, 19 cells
of docs/results/gpu.md), but 28 % for (1, 48, 48, 64) and 19 % for (16, 64, 64, 16) in float32, for
which they stay.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from batchkron.backends.cuda.kernel_family import is_enabled
from batchkron.backends.cuda.kron_sparse.kernel import (
    HALF_DTYPES,
    WORD,
    SparseShape,
    bytes_of,
    common_pack,
)
from batchkron.backends.cuda.runtime.hardware import WARP, DeviceLimits, shared_bytes_for_blocks

# Numbers below were chosen by hand.
# Registers of a thread for its sums, 4 bytes each, at most: with numbers of 16 bits, or on cores
# in kRows and kAlong; and with others.
_MANY_SUM_REGISTERS = 128
_SUM_REGISTERS = 64
# The same up to which 512 threads have place on a multiprocessor, not 256; and with several j of 4
# or 8 bytes in a warp, which needs more registers.
_FEW_REGISTERS = 64
_FEW_ATOM_REGISTERS = 32
_CORE_ENTRIES = 32  # registers of a thread on ordinary cores for entries of x in kGroup
_MIN_SUM_REGISTERS = 8  # the same, below which a thread reads more than it multiplies
_RESULTS = (16, 32, 48, 64, 96, 128)  # choices for the rows k of a tile
_COLUMNS = (16, 32, 64, 128, 256)  # choices for its columns
# Choices for the neighbouring j of a warp, and of a tile in such parts.
_ATOMS = {2: (2, 4, 8), 4: (1, 2, 4), 8: (1, 2)}
_GROUPS = (1, 2, 3, 4, 5, 6, 7, 8, 16)
_WARPS = (2, 12)  # fewest and most warps of a thread block
_MAX_MANY_WARPS = 8  # most of them with many sums
_MIN_MANY_WARPS = 4  # fewest with many sums in kRows on cores; with two 3.4 times as slow (H200)
_MAX_STAGES = 4  # panels in shared memory at a time
_MAX_KEPT = 16  # panels whose values are kept, at most
_VALUES_IN_TILES = 1  # time that copying kept values takes, in tiles
# Bytes of values that stay in the second-level cache beside the vectors; with more, this many tiles
# of columns go through the same values together.
_CACHED_VALUES = 16 << 20
_TOGETHER = 16
_BANK_BYTES = 128  # of shared memory that a warp accesses at once
_MAX_TILES = 2**31 - 2**20  # as the kernels count them, with some that do not exist
_MIN_ROWS = 8  # least number of innermost vectors that are the columns of a tile

KEPT_VALUES = "kron_sparse.kept_values"
"""Tiles that keep their values, as `kernel_family.without` names them."""

Layout = Literal["kRows", "kAlong", "kGroup"]
"""What a tile's columns are, see ``Layout`` of the template."""


class TileVariant(NamedTuple):
    """How a block's tile is divided (``SparseCut``); ``kept``: values stay for several tiles."""

    group: int
    atom: int
    results: int
    columns: int
    warps_down: int
    warps_across: int
    kept: bool = False


@dataclass(frozen=True, slots=True)
class SparseCut:
    """All that the kernel is compiled for."""

    layout: Layout  # {"kRows", "kAlong", "kGroup"}
    dtype: str
    # group, atom, results, columns: a tile has ``group`` neighbouring j, ``atom`` of them for a
    # warp, rows k of each, and columns
    group: int
    atom: int
    results: int
    columns: int
    depth: int  # entries of the sum's index in one panel
    # warps_down, warps_across: warps that share the tile of one j
    warps_down: int
    warps_across: int
    stages: int  # panels in shared memory at a time
    blocks: int  # thread blocks of a multiprocessor
    pack: int  # elements of x that are copied together
    products: int  # as of `SparseShape`
    kept: int  # panels whose values are kept, 0 or all of a tile

    @property
    def threads(self) -> int:
        """Threads of a thread block."""
        return WARP * self.group // self.atom * self.warps_down * self.warps_across

    @property
    def x_elements(self) -> int:
        """Elements of a panel of x."""
        size = bytes_of(self.dtype)
        if self.layout == "kRows":
            return self.depth * (self.columns + (4 if size == 8 else 8))
        if size == 2:
            gap = 1 if self.atom == 8 else 8
        else:
            gap = 4 // self.atom if size == 4 and self.products == 0 else 4
        plain = self.columns * (self.depth + gap)
        if self.layout == "kAlong":
            return plain
        parts, banks = self.group // self.atom, _BANK_BYTES // (self.atom * size)
        step = banks // 2 if parts <= 2 else banks // 4 if parts <= 4 else banks // 8
        return parts * (plain + (step - plain) % banks) * self.atom

    @property
    def value_elements(self) -> int:
        """Elements of a panel of values."""
        pad = 8 if self.dtype in HALF_DTYPES else 4
        return self.group * self.results * (self.depth + pad)

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory of a thread block."""
        panels = self.kept or self.stages
        elements = self.stages * self.x_elements + panels * self.value_elements
        return elements * bytes_of(self.dtype)

    def tile_counts(self, shape: SparseShape) -> tuple[int, int, int]:
        """Return the tiles of columns, of rows k, and of matrices (i, j)."""
        rows = self.layout == "kRows"
        columns = -(-(shape.inner if rows else shape.outer) // self.columns)
        down = -(-shape.b // self.results)
        return columns * (shape.outer if rows else 1), down, shape.a * -(-shape.d // self.group)

    def together(self, shape: SparseShape, places: int) -> int:
        """Return how many tiles of columns, of ``places`` at a time, go through the same values."""
        columns, down, matrices = self.tile_counts(shape)
        if not self.kept:
            fits_in_cache = shape.a * shape.b * shape.c * shape.d * shape.itemsize <= _CACHED_VALUES
            return 1 if fits_in_cache else min(_TOGETHER, columns)
        matrices *= down

        def tiles(parts: int) -> float:  # of a place, with what copying values costs
            each = -(-columns // parts)
            rounds = -(-matrices * -(-columns // each) // places)
            return rounds * (each + _VALUES_IN_TILES)

        most = min(columns, 4 * places // matrices + 4)
        return -(-columns // min(range(1, most + 1), key=tiles))


def layout_of(shape: SparseShape) -> Layout | None:
    """Return what the columns of tiles are, None for complex numbers or too few columns."""
    if shape.dtype.startswith("complex"):
        return None
    if shape.inner == 1:
        return "kAlong" if shape.d == 1 else "kGroup"
    if shape.d == shape.outer == 1 and shape.inner < _MIN_ROWS:
        return None
    return "kRows" if shape.inner >= _MIN_ROWS else None


def tile_variants(shape: SparseShape, device: DeviceLimits) -> list[TileVariant]:
    """Return the variants that have a kernel and whose tiles are not far too large."""
    layout = layout_of(shape)
    if layout is None:
        return []
    long = shape.inner if layout == "kRows" else shape.outer
    products = shape.products if shape.dtype == "float32" else 0
    kinds = (False, True) if is_enabled(KEPT_VALUES) else (False,)
    fitting = []
    for group, atom in _groups(shape, layout):
        for results in _fitting(_RESULTS, shape.b):
            for columns in _fitting(_COLUMNS, long):
                sizes = group, atom, results, columns
                for warps in _best_divisions(layout, shape.dtype, products, *sizes):
                    for kept in kinds:
                        variant = TileVariant(*sizes, *warps, kept)
                        if sparse_cut(shape, variant, device) is not None:
                            fitting.append(variant)
    return fitting


def _fitting(choices: tuple[int, ...], number: int) -> list[int]:
    """Return the choices up to the first that is not smaller than ``number``."""
    least = min((one for one in choices if one >= number), default=choices[-1])
    return [one for one in choices if one <= least]


def _groups(shape: SparseShape, layout: Layout) -> list[tuple[int, int]]:
    """Return numbers of neighbouring j, of a tile and of its warps."""
    if layout != "kGroup":
        return [(1, 1)]
    groups = []
    for atom in _ATOMS[shape.itemsize]:
        for group in _GROUPS:
            if group % atom == 0 and group - atom < shape.d and atom < 2 * shape.d:
                groups.append((group, atom))
    return groups


@lru_cache(maxsize=8192)
def _best_divisions(
    layout: Layout, dtype: str, products: int, group: int, atom: int, results: int, columns: int
) -> list[tuple[int, int]]:
    """Return warps down and across that read least for a sum, of few sums and of many."""
    best: dict[bool, tuple[float, int, int]] = {}
    for down, across in _divisions(layout, dtype, products, group, atom, results, columns):
        part = results // down, columns // across
        many = _has_many_sums(dtype, products, atom, *part)
        way = (operands(layout, dtype, products, *part), down, across)
        best[many] = min(best.get(many, way), way)
    return [(down, across) for _, down, across in best.values()]


def operands(layout: Layout, dtype: str, products: int, down: int, across: int) -> float:
    """Return how many elements a lane reads for a product of one entry, of all its sums."""
    if dtype == "float32" and products == 0:
        lanes_down, lanes_across = (4, 8) if layout == "kRows" else (8, 4)
        return down / lanes_down + across / lanes_across
    return (down + across) / WARP


def _sum_registers(dtype: str, products: int, atom: int, down: int, across: int) -> int:
    """Return the registers of a thread for a warp's sums."""
    sums = atom * down * across // WARP
    return sums * (2 if products == 3 or dtype == "float64" else 1)


def _has_many_sums(dtype: str, products: int, atom: int, down: int, across: int) -> bool:
    """Whether a thread needs more than 128 registers."""
    registers = _sum_registers(dtype, products, atom, down, across)
    heavy = atom > 1 and dtype not in HALF_DTYPES
    return registers > (_FEW_ATOM_REGISTERS if heavy else _FEW_REGISTERS)


def _divisions(
    layout: Layout, dtype: str, products: int, group: int, atom: int, results: int, columns: int
) -> Iterator[tuple[int, int]]:
    core = dtype == "float32" and products == 0
    more = dtype in HALF_DTYPES or (core and layout != "kGroup")
    most = _MANY_SUM_REGISTERS if more else _SUM_REGISTERS
    for down in (1, 2, 3, 4, 6, 8):
        for across in (1, 2, 3, 4, 6, 8):
            if results % down or columns % across:
                continue
            warps = group // atom * down * across
            part = results // down, columns // across
            registers = _sum_registers(dtype, products, atom, *part)
            many = _has_many_sums(dtype, products, atom, *part)
            if (
                (_MIN_MANY_WARPS if many and core and layout == "kRows" else _WARPS[0])
                <= warps
                <= (_MAX_MANY_WARPS if many else _WARPS[1])
                and _MIN_SUM_REGISTERS <= registers <= most
                and _is_whole(layout, dtype, products, atom, *part)
            ):
                yield down, across


def _is_whole(layout: Layout, dtype: str, products: int, atom: int, down: int, across: int) -> bool:
    """Whether a warp's part consists of whole fragments, or equal parts of the lanes."""
    rows = layout == "kRows"
    if dtype == "float32" and products == 0:
        whole = down % (4 if rows else 8) == 0 and across % (32 if rows else 4) == 0
        return whole and (atom == 1 or atom * across <= _CORE_ENTRIES)
    tall, wide = (down, across) if rows else (across, down)
    return tall % 16 == 0 and wide % (16 if rows and dtype in HALF_DTYPES else 8) == 0


@lru_cache(maxsize=8192)
def sparse_cut(shape: SparseShape, variant: TileVariant, device: DeviceLimits) -> SparseCut | None:
    """Return what a variant is compiled for, None if there is no such kernel."""
    layout = layout_of(shape)
    if layout is None or min(variant.group, variant.results, variant.columns) < 1:
        return None
    products = shape.products if shape.dtype == "float32" else 0
    group, atom = variant.group, variant.atom
    if (group, atom) not in _groups(shape, layout):
        return None
    if variant.results % 16 or variant.columns % 16:
        return None
    sizes = group, atom, variant.results, variant.columns
    warps = variant.warps_down, variant.warps_across
    if warps not in _divisions(layout, shape.dtype, products, *sizes):
        return None
    depth = _depth(shape.dtype, layout, variant.kept)
    kept = -(-shape.c // depth) if variant.kept else 0
    if kept > _MAX_KEPT:
        return None
    pack = _pack(shape, layout, group, atom)

    def cut(stages: int, blocks: int) -> SparseCut:
        others = stages, blocks, pack, products, kept
        return SparseCut(layout, shape.dtype, *sizes, depth, *warps, *others)

    first = cut(2, 1)
    if math.prod(first.tile_counts(shape)) >= _MAX_TILES or not _copies_fit(first):
        return None
    part = variant.results // warps[0], variant.columns // warps[1]
    many = _has_many_sums(shape.dtype, products, atom, *part)
    # thread blocks that 128 registers a thread allow, or 255
    wanted = max(1, (256 if many else 512) // first.threads)
    for blocks in range(min(wanted, 8), 0, -1):
        budget = shared_bytes_for_blocks(blocks, device)
        for stages in range(_MAX_STAGES, 1, -1):
            one = cut(stages, blocks)
            if one.shared_bytes <= min(budget, device.shared_bytes) and (stages > 2 or blocks == 1):
                return one
    return None


def _copies_fit(cut: SparseCut) -> bool:
    """Whether the threads can be divided among the copies of a row."""
    values = cut.depth * bytes_of(cut.dtype) // WORD
    if cut.layout == "kRows":
        places = cut.columns // cut.pack
    else:
        places = cut.depth // max(1, cut.pack // cut.atom) * (cut.group // cut.atom)
    return cut.threads % places == 0 and cut.threads % values == 0


def _depth(dtype: str, layout: Layout, kept: bool) -> int:
    if dtype in HALF_DTYPES:
        return 32
    return 8 if layout == "kGroup" and not kept else 16


def _pack(shape: SparseShape, layout: Layout, group: int, atom: int) -> int:
    """Return how many elements of x are copied together."""
    if layout == "kGroup":
        if group == atom == shape.d:  # neighbours in memory, whole words
            together = common_pack(shape.pack, shape.c * shape.d)
            if together > atom:
                return together
        return common_pack(min(shape.pack, atom), shape.d)
    return common_pack(shape.pack, shape.inner if layout == "kRows" else shape.c)
