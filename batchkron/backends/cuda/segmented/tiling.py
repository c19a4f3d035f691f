"""How sums of mode multiplies over lists of edges are cut for a device, and their tables.

Pure arithmetic, without any device: ``csrc/cuda/segmented/general.cuh`` has the kernel's contract.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from batchkron.backends.cuda.runtime.arguments import pointer_fields, size_fields
from batchkron.backends.cuda.runtime.hardware import (
    MAX_BLOCK_THREADS,
    REGISTER_FILE,
    WARP,
    DeviceLimits,
    power_of_two,
)
from batchkron.backends.cuda.runtime.program import SCALARS, Program, flag, template_type
from batchkron.spec.kron import Array

__all__ = [
    "EdgeList",
    "EdgeTable",
    "NodeClass",
    "SegmentMode",
    "SegmentTiling",
    "edge_table",
    "laid_out_matrices",
    "matrix_words",
    "segment_tiling",
    "segmented_arguments",
    "segmented_program",
]

_Ids: TypeAlias = NDArray[np.int64]

WORD = 16  # bytes; matrices begin at multiples
NUM_TEAM_COUNTS = 5  # a node's edges are shared by 16, 8, 4, 2 or 1 teams
MAX_BLOCKS = 2**31 - 1  # of the inputs, or of the outputs: edges number them in 32 bits
_RESULT_REGISTERS = 20  # of a thread, for its sums
_MAX_ITEMS = 4  # fibres of a thread at a time; chosen by hand
_MAX_SUBWARP_ITEMS = 2  # the same of teams smaller than a warp, so that they read whole sectors
_MAX_TEAM_THREADS = 512  # threads that share a node; chosen by hand
_THREADS_PER_MULTIPROCESSOR = 1024  # fewer leave it waiting for memory
_SHARED_TARGET = 48 << 10  # of a thread block
_MAX_NODE_EDGES = 2**31 - 1 - 512  # teams that share a node count up to 512 beyond its last edge
_SHARING_BLOCK_THREADS = 256  # of a thread block whose teams may share nodes
_MIN_SORTED_EDGES = 8  # nodes with up to so many edges are one class and keep their order
_MAX_TEAM_EDGES = 32  # of a node for each of the teams that share it; chosen by hand
_COLUMNS_BYTES = 160  # of an edge that a thread has in registers, as in the kernel
_MAX_LARGE_TEAMS = 8  # of a thread block, which read the same blocks through the first-level cache


@dataclass(frozen=True, slots=True)
class SegmentMode:
    """A multiply (L, C, R) -> (L, K, R) of a block.

    A thread has ``items`` pairs of L × R at a time, and ``tile`` of the K results of each.
    """

    L: int
    C: int
    K: int
    R: int
    items: int = 1
    tile: int = 1


@dataclass(frozen=True)
class SegmentTiling:
    """How one kernel makes nodes.

    Attributes
    ----------
    modes : tuple of SegmentMode
        All map blocks of one size to blocks of one size.
    team : int
        Threads that make a node.
    teams : int
        Of a thread block.
    width : int
        Columns of the innermost axis that a team takes at a time.
    in_shared : bool
        Whether sums are in shared memory between modes.
    itemsize : int
    """

    modes: tuple[SegmentMode, ...]
    team: int
    teams: int
    width: int
    in_shared: bool
    itemsize: int

    @property
    def output_size(self) -> int:
        """Elements of an output block."""
        mode = self.modes[0]
        return mode.L * mode.K * mode.R

    @property
    def block(self) -> int:
        """Threads of a thread block."""
        return self.team * self.teams

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory of a thread block."""
        return self.in_shared * self.teams * self.output_size * self.width * self.itemsize

    def nodes_by_team_count(
        self, table: EdgeTable, slabs: int, limits: DeviceLimits
    ) -> tuple[list[int], int]:
        """Return how many nodes each number of teams shares, most first, and the thread blocks.

        A team has one edge of each node, or more until all teams are on the device at a time.
        """
        maximum = min(self.teams, 1 << NUM_TEAM_COUNTS - 1)
        teams = limits.multiprocessors * self._resident // self.team

        def teams_per_node(kind: NodeClass) -> int:
            return max(1, min(maximum, kind.edges // share))

        share = 1
        while share < _MAX_TEAM_EDGES and (
            slabs * sum(kind.nodes * teams_per_node(kind) for kind in table.classes) > teams
        ):
            share *= 2
        counts = [0] * NUM_TEAM_COUNTS
        for kind in table.classes:
            counts[(maximum // teams_per_node(kind)).bit_length() - 1] += kind.nodes
        in_block = (self.teams // max(1, maximum >> k) for k in range(NUM_TEAM_COUNTS))
        return counts, sum(-(-n // own) for n, own in zip(counts, in_block, strict=True))

    @property
    def _resident(self) -> int:
        """Estimated threads of a multiprocessor that leave it a quarter of its registers."""
        held = max(_held_bytes(mode, self.itemsize) for mode in self.modes) // 4
        return min(_THREADS_PER_MULTIPROCESSOR, 3 * REGISTER_FILE // 4 // (32 + 5 * held // 4))

    @property
    def pieces(self) -> int:
        """How many thread blocks can share the only mode's multiply of large blocks."""
        if self.in_shared or len(self.modes) > 1:
            return 1
        (mode,) = self.modes
        return -(-mode.L * mode.R * self.width // (self.team * mode.items))


def result_tile(outputs: int, itemsize: int) -> int:
    """Return how many results of a fibre a thread has at a time: all, or tiles of 8 or 4."""
    maximum = 4 if itemsize == 16 else 8
    if outputs <= maximum:
        return outputs
    return min((8, 4) if maximum == 8 else (4,), key=lambda tile: -(-outputs // tile) * tile)


def segment_tiling(
    modes: Sequence[SegmentMode],
    itemsize: int,
    nodes: int,
    slabs: int,
    inner: int,
    limits: DeviceLimits,
) -> SegmentTiling:
    """Return how a kernel makes ``nodes`` nodes of each of ``slabs`` sets of ``inner`` columns.

    A thread has as many results as its registers hold, unless there would be too few threads.
    """
    width = _width(modes[0], itemsize, inner)
    slabs *= -(-inner // width)
    tiles = [result_tile(mode.K, itemsize) for mode in modes]
    maximum = [
        max(1, min(_MAX_ITEMS, 4 * _RESULT_REGISTERS // (tile * itemsize))) for tile in tiles
    ]
    pairs = [mode.L * mode.R * width for mode in modes]
    wanted = limits.multiprocessors * _THREADS_PER_MULTIPROCESSOR
    team = 1
    while team < min(_MAX_TEAM_THREADS, power_of_two(max(pairs))) and (
        nodes * slabs * team < wanted
        or any(
            team * (m if team >= WARP else min(m, _MAX_SUBWARP_ITEMS)) < p
            for m, p in zip(maximum, pairs, strict=True)
        )
    ):
        team *= 2
    cut = tuple(
        SegmentMode(mode.L, mode.C, mode.K, mode.R, min(m, -(-p // team)), tile)
        for mode, m, p, tile in zip(modes, maximum, pairs, tiles, strict=True)
    )
    size = cut[0].L * cut[0].K * cut[0].R * width * itemsize
    in_shared = size <= (limits.shared_bytes if len(cut) > 1 else _SHARED_TARGET)
    max_threads = (
        MAX_BLOCK_THREADS if width == 1 and itemsize <= 8 else MAX_BLOCK_THREADS // 2
    )  # registers
    teams = _teams(team, max_threads, nodes * slabs, limits)
    while teams > 1 and teams * size > _SHARED_TARGET:
        teams //= 2
    return SegmentTiling(cut, team, teams if in_shared else 1, width, in_shared, itemsize)


def _teams(team: int, max_threads: int, nodes: int, limits: DeviceLimits) -> int:
    """Return the teams of a thread block: up to eight large ones if all processors have work."""
    if team <= WARP:
        return _SHARING_BLOCK_THREADS // team
    teams = max(1, min(_MAX_LARGE_TEAMS, max_threads // team))
    while teams > 1 and nodes < 4 * teams * limits.multiprocessors:
        teams //= 2
    return max(teams, _SHARING_BLOCK_THREADS // team)


def _width(mode: SegmentMode, itemsize: int, inner: int) -> int:
    """Return how many columns go together: those of a sector at least, if there are so many."""
    if inner == 1:
        return 1
    size = mode.L * max(mode.C, mode.K) * mode.R * itemsize
    width, minimum = min(32, power_of_two(inner)), max(2, 32 // itemsize)
    while width > minimum and width * size > _SHARED_TARGET:
        width //= 2
    return width


def column_pitch(mode: SegmentMode, itemsize: int) -> int:
    """Return the elements from one column of a matrix to the next."""
    tile = result_tile(mode.K, itemsize)
    if tile < mode.K:
        return -(-mode.K // tile) * tile
    size = tile * itemsize
    unit = 16 if size > 8 else 8 if size > 4 else 4
    return -(-size // unit) * unit // itemsize


def _held_bytes(mode: SegmentMode, itemsize: int) -> int:
    """Return what a thread has in registers: sums, and the columns that are there at a time."""
    width = column_pitch(mode, itemsize) if mode.tile == mode.K else mode.tile
    column = (width + mode.items) * itemsize
    columns = min(mode.C, max(1, _COLUMNS_BYTES // column))
    return columns * column + mode.items * mode.tile * itemsize


def matrix_words(mode: SegmentMode, itemsize: int) -> int:
    """Return the words that a matrix of a mode takes."""
    return -(-mode.C * column_pitch(mode, itemsize) * itemsize // WORD)


def laid_out_matrices(mode: SegmentMode, matrices: Array) -> Array:
    """Return matrices (count, K, C) as the kernel reads them, of whole words each."""
    count, itemsize = len(matrices), matrices.itemsize
    pitch = column_pitch(mode, itemsize)
    result = np.zeros((count, matrix_words(mode, itemsize) * WORD // itemsize), matrices.dtype)
    columns = result[:, : mode.C * pitch].reshape(count, mode.C, pitch)
    columns[:, :, : mode.K] = matrices.swapaxes(1, 2)
    return result.reshape(-1)


class EdgeList(NamedTuple):
    """Edges of one mode into the blocks of one vector.

    Attributes
    ----------
    mode : int
        Number of a `SegmentMode`.
    target : int
        The vector's first block.
    starts : ndarray of int64, (blocks + 1,)
        Block i has the edges ``starts[i]`` to ``starts[i + 1] - 1``.
    children : ndarray of int64, (edges,)
        Blocks that are multiplied.
    words : ndarray of int64, (edges,)
        Where the matrices begin.
    """

    mode: int
    target: int
    starts: _Ids
    children: _Ids
    words: _Ids

    def outputs(self) -> _Ids:
        """Return the block that each edge adds to."""
        counts = np.diff(self.starts)
        return np.repeat(np.arange(self.target, self.target + len(counts)), counts)


class NodeClass(NamedTuple):
    """So many nodes have up to so many edges, a power of two."""

    edges: int
    nodes: int


@dataclass(frozen=True)
class EdgeTable:
    """All edges into some blocks, as one launch takes them.

    Attributes
    ----------
    targets : ndarray of int32, (nodes,)
        By their classes, and in order within these: neighbours have edges to the same blocks, and
        are made by one thread block.
    starts : ndarray of int64, (nodes * modes + 1,)
        Edges of node i and mode m: ``starts[i * modes + m]`` to ``starts[i * modes + m + 1] - 1``.
    edges : ndarray of int32, (edges, 2)
        Child and matrix of each.
    classes : tuple of NodeClass
        Those of the most edges first.
    """

    targets: NDArray[np.int32]
    starts: _Ids
    edges: NDArray[np.int32]
    classes: tuple[NodeClass, ...]


def edge_table(
    vectors: Sequence[tuple[int, int]], lists: Sequence[EdgeList], modes: int
) -> EdgeTable:
    """Gather edges by node and mode, those of one node and mode in the order of the lists.

    Parameters
    ----------
    vectors : sequence of (int, int)
        First block and number of blocks of each vector that is made.
    lists : sequence of EdgeList
        All edges into these.
    modes : int
        How many modes there are.

    Raises
    ------
    ValueError
        If blocks or matrices cannot be numbered in 32 bits.
    """
    blocks = np.sort(np.concatenate([np.arange(a, a + n) for a, n in vectors]))
    numbers = [np.concatenate(part) for part in zip(*map(_columns, lists), strict=True)]
    outputs, mode, children, words = numbers or [np.zeros(0, np.int64)] * 4
    for ids, what in ((blocks, "outputs"), (children, "inputs"), (words, "words of matrices")):
        if ids.max(initial=0) > MAX_BLOCKS:
            raise ValueError(
                f"{what} and vectors in between number {ids.max() + 1}; a device takes up to 2^31"
            )
    places = np.searchsorted(blocks, outputs)
    counts = np.bincount(places, minlength=len(blocks))
    if counts.max(initial=0) > _MAX_NODE_EDGES:
        raise ValueError(f"a node has {counts.max()} edges; a device takes up to {_MAX_NODE_EDGES}")
    powers = np.ceil(np.log2(np.maximum(counts, _MIN_SORTED_EDGES))).astype(np.int64)
    order = np.argsort(-powers, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    keys = rank[places] * modes + mode
    starts = np.zeros(len(blocks) * modes + 1, np.int64)
    np.cumsum(np.bincount(keys, minlength=len(blocks) * modes), out=starts[1:])
    by_key = np.argsort(keys, kind="stable")
    edges = np.stack([children[by_key], words[by_key]], axis=1).astype(np.int32)
    targets = blocks[order].astype(np.int32)
    found = np.unique(powers, return_counts=True)
    classes = [NodeClass(1 << int(power), int(n)) for power, n in zip(*found, strict=True)]
    return EdgeTable(targets, starts, edges, tuple(reversed(classes)))


def _columns(one: EdgeList) -> tuple[_Ids, ...]:
    return one.outputs(), np.full(len(one.children), one.mode), one.children, one.words


def segmented_program(dtype: np.dtype[np.generic], tiling: SegmentTiling) -> Program:
    """Return the kernel of mode multiplies that are summed over lists of edges."""
    cut = template_type(
        "SegmentCut", tiling.team, tiling.teams, tiling.width, flag(tiling.in_shared)
    )
    modes = (
        template_type("SegmentMode", mode.L, mode.C, mode.K, mode.R, mode.items, mode.tile)
        for mode in tiling.modes
    )
    return Program(
        "cuda/segmented/general.cuh",
        template_type("segmented_multiply", SCALARS[dtype], cut, *modes),
    )


@cache
def segmented_arguments(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return SegmentedArguments."""
    pointers = pointer_fields("x", "y", "scratch", "starts", "edges", "targets", "matrices")
    sizes = size_fields("outer", "inner", "num_inputs", "num_outputs", "num_scratch", "accumulate")
    nodes_by_team_count = "nodes_by_team_count", np.int64, (NUM_TEAM_COUNTS,)
    fields = [*pointers, *size_fields("nodes"), nodes_by_team_count, *sizes, ("alpha", dtype)]
    return np.dtype(fields, align=True)
