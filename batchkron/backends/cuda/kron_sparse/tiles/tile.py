"""Tilings of Kronecker-sparse products by panels, ``csrc/cuda/kron_sparse/tiles.cuh``.

Pure arithmetic on sizes, no device needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from batchkron.backends.cuda.kron_sparse.kernel import (
    HALF_DTYPES,
    SPARSE_SCALARS,
    WORD,
    SparseShape,
    common_pack,
)
from batchkron.backends.cuda.runtime.hardware import (
    WARP,
    DeviceLimits,
    resident_blocks,
    round_up,
    shared_bytes_for_blocks,
)
from batchkron.backends.cuda.runtime.program import Program, template_type

# Numbers below were chosen by hand.
_SUM_REGISTERS = 64  # registers of a thread for its sums, 4 bytes each
_MIN_SUM_REGISTERS = 8  # the same, below which a thread reads more than it multiplies
_RESULTS = (16, 32, 48, 64, 96, 128)  # choices for the rows k of a tile
_COLUMNS = (16, 32, 64, 128, 256)  # choices for its columns
_GROUPS = (1, 2, 3, 4, 5, 6, 7, 8)  # choices for the neighbouring j of a tile
_WARPS = (2, 12)  # fewest and most warps of a thread block
_MAX_STAGES = 4  # panels in shared memory at a time
_MIN_ROWS = 8  # least number of innermost vectors that are the columns of a tile

Layout = Literal["kRows", "kAlong", "kGroup"]
"""What a tile's columns are, see ``Layout`` of the template."""


@dataclass(frozen=True, slots=True)
class TileVariant:
    """How a thread block's tile is divided, see ``SparseCut`` of the template."""

    group: int
    results: int
    columns: int
    warps_down: int
    warps_across: int


@dataclass(frozen=True, slots=True)
class SparseCut:
    """All that the kernel is compiled for.

    Attributes
    ----------
    layout : {"kRows", "kAlong", "kGroup"}
    dtype : str
    group, results, columns : int
        A tile has this many neighbouring j, rows k of each, and columns.
    depth : int
        Entries of the sum's index in one panel.
    warps_down, warps_across : int
        Warps that share the tile of one j.
    stages : int
        Panels in shared memory at a time.
    blocks : int
        Thread blocks of a multiprocessor.
    pack : int
        Elements of x that are copied together.
    products : int
        As of `SparseShape`.
    """

    layout: Layout
    dtype: str
    group: int
    results: int
    columns: int
    depth: int
    warps_down: int
    warps_across: int
    stages: int
    blocks: int
    pack: int
    products: int

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return _itemsize(self.dtype)

    @property
    def of_warp(self) -> int:
        """Neighbouring j of a warp."""
        return 2 if self.layout == "kGroup" and self.dtype in HALF_DTYPES else 1

    @property
    def threads(self) -> int:
        """Threads of a thread block."""
        return WARP * self.group // self.of_warp * self.warps_down * self.warps_across

    @property
    def x_elements(self) -> int:
        """Elements of a panel of x."""
        size, pad = self.itemsize, 8 if self.itemsize == 2 else 4
        if self.layout == "kRows":
            return self.depth * (self.columns + (4 if size == 8 else 8))
        plain = self.columns * (self.depth + pad)
        if self.layout == "kAlong":
            return plain
        atoms, banks = self.group // self.of_warp, 16 if size == 8 else 32
        step = banks // 2 if atoms <= 2 else banks // 4 if atoms <= 4 else banks // 8
        return atoms * (plain + (step - plain) % banks) * self.of_warp

    @property
    def value_elements(self) -> int:
        """Elements of a panel of values."""
        pad = 8 if self.itemsize == 2 else 4
        return self.group * self.results * (self.depth + pad)

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory of a thread block."""
        ring = self.stages * (self.x_elements + self.value_elements)
        collected = 0
        if self.layout == "kGroup":
            collected = self.columns * (self.results * self.group + WORD // self.itemsize)
        return max(ring, collected) * self.itemsize

    def tile_counts(self, shape: SparseShape) -> tuple[int, int, int]:
        """Return the tiles of columns, of rows k, and of matrices (i, j)."""
        rows = self.layout == "kRows"
        columns = -(-(shape.inner if rows else shape.outer) // self.columns)
        down = -(-shape.b // self.results)
        return columns * (shape.outer if rows else 1), down, shape.a * -(-shape.d // self.group)


def _itemsize(dtype: str) -> int:
    return {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}[dtype]


def layout_of(shape: SparseShape) -> Layout | None:
    """Return what the columns of tiles are, None if there are too few of them."""
    if shape.inner == 1:
        return "kAlong" if shape.d == 1 else "kGroup"
    if shape.d == shape.outer == 1 and shape.inner < _MIN_ROWS:
        return None
    return "kRows" if shape.inner >= _MIN_ROWS else None


def tile_variants(shape: SparseShape, device: DeviceLimits) -> list[TileVariant]:
    """Return the variants that have a kernel and whose tiles are not far too large."""
    layout = layout_of(shape)
    if layout is None or shape.dtype not in ("float16", "bfloat16", "float32", "float64"):
        return []
    long = shape.inner if layout == "kRows" else shape.outer
    products = shape.products if shape.dtype == "float32" else 0
    found = []
    for group in _groups(shape, layout):
        for results in _fitting(_RESULTS, shape.b):
            for columns in _fitting(_COLUMNS, long):
                best = _best_division(layout, shape.dtype, products, group, results, columns)
                if best is not None:
                    variant = TileVariant(group, results, columns, *best)
                    if sparse_cut(shape, variant, device) is not None:
                        found.append(variant)
    return found


def _fitting(choices: tuple[int, ...], number: int) -> list[int]:
    """Return the choices up to the first that is not smaller than ``number``."""
    least = min((one for one in choices if one >= number), default=choices[-1])
    return [one for one in choices if one <= least]


def _groups(shape: SparseShape, layout: Layout) -> list[int]:
    if layout != "kGroup":
        return [1]
    even = shape.dtype in HALF_DTYPES
    choices = [group for group in _GROUPS if not (even and group % 2)]
    return [group for group in choices if group < shape.d + (2 if even else 1)]


@lru_cache(maxsize=4096)
def _best_division(
    layout: Layout, dtype: str, products: int, group: int, results: int, columns: int
) -> tuple[int, int] | None:
    """Return warps down and across, whose parts are as square as possible; None if none fit."""
    ways = []
    for down, across in _divisions(layout, dtype, products, group, results, columns):
        ways.append((results // down + columns // across, down, across))
    return min(ways)[1:] if ways else None


def _divisions(
    layout: Layout, dtype: str, products: int, group: int, results: int, columns: int
) -> Iterator[tuple[int, int]]:
    pairs = layout == "kGroup" and dtype in HALF_DTYPES
    for down in (1, 2, 3, 4, 6, 8):
        for across in (1, 2, 3, 4, 6, 8):
            if results % down or columns % across:
                continue
            warps = group // (2 if pairs else 1) * down * across
            part = results // down, columns // across
            sums = part[0] * part[1] // WARP * (2 if pairs or products == 3 else 1)
            registers = sums * (2 if dtype == "float64" else 1)
            if (
                _WARPS[0] <= warps <= _WARPS[1]
                and _MIN_SUM_REGISTERS <= registers <= _SUM_REGISTERS
                and _is_whole(layout, dtype, products, *part)
            ):
                yield down, across


def _is_whole(layout: Layout, dtype: str, products: int, down: int, across: int) -> bool:
    """Whether a warp's part consists of whole fragments, or equal parts of the lanes."""
    rows = layout == "kRows"
    if dtype == "float32" and products == 0:
        return down % (4 if rows else 8) == 0 and across % (32 if rows else 4) == 0
    tall, wide = (down, across) if rows else (across, down)
    return tall % 16 == 0 and wide % (16 if rows and dtype in HALF_DTYPES else 8) == 0


@lru_cache(maxsize=8192)
def sparse_cut(shape: SparseShape, variant: TileVariant, device: DeviceLimits) -> SparseCut | None:
    """Return what a variant is compiled for, None if there is no such kernel."""
    layout = layout_of(shape)
    if layout is None or min(variant.group, variant.results, variant.columns) < 1:
        return None
    products = shape.products if shape.dtype == "float32" else 0
    ways = _divisions(
        layout, shape.dtype, products, variant.group, variant.results, variant.columns
    )
    if variant.group not in _groups(shape, layout) or variant.results % 16 or variant.columns % 16:
        return None
    if (variant.warps_down, variant.warps_across) not in ways:
        return None
    depth = _depth(shape.dtype, layout)

    def cut(stages: int, blocks: int) -> SparseCut:
        sizes = variant.group, variant.results, variant.columns, depth
        warps = variant.warps_down, variant.warps_across
        return SparseCut(
            layout, shape.dtype, *sizes, *warps, stages, blocks, _pack(shape, layout), products
        )

    wanted = max(1, 512 // cut(2, 1).threads)  # thread blocks that 128 registers a thread allow
    panels = -(-shape.c // depth)
    for blocks in range(min(wanted, 8), 0, -1):
        budget = shared_bytes_for_blocks(blocks, device)
        for stages in range(min(_MAX_STAGES, max(2, panels)), 1, -1):
            one = cut(stages, blocks)
            if one.shared_bytes <= min(budget, device.shared_bytes) and (
                stages > 2 or blocks == 1 or panels <= 2
            ):
                return one
    for blocks in range(min(wanted, 8), 0, -1):
        one = cut(2, blocks)
        if resident_blocks(one.shared_bytes, device) >= blocks:
            return one
    return None


def _depth(dtype: str, layout: Layout) -> int:
    if dtype in HALF_DTYPES:
        return 16 if layout == "kGroup" else 32
    return 8 if layout == "kGroup" else 16


def _pack(shape: SparseShape, layout: Layout) -> int:
    """Return how many elements of x are copied together."""
    if layout == "kGroup":
        return common_pack(min(shape.pack, 2), shape.d) if shape.dtype in HALF_DTYPES else 1
    return common_pack(shape.pack, shape.inner if layout == "kRows" else shape.c)


def sparse_program(cut: SparseCut) -> Program:
    """Return the kernel of a cut."""
    sizes = cut.group, cut.results, cut.columns, cut.depth, cut.warps_down, cut.warps_across
    layout = f"batchkron::Layout::{cut.layout}"
    others = cut.stages, cut.blocks, cut.pack, cut.products
    scalar = SPARSE_SCALARS[cut.dtype]
    expression = template_type(
        "kron_sparse_tiles", scalar, template_type("SparseCut", layout, *sizes, *others)
    )
    return Program("cuda/kron_sparse/tiles.cuh", expression)


def padded(number: int, unit: int) -> int:
    """Return the elements of whole tiles of ``unit``."""
    return round_up(number, unit)
