"""The kernel of Gram matrices by tiles, ``csrc/cuda/gram/tiles.cuh``: how work is cut."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from batchkron.backends.cuda.kernel import Family, Kernel, LaunchShape, record
from batchkron.backends.cuda.runtime.arguments import struct
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.runtime.program import device_program

MAX_OF_KERNEL = 64
"""Rows and columns up to which the kernel is used; for 128 cuBLAS is up to four times as fast
(docs/results/frameworks.md)."""
THREADS = 256
"""Threads of a thread block; chosen by hand."""

_GROUP = 4  # neighbouring rows or columns of a thread, gram_group of tiles.cuh
_MAX_TILE = 64  # rows and columns of a tile: 16 x 16 threads hold its sums
_LARGE_TILE = 32  # from which on a thread has 8 x 8 sums in float32, 4 x 4 else
_MAX_WIDTH = 8  # neighbours along r that threads read together, a sector of float32
_CHUNK_BYTES = {4: 24 << 10, 8: 18 << 10}  # shared memory of a chunk, by own; chosen by hand
_MAX_PAIRS = 512  # of a chunk; chosen by hand
_BLOCKS_PER_PROCESSOR = 2  # all that work at a time: fewer parts, less to begin and to end
_PAIRS_PER_SUM = 4  # pairs (l, r) a block has at least, times rows or columns: parts are traffic


GramWork = tuple[int, int, int, int, np.dtype[Any]]
"""(outer, rows, columns, inner, dtype): sums over l and r of conj(x[l, p, r]) y[l, q, r], of x
(outer, rows, inner) and y (outer, columns, inner)."""


def _tile(size: int, own: int) -> int:
    """Return the size of tiles for so many rows: multiples of ``own`` that waste little."""
    tiles = -(-size // _MAX_TILE)
    return -(-size // (own * tiles)) * own


def _width(length: int, capacity: int) -> int:
    """Return how many neighbours of so many threads read together: many, with few left over.

    The groups of neighbours hold at most ``capacity``, the last one's rest included: threads copy
    as many elements as the capacity has.
    """
    widths = range(min(_MAX_WIDTH, length), 0, -1)
    fitting = [w for w in widths if -(-length // w) * w <= capacity]
    return min(fitting, key=lambda w: -(-length // w) * (w + 1))


def _pieces(inner: int, capacity: int) -> tuple[int, int]:
    """Return a width, and the length of pieces of r of at most ``capacity``, equal if possible."""
    least = -(-inner // (capacity - capacity % _MAX_WIDTH))
    for pieces in range(least, 2 * least):
        length = inner // pieces
        if inner % pieces == 0 and length % _width(length, capacity) == 0:
            return _width(length, capacity), length
    return _MAX_WIDTH, -(-inner // (least * _MAX_WIDTH)) * _MAX_WIDTH


@cache
def gram_arguments() -> np.dtype[Any]:
    """Return the layout of the C++ struct GramArguments."""
    sizes = "outer rows columns inner blocks column_tiles outer_step inner_step outer_chunks"
    return struct("*x *y *sums", sizes, "inner_chunks l_next r_next groups group_factor near")


def tiles_kernel(work: GramWork, device: DeviceLimits, parts: int | None = None) -> Kernel:
    """Return the kernel by chunks of pairs (l, r); the variant is the number of parts of a sum.

    A thread has sums of ``own`` rows and columns of a tile, and neighbours along r, ``width`` of
    them, are read together. A chunk has values of l and of r, for ``capacity`` pairs at most. A
    part is that of one of the thread blocks that share the chunks of a tile.
    """
    outer, rows, columns, inner, dtype = work
    itemsize = dtype.itemsize
    own = 2 * _GROUP if itemsize == 4 and min(rows, columns) >= _LARGE_TILE else _GROUP
    row_tile, column_tile = _tile(rows, own), _tile(columns, own)
    row_tiles, column_tiles = -(-rows // row_tile), -(-columns // column_tile)
    pair_bytes = itemsize * (row_tile + column_tile + 2 * _GROUP)
    capacity = min(_MAX_PAIRS, _CHUNK_BYTES[own] // pair_bytes)
    team = row_tile * column_tile // own**2  # threads
    teams = THREADS // team
    capacity -= capacity % (teams if capacity >= teams else _MAX_WIDTH)  # as many pairs for all
    if inner < capacity:
        width, inner_step = _width(inner, capacity), inner
        outer_step = capacity // (-(-inner // width) * width)
    else:
        width, inner_step = _pieces(inner, capacity)
        outer_step = 1
    outer_chunks, inner_chunks = -(-outer // outer_step), -(-inner // inner_step)
    if parts is None:
        least = max(1, _PAIRS_PER_SUM * max(rows, columns) // capacity)  # chunks of a block
        wanted = _BLOCKS_PER_PROCESSOR * device.multiprocessors // (row_tiles * column_tiles)
        parts = min(max(1, wanted), -(-outer_chunks * inner_chunks // least))
    l_next, r_next = divmod(parts, inner_chunks)
    groups = -(-inner_step // width)
    arguments = record(
        gram_arguments(),
        outer=outer,
        rows=rows,
        columns=columns,
        inner=inner,
        blocks=parts,
        column_tiles=column_tiles,
        outer_step=outer_step,
        inner_step=inner_step,
        inner_chunks=inner_chunks,
        outer_chunks=outer_chunks,
        l_next=l_next,
        r_next=r_next,
        groups=groups,
        group_factor=-(-(1 << 31) // groups),
        near=outer_step * max(rows, columns) * inner < 1 << 31,
    )
    # of a chunk, then of the sums of half of the teams
    shared = max(capacity * pair_bytes, itemsize * (teams // 2) * team * own**2)
    launch = LaunchShape(parts * row_tiles * column_tiles, THREADS, 1, shared)
    square = rows == columns <= row_tile  # of several tiles the last ones have fewer rows
    sizes = row_tile, column_tile, own, square, width, capacity
    program = device_program("gram/tiles", "mode_gram", dtype, *sizes, THREADS)
    return Kernel(TILES, work, parts, program, launch, arguments, tile=sizes)


TILES = Family("gram", "tiles", tiles_kernel)
