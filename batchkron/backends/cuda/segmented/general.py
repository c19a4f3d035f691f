"""Tilings of mode multiplies that are summed over lists of edges.

An edge adds a matrix times an input block (child), along one mode, to an output block (node). The
kernel's contract is in ``csrc/cuda/segmented/general.cuh``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from batchkron.backends.cuda.kernel import Family, Kernel
from batchkron.backends.cuda.runtime.hardware import (
    MAX_BLOCK_THREADS,
    REGISTER_FILE,
    WARP,
    DeviceLimits,
    power_of_two,
)
from batchkron.backends.cuda.runtime.program import device_program, template_type
from batchkron.backends.cuda.segmented.edges import (
    NUM_GROUP_COUNTS,
    EdgeTable,
    SegmentMode,
    SumsShape,
    column_pitch,
    result_tile,
    sums_kernel,
)
from batchkron.spec.kron import Array

# Numbers below were chosen by hand where no source is given.
_RESULT_REGISTERS = 20  # registers of a thread for its sums, 4 bytes each
_MAX_ITEMS = 4  # largest number of fibres that a thread multiplies at a time
_MAX_SUBWARP_ITEMS = 2  # the same for groups smaller than a warp, so that they read whole sectors
_MAX_GROUP_THREADS = 512  # largest number of threads that compute a node together
_THREADS_PER_MULTIPROCESSOR = 1024  # wanted threads; with fewer it often waits for memory
_SHARED_TARGET = 48 << 10  # bytes of shared memory that a thread block should not exceed
_SHARING_BLOCK_THREADS = 256  # threads of a thread block whose groups may share nodes
_MAX_GROUP_EDGES = 32  # largest number of a node's edges for each group that shares the node
_COLUMNS_BYTES = 160  # bytes of columns that a thread has in registers, as in the kernel
# Largest number of groups above a warp in a thread block; they read the same blocks through the
# first-level cache.
_MAX_LARGE_GROUPS = 8


@dataclass(frozen=True)
class SegmentTiling:
    """How one kernel computes nodes."""

    # the mode multiplies; all have the same size of input and of output blocks
    modes: tuple[SegmentMode, ...]
    group: int  # threads that compute a node
    groups: int  # groups of a thread block
    width: int  # vectors (columns of the innermost axis) that a group computes at a time
    in_shared: bool  # whether sums are kept in shared memory from one mode to the next
    itemsize: int  # bytes of an element

    @property
    def output_size(self) -> int:
        """Elements of an output block."""
        mode = self.modes[0]
        return mode.L * mode.K * mode.R

    @property
    def block(self) -> int:
        """Threads of a thread block."""
        return self.group * self.groups

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory of a thread block."""
        return self.in_shared * self.groups * self.output_size * self.width * self.itemsize

    def arrays(self, table: EdgeTable) -> dict[str, Array]:
        """Return a table in the kernel's layout."""
        return {"starts": table.starts, "edges": table.edges, "targets": table.targets}

    def nodes_by_group_count(
        self, table: EdgeTable, slabs: int, limits: DeviceLimits
    ) -> tuple[list[int], int]:
        """Return how many nodes are shared by 16, 8, 4, 2 and 1 groups, and the thread blocks.

        A group has one edge of its node, or as many more as let all groups fit on the device at the
        same time, up to `_MAX_GROUP_EDGES`.
        """
        maximum = min(self.groups, 1 << NUM_GROUP_COUNTS - 1)
        groups = limits.multiprocessors * self._resident // self.group

        def groups_per_node(edges: int) -> int:
            return max(1, min(maximum, edges // share))

        share = 1
        while share < _MAX_GROUP_EDGES and (
            slabs * sum(nodes * groups_per_node(edges) for edges, nodes in table.classes) > groups
        ):
            share *= 2
        counts = [0] * NUM_GROUP_COUNTS
        for edges, nodes in table.classes:
            counts[(maximum // groups_per_node(edges)).bit_length() - 1] += nodes
        in_block = (self.groups // max(1, maximum >> k) for k in range(NUM_GROUP_COUNTS))
        return counts, sum(-(-n // own) for n, own in zip(counts, in_block, strict=True))

    @property
    def _resident(self) -> int:
        """Estimated threads that need three quarters of a multiprocessor's registers."""
        held = max(_held_bytes(mode, self.itemsize) for mode in self.modes) // 4
        return min(_THREADS_PER_MULTIPROCESSOR, 3 * REGISTER_FILE // 4 // (32 + 5 * held // 4))

    @property
    def pieces(self) -> int:
        """Thread blocks that can share a large block, if there is one mode only; else 1."""
        if self.in_shared or len(self.modes) > 1:
            return 1
        (mode,) = self.modes
        return -(-mode.L * mode.R * self.width // (self.group * mode.items))


def segment_tiling(
    modes: Sequence[SegmentMode],
    itemsize: int,
    nodes: int,
    slabs: int,
    inner: int,
    limits: DeviceLimits,
) -> SegmentTiling:
    """Return the tiling for ``nodes`` nodes of ``slabs`` sets of ``inner`` vectors."""
    width = _width(modes[0], itemsize, inner)
    slabs *= -(-inner // width)
    tiles = [result_tile(mode.K, itemsize) for mode in modes]
    maximum = [
        max(1, min(_MAX_ITEMS, 4 * _RESULT_REGISTERS // (tile * itemsize))) for tile in tiles
    ]
    pairs = [mode.L * mode.R * width for mode in modes]
    wanted = limits.multiprocessors * _THREADS_PER_MULTIPROCESSOR
    group = 1
    while group < min(_MAX_GROUP_THREADS, power_of_two(max(pairs))) and (
        nodes * slabs * group < wanted
        or any(
            group * (m if group >= WARP else min(m, _MAX_SUBWARP_ITEMS)) < p
            for m, p in zip(maximum, pairs, strict=True)
        )
    ):
        group *= 2
    cut = tuple(
        SegmentMode(mode.L, mode.C, mode.K, mode.R, min(m, -(-p // group)), tile)
        for mode, m, p, tile in zip(modes, maximum, pairs, tiles, strict=True)
    )
    size = cut[0].L * cut[0].K * cut[0].R * width * itemsize
    in_shared = size <= (limits.shared_bytes if len(cut) > 1 else _SHARED_TARGET)
    max_threads = (
        MAX_BLOCK_THREADS if width == 1 and itemsize <= 8 else MAX_BLOCK_THREADS // 2
    )  # larger ones leave a thread too few registers
    groups = _groups(group, max_threads, nodes * slabs, limits)
    while groups > 1 and groups * size > _SHARED_TARGET:
        groups //= 2
    return SegmentTiling(cut, group, groups if in_shared else 1, width, in_shared, itemsize)


def _groups(group: int, max_threads: int, nodes: int, limits: DeviceLimits) -> int:
    """Return the groups of a thread block: several large ones only if that fills the device."""
    if group <= WARP:
        return _SHARING_BLOCK_THREADS // group
    groups = max(1, min(_MAX_LARGE_GROUPS, max_threads // group))
    while groups > 1 and nodes < 4 * groups * limits.multiprocessors:
        groups //= 2
    return max(groups, _SHARING_BLOCK_THREADS // group)


def _width(mode: SegmentMode, itemsize: int, inner: int) -> int:
    """Return how many vectors are computed together: at least a 32-byte sector, if possible."""
    if inner == 1:
        return 1
    size = mode.L * max(mode.C, mode.K) * mode.R * itemsize
    width, minimum = min(32, power_of_two(inner)), max(2, 32 // itemsize)
    while width > minimum and width * size > _SHARED_TARGET:
        width //= 2
    return width


def _held_bytes(mode: SegmentMode, itemsize: int) -> int:
    """Return the bytes that a thread has in registers: sums and some columns of a matrix."""
    width = column_pitch(mode, itemsize) if mode.tile == mode.K else mode.tile
    column = (width + mode.items) * itemsize
    columns = min(mode.C, max(1, _COLUMNS_BYTES // column))
    return columns * column + mode.items * mode.tile * itemsize


def general_kernel(shape: SumsShape, device: DeviceLimits) -> Kernel:
    """Return the kernel for blocks of any size, which reads children straight from memory."""
    counts = shape.nodes, shape.outer, shape.inner
    tiling = segment_tiling(shape.modes, shape.dtype.itemsize, *counts, device)
    cut = template_type("SegmentCut", tiling.group, tiling.groups, tiling.width, tiling.in_shared)
    modes = (
        template_type("SegmentMode", mode.L, mode.C, mode.K, mode.R, mode.items, mode.tile)
        for mode in tiling.modes
    )
    program = device_program("segmented/general", "segmented_multiply", shape.dtype, cut, *modes)
    return sums_kernel(GENERAL, shape, tiling, program)


GENERAL = Family("segmented", "general", general_kernel)
