"""The kernel of copies of rectangles, ``csrc/cuda/exchange/copies.cuh``, and its arguments.

Nothing here needs a device: arrays are layouts, NumPy arrays with the addresses of the device.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from batchkron.backends.cuda.kernel import THREADS
from batchkron.backends.cuda.runtime.program import Program, device_program
from batchkron.spec.kron import Array

MAX_RECTANGLES = 32  # kMaxRectangles: as many as fit into 4096 bytes of arguments
_TILE_EDGE = 32  # kTileEdge
_TILE_WORDS = _TILE_EDGE**2
_MAX_WORDS = 1 << 30  # of a rectangle; the kernel counts in 32 bits, up to the end of the last tile
WORDS = {16: "batchkron::Word16", 8: "unsigned long long", 4: "unsigned"}

_RECTANGLE = np.dtype(
    [
        ("to", "u8"),
        ("from", "u8"),
        ("sizes", "i8", (4,)),
        ("to_strides", "i8", (3,)),
        ("from_strides", "i8", (3,)),
        ("tiles", "i8"),
    ]
)

ARGUMENTS = np.dtype([("count", "i8"), ("rectangles", _RECTANGLE, (MAX_RECTANGLES,))])
"""The C++ struct CopyArguments, of any word."""


@dataclass(frozen=True, slots=True)
class Copies:
    """Rectangles copied by words of ``word`` bytes; ``turned``: their contiguous axes differ."""

    word: int
    turned: bool
    arguments: Array
    tiles: int

    def program(self) -> Program:
        """Return the kernel."""
        options = WORDS[self.word], THREADS, self.turned
        return device_program("exchange/copies", "copy_rectangles", *options)

    @property
    def shared_bytes(self) -> int:
        """The bytes of shared memory of a thread block."""
        return _TILE_EDGE * (_TILE_EDGE + 1) * self.word if self.turned else 0


_Rectangle = tuple[int, int, list[int], list[int], list[int]]
"""A copy of four axes, the last of which is contiguous: the addresses of target and source, the
sizes, and the strides of both in bytes."""


def copies_of(pairs: Sequence[tuple[Array, Array]]) -> list[Copies]:
    """Return the launches that copy arrays of four axes.

    ``pairs``: layouts of one shape (a, b, c, i) and of one dtype of 4, 8 or 16 bytes, whose last
    axis is contiguous.
    """
    groups: dict[tuple[int, bool], list[_Rectangle]] = {}
    for target, source in pairs:
        if not target.size:
            continue
        for to, begin, sizes, *strides in _cut(_rectangle(target, source)):
            run, (to_strides, from_strides) = sizes[3] * target.itemsize, strides
            numbers = to, begin, run, *to_strides[:3], *from_strides[:3]
            word = next(word for word in (16, 8, 4) if not any(n % word for n in numbers))
            # whether axes 1 and 2 are contiguous, one in the source and the other in the target
            turned = run == word == from_strides[1] == to_strides[2]
            to_strides, from_strides = ([n // word for n in each[:3]] for each in strides)
            found = to, begin, [*sizes[:3], run // word], to_strides, from_strides
            groups.setdefault((word, turned), []).append(found)
    return [
        _launch(word, turned, found[begin : begin + MAX_RECTANGLES])
        for (word, turned), found in groups.items()
        for begin in range(0, len(found), MAX_RECTANGLES)
    ]


def _rectangle(target: Array, source: Array) -> _Rectangle:
    """Return a copy; axes that follow each other on both sides are one."""
    item = target.itemsize
    if _runs_along_b(target, source):
        target, source = (array.transpose(0, 2, 1, 3) for array in (target, source))
    sizes, to, given = list(target.shape), list(target.strides), list(source.strides)
    for axis in range(4):  # strides of axes of one element are arbitrary
        if sizes[axis] == 1:
            to[axis] = given[axis] = 0
    to[3] = given[3] = item
    while sizes[2] == 1 or to[2] == given[2] == sizes[3] * item:
        if sizes[:3] == [1, 1, 1]:
            break
        sizes = [1, *sizes[:2], sizes[2] * sizes[3]]
        to, given = [0, *to[:2], item], [0, *given[:2], item]
    if given[2] == sizes[3] * item and given[1] != given[2]:  # contiguous in the source
        for each in (sizes, to, given):
            each[1], each[2] = each[2], each[1]
    first, second = (int(array.__array_interface__["data"][0]) for array in (target, source))
    return first, second, sizes, to, given


def _runs_along_b(target: Array, source: Array) -> bool:
    """Whether neighbours along axis b lie side by side on both sides, and those along c do not."""
    item, (_, rows, columns, run) = target.itemsize, target.shape
    strides = [array.strides[1:3] for array in (target, source)]
    beside = all(stride == (run * item) for stride, _ in strides)
    return rows > 1 and columns > 1 and beside and all(c != run * item for _, c in strides)


def _cut(whole: _Rectangle) -> Iterator[_Rectangle]:
    """Yield pieces of a rectangle that are small enough for the kernel."""
    to, source, sizes, to_strides, from_strides = whole
    if math.prod(sizes) <= _MAX_WORDS:
        yield whole
        return
    axis = 0 if math.prod(sizes[1:]) <= _MAX_WORDS else int(np.argmax(sizes))
    half = sizes[axis] // 2
    for begin, count in ((0, half), (half, sizes[axis] - half)):
        ends = to + begin * to_strides[axis], source + begin * from_strides[axis]
        part = [*sizes[:axis], count, *sizes[axis + 1 :]]
        yield from _cut((*ends, part, to_strides, from_strides))


def _launch(word: int, turned: bool, rectangles: Sequence[_Rectangle]) -> Copies:
    """Return the launch for rectangles whose sizes and strides are in words."""
    arguments, tiles = np.zeros(1, ARGUMENTS), 0
    arguments["count"] = len(rectangles)
    for k, each in enumerate(rectangles):
        sizes = each[2]
        if turned:
            tiles += sizes[0] * -(-sizes[1] // _TILE_EDGE) * -(-sizes[2] // _TILE_EDGE)
        else:
            tiles += -(-math.prod(sizes) // _TILE_WORDS)
        arguments["rectangles"][0, k] = (*each, tiles)
    return Copies(word, turned, arguments, tiles)
