"""What kernels that sum over edges compute: tables of edges, and the edges' matrices, in memory.

The kernel's contract is in ``csrc/cuda/segmented/general.cuh``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from batchkron.backends.cuda.kernel import Family, Kernel, LaunchShape, record
from batchkron.backends.cuda.runtime.arguments import struct
from batchkron.backends.cuda.runtime.program import Program
from batchkron.spec.kron import Array

_Ids: TypeAlias = NDArray[np.int64]

WORD = 16  # bytes; the addresses of matrices are multiples
NUM_GROUP_COUNTS = 5  # a node's edges are shared by 16, 8, 4, 2 or 1 groups, as in the kernel
MAX_BLOCKS = 2**31 - 1  # largest number of input or output blocks: edges have 32-bit numbers
# Largest number of edges of a node: groups that share it count up to 512 beyond its last edge.
_MAX_NODE_EDGES = 2**31 - 1 - 512
# Nodes with up to this many edges are one class and keep their order; chosen by hand.
_MIN_SORTED_EDGES = 8


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


def result_tile(outputs: int, itemsize: int) -> int:
    """Return how many results of a fibre a thread computes at a time: all, or 8 or 4 of them."""
    maximum = 4 if itemsize == 16 else 8
    if outputs <= maximum:
        return outputs
    return min((8, 4) if maximum == 8 else (4,), key=lambda tile: -(-outputs // tile) * tile)


def column_pitch(mode: SegmentMode, itemsize: int) -> int:
    """Return the distance between columns of a matrix in the kernel's layout, in elements."""
    tile = result_tile(mode.K, itemsize)
    if tile < mode.K:
        return -(-mode.K // tile) * tile
    size = tile * itemsize
    unit = 16 if size > 8 else 8 if size > 4 else 4
    return -(-size // unit) * unit // itemsize


def matrix_words(mode: SegmentMode, itemsize: int) -> int:
    """Return the 16-byte words that a matrix of a mode takes in the kernel's layout."""
    return -(-mode.C * column_pitch(mode, itemsize) * itemsize // WORD)


def laid_out_matrices(mode: SegmentMode, matrices: Array, itemsize: int | None = None) -> Array:
    """Return matrices (count, K, C) in the kernel's layout: column-major, columns padded by zeros.

    Each matrix takes a whole number of 16-byte words, with elements of ``itemsize`` bytes, by
    default those of its dtype.
    """
    count, itemsize = len(matrices), itemsize or matrices.itemsize
    pitch = column_pitch(mode, itemsize)
    result = np.zeros((count, matrix_words(mode, itemsize) * WORD // itemsize), matrices.dtype)
    columns = result[:, : mode.C * pitch].reshape(count, mode.C, pitch)
    columns[:, :, : mode.K] = matrices.swapaxes(1, 2)
    return result.reshape(-1)


def edge_list(
    mode: int, target: int, starts: _Ids, children: _Ids, words: _Ids
) -> tuple[_Ids, ...]:
    """Return output block, mode, input block and first 16-byte word of the matrix of each edge.

    The edges are along one mode, the index of a `SegmentMode`, into the blocks of a vector, whose
    first one is ``target``: block i has the edges ``starts[i]`` to ``starts[i + 1] - 1``.
    """
    counts = np.diff(starts)
    outputs = np.repeat(np.arange(target, target + len(counts)), counts)
    return outputs, np.full(len(children), mode), children, words


@dataclass(frozen=True)
class EdgeTable:
    """All edges into some blocks, as one launch takes them."""

    # the nodes' output blocks, sorted by class. Within a class the original order is kept, in which
    # neighbours read the same blocks; one thread block computes them.
    targets: NDArray[np.int32]
    # edges of node i and mode m: ``starts[i * modes + m]`` to ``starts[i * modes + m + 1] - 1``
    starts: _Ids
    edges: NDArray[np.int32]  # input block and first word of the matrix of each edge
    # classes of nodes by their edges, at most a power of two: this and how many nodes, the largest
    # first
    classes: tuple[tuple[int, int], ...]


def edge_table(
    vectors: Sequence[tuple[int, int]],
    lists: Sequence[tuple[_Ids, ...]],
    modes: int,
    *,
    only_with_edges: bool = False,
) -> EdgeTable:
    """Gather edges by node and mode; edges of the same node and mode keep the order of the lists.

    ``vectors``: first block and number of blocks of each vector that is computed; ``lists``: all
    edges into these vectors, as `edge_list` returns them; ``modes``: number of modes;
    ``only_with_edges``: whether blocks without edges are no nodes, otherwise they are computed as
    zero. Raises ValueError if there are too many blocks, or matrices are too large, for 32-bit
    numbers.
    """
    numbers = [np.concatenate(part) for part in zip(*lists, strict=True)]
    outputs, mode, children, words = numbers or [np.zeros(0, np.int64)] * 4
    blocks = np.unique(outputs)
    if not only_with_edges:
        blocks = np.sort(np.concatenate([np.arange(a, a + n) for a, n in vectors]))
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
    classes = [(1 << int(power), int(n)) for power, n in zip(*found, strict=True)]
    return EdgeTable(targets, starts, edges, tuple(reversed(classes)))


@cache
def segmented_arguments(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the layout of the C++ struct SegmentedArguments."""
    pointers = "*x *y *scratch *starts *edges *targets *matrices"
    nodes = f"nodes nodes_by_group_count[{NUM_GROUP_COUNTS}]"
    sizes = "outer inner num_inputs num_outputs num_scratch accumulate"
    return struct(pointers, nodes, sizes, ("alpha", dtype))


@dataclass(frozen=True, slots=True)
class SumsShape:
    """What the launches for several tables of edges have in common."""

    modes: tuple[SegmentMode, ...]  # the distinct mode multiplies
    dtype: np.dtype[Any]
    nodes: int  # number of nodes (output blocks) of the largest table
    children: int  # number of input blocks: those of x and of the scratch memory
    # whether children may lie in the scratch memory, which holds intermediate vectors
    between: bool
    # outer, inner: vectors (outer, …, inner) of a launch
    outer: int
    inner: int


def sums_kernel(family: Family, shape: SumsShape, tiling: Any, program: Program) -> Kernel:
    """Return the kernel of a tiling, which is its variant.

    A tiling says how many thread blocks a table has (``nodes_by_group_count``), how many share a
    node (``pieces``), how the table is laid out (``arrays``), and how many columns of the innermost
    axis a thread group computes at a time (``width``).
    """
    launch = LaunchShape(0, tiling.block, 1, tiling.shared_bytes)
    arguments = record(segmented_arguments(shape.dtype), outer=shape.outer, inner=shape.inner)
    return Kernel(family, shape, tiling, program, launch, arguments)
