"""The family of kernels that write a ⊗ b in tiles, also where a and b are products themselves.

A tile is a tile of a times a tile of b, both in shared memory. It is written in runs, contiguous
elements of a row of the result. Elements of a are read from memory once, and warps store whole
lines of the cache wherever rows of the result begin. The kernel's contract is in
``csrc/cuda/explicit/tiles.cuh``.
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
    ProductShape,
)
from batchkron.backends.cuda.kernel import Family, Kernel, LaunchShape, record
from batchkron.backends.cuda.runtime.arguments import struct
from batchkron.backends.cuda.runtime.hardware import LINE, DeviceLimits, round_up
from batchkron.backends.cuda.runtime.program import device_program

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
    """Parameters that change a kernel's speed, but not its result."""

    threads: int = 256  # threads of a thread block
    run: int = 16 << 10  # largest size of a run, in bytes; longer ones are cut
    total: int = 32 << 10  # bytes that a thread block writes, about
    # whether results are written by streaming stores, which do not displace cached data
    streaming: bool = True


# Of the products that tiles are chosen for, the fastest of 14 variants or at most 1.3 % slower
# (H100, 2026-11): this one for elements of 4 bytes, `TileVariant()` for larger ones.
_SMALL_ELEMENTS = TileVariant(threads=512, run=64 << 10, total=128 << 10)


def _even(size: int, most: int, unit: int = 1) -> int:
    """Return the size of the fewest, even parts of at most ``most``, in multiples of ``unit``."""
    if size <= most:
        return size
    parts = -(-size // max(1, most))
    return min(size, round_up(-(-size // parts), unit))


def tiles_kernel(
    shape: ProductShape, device: DeviceLimits, variant: TileVariant | None = None
) -> Kernel | None:
    """Return the kernel that writes the product by tiles.

    None if rows of the result are short, its sizes do not fit in 32 bits, or both tiles do not fit
    in the shared memory of a thread block.
    """
    (rows, columns), (b_rows, width) = shape.left, shape.right
    if columns * width * shape.dtype.itemsize < _MIN_RUN_BYTES:
        return None
    if max(rows * b_rows, columns * width) > _MAX_ELEMENTS:
        return None
    rule = _kernel(shape, TileVariant())
    if rule is None or rule.launch.blocks > _MAX_ELEMENTS:
        return None
    if variant is not None:
        return _kernel(shape, variant)
    small = _kernel(shape, _SMALL_ELEMENTS) if shape.dtype.itemsize <= 4 else None
    return small or rule


def _kernel(shape: ProductShape, variant: TileVariant) -> Kernel | None:
    """Return the kernel of a variant, None if its tiles do not fit in shared memory."""
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
    shared = (tile_rows * tile_columns + b_tile_rows * b_columns) * itemsize
    if shared > _MAX_SHARED_BYTES:
        return None
    row_tiles, column_tiles = -(-rows // tile_rows), -(-columns // tile_columns)
    b_row_tiles, b_column_tiles = -(-b_rows // b_tile_rows), -(-width // b_columns)
    arguments = record(
        tiles_arguments(),
        a=shape.a.layout,
        b=shape.b.layout,
        a_inner=(shape.a_inner or NO_MATRIX).layout,
        b_inner=(shape.b_inner or NO_MATRIX).layout,
        a_rows=rows,
        a_columns=columns,
        b_rows=b_rows,
        b_columns=width,
        tile_rows=tile_rows,
        tile_columns=tile_columns,
        b_tile_rows=b_tile_rows,
        b_tile_columns=b_columns,
        column_tiles=column_tiles,
        b_row_tiles=b_row_tiles,
        b_column_tiles=b_column_tiles,
        over_width=RECIPROCAL // b_columns,
    )
    _, alignment = shape.word()
    options = min(alignment, itemsize), variant.threads, variant.streaming
    blocks = row_tiles * b_row_tiles * column_tiles * b_column_tiles
    launch = LaunchShape(blocks, variant.threads, 1, shared)
    program = device_program("explicit/tiles", "explicit_tiles", shape.dtype, *options)
    return Kernel(TILES, shape, variant, program, launch, arguments)


def tiles_are_faster(shape: ProductShape) -> bool:
    """Whether tiles were faster than bands, where there are both.

    So they are if a is small, so that there are few bands, and rows of b are long but no whole
    number of words, so that each begins at another place of a word.
    """
    a, row_bytes = shape.a, shape.row_bytes
    bands = -(-a.rows // rows_of_band(shape, BandVariant()))
    few = bands < MIN_BANDS and 2 * bands <= a.rows * a.columns <= _MAX_UNEVEN_ENTRIES
    uneven = shape.dtype.itemsize < WORD_BYTES and row_bytes % WORD_BYTES > 0
    return few and uneven and row_bytes >= _MIN_UNEVEN_BYTES


@cache
def tiles_arguments() -> np.dtype[Any]:
    """Return the layout of the C++ struct ExplicitTilesArguments."""
    matrices = *PRODUCT[1:], ("a_inner", LAYOUT), ("b_inner", LAYOUT)
    sizes = "a_rows a_columns b_rows b_columns tile_rows tile_columns b_tile_rows b_tile_columns"
    tiles = "column_tiles b_row_tiles b_column_tiles", ("over_width", "u4")
    return struct(PRODUCT[0], "*a_inner_data *b_inner_data", *matrices, sizes, *tiles)


TILES = Family("explicit", "tiles", tiles_kernel, tiles_are_faster)
