"""The family of kernels that write a ⊗ b in tiles, also where a and b are products themselves.

A tile is a tile of a times a tile of b, both in shared memory. It is written in runs, contiguous
elements of a row of the result. Pure arithmetic on sizes, no device needed; the kernel's contract
is in ``csrc/cuda/explicit/tiles.cuh``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from batchkron.backends.cuda.explicit.bands import MIN_BANDS, BandVariant, rows_of_band
from batchkron.backends.cuda.explicit.kernel import (
    LAYOUT,
    NO_MATRIX,
    PRODUCT,
    RECIPROCAL,
    WORD_BYTES,
    DeviceMatrix,
    ProductFamily,
    ProductKernel,
    ProductShape,
)
from batchkron.backends.cuda.kernel_family import LaunchShape
from batchkron.backends.cuda.runtime.arguments import pointer_fields, size_fields
from batchkron.backends.cuda.runtime.hardware import LINE, DeviceLimits, round_up
from batchkron.backends.cuda.runtime.program import SCALARS, Program, flag, template_type

# Chosen by hand:
_MIN_RUN_BYTES = 1024  # bytes of a row of the result from which tiles are used
_LONG_ROW_BYTES = 4096  # bytes of a row of b from which a tile has one row of b
_MIN_ENTRIES = 4  # entries of a that such a row is multiplied by, if there are as many
_MAX_SHARED_BYTES = 48 << 10  # of a thread block
_MIN_UNEVEN_BYTES = 512  # bytes of a row of b of no whole words from which tiles replace bands
_MAX_UNEVEN_ENTRIES = 64  # largest number of entries of a for which they do
_MAX_ELEMENTS = 2**31 - 1  # of rows or columns of the result, and largest number of thread blocks


@dataclass(frozen=True, slots=True)
class TileVariant:
    """Parameters that change a kernel's speed, but not its result.

    Attributes
    ----------
    threads : int
        Threads of a thread block.
    run : int
        Largest size of a run, in bytes; longer ones are cut.
    total : int
        Bytes that a thread block writes, about.
    streaming : bool
        Whether results are written by streaming stores, which do not displace cached data.
    """

    threads: int = 256
    run: int = 16 << 10
    total: int = 32 << 10
    streaming: bool = True


# Of the products that tiles are chosen for, the fastest of 14 variants or at most 1.3 % slower
# (H100, 2026-11): this one for elements of 4 bytes, `TileVariant()` for larger ones.
_SMALL_ELEMENTS = TileVariant(threads=512, run=64 << 10, total=128 << 10)


@dataclass(frozen=True, slots=True)
class TilesKernel:
    """The template arguments of the kernel of tiles; ``bytes`` is the alignment of an element."""

    bytes: int
    threads: int
    streaming: bool


@dataclass(frozen=True, slots=True)
class TileCut:
    """The work of the kernel of tiles.

    Attributes
    ----------
    kernel : TilesKernel
        The kernel's template arguments.
    a, b, a_inner, b_inner : DeviceMatrix
        The matrices; inner ones are empty where a or b is no product.
    a_rows, a_columns, b_rows, b_columns : int
        Sizes of the left and of the right matrix, each a product or not.
    tile_rows, tile_columns, b_tile_rows, b_tile_columns : int
        Sizes of a tile of either.
    """

    kernel: TilesKernel
    a: DeviceMatrix
    b: DeviceMatrix
    a_inner: DeviceMatrix
    b_inner: DeviceMatrix
    a_rows: int
    a_columns: int
    b_rows: int
    b_columns: int
    tile_rows: int
    tile_columns: int
    b_tile_rows: int
    b_tile_columns: int

    @property
    def column_tiles(self) -> int:
        """Number of tiles along the columns of the left matrix."""
        return -(-self.a_columns // self.tile_columns)

    @property
    def b_row_tiles(self) -> int:
        """Number of tiles along the rows of the right matrix."""
        return -(-self.b_rows // self.b_tile_rows)

    @property
    def b_column_tiles(self) -> int:
        """Number of tiles along the columns of the right matrix."""
        return -(-self.b_columns // self.b_tile_columns)

    @property
    def over_width(self) -> int:
        """Factor by which the kernel divides by the columns of a tile of the right matrix."""
        return RECIPROCAL // self.b_tile_columns

    @property
    def grid(self) -> tuple[int, int]:
        """Thread blocks, along one axis only."""
        down = -(-self.a_rows // self.tile_rows) * self.b_row_tiles
        return down * self.column_tiles * self.b_column_tiles, 1

    @property
    def shared_elements(self) -> int:
        """Elements of both tiles."""
        return self.tile_rows * self.tile_columns + self.b_tile_rows * self.b_tile_columns


def _even(size: int, most: int, unit: int = 1) -> int:
    """Return the size of a part where as few parts as possible have at most ``most``, evenly.

    If there is more than one part, its size is a multiple of ``unit``.
    """
    if size <= most:
        return size
    parts = -(-size // max(1, most))
    return min(size, round_up(-(-size // parts), unit))


def tile_cut(shape: ProductShape, variant: TileVariant) -> TileCut:
    """Return the tiling of the product by tiles."""
    (rows, columns), (b_rows, width) = shape.left, shape.right
    itemsize, line = shape.dtype.itemsize, max(1, LINE // shape.dtype.itemsize)
    b_columns = _even(width, variant.run // itemsize, line)
    segment = b_columns * itemsize
    if segment >= _LONG_ROW_BYTES:  # load a row of b once, for many elements of a
        entries = max(_MIN_ENTRIES, variant.total // segment)
        tile_columns = _even(columns, entries if b_columns < width else variant.run // segment)
        tile_rows = _even(rows, max(1, entries // tile_columns))
        b_tile_rows = 1
    else:
        unit = line // math.gcd(line, width)
        tile_columns = _even(columns, variant.run // segment, unit)
        runs = max(1, variant.total // (tile_columns * segment))
        b_tile_rows = _even(b_rows, runs)
        tile_rows = _even(rows, max(1, runs // b_tile_rows))
    _, alignment = shape.word()
    kernel = TilesKernel(min(alignment, itemsize), variant.threads, variant.streaming)
    inner = (shape.a_inner or NO_MATRIX, shape.b_inner or NO_MATRIX)
    sizes = rows, columns, b_rows, width, tile_rows, tile_columns, b_tile_rows, b_columns
    return TileCut(kernel, shape.a, shape.b, *inner, *sizes)


def _fits(cut: TileCut, shape: ProductShape) -> bool:
    """Whether both tiles fit in the shared memory of a thread block."""
    return cut.shared_elements * shape.dtype.itemsize <= _MAX_SHARED_BYTES


def tiles_program(dtype: np.dtype[np.generic], kernel: TilesKernel) -> Program:
    """Return the kernel of the explicit product in tiles."""
    arguments = kernel.bytes, kernel.threads, flag(kernel.streaming)
    return Program(
        "cuda/explicit/tiles.cuh", template_type("explicit_tiles", SCALARS[dtype], *arguments)
    )


class Tiles(ProductFamily):
    """Kernels whose thread blocks hold a tile of a and one of b in shared memory.

    Elements of a are read from memory once, and warps store whole lines of the cache wherever rows
    of the result begin.

    The estimate is 0.5 for products of more than two matrices. It is 1 where tiles were faster than
    bands (estimate 2): if a is small, so that there are few bands, and rows of b are long but no
    whole number of words, so that each begins at another place of a word. Else it is 3.
    """

    name = "tiles"
    variant_type = TileVariant

    def accepts(self, shape: ProductShape, device: DeviceLimits) -> bool:
        """Whether rows of the result are long enough, and its sizes fit in 32 bits."""
        (rows, columns), (b_rows, width) = shape.left, shape.right
        if columns * width * shape.dtype.itemsize < _MIN_RUN_BYTES:
            return False
        if max(rows * b_rows, columns * width) > _MAX_ELEMENTS:
            return False
        cut = tile_cut(shape, TileVariant())
        return cut.grid[0] <= _MAX_ELEMENTS and _fits(cut, shape)

    def variants(self, shape: ProductShape, device: DeviceLimits) -> tuple[TileVariant, ...]:
        """Return the only variant that is used."""
        small = shape.dtype.itemsize <= 4 and _fits(tile_cut(shape, _SMALL_ELEMENTS), shape)
        return (_SMALL_ELEMENTS if small else TileVariant(),)

    def estimate(self, shape: ProductShape, variant: TileVariant, device: DeviceLimits) -> float:
        """Return 0.5 for products of more than two matrices, 1 or 3 for others; without a unit."""
        if not shape.simple:
            return 0.5
        a, row_bytes = shape.a, shape.row_bytes
        bands = -(-a.rows // rows_of_band(shape, BandVariant()))
        few = bands < MIN_BANDS and 2 * bands <= a.rows * a.columns <= _MAX_UNEVEN_ENTRIES
        uneven = shape.dtype.itemsize < WORD_BYTES and row_bytes % WORD_BYTES > 0
        return 1.0 if few and uneven and row_bytes >= _MIN_UNEVEN_BYTES else 3.0

    def kernel(
        self, shape: ProductShape, variant: TileVariant, device: DeviceLimits
    ) -> ProductKernel | None:
        """Return the kernel of a variant, None if tiles are not accepted or too large."""
        if not self.accepts(shape, device):
            return None
        cut = tile_cut(shape, variant)
        if not _fits(cut, shape):
            return None
        return ProductKernel(self, shape, variant, cut)

    def program(self, kernel: ProductKernel) -> Program:
        """Return the program to compile."""
        return tiles_program(kernel.shape.dtype, kernel.tile.kernel)

    def launch(self, kernel: ProductKernel, device: DeviceLimits) -> LaunchShape:
        """Return the launch: grid, threads and memory."""
        cut = kernel.tile
        shared = cut.shared_elements * kernel.shape.dtype.itemsize
        return LaunchShape(cut.grid[0], cut.kernel.threads, 1, shared)

    def layout(self) -> np.dtype[Any]:
        """Return the layout of the kernel's arguments."""
        return tiles_arguments()


@cache
def tiles_arguments() -> np.dtype[Any]:
    """Return the layout of the C++ struct ExplicitTilesArguments."""
    inner = pointer_fields("a_inner_data", "b_inner_data")
    sizes = size_fields("a_rows", "a_columns", "b_rows", "b_columns")
    sizes += size_fields("tile_rows", "tile_columns", "b_tile_rows", "b_tile_columns")
    sizes += size_fields("column_tiles", "b_row_tiles", "b_column_tiles")
    matrices = [*PRODUCT[3:], ("a_inner", LAYOUT), ("b_inner", LAYOUT)]
    fields = [*PRODUCT[:3], *inner, *matrices, *sizes, ("over_width", "u4")]
    return np.dtype(fields, align=True)
