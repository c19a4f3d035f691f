"""The kernel that transposes many small matrices, each in its place.

It is ``csrc/cuda/kron_sparse/transpose_blocks.cuh``.
"""

from __future__ import annotations

from functools import cache
from math import gcd
from typing import Any

import numpy as np

from batchkron.backends.cuda.kernel import Family, Kernel, LaunchShape, record
from batchkron.backends.cuda.kron_sparse.kernel import WORD, common_pack
from batchkron.backends.cuda.runtime.arguments import struct
from batchkron.backends.cuda.runtime.hardware import SECTOR, WARP, DeviceLimits, round_up
from batchkron.backends.cuda.runtime.program import device_program

# Numbers below were chosen by hand.
_THREADS = 256  # of a thread block
_WHOLE_BYTES = 16 << 10  # of a matrix that a thread block moves at a time, at most
_WHOLE = 4096  # elements of such a matrix
_TILE_BYTES = 8 << 10  # of several matrices, or of a part of a larger one
_BLOCKS = 16  # thread blocks for each multiprocessor; with more tiles, they take several turns
_RUN = 32  # places of a part of a matrix, at least
_BANKS = 32  # of shared memory, each of words of `_WORD` bytes
_WORD = 4
_RUN_COST = 6.0  # of moving a pack of the other side, in accesses to shared memory
# Packs of the other side that a thread reads or writes in a tile, at most. More take so many
# registers that a multiprocessor has few thread blocks (docs/results/papers.md).
_READ, _WRITTEN = 6, 12
ELEMENTS = {2: "unsigned short", 4: "unsigned int", 8: "unsigned long long"}
"""C++ types of elements that are only moved, by their size."""


def block_transposition(
    blocks: int,
    length: int,
    width: int,
    itemsize: int,
    to_long: bool,
    alignment: int,
    device: DeviceLimits,
) -> Kernel | None:
    """Return the kernel that writes matrices (length, width) as (width, length), or back.

    ``to_long`` says that (length, width) are read. Addresses on the side of (length, width) are
    multiples of ``alignment`` bytes, those of the other side of `WORD`. The variant has the
    elements that are moved together on the side of (length, width), and on the other. None where a
    tile cannot be as small as it must be.
    """
    if min(length, _RUN) * width * itemsize > 4 * _TILE_BYTES:
        return None
    tile = _tile(length, width, itemsize)
    most = gcd(tile, length)
    side = common_pack(max(1, alignment // itemsize), most * width)
    largest = common_pack(WORD // itemsize, most)
    least = min(largest, -(-tile * width // (_THREADS * (_WRITTEN if to_long else _READ))))
    # ``row``: places from one column to the next in shared memory, a multiple of the second pack
    other, row = _arrangement(tile, width, itemsize, side, least, largest)
    options = length, width, tile, row, _THREADS, side, other, to_long
    program = device_program(
        "kron_sparse/transpose_blocks", "kron_sparse_transpose_blocks", ELEMENTS[itemsize], *options
    )
    tiles = -(-blocks // max(1, tile // length)) * -(-length // tile)
    most_blocks = min(tiles, _BLOCKS * device.multiprocessors)
    launch = LaunchShape(most_blocks, _THREADS, 1, row * width * itemsize)
    arguments = record(transpose_blocks_arguments(), blocks=blocks)
    work = blocks, length, width, itemsize, to_long
    return Kernel(TRANSPOSITION, work, (side, other), program, launch, arguments)


TRANSPOSITION = Family("kron_sparse", "transposition", block_transposition)


def _tile(length: int, width: int, itemsize: int) -> int:
    """Return the places of a tile: of some whole matrices, or of a part of one."""
    place = width * itemsize
    if length * place <= min(_WHOLE_BYTES, _WHOLE * itemsize):
        return max(1, _TILE_BYTES // (length * place)) * length
    parts = -(-length // max(_TILE_BYTES // place, _RUN))
    return min(length, round_up(-(-length // parts), SECTOR // itemsize))


@cache
def _arrangement(
    tile: int, width: int, itemsize: int, side: int, least: int, most: int
) -> tuple[int, int]:
    """Return the pack of (width, length) and the row that cost least together.

    The pack has `least` elements or more, but `most` at most. Rows of many elements make packs of
    neighbouring columns meet in one bank.
    """
    least = max(least, min(most, max(1, _WORD // itemsize)))
    ways = []
    for run in (pack for pack in (1, 2, 4, 8) if least <= pack <= most):
        first = round_up(tile, run)
        for row in range(first, first + _BANKS * _WORD // itemsize, run):
            accesses = _accesses(width, row, side, itemsize)
            ways.append((accesses / side + _RUN_COST / run, row, run))
    _, row, run = min(ways)
    return run, row


def _accesses(width: int, row: int, pack: int, itemsize: int) -> int:
    """Return how often a warp accesses shared memory for packs of neighbours of (length, width)."""
    accesses = 0
    for first in range(pack):
        banks: dict[int, set[int]] = {}
        for element in range(first, WARP * pack, pack):
            word = (element % width * row + element // width) * itemsize // _WORD
            banks.setdefault(word % _BANKS, set()).add(word)
        accesses += max(map(len, banks.values()))
    return accesses


@cache
def transpose_blocks_arguments() -> np.dtype[Any]:
    """Return the layout of the C++ struct TransposeBlocksArguments."""
    return struct("*from *to blocks")
