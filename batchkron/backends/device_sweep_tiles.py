"""How sweeps along a group of modes are cut in tiles that fit in shared memory.

Pure arithmetic, without any device: ``csrc/cuda/sweep_tiles.cuh`` has the kernel's contract.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from batchkron.backends.device_segments import EdgeTable, SegmentMode
from batchkron.backends.device_tiling import DeviceLimits

__all__ = [
    "SweepCut",
    "SweepGroup",
    "SweepTiles",
    "cut_up",
    "sweep_cut",
    "sweep_groups",
    "sweep_tiles",
]

_WARP = 32
_SUM_BYTES = 256  # of a lane
_MOST_SUMS = 32
_LEAST_SLICES = 8  # that go together, if there are so many: whole sectors
_MOST_GROUPS = 2
_PIECE = 9  # elements of a result that go through shared memory at a time
_END = 7  # a mode that ends a list
_THREADS, _BLOCKS = 512, 1
_RESERVED = 1 << 10  # bytes of shared memory of a thread block that the system takes
_ROUNDS = 4  # slices of nodes that a lane makes of a tile, at most, where there are many


@dataclass(frozen=True)
class SweepGroup:
    """Neighbouring modes whose multiplies a kernel does together.

    Attributes
    ----------
    sizes : tuple of int
    before, behind : int
        Products of the sizes of the modes before and behind.
    modes : tuple of int
        The group's modes in an edge table, -1 for one that no edge is along.
    """

    sizes: tuple[int, ...]
    before: int
    behind: int
    modes: tuple[int, ...]

    @property
    def size(self) -> int:
        """Elements of a slice: those that the group's modes act on together."""
        return math.prod(self.sizes)

    @property
    def pitch(self) -> int:
        """Elements from one slice to the next in shared memory."""
        return self.size | 1

    @property
    def slices(self) -> int:
        """Slices of a block."""
        return self.before * self.behind

    @property
    def room(self) -> int:
        """Elements of a lane in shared memory, through which contiguous results go."""
        if self.behind > 1:
            return 0
        pieces = -(-self.size // _PIECE)
        return -(-self.size // pieces) | 1


@dataclass(frozen=True)
class SweepCut:
    """How work is spread: threads of a thread block, blocks of a multiprocessor, a tile's limits.

    ``shared_bytes`` are those of a thread block, ``items`` the slices of nodes of a tile.
    ``is_ahead``: whether lanes load small matrices an edge ahead.
    """

    threads: int
    blocks: int
    shared_bytes: int
    items: int
    is_ahead: bool = False

    def children(self, group: SweepGroup, slices: int, itemsize: int) -> int:
        """Return how many blocks' slices fit in shared memory."""
        room = self.shared_bytes - self.threads * group.room * itemsize
        return room // (slices * group.pitch * itemsize)


@dataclass(frozen=True)
class SweepTiles:
    """The tables of a launch, as ``SweepTile``, children, ``SweepNode`` and ``SweepEdge``."""

    tiles: NDArray[np.int32]
    children: NDArray[np.int32]
    nodes: NDArray[np.int32]
    edges: NDArray[np.int32]


def sweep_groups(
    sizes: Sequence[int], modes: Sequence[SegmentMode], itemsize: int
) -> tuple[SweepGroup, ...]:
    """Return groups of neighbouring modes, the last ones first, that lanes hold slices of.

    Empty where a block has too few slices beside each other, or too many groups.
    """
    groups: list[SweepGroup] = []
    most = min(_MOST_SUMS, _SUM_BYTES // itemsize)
    numbers = {mode.L: number for number, mode in enumerate(modes) if mode.C > 1}
    end = len(sizes)
    while end > 0:
        begin = end - 1
        while begin > 0 and math.prod(sizes[begin - 1 : end]) <= most:
            begin -= 1
        before = math.prod(sizes[:begin])
        places = [before * math.prod(sizes[begin:axis]) for axis in range(begin, end)]
        own = tuple(
            numbers.get(place, -1) if n > 1 else -1
            for n, place in zip(sizes[begin:end], places, strict=True)
        )
        groups.append(SweepGroup(tuple(sizes[begin:end]), before, math.prod(sizes[end:]), own))
        end = begin
    fits = all(
        group.size <= most and group.slices >= _LEAST_SLICES and len(group.sizes) < _END
        for group in groups
    )
    if not fits or len(groups) > _MOST_GROUPS or any(mode.C == 1 for mode in modes):
        return ()
    return tuple(groups)


def sweep_cut(nodes: int, slices: int, limits: DeviceLimits) -> SweepCut:
    """Return how launches that make ``nodes`` blocks of ``slices`` each are spread."""
    items = -(-nodes * slices // (limits.multiprocessors * _BLOCKS))
    most = _ROUNDS * _THREADS
    shared = (limits.shared_bytes + _RESERVED) // _BLOCKS - _RESERVED
    return SweepCut(_THREADS, _BLOCKS, shared, max(_THREADS // 4, min(most, items)))


def sweep_tiles(
    table: EdgeTable, groups: Sequence[SweepGroup], cut: SweepCut, itemsize: int
) -> list[tuple[SweepGroup, SweepTiles]]:
    """Return the launches that make the blocks of a table, a group of modes each.

    A block is written by the first launch that has edges into it, and added to by later ones;
    where none has, the first one writes zeros.
    """
    count = len(table.targets)
    modes = (len(table.starts) - 1) // max(1, count)
    counts = np.diff(table.starts).reshape(count, modes)
    used = np.stack([counts[:, [m for m in g.modes if m >= 0]].sum(axis=1) for g in groups])
    passes = [place for place in range(len(groups)) if used[place].any()] or [0]
    used[passes[0], ~used.any(axis=0)] = 1  # nothing but zeros
    is_made = np.zeros(count, bool)
    result = []
    for place in passes:
        nodes = np.flatnonzero(used[place])
        tiles = _Tiling(table, groups[place], counts, cut, itemsize)
        result.append((groups[place], tiles.tables(nodes, is_made[nodes])))
        is_made[nodes] = True
    return result


class _Tiling:
    """Tiles of the nodes of a table, of a group of modes."""

    def __init__(
        self,
        table: EdgeTable,
        group: SweepGroup,
        counts: NDArray[np.int64],
        cut: SweepCut,
        itemsize: int,
    ) -> None:
        self._table, self._group, self._counts = table, group, counts
        self._cut, self._itemsize = cut, itemsize

    def tables(self, nodes: NDArray[np.int64], adds: NDArray[np.bool_]) -> SweepTiles:
        """Return the tables that make the nodes; those that ``adds`` says are added to."""
        edges = self._edges(nodes)
        order, bounds, slices = self._tiles(nodes, edges)
        return self._lists(nodes, adds, edges, order, bounds, slices)

    def _edges(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return (place of the node, mode in the group, child, matrix) of all edges, in order."""
        parts = []
        modes = self._counts.shape[1]
        for number, mode in enumerate(self._group.modes):
            if mode < 0:
                continue
            begin, size = self._table.starts[nodes * modes + mode], self._counts[nodes, mode]
            place = np.repeat(np.arange(len(nodes)), size)
            edge = np.arange(len(place)) + np.repeat(begin - (np.cumsum(size) - size), size)
            ends = self._table.edges[edge].astype(np.int64)
            parts.append(np.stack([place, np.full(len(place), number), ends[:, 0], ends[:, 1]]))
        edges = np.concatenate(parts, axis=1)
        return edges[:, np.lexsort((edges[1], edges[0]))]

    def _tiles(
        self, nodes: NDArray[np.int64], edges: NDArray[np.int64]
    ) -> tuple[list[int], list[int], list[int]]:
        """Return the nodes in the order of tiles, where tiles begin, and their slices at a time."""
        place, _, child, _ = edges
        blocks, children = np.unique(child, return_inverse=True)
        size = len(nodes) + len(blocks)
        links = np.ones(len(place), np.int8), (place, len(nodes) + children)
        _, label = connected_components(coo_matrix(links, (size, size)), directed=False)
        label = label[: len(nodes)]
        by_label = np.argsort(label, kind="stable")
        parts = np.split(by_label, np.flatnonzero(np.diff(label[by_label])) + 1)
        starts = np.searchsorted(place, np.arange(len(nodes) + 1))
        kids = [
            list(dict.fromkeys(children[begin:end].tolist()))
            for begin, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)
        ]
        order: list[int] = []
        bounds, slices = [0], []
        alike = self._alike(nodes)
        for some, at_once in self._pieces(parts, kids):
            order += sorted(some, key=alike.__getitem__)
            bounds.append(len(order))
            slices.append(at_once)
        return order, bounds, slices

    def _alike(self, nodes: NDArray[np.int64]) -> list[int]:
        """Return places in an order where nodes with as many edges of each mode come together."""
        modes = [mode for mode in self._group.modes if mode >= 0]
        order = np.lexsort(self._counts[nodes][:, modes].T)
        places = np.empty(len(nodes), np.int64)
        places[order] = np.arange(len(nodes))
        return places.tolist()

    def _pieces(
        self, parts: Sequence[NDArray[np.int64]], kids: list[list[int]]
    ) -> Iterator[tuple[list[int], int]]:
        """Yield the nodes of each tile and its slices at a time: large parts cut, small joined."""
        all_slices = min(_WARP, self._group.slices)
        few = min(_LEAST_SLICES, all_slices)
        whole = self._cut.children(self._group, all_slices, self._itemsize)
        most = self._cut.children(self._group, few, self._itemsize)
        largest = max(map(len, kids), default=1)
        if most < largest:
            few = max(1, few * most // largest)
            most = self._cut.children(self._group, few, self._itemsize)
        items = self._cut.items
        joined: list[int] = []
        held: set[int] = set()
        for part in sorted(parts, key=len, reverse=True):
            own = {child for node in part.tolist() for child in kids[node]}
            if len(own) > whole or len(part) * all_slices > items:
                for piece, children in cut_up(part.tolist(), kids, most, max(1, items // few)):
                    fit = self._cut.children(self._group, max(1, children), self._itemsize)
                    at_once = max(1, min(all_slices, fit, max(few, items // len(piece))))
                    yield piece, -(-all_slices // -(-all_slices // at_once))
                continue
            too_many = len(joined) * all_slices + len(part) * all_slices > items
            if joined and (too_many or len(held) + len(own) > whole):
                yield joined, all_slices
                joined, held = [], set()
            joined += part.tolist()
            held |= own
        if joined:
            yield joined, all_slices

    def _lists(
        self,
        nodes: NDArray[np.int64],
        adds: NDArray[np.bool_],
        edges: NDArray[np.int64],
        order: list[int],
        bounds: list[int],
        slices: list[int],
    ) -> SweepTiles:
        """Return the lists of tiles: children by number, edges by place in the tile."""
        place, mode, child, word = edges
        ordered = np.array(order)
        rank = np.empty(len(nodes), np.int64)
        rank[ordered] = np.arange(len(nodes))
        owner = np.repeat(np.arange(len(slices)), np.diff(bounds))  # by rank
        by_node = np.lexsort((mode, rank[place]))
        node, mode, child, word = rank[place][by_node], mode[by_node], child[by_node], word[by_node]
        tile = owner[node]
        span = int(child.max(initial=0)) + 1
        keys, where = np.unique(tile * span + child, return_inverse=True)
        first_child = np.searchsorted(keys, np.arange(len(slices) + 1) * span)
        counts = np.bincount(node, minlength=len(nodes))
        first_edge = np.concatenate([[0], np.cumsum(counts + 1)])  # an end after each list
        listed = np.zeros((first_edge[-1] + 2, 2), np.int64)
        listed[:, 0] = _END
        at = np.arange(len(node)) + node
        listed[at, 0] = (where - first_child[tile]) * 8 + mode
        listed[at, 1] = word
        targets = self._table.targets[nodes[ordered]].astype(np.int64)
        made = np.stack([np.where(adds[ordered], ~targets, targets), first_edge[:-1]], axis=1)
        return SweepTiles(
            self._units(first_child, np.array(bounds), np.array(slices)),
            (keys % span).astype(np.int32),
            made.astype(np.int32),
            listed.astype(np.int32),
        )

    def _units(
        self, first_child: NDArray[np.int64], bounds: NDArray[np.int64], slices: NDArray[np.int64]
    ) -> NDArray[np.int32]:
        """Return a record for each tile and slices that are made at a time."""
        every = self._group.slices
        rounds = -(-every // slices)
        tile = np.repeat(np.arange(len(slices)), rounds)
        begin = np.arange(len(tile)) - np.repeat(np.cumsum(rounds) - rounds, rounds)
        begin *= slices[tile]
        units = np.zeros((len(tile), 8), np.int64)
        units[:, 0], units[:, 1] = first_child[tile], np.diff(first_child)[tile]
        units[:, 2], units[:, 3] = bounds[tile], np.diff(bounds)[tile]
        units[:, 4], units[:, 5] = begin, np.minimum(slices[tile], every - begin)
        return units.astype(np.int32)


def cut_up(
    nodes: list[int], kids: list[list[int]], most: int, most_nodes: int
) -> Iterator[tuple[list[int], int]]:
    """Yield pieces of at most so many distinct children and nodes, and how many children.

    A piece grows by the node that adds the fewest children.
    """
    readers: dict[int, list[int]] = {}
    for node in nodes:
        for child in kids[node]:
            readers.setdefault(child, []).append(node)
    left = set(nodes)
    for seed in nodes:
        if seed not in left:
            continue
        piece: list[int] = []
        held: set[int] = set()
        missing: dict[int, int] = {}  # of a node that may come next, children that are not held
        queue = [(len(kids[seed]), seed)]
        while queue:
            lacks, node = heappop(queue)
            if node not in left or missing.get(node, lacks) != lacks:
                continue  # there is a newer entry
            if piece and (len(held) + lacks > most or len(piece) == most_nodes):
                break
            piece.append(node)
            left.discard(node)
            for child in kids[node]:
                if child in held:
                    continue
                held.add(child)
                for reader in readers[child]:
                    if reader in left:
                        missing[reader] = missing.get(reader, len(kids[reader])) - 1
                        heappush(queue, (missing[reader], reader))
        piece.sort()
        yield piece, len(held)
