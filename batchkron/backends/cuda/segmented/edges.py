"""Tables of edges and the matrices that these multiply by, in memory as kernels read them.

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
from batchkron.spec.kron import Array

_Ids: TypeAlias = NDArray[np.int64]

WORD = 16  # bytes; matrices begin at multiples
NUM_TEAM_COUNTS = 5  # a node's edges are shared by 16, 8, 4, 2 or 1 teams
MAX_BLOCKS = 2**31 - 1  # of the inputs, or of the outputs: edges number them in 32 bits
_MAX_NODE_EDGES = 2**31 - 1 - 512  # teams that share a node count up to 512 beyond its last edge
_MIN_SORTED_EDGES = 8  # nodes with up to so many edges are one class and keep their order


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


def result_tile(outputs: int, itemsize: int) -> int:
    """Return how many results of a fibre a thread has at a time: all, or tiles of 8 or 4."""
    maximum = 4 if itemsize == 16 else 8
    if outputs <= maximum:
        return outputs
    return min((8, 4) if maximum == 8 else (4,), key=lambda tile: -(-outputs // tile) * tile)


def column_pitch(mode: SegmentMode, itemsize: int) -> int:
    """Return the elements from one column of a matrix to the next."""
    tile = result_tile(mode.K, itemsize)
    if tile < mode.K:
        return -(-mode.K // tile) * tile
    size = tile * itemsize
    unit = 16 if size > 8 else 8 if size > 4 else 4
    return -(-size // unit) * unit // itemsize


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


@cache
def segmented_arguments(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return SegmentedArguments."""
    pointers = pointer_fields("x", "y", "scratch", "starts", "edges", "targets", "matrices")
    sizes = size_fields("outer", "inner", "num_inputs", "num_outputs", "num_scratch", "accumulate")
    nodes_by_team_count = "nodes_by_team_count", np.int64, (NUM_TEAM_COUNTS,)
    fields = [*pointers, *size_fields("nodes"), nodes_by_team_count, *sizes, ("alpha", dtype)]
    return np.dtype(fields, align=True)
