"""How sweeps are spread over thread blocks that read streams of blocks.

Pure arithmetic, without any device: ``csrc/cuda/sweep_streams.cuh`` has the kernel's contract.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace

import numpy as np
from numpy.typing import NDArray

from batchkron.backends.device_segments import WORD, EdgeTable, SegmentMode, matrix_words
from batchkron.backends.device_sweep_tiles import cut_up
from batchkron.backends.device_tiling import DeviceLimits

__all__ = ["StreamCut", "SweepStreams", "stream_cut", "sweep_streams"]

_LANES = 32
_SUM_BYTES = 448  # of a lane, in both halves
_LEAST_LANES = 16
_SCHEDULERS = 4  # of a multiprocessor
_MOST_DEEP = 6  # warps of a scheduler
_REGISTERS = 512  # of a lane's place in a scheduler
_OTHER_REGISTERS = 28  # of a thread, besides its sums and a matrix
_DEEP = 4  # matrices of a warp in shared memory
_PIECE = 9  # lanes whose sums are exchanged at a time
_BARRIER_BYTES = 20  # of a slot: two barriers and a lead
_NODE, _STOP = 15, 14  # in place of a mode
_CHILD_COST = 3.0  # of a child's copy, in edges


@dataclass(frozen=True)
class StreamCut:
    """How a kernel of streams is cut.

    Attributes
    ----------
    first, last : tuple of int
        Sizes of the modes of a block, in two halves.
    warps : int
        That make nodes, of a thread block.
    slots : int
        Children in shared memory.
    blocks : int
        Thread blocks.
    nodes : int
        That are made together, at most; no more than warps.
    itemsize : int
        Bytes of an element.
    """

    first: tuple[int, ...]
    last: tuple[int, ...]
    warps: int
    slots: int
    blocks: int
    nodes: int
    itemsize: int
    part: int

    @property
    def piece(self) -> int:
        """Lanes whose sums are exchanged at a time."""
        return min(_PIECE, math.prod(self.first))

    @property
    def threads(self) -> int:
        """Threads of a thread block."""
        return (self.warps + 1) * _LANES

    @property
    def slot_bytes(self) -> int:
        """Bytes of shared memory of a child."""
        block = math.prod(self.first) * math.prod(self.last) * self.itemsize
        return (block + 16 - self.part + 15) // 16 * 16

    @property
    def other_bytes(self) -> int:
        """Bytes of shared memory besides the slots."""
        exchange = self.warps * self.piece * (math.prod(self.last) | 1) * self.itemsize
        words = max(
            matrix_words(SegmentMode(1, n, n, 1), self.itemsize) for n in self.first + self.last
        )
        return (exchange + WORD - 1) // WORD * WORD + self.warps * _DEEP * words * WORD

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory of a thread block."""
        return self.other_bytes + self.slots * (self.slot_bytes + _BARRIER_BYTES)


@dataclass(frozen=True)
class SweepStreams:
    """The tables of a launch: where each thread block's children and each warp's records begin."""

    starts: NDArray[np.int32]
    children: NDArray[np.int32]
    streams: NDArray[np.int32]
    records: NDArray[np.int32]


def stream_cut(
    sizes: Sequence[int],
    modes: Sequence[SegmentMode],
    dtype: np.dtype[np.generic],
    nodes: int,
    limits: DeviceLimits,
    warps: int | None = None,
) -> StreamCut | None:
    """Return how ``nodes`` blocks are made, None where blocks are too small or too large."""
    if limits.cluster == 1 or any(mode.C == 1 for mode in modes) or len(sizes) > 12:
        return None
    halves = [(math.prod(sizes[:end]), math.prod(sizes[end:]), end) for end in range(1, len(sizes))]
    fits = [
        (first + last, end)
        for first, last, end in halves
        if max(first, last) <= _LANES
        and min(first, last) >= _LEAST_LANES
        and last % 2
        and (first + last) * dtype.itemsize <= _SUM_BYTES
    ]
    if not fits:
        return None
    sums, end = min(fits)
    part = dtype.itemsize // (2 if dtype.kind == "c" else 1)
    if warps is None:
        held = (sums + max(sizes) ** 2) * dtype.itemsize // 4
        deep = _REGISTERS // (held + _OTHER_REGISTERS)
        if deep == 0:
            return None
        warps = _SCHEDULERS * min(_MOST_DEEP, deep) - 1
    blocks = max(1, min(nodes, limits.multiprocessors))
    rounds = -(-nodes // (blocks * warps))
    together = max(1, -(-nodes // (blocks * rounds)))
    cut = StreamCut(
        tuple(sizes[:end]), tuple(sizes[end:]), warps, 0, blocks, together, dtype.itemsize, part
    )
    slots = (limits.shared_bytes - cut.other_bytes) // (cut.slot_bytes + _BARRIER_BYTES)
    if slots < 4:
        return None
    slots = min(slots, cut.threads)
    return StreamCut(cut.first, cut.last, warps, slots, blocks, together, dtype.itemsize, part)


def sweep_streams(
    table: EdgeTable, modes: Sequence[SegmentMode], sizes: Sequence[int], cut: StreamCut
) -> SweepStreams:
    """Return the streams that make the blocks of a table."""
    count = len(table.targets)
    number = len(modes)
    axes = np.cumprod([1, *sizes[:-1]]).tolist()
    axis = np.array([axes.index(mode.L) for mode in modes])
    counts = np.diff(table.starts)
    node = np.repeat(np.arange(count), counts.reshape(count, number).sum(axis=1))
    mode = np.repeat(np.tile(axis, count), counts)
    blocks, child = np.unique(table.edges[:, 0].astype(np.int64), return_inverse=True)
    ends = table.starts[::number]
    listed = child.tolist()
    kids = [
        list(dict.fromkeys(listed[begin:end]))
        for begin, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)
    ]
    pieces = [piece for piece, _ in cut_up(list(range(count)), kids, len(blocks), cut.nodes)]
    owners = _spread([_cost(piece, kids, ends) for piece in pieces], cut.blocks)
    by_block = sorted(range(len(pieces)), key=lambda piece: (owners[piece], piece))
    return _lists(
        table,
        cut,
        node,
        mode,
        child,
        blocks,
        [pieces[p] for p in by_block],
        np.array([owners[p] for p in by_block]),
    )


def _cost(piece: list[int], kids: list[list[int]], ends: NDArray[np.int64]) -> float:
    edges = sum(int(ends[node + 1] - ends[node]) for node in piece)
    return edges + _CHILD_COST * len({child for node in piece for child in kids[node]})


def _spread(costs: Sequence[float], bins: int) -> list[int]:
    """Return a bin for each cost, the largest first to the least filled one."""
    filled = [(0.0, number) for number in range(bins)]
    heapify(filled)
    result = [0] * len(costs)
    for place in sorted(range(len(costs)), key=lambda place: -costs[place]):
        total, number = filled[0]
        result[place] = number
        heapreplace(filled, (total + costs[place], number))
    return result


def _lists(
    table: EdgeTable,
    cut: StreamCut,
    node: NDArray[np.int64],
    mode: NDArray[np.int64],
    child: NDArray[np.int64],
    blocks: NDArray[np.int64],
    pieces: list[list[int]],
    owners: NDArray[np.int64],
) -> SweepStreams:
    """Return the lists of pieces that belong to ascending owners."""
    count = len(table.targets)
    piece_of = np.empty(count, np.int64)
    warp_of = np.empty(count, np.int64)
    degrees = np.bincount(node, minlength=count)
    load = [0] * cut.warps
    last_owner = -1
    for rank_of_piece, (piece, owner) in enumerate(zip(pieces, owners.tolist(), strict=True)):
        if owner != last_owner:
            load, last_owner = [0] * cut.warps, owner
        piece_of[piece] = rank_of_piece
        # a warp reads children in their order, and so has one node of a piece
        idle = sorted(range(cut.warps), key=load.__getitem__)
        for one, warp in zip(sorted(piece, key=lambda one: -degrees[one]), idle, strict=False):
            warp_of[one] = warp
            load[warp] += int(degrees[one]) + 2
    # children of a piece: those that most of its nodes read come first
    span = len(blocks)
    keys, where, uses = np.unique(
        piece_of[node] * span + child, return_inverse=True, return_counts=True
    )
    order = np.lexsort((keys, -uses, keys // span))
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    starts = np.searchsorted(owners[keys[order] // span], np.arange(cut.blocks + 1))
    owner_of = owners[piece_of]
    number = rank[where] - starts[owner_of[node]]  # of an edge's child in its stream
    # records: edges of a node, its end; warps' ends
    stream = owner_of * cut.warps + warp_of
    streams = cut.blocks * cut.warps
    ends, stops = np.full(count, _NODE), np.full(streams, _STOP)
    every = np.concatenate([stream[node], stream, np.arange(streams)])
    of_piece = np.concatenate([piece_of[node], piece_of, np.full(streams, len(pieces))])
    of_node = np.concatenate([node, np.arange(count), stops])
    place = np.concatenate([number, np.full(count, span + len(keys)), stops])
    kind = np.concatenate([mode, ends, stops])
    value = np.concatenate([table.edges[:, 1], table.targets, stops]).astype(np.int64)
    by_stream = np.lexsort((kind, place, of_node, of_piece, every))
    records = np.zeros((len(every) + 3, 2), np.int64)
    records[:-3, 0] = (np.where(kind < _STOP, place, 0) * 16 + kind)[by_stream]
    records[:-3, 1] = value[by_stream]
    first = np.searchsorted(every[by_stream], np.arange(streams))
    return SweepStreams(
        starts.astype(np.int32),
        blocks[keys[order] % span].astype(np.int32),
        first.astype(np.int32),
        records.astype(np.int32),
    )
