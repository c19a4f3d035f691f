"""Tilings of sums over edges whose input blocks (children) are staged in shared memory.

A group of threads computes one output block (a node). It loads each child once for a bundle of
neighbouring modes and multiplies it along all of them. The kernel's contract is in
``csrc/cuda/segmented/staged.cuh``. Without this family, the six cells that have it took 1.74 times
as long in the mean (H200, docs/results/gpu.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from batchkron.backends.cuda.kernel import Family, Kernel
from batchkron.backends.cuda.runtime.hardware import LINE, DeviceLimits, resident_blocks, round_up
from batchkron.backends.cuda.runtime.program import device_program, template_type
from batchkron.backends.cuda.segmented.edges import (
    NUM_GROUP_COUNTS,
    EdgeTable,
    SegmentMode,
    SumsShape,
    column_pitch,
    sums_kernel,
)
from batchkron.spec.kron import Array

# Numbers below were chosen by hand where no source is given.
_MAX_BUNDLE_MODES = 3  # largest number of modes of a bundle, as in the kernel
# Largest number of children: a load has 32 bits for the child's number and a bit per mode.
MAX_CHILDREN = 1 << 31 - _MAX_BUNDLE_MODES
_SIZES = (3, 5, 7)  # supported mode sizes; with even ones, bundles would begin in the same banks
_MIN_BLOCK_ELEMENTS = 300  # elements of a block from which children are staged in shared memory
_SUM_REGISTERS = 72  # registers of a thread for its sums, 4 bytes each
_GROUPS = (32, 64, 128)  # choices for the threads that compute a node
_THREADS = 64  # threads of a thread block
_MAX_BLOCK_THREADS = 128  # the same if all nodes fit on the device at the same time
# From this many registers for sums on, a thread needs 168 registers in all.
_MANY_SUM_REGISTERS = 41
# Threads resident on a multiprocessor, by registers of a thread (65536 registers in all).
_RESIDENT_THREADS = {168: 384, 128: 512, 102: 640}
_SLOTS = 2  # children of a group in shared memory: one is multiplied while the other is copied
# With fewer nodes per multiprocessor, all groups of a thread block share one node.
_MIN_NODES_PER_MULTIPROCESSOR = 16
# A node is also shared like that if it has at least this many edges, and this multiple of the mean.
_LONG_NODE_EDGES = 16
_LONG_NODE_RATIO = 4


@dataclass(frozen=True, slots=True)
class ModeBundle:
    """``modes`` neighbouring modes of size ``n``, of a block seen as (L, n^modes, R).

    A thread has up to ``items`` of the L R parts of n^modes elements.
    """

    n: int
    modes: int
    L: int
    R: int
    items: int

    @property
    def size(self) -> int:
        """Elements of one part, n^modes."""
        return int(self.n**self.modes)


@dataclass(frozen=True)
class StagedTiling:
    """How one kernel computes nodes, for one vector at a time."""

    bundles: tuple[ModeBundle, ...]  # bundles of modes, the last modes first
    group: int  # threads that compute a node
    groups: int  # groups of a thread block
    slots: int  # children of a group that are in shared memory
    blocks: int  # thread blocks that share a multiprocessor
    column: int  # elements from one column of a matrix to the next
    # whether children may lie in the scratch memory, which holds intermediate vectors
    between: bool
    itemsize: int  # bytes of an element

    width: ClassVar[int] = 1  # vectors that a group computes at a time
    pieces: ClassVar[int] = 1  # thread blocks that share a node, along the grid's third axis

    @property
    def block(self) -> int:
        """Threads of a thread block."""
        return self.group * self.groups

    def arrays(self, table: EdgeTable) -> dict[str, Array]:
        """Return a table's loads, which do not depend on the number of vectors."""
        starts, loads = staged_loads(table, self.bundles)
        return {"starts": starts, "edges": loads, "targets": table.targets}

    def nodes_by_group_count(
        self, table: EdgeTable, slabs: int, limits: DeviceLimits
    ) -> tuple[list[int], int]:
        """Return how many nodes each number of groups shares, and the number of thread blocks.

        The first entry of the list counts nodes with a whole thread block each; the other entries
        are 0: all other nodes have one group.
        """
        nodes, first = len(table.targets), 0
        if (
            self.groups > 1
            and nodes * slabs < _MIN_NODES_PER_MULTIPROCESSOR * limits.multiprocessors
        ):
            first = nodes
        elif self.groups > 1:
            minimum = max(_LONG_NODE_EDGES, _LONG_NODE_RATIO * len(table.edges) / nodes)
            first = sum(count for edges, count in table.classes if edges >= minimum)
        counts = [first] + [0] * (NUM_GROUP_COUNTS - 1)
        return counts, first - (first - nodes) // self.groups

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory of a thread block."""
        return self.groups * _group_bytes(self.bundles, self.slots, self.column, self.itemsize)


def _group_bytes(bundles: Sequence[ModeBundle], slots: int, column: int, itemsize: int) -> int:
    """Return a group's bytes of shared memory: sums, barriers and slots, each in whole lines."""
    block = math.prod(bundle.size for bundle in bundles) * itemsize
    matrix = round_up(bundles[0].n * column * itemsize, 16)
    slot = round_up(block, LINE) + LINE + round_up(_MAX_BUNDLE_MODES * matrix, LINE)
    return round_up(block, LINE) + LINE + slots * slot


def staged_tiling(
    modes: Sequence[SegmentMode], itemsize: int, nodes: int, between: bool, limits: DeviceLimits
) -> StagedTiling | None:
    """Return the tiling for ``nodes`` nodes, None where children should not be staged.

    ``modes`` must be all modes of a block, in order, with square matrices of one size. The thread
    group and the bundles with the least work (`_work`) are taken.
    """
    choices = _choices(modes, itemsize, limits)
    if not choices:
        return None
    group, plain = min(choices, key=lambda one: _work(one[1], one[0]))
    bundles = tuple(ModeBundle(b.n, b.modes, b.L, b.R, _items(b, group)) for b in plain)
    column = column_pitch(modes[0], itemsize)
    own = _group_bytes(bundles, _SLOTS, column, itemsize)
    resident = _resident(bundles, itemsize)
    for threads in (_MAX_BLOCK_THREADS, _THREADS):
        groups = max(1, threads // group)
        while groups > 1 and groups * own > limits.shared_bytes:
            groups //= 2
        blocks = min(resident_blocks(groups * own, limits), resident // (group * groups))
        if nodes <= blocks * limits.multiprocessors:
            break
    if groups * own > limits.shared_bytes:
        return None
    blocks = max(1, blocks)
    return StagedTiling(bundles, group, groups, _SLOTS, blocks, column, between, itemsize)


def _choices(
    modes: Sequence[SegmentMode], itemsize: int, limits: DeviceLimits
) -> list[tuple[int, tuple[ModeBundle, ...]]]:
    """Return the groups and bundles whose sums fit in registers, the smallest groups first."""
    n, size = modes[0].C, modes[0].L * modes[0].C * modes[0].R
    is_whole = all(mode.C == mode.K == n for mode in modes) and n ** len(modes) == size
    if limits.cluster == 1 or not is_whole or n not in _SIZES or size < _MIN_BLOCK_ELEMENTS:
        return []
    maximum = _SUM_REGISTERS * 4 // itemsize
    bundled = list(_bundles(n, len(modes), maximum))
    return [
        (group, bundles)
        for group in _GROUPS
        for bundles in bundled
        if all(_items(b, group) * b.size <= maximum for b in bundles)
    ]


def _resident(bundles: Sequence[ModeBundle], itemsize: int) -> int:
    """Return how many threads should share a multiprocessor, given the registers of their sums."""
    sums = max(bundle.items * bundle.size for bundle in bundles) * itemsize // 4
    has_one = all(bundle.items == 1 for bundle in bundles)
    return _RESIDENT_THREADS[168 if sums >= _MANY_SUM_REGISTERS else 102 if has_one else 128]


def _items(bundle: ModeBundle, group: int) -> int:
    return -(-bundle.L * bundle.R // group)


def _bundles(n: int, modes: int, maximum: int) -> Iterator[tuple[ModeBundle, ...]]:
    """Yield all ways to divide the modes into two or more bundles, the last modes first."""

    def cut(left: int) -> Iterator[tuple[int, ...]]:
        if left == 0:
            yield ()
        for count in range(1, min(left, _MAX_BUNDLE_MODES) + 1):
            if n**count <= maximum:
                for rest in cut(left - count):
                    yield (count, *rest)

    for counts in cut(modes):
        behind, bundles = 0, []
        for count in counts:
            before = modes - behind - count
            bundles.append(ModeBundle(n, count, n**before, n**behind, 1))
            behind += count
        if len(bundles) > 1:
            yield tuple(bundles)


def _work(bundles: Sequence[ModeBundle], group: int) -> float:
    """Return a node's estimated cost: elements read, idle threads included; 0.25 by hand."""
    modes = sum(b.modes for b in bundles)
    size = math.prod(b.size for b in bundles)
    reads = sum(b.modes * group * _items(b, group) * b.size for b in bundles) / modes
    return reads * (1 + 0.25 * len(bundles)) / size


def staged_loads(
    table: EdgeTable, bundles: Sequence[ModeBundle]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Gather the edges of a table by node, bundle and child; its modes are all of a block's.

    A load is a child with its matrices for the modes of a bundle.

    Loads of node i and bundle g: ``starts[i * bundles + g]`` to ``starts[i * bundles + g + 1] -
    1``. First ``8 * child + bits``, where bit m says whether mode m of the bundle has a matrix;
    then the first 16-byte word of each mode's matrix, -1 for none.
    """
    counts = [b.modes for b in bundles]
    modes = sum(counts)
    bundle_of, place_of = np.empty(modes, np.int64), np.empty(modes, np.int64)
    stop = modes
    for number, count in enumerate(counts):
        bundle_of[stop - count : stop], place_of[stop - count : stop] = number, np.arange(count)
        stop -= count
    edges = table.edges
    nodes, edges_of = len(table.targets), np.diff(table.starts)
    parts = np.arange(nodes)[:, None] * len(counts) + bundle_of
    part = np.repeat(parts.ravel(), edges_of)
    place = np.repeat(np.tile(place_of, nodes), edges_of)
    child = part * MAX_CHILDREN + edges[:, 0]  # sorts by part first, then by child
    order = np.argsort(child, kind="stable")  # keeps the order of modes for each child
    part, place, edges, child = part[order], place[order], edges[order], child[order]
    same_load = child[1:] == child[:-1]
    again = np.concatenate([[False], same_load & (place[1:] == place[:-1])])
    if again.any():  # edges that differ in their matrix only: these need loads of their own
        numbers = np.arange(len(again))
        again = numbers - np.maximum.accumulate(np.where(again, 0, numbers))
        order = np.lexsort((again, child))
        part, place, edges = part[order], place[order], edges[order]
        child, again = child[order], again[order]
        same_load = (child[1:] == child[:-1]) & (again[1:] == again[:-1])
    begins = np.concatenate([[True], ~same_load])[: len(part)]
    load = np.cumsum(begins) - 1
    loads = np.full((np.count_nonzero(begins), 1 + _MAX_BUNDLE_MODES), -1, np.int32)
    loads[:, 0] = edges[begins, 0]
    loads[load, 1 + place] = edges[:, 1]
    loads[:, 0] <<= _MAX_BUNDLE_MODES
    for number in range(_MAX_BUNDLE_MODES):
        loads[:, 0] |= (loads[:, 1 + number] >= 0).astype(np.int32) << number
    starts = np.zeros(nodes * len(counts) + 1, np.int64)
    np.cumsum(np.bincount(part[begins], minlength=len(starts) - 1), out=starts[1:])
    return starts, loads


def staged_kernel(shape: SumsShape, device: DeviceLimits) -> Kernel | None:
    """Return the kernel that copies whole children to shared memory, None where there is none.

    There is one for single vectors with blocks of ``_MIN_BLOCK_ELEMENTS`` or more whose modes have
    one size out of ``_SIZES``, if a load's 32-bit number can hold every child's number.
    """
    if shape.inner > 1 or shape.children > MAX_CHILDREN:
        return None
    nodes = shape.outer * shape.nodes
    tiling = staged_tiling(shape.modes, shape.dtype.itemsize, nodes, shape.between, device)
    if tiling is None:
        return None
    numbers = tiling.group, tiling.groups, tiling.slots, tiling.blocks, tiling.column
    cut = template_type("StagedCut", *numbers, tiling.between)
    bundles = (template_type("ModeBundle", b.n, b.modes, b.L, b.R, b.items) for b in tiling.bundles)
    program = device_program("segmented/staged", "staged_sums", shape.dtype, cut, *bundles)
    return sums_kernel(STAGED, shape, tiling, program)


STAGED = Family("segmented", "staged", staged_kernel)
