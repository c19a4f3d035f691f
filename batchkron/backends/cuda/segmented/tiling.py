"""Tilings of mode multiplies that are summed over lists of edges, and tables of the edges.

An edge adds a matrix times an input block (child), along one mode, to an output block (node). Pure
arithmetic, no device needed; the kernel's contract is in ``csrc/cuda/segmented/general.cuh``.
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

WORD = 16  # bytes; the addresses of matrices are multiples
NUM_TEAM_COUNTS = 5  # a node's edges are shared by 16, 8, 4, 2 or 1 teams, as in the kernel
MAX_BLOCKS = 2**31 - 1  # largest number of input or output blocks: edges have 32-bit numbers
# Numbers below were chosen by hand where no source is given.
_RESULT_REGISTERS = 20  # registers of a thread for its sums, 4 bytes each
_MAX_ITEMS = 4  # largest number of fibres that a thread multiplies at a time
_MAX_SUBWARP_ITEMS = 2  # the same for teams smaller than a warp, so that they read whole sectors
_MAX_TEAM_THREADS = 512  # largest number of threads that compute a node together
_THREADS_PER_MULTIPROCESSOR = 1024  # wanted threads; with fewer it often waits for memory
_SHARED_TARGET = 48 << 10  # bytes of shared memory that a thread block should not exceed
# Largest number of edges of a node: teams that share it count up to 512 beyond its last edge.
_MAX_NODE_EDGES = 2**31 - 1 - 512
_SHARING_BLOCK_THREADS = 256  # threads of a thread block whose teams may share nodes
_MIN_SORTED_EDGES = 8  # nodes with up to this many edges are one class and keep their order
_MAX_TEAM_EDGES = 32  # largest number of a node's edges for each team that shares the node
_COLUMNS_BYTES = 160  # bytes of columns that a thread has in registers, as in the kernel
# Largest number of teams above a warp in a thread block; they read the same blocks through the
# first-level cache.
_MAX_LARGE_TEAMS = 8


@dataclass(frozen=True, slots=True)
class SegmentMode:
    """A multiply along one mode of a block, (L, C, R) -> (L, K, R).

    A thread has ``items`` of the L R fibres at a time, and computes ``tile`` of the K results of
    each.
    """

    L: int
    C: int
    K: int
    R: int
    items: int = 1
    tile: int = 1


@dataclass(frozen=True)
class SegmentTiling:
    """How one kernel computes nodes.

    Attributes
    ----------
    modes : tuple of SegmentMode
        The mode multiplies; all have the same size of input and of output blocks.
    team : int
        Threads that compute a node.
    teams : int
        Teams of a thread block.
    width : int
        Vectors (columns of the innermost axis) that a team computes at a time.
    in_shared : bool
        Whether sums are kept in shared memory from one mode to the next.
    itemsize : int
        Bytes of an element.
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
        """Return how many nodes are shared by 16, 8, 4, 2 and 1 teams, and the thread blocks.

        A team has one edge of its node, or as many more as let all teams fit on the device at the
        same time, up to `_MAX_TEAM_EDGES`.
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
        """Estimated threads that need three quarters of a multiprocessor's registers."""
        held = max(_held_bytes(mode, self.itemsize) for mode in self.modes) // 4
        return min(_THREADS_PER_MULTIPROCESSOR, 3 * REGISTER_FILE // 4 // (32 + 5 * held // 4))

    @property
    def pieces(self) -> int:
        """Thread blocks that can share a large block, if there is one mode only; else 1."""
        if self.in_shared or len(self.modes) > 1:
            return 1
        (mode,) = self.modes
        return -(-mode.L * mode.R * self.width // (self.team * mode.items))


def result_tile(outputs: int, itemsize: int) -> int:
    """Return how many results of a fibre a thread computes at a time: all, or 8 or 4 of them."""
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
    """Return the tiling for ``nodes`` nodes of each of ``slabs`` sets of ``inner`` vectors.

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
    )  # larger ones leave a thread too few registers
    teams = _teams(team, max_threads, nodes * slabs, limits)
    while teams > 1 and teams * size > _SHARED_TARGET:
        teams //= 2
    return SegmentTiling(cut, team, teams if in_shared else 1, width, in_shared, itemsize)


def _teams(team: int, max_threads: int, nodes: int, limits: DeviceLimits) -> int:
    """Return the teams of a thread block: several large ones only if that fills the device."""
    if team <= WARP:
        return _SHARING_BLOCK_THREADS // team
    teams = max(1, min(_MAX_LARGE_TEAMS, max_threads // team))
    while teams > 1 and nodes < 4 * teams * limits.multiprocessors:
        teams //= 2
    return max(teams, _SHARING_BLOCK_THREADS // team)


def _width(mode: SegmentMode, itemsize: int, inner: int) -> int:
    """Return how many vectors are computed together: at least a 32-byte sector, if possible."""
    if inner == 1:
        return 1
    size = mode.L * max(mode.C, mode.K) * mode.R * itemsize
    width, minimum = min(32, power_of_two(inner)), max(2, 32 // itemsize)
    while width > minimum and width * size > _SHARED_TARGET:
        width //= 2
    return width


def column_pitch(mode: SegmentMode, itemsize: int) -> int:
    """Return the distance between columns of a matrix in the kernel's layout, in elements."""
    tile = result_tile(mode.K, itemsize)
    if tile < mode.K:
        return -(-mode.K // tile) * tile
    size = tile * itemsize
    unit = 16 if size > 8 else 8 if size > 4 else 4
    return -(-size // unit) * unit // itemsize


def _held_bytes(mode: SegmentMode, itemsize: int) -> int:
    """Return the bytes that a thread has in registers: sums and some columns of a matrix."""
    width = column_pitch(mode, itemsize) if mode.tile == mode.K else mode.tile
    column = (width + mode.items) * itemsize
    columns = min(mode.C, max(1, _COLUMNS_BYTES // column))
    return columns * column + mode.items * mode.tile * itemsize


def matrix_words(mode: SegmentMode, itemsize: int) -> int:
    """Return the 16-byte words that a matrix of a mode takes in the kernel's layout."""
    return -(-mode.C * column_pitch(mode, itemsize) * itemsize // WORD)


def laid_out_matrices(mode: SegmentMode, matrices: Array) -> Array:
    """Return matrices (count, K, C) in the kernel's layout: column-major, columns padded.

    Each matrix takes a whole number of 16-byte words.
    """
    count, itemsize = len(matrices), matrices.itemsize
    pitch = column_pitch(mode, itemsize)
    result = np.zeros((count, matrix_words(mode, itemsize) * WORD // itemsize), matrices.dtype)
    columns = result[:, : mode.C * pitch].reshape(count, mode.C, pitch)
    columns[:, :, : mode.K] = matrices.swapaxes(1, 2)
    return result.reshape(-1)


class EdgeList(NamedTuple):
    """The edges along one mode into the blocks of one vector.

    Attributes
    ----------
    mode : int
        Index of a `SegmentMode`.
    target : int
        The vector's first block.
    starts : ndarray of int64, (blocks + 1,)
        Block i has the edges ``starts[i]`` to ``starts[i + 1] - 1``.
    children : ndarray of int64, (edges,)
        The input block of each edge.
    words : ndarray of int64, (edges,)
        The first 16-byte word of each edge's matrix.
    """

    mode: int
    target: int
    starts: _Ids
    children: _Ids
    words: _Ids

    def outputs(self) -> _Ids:
        """Return the output block of each edge."""
        counts = np.diff(self.starts)
        return np.repeat(np.arange(self.target, self.target + len(counts)), counts)


class NodeClass(NamedTuple):
    """A class of nodes of similar length: ``nodes`` of them have up to ``edges`` edges.

    ``edges`` is a power of two.
    """

    edges: int
    nodes: int


@dataclass(frozen=True)
class EdgeTable:
    """All edges into some blocks, as one launch takes them.

    Attributes
    ----------
    targets : ndarray of int32, (nodes,)
        The nodes' output blocks, sorted by class. Within a class the original order is kept, in
        which neighbours read the same blocks; one thread block computes them.
    starts : ndarray of int64, (nodes * modes + 1,)
        Edges of node i and mode m: ``starts[i * modes + m]`` to ``starts[i * modes + m + 1] - 1``.
    edges : ndarray of int32, (edges, 2)
        Input block and first word of the matrix of each edge.
    classes : tuple of NodeClass
        The classes of nodes, those with the most edges first.
    """

    targets: NDArray[np.int32]
    starts: _Ids
    edges: NDArray[np.int32]
    classes: tuple[NodeClass, ...]


def edge_table(
    vectors: Sequence[tuple[int, int]], lists: Sequence[EdgeList], modes: int
) -> EdgeTable:
    """Gather edges by node and mode; edges of the same node and mode keep the order of the lists.

    Parameters
    ----------
    vectors : sequence of (int, int)
        First block and number of blocks of each vector that is computed.
    lists : sequence of EdgeList
        All edges into these vectors.
    modes : int
        Number of modes.

    Raises
    ------
    ValueError
        If there are too many blocks, or matrices are too large, for 32-bit numbers.
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
    """Return the layout of the C++ struct SegmentedArguments."""
    pointers = pointer_fields("x", "y", "scratch", "starts", "edges", "targets", "matrices")
    sizes = size_fields("outer", "inner", "num_inputs", "num_outputs", "num_scratch", "accumulate")
    nodes_by_team_count = "nodes_by_team_count", np.int64, (NUM_TEAM_COUNTS,)
    fields = [*pointers, *size_fields("nodes"), nodes_by_team_count, *sizes, ("alpha", dtype)]
    return np.dtype(fields, align=True)
