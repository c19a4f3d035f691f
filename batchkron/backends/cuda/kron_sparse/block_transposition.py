"""The kernel that transposes many small matrices, each in its place.

It is ``csrc/cuda/kron_sparse/transpose_blocks.cuh``. No device is needed here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import gcd
from typing import Any

import numpy as np

from batchkron.backends.cuda.kernel import record
from batchkron.backends.cuda.kernel_family import LaunchShape
from batchkron.backends.cuda.kron_sparse.kernel import WORD, common_pack
from batchkron.backends.cuda.runtime.arguments import pointer_fields, size_fields
from batchkron.backends.cuda.runtime.hardware import SECTOR, WARP, DeviceLimits, round_up
from batchkron.backends.cuda.runtime.program import Program, template_type
from batchkron.spec.kron import Array

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


@dataclass(frozen=True, slots=True)
class BlockTransposition:
    """Matrices (length, width) that are written as (width, length), or the other way round."""

    blocks: int  # how many there are
    length: int
    width: int
    itemsize: int  # bytes of an element
    to_long: bool  # whether (length, width) are read, and (width, length) written
    # bytes that addresses on the side of (length, width) are multiples of; those of the other side
    # are multiples of `WORD`
    alignment: int

    @property
    def bytes(self) -> int:
        """Bytes of all matrices."""
        return self.blocks * self.length * self.width * self.itemsize

    @property
    def fits(self) -> bool:
        """Whether a tile may be as small as it must be."""
        return min(self.length, _RUN) * self.width * self.itemsize <= 4 * _TILE_BYTES

    @property
    def tile(self) -> int:
        """Places of a tile: of some whole matrices, or of a part of one."""
        place = self.width * self.itemsize
        if self.length * place <= min(_WHOLE_BYTES, _WHOLE * self.itemsize):
            return max(1, _TILE_BYTES // (self.length * place)) * self.length
        parts = -(-self.length // max(_TILE_BYTES // place, _RUN))
        return min(self.length, round_up(-(-self.length // parts), SECTOR // self.itemsize))

    @property
    def packs(self) -> tuple[int, int]:
        """Elements that are moved together on the side of (length, width), and of the other."""
        most = gcd(self.tile, self.length)
        side = common_pack(max(1, self.alignment // self.itemsize), most * self.width)
        return side, self._arrangement(side)[0]

    @property
    def row(self) -> int:
        """Places from one column to the next in shared memory, a multiple of the second pack."""
        return self._arrangement(self.packs[0])[1]

    def _arrangement(self, side: int) -> tuple[int, int]:
        most = common_pack(WORD // self.itemsize, gcd(self.tile, self.length))
        packs = _THREADS * (_WRITTEN if self.to_long else _READ)
        least = min(most, -(-self.tile * self.width // packs))
        return _arrangement(self.tile, self.width, self.itemsize, side, least, most)

    def program(self) -> Program:
        """Return the program to compile."""
        sizes = self.length, self.width, self.tile, self.row, _THREADS
        options = ELEMENTS[self.itemsize], *sizes, *self.packs, str(self.to_long).lower()
        header = "cuda/kron_sparse/transpose_blocks.cuh"
        return Program(header, template_type("kron_sparse_transpose_blocks", *options))

    def launch(self, device: DeviceLimits) -> LaunchShape:
        """Return the launch."""
        tile = self.tile
        together, parts = max(1, tile // self.length), -(-self.length // tile)
        tiles = -(-self.blocks // together) * parts
        blocks = min(tiles, _BLOCKS * device.multiprocessors)
        return LaunchShape(blocks, _THREADS, 1, self.row * self.width * self.itemsize)

    def arguments(self) -> Array:
        """Return the kernel's arguments, without addresses."""
        return record(transpose_blocks_arguments(), blocks=self.blocks)


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
    return np.dtype([*pointer_fields("from", "to"), *size_fields("blocks")], align=True)
