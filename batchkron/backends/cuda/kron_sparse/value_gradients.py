"""Gradients of the values of a Kronecker-sparse matrix: how the kernel's work is cut.

The kernel is ``csrc/cuda/kron_sparse/gradients.cuh``; where several thread blocks share a sum, the
kernel ``gram_total`` of ``csrc/cuda/gram/total.cuh`` adds their parts.

The estimated time of a kernel is

    launch + slowest(a multiprocessor's work, second-level cache, memory) + traffic of parts

with the costs that the kernels of products by panels have on ordinary cores.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import product
from math import prod
from typing import Any

import numpy as np

from batchkron.backends.cuda.costs import costs_for
from batchkron.backends.cuda.estimates import NANOSECOND
from batchkron.backends.cuda.kernel import Family, Kernel, LaunchShape, record
from batchkron.backends.cuda.kron_sparse.kernel import WORD
from batchkron.backends.cuda.runtime.arguments import struct
from batchkron.backends.cuda.runtime.hardware import (
    REGISTER_FILE,
    SECTOR,
    WARP,
    DeviceLimits,
    round_up,
    shared_bytes_for_blocks,
)
from batchkron.backends.cuda.runtime.program import device_program

# Numbers below were chosen by hand.
_OWN = (2, 4, 8)  # rows, and columns, of the sums of a thread
_SUM_REGISTERS = 64  # registers of a thread for its sums, 4 bytes each, at most
_OTHER_REGISTERS = 64  # and for all else
_SIDES = (1, 2, 3, 4, 6, 8, 12, 16)  # threads along rows, and along columns
_GROUPS = (1, 2, 4, 8)  # neighbouring j of a tile
_TEAMS = (16, 8, 4, 2, 1)  # teams of threads that share the vectors of a panel
_THREADS = 256  # of a thread block, at most
_DEPTH = 16  # vectors of a panel
_STAGES = 3  # panels in shared memory at a time
_MAX_BLOCKS = 4  # thread blocks of a multiprocessor, at most
_MIN_VECTORS = 8 * _DEPTH  # of a part at least, so that a thread block has work for its start
_HIDDEN = 0.8  # share of the smaller of (multiply-add time, time of shared memory) that is hidden
_MAX_VALUES = 2**31  # from so many on, a launch could not have a thread block for each tile
_MAX_DOUBLE = 32  # rows or columns up to which matrix units in float64 gain nothing


VALUE_GRADIENTS = "kron_sparse.gradients"
"""The kernel itself, as `kernel_family.without` names it."""


@dataclass(frozen=True, slots=True)
class GradientShape:
    """What to compute: sums over vectors n of gradient[n, i, k, j] x[n, i, l, j]."""

    # a, b, c, d: the matrix's pattern; none is zero
    a: int
    b: int
    c: int
    d: int
    count: int  # vectors, at least one
    last: bool  # whether vectors lie along the last axis
    dtype: str  # "float32" or "float64"

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return np.dtype(self.dtype).itemsize

    @property
    def values(self) -> int:
        """Number of sums."""
        return self.a * self.b * self.c * self.d


@dataclass(frozen=True, slots=True)
class GradientCut:
    """What the kernel is compiled for, see ``SparseGradients`` of the template."""

    group: int
    row_threads: int
    column_threads: int
    own_rows: int
    own_columns: int
    teams: int
    last: bool
    dtype: str
    blocks: int = 1

    @property
    def rows(self) -> int:
        """Rows k of a tile."""
        return self.row_threads * self.own_rows

    @property
    def columns(self) -> int:
        """Columns l of a tile."""
        return self.column_threads * self.own_columns

    @property
    def team(self) -> int:
        """Threads that hold the sums of a tile."""
        return self.group * self.row_threads * self.column_threads

    @property
    def threads(self) -> int:
        """Threads of a thread block."""
        return round_up(self.team * self.teams, WARP)

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory of a thread block: panels, later the sums of a team."""
        itemsize = np.dtype(self.dtype).itemsize
        row = round_up(round_up(self.rows, WORD // itemsize) + self.columns, 4)
        row += 4 if row % 8 == 0 else 0
        plane = _DEPTH * row + (WARP // self.group if self.group > 1 else 0)
        sums = self.team * self.own_rows * self.own_columns if self.teams > 1 else 0
        return max(_STAGES * self.group * plane, sums) * itemsize

    def tiles(self, shape: GradientShape) -> tuple[int, int, int]:
        """Return the tiles along rows, along columns, and of matrices (i, j)."""
        matrices = shape.a * -(-shape.d // self.group)
        return -(-shape.b // self.rows), -(-shape.c // self.columns), matrices


def kernel_of(shape: GradientShape, cut: GradientCut, parts: int, seconds: float) -> Kernel:
    """Return the kernel of (cut, parts), its variant; ``seconds`` include adding parts."""
    own = cut.own_rows, cut.own_columns, cut.teams
    options = cut.group, cut.row_threads, cut.column_threads, *own, _DEPTH, _STAGES, cut.blocks
    blocks = prod(cut.tiles(shape)) * parts
    workspace = parts * shape.values * shape.itemsize if parts > 1 else 0
    launch = LaunchShape(blocks, cut.threads, cut.blocks, cut.shared_bytes, workspace)
    sizes = {"a": shape.a, "b": shape.b, "c": shape.c, "d": shape.d}
    each = -(-shape.count // parts)  # vectors of a part; the last one may have fewer
    arguments = record(gradient_arguments(), count=shape.count, each=each, **sizes)
    types = np.dtype(cut.dtype), cut.last, *options
    program = device_program("kron_sparse/gradients", "kron_sparse_gradients", *types)
    return Kernel(GRADIENTS, shape, (cut, parts), program, launch, arguments, seconds)


@cache
def gradient_arguments() -> np.dtype[Any]:
    """Return the layout of the C++ struct KronSparseGradientArguments."""
    return struct("*x *gradient *parts count each a b c d")


def has_kernel(shape: GradientShape) -> bool:
    """Whether the kernel is worth its while: matrix units of libraries are faster in float64."""
    if shape.values >= _MAX_VALUES:
        return False
    if shape.dtype == "float64":
        return min(shape.b, shape.c) <= _MAX_DOUBLE
    return shape.dtype == "float32"


@lru_cache(maxsize=1024)
def gradient_kernel(shape: GradientShape, device: DeviceLimits) -> Kernel:
    """Return the kernel of the least estimated time."""
    timed = [(cut, *_parts(shape, cut, device)) for cut in _cuts(shape, device)]
    return kernel_of(shape, *min(timed, key=lambda one: one[2]))


GRADIENTS = Family("kron_sparse", "gradients", gradient_kernel)


def _cuts(shape: GradientShape, device: DeviceLimits) -> Iterator[GradientCut]:
    """Yield cuts whose tiles are not far too large."""
    groups = [one for one in _GROUPS if one < 2 * shape.d] if not shape.last else [1]
    words = shape.itemsize // 4
    for group, own_rows, own_columns in product(groups, _OWN, _OWN):
        if words * own_rows * own_columns > _SUM_REGISTERS:
            continue
        sides = _fitting(own_rows, shape.b), _fitting(own_columns, shape.c)
        for row_threads, column_threads in product(*sides):
            team = group * row_threads * column_threads
            teams = next((one for one in _TEAMS if one * team <= _THREADS), None)
            if teams is None:
                continue
            sizes = group, row_threads, column_threads, own_rows, own_columns, teams
            cut = GradientCut(*sizes, shape.last, shape.dtype)
            registers = cut.threads * (words * own_rows * own_columns + _OTHER_REGISTERS)
            for blocks in range(min(_MAX_BLOCKS, REGISTER_FILE // registers), 0, -1):
                room = min(shared_bytes_for_blocks(blocks, device), device.shared_bytes)
                if cut.shared_bytes <= room:
                    yield replace(cut, blocks=blocks)
                    break


def _fitting(own: int, number: int) -> list[int]:
    """Return numbers of threads up to the first whose tile is not smaller than ``number``."""
    least = min((one for one in _SIDES if one * own >= number), default=_SIDES[-1])
    return [one for one in _SIDES if one <= least]


def _parts(shape: GradientShape, cut: GradientCut, device: DeviceLimits) -> tuple[int, float]:
    """Return how many parts share a sum, and the estimated seconds."""
    down, across, matrices = cut.tiles(shape)
    tiles = down * across * matrices
    wanted = cut.blocks * device.multiprocessors // tiles
    parts = max(1, min(wanted, shape.count // _MIN_VECTORS))
    each = -(-shape.count // parts)
    parts = -(-shape.count // each)  # each one has a vector
    costs = costs_for(device.name).families["kron_sparse"]["tiles"]
    of_block = -(-each // _DEPTH) * (_panel(cut, costs) + costs["panel"] / cut.blocks)
    work = -(-tiles * parts // device.multiprocessors) * of_block
    vectors = shape.a * shape.d * shape.count * shape.itemsize  # bytes for each row or column
    # bytes of a sector for each one that is used
    run = cut.group * shape.itemsize
    wasted = max(1.0, SECTOR / run) if not shape.last and cut.group < shape.d else 1.0
    cached = vectors * (across * shape.b + down * shape.c) * wasted / costs["cache_rate"]
    memory = vectors * (shape.b + shape.c) / costs["memory_rate"]
    added = 0.0
    if parts > 1:
        added = costs["launch"] + 2 * parts * shape.values * shape.itemsize / costs["cache_rate"]
    nanoseconds = costs["launch"] + max(work, cached, memory) + added
    return parts, nanoseconds * NANOSECOND


def _panel(cut: GradientCut, costs: Mapping[str, float]) -> float:
    """Return the nanoseconds of a multiprocessor for a panel."""
    itemsize, warps = np.dtype(cut.dtype).itemsize, cut.threads // WARP
    steps = warps * (_DEPTH // cut.teams)
    rate = costs["core"] * 4 / itemsize
    multiply = steps * WARP * cut.own_rows * cut.own_columns / rate
    across = min(WARP, cut.column_threads)  # lanes that read different words
    down = -(-WARP // cut.column_threads)
    words = max(1, across * cut.own_columns * itemsize / (4 * WARP))
    words += max(1, down * cut.own_rows * itemsize / (4 * WARP))
    copies = _DEPTH * cut.group * (cut.rows + cut.columns) / WARP
    shared = steps * words * costs["fragment"] + 2 * copies * costs["copy"]
    return max(multiply, shared) + (1 - _HIDDEN) * min(multiply, shared)
