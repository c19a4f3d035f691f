"""Passes over a tile: which modes a thread holds in registers, and where elements lie.

A tile has ``slices`` blocks of a run of modes and ``columns`` columns. In each pass a thread reads
an item, the elements along some neighbouring modes, to registers, multiplies along these modes and
writes the results. Between passes the tile is in shared memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, pairwise, permutations, product
from typing import Any

import numpy as np

from batchkron.backends.cuda.runtime.hardware import LINE, WARP
from batchkron.spec.kron import Array

_BANKS = 32  # banks of shared memory, 4 bytes each
# Cost of a pass that only copies the tile, relative to one that multiplies. It replaces scattered
# accesses that would cost more. Chosen by hand, as are the next three.
_MAX_TRANSFER_COST = 0.75
_MAX_PADDED_RATIO = 1.07  # largest ratio of a tile's elements with and without padding
_MAX_PERMUTED = 4  # largest number of passes that are tried in every order
_MIN_BUSY_THREADS = 256  # threads that must have work before a thread takes several fibres


@dataclass(frozen=True, slots=True)
class RegisterAxis:
    """An axis that a thread holds in registers: C entries are multiplied to K results.

    Entries are ``from_`` elements apart where the pass reads, results ``to`` elements where it
    writes. ``factor`` is the index of the factor; -1 if there is none, then K is C.
    """

    factor: int
    C: int
    K: int
    from_: int
    to: int


@dataclass(frozen=True, slots=True)
class ThreadAxis:
    """An axis that is divided among the threads, with strides as in `RegisterAxis`.

    ``bound`` is 1 for slices and 2 for columns, which may lie beyond the edge of the array, else 0.
    """

    size: int
    bound: int
    from_: int
    to: int


@dataclass(frozen=True, slots=True)
class RegisterPass:
    """One pass over a tile: the axes of an item, and the axes that enumerate the items."""

    registers: tuple[RegisterAxis, ...]
    threads: tuple[ThreadAxis, ...]

    @property
    def items(self) -> int:
        """Items of a tile."""
        return math.prod(axis.size for axis in self.threads)

    @property
    def held(self) -> int:
        """Elements that a thread holds."""
        return math.prod(max(axis.C, axis.K) for axis in self.registers)


def staged_elements(inputs: Sequence[int], outputs: Sequence[int], itemsize: int) -> int:
    """Return the elements of shared memory for the factors, as in ``StagedFactors``."""
    pack = 16 // itemsize
    return sum(C * (-(-K // pack) * pack) for C, K in zip(inputs, outputs, strict=True))


def cuts(count: int, parts: int) -> Iterator[list[tuple[int, int]]]:
    """Yield all divisions of ``count`` modes into ``parts`` runs of neighbours."""
    for inner in combinations(range(1, count), parts - 1):
        edges = (0, *inner, count)
        yield list(pairwise(edges))


def multiply_adds(
    order: Sequence[tuple[int, int]], inputs: Sequence[int], outputs: Sequence[int]
) -> int:
    """Return the multiply-adds of all runs in this order."""
    sizes, work = list(inputs), 0
    for low, high in order:
        for mode in range(low, high):
            sizes[mode] = outputs[mode]
            work += math.prod(sizes) * inputs[mode]
    return work


def _scattered(end: int, sizes: Sequence[int], columns: int, itemsize: int, cached: bool) -> float:
    """Return the extra cost of a pass whose run in registers ends before mode ``end``.

    For reading or writing memory, relative to a pass; 0 if a warp's elements fill whole cache
    lines. ``cached``: the array is in the second-level cache. The factor 0.3 was chosen by hand.
    """
    together = math.prod(sizes[end:]) * columns * itemsize
    cost = max(0.0, 0.3 * (LINE / together - 1)) if together < LINE else 0.0
    return min(_MAX_TRANSFER_COST, cost / 4) if cached else cost


@lru_cache(maxsize=4096)  # tiles of many products have the same sizes
def _runs(
    inputs: tuple[int, ...],
    outputs: tuple[int, ...],
    columns: int,
    itemsize: int,
    maximum: int,
    cached: bool,
) -> tuple[tuple[int, int], ...]:
    """Return the run of modes that each pass holds in registers, in the order of the passes.

    There are as few passes as possible, in the order of least work. If the first or the last pass
    would read or write scattered elements of memory, a pass with an empty run copies the tile.
    """
    largest = [max(pair) for pair in zip(inputs, outputs, strict=True)]
    best: tuple[float, ...] | None = None
    found: list[tuple[int, int]] = []
    fewest = _fewest_runs(largest, maximum)
    ends = range(len(inputs) + 1)  # of a run that is read first, or written last
    reading = [_scattered(end, inputs, columns, itemsize, cached) for end in ends]
    writing = [_scattered(end, outputs, columns, itemsize, cached) for end in ends]
    same = math.prod(inputs) * sum(inputs) if inputs == outputs else None  # work in any order
    for parts in range(fewest, min(fewest + 2, len(inputs) + 1)):
        for cut in _held_runs(largest, 0, parts, maximum):
            held = max(math.prod(largest[low:high]) for low, high in cut)
            orders = permutations(cut) if parts <= _MAX_PERMUTED else [tuple(reversed(cut))]
            for order in orders:
                read, write = reading[order[0][1]], writing[order[-1][1]]
                cost = (
                    parts + min(read, _MAX_TRANSFER_COST) + min(write, _MAX_TRANSFER_COST),
                    multiply_adds(order, inputs, outputs) if same is None else same,
                    read + write,
                    held,
                )
                if best is None or cost < best:
                    before = [(0, 0)] if read > _MAX_TRANSFER_COST else []
                    after = [(0, 0)] if write > _MAX_TRANSFER_COST else []
                    best, found = cost, [*before, *order, *after]
    return tuple(found)


def _fewest_runs(sizes: Sequence[int], maximum: int) -> int:
    """Return into how few runs of at most ``maximum`` elements, or of one mode, modes divide."""
    runs, held = 1, sizes[0]
    for size in sizes[1:]:
        if held * size > maximum:
            runs, held = runs + 1, 1
        held *= size
    return runs


def _held_runs(
    sizes: Sequence[int], low: int, parts: int, maximum: int
) -> Iterator[tuple[tuple[int, int], ...]]:
    """Yield the divisions of the modes from ``low`` on into so many of these runs."""
    last = len(sizes) - parts + 1
    held = 1
    for high in range(low + 1, last + 1):
        held *= sizes[high - 1]
        if high - low > 1 and held > maximum:
            return
        if parts > 1:
            for rest in _held_runs(sizes, high, parts - 1, maximum):
                yield ((low, high), *rest)
        elif high == len(sizes):
            yield ((low, high),)


def strides_of(sizes: Sequence[int], pads: Sequence[Any] | Array) -> list[Any]:
    """Return the strides of padded axes, in elements: numbers, or arrays for many layouts."""
    strides: list[Any] = [0] * len(sizes)
    stride: Any = 1
    for axis in reversed(range(len(sizes))):
        strides[axis] = stride + pads[axis]
        stride = strides[axis] * sizes[axis]
    return strides


def access_lengths(places: Array, lanes: int) -> Array:
    """Return for each row of addresses how many different words are in the busiest bank.

    That is the length of the access; addresses are in words, and there are ``lanes`` banks of them.
    """
    rows = len(places)
    found = np.sort(places, axis=1)
    first = np.ones(found.shape, bool)
    first[:, 1:] = found[:, 1:] != found[:, :-1]  # one read serves all lanes with the same word
    banks = found % lanes + np.arange(rows)[:, None] * lanes
    counts = np.bincount(banks[first], minlength=rows * lanes)
    longest: Array = counts.reshape(rows, lanes).max(axis=1)
    return longest


def _conflicts(axes: Sequence[ThreadAxis], strides: Sequence[Array], words: int) -> Array:
    """Return how many times as long a warp's accesses take as without bank conflicts, on average.

    There is one result for each layout. ``strides`` has each axis' stride in all layouts; ``axes``
    have indices into it in place of strides.
    """
    total = math.prod(axis.size for axis in axes)
    lanes = _BANKS // words
    accesses = -(-min(total, 8 * WARP) // lanes)
    rest = np.minimum(np.arange(accesses * lanes), total - 1)
    address = np.zeros((len(strides[0]), len(rest)), np.int64)
    for axis in axes:
        address += strides[axis.from_][:, None] * (rest % axis.size)
        rest = rest // axis.size
    lengths = access_lengths(address.reshape(-1, lanes), lanes)
    means: Array = np.mean(lengths.reshape(-1, accesses), axis=1)
    return means


class TilePlanner:
    """Plans the passes over one tile.

    ``inputs`` and ``outputs``: sizes of the modes before and after the multiply; ``slices`` and
    ``columns``: size of a tile; ``itemsize``: bytes of an element;
    ``maximum``: elements that a thread may hold; ``cached``: whether the array fits in the
    second-level cache, where scattered accesses cost little.
    """

    def __init__(
        self,
        inputs: tuple[int, ...],
        outputs: tuple[int, ...],
        slices: int,
        columns: int,
        itemsize: int,
        maximum: int,
        cached: bool,
    ) -> None:
        self.inputs, self.outputs = inputs, outputs
        self.slices, self.columns, self.itemsize = slices, columns, itemsize
        self.runs = _runs(inputs, outputs, columns, itemsize, maximum, cached)
        self.max_elements, self.cached = maximum, cached
        self._passes: dict[tuple[int, ...], tuple[RegisterPass, ...]] = {}

    def sizes_before(self, number: int) -> list[int]:
        """Return the sizes (slices, modes, columns) of the tile before pass ``number``."""
        sizes = list(self.inputs)
        for low, high in self.runs[:number]:
            sizes[low:high] = self.outputs[low:high]
        return [self.slices, *sizes, self.columns]

    def passes(self, pads: Sequence[int]) -> tuple[RegisterPass, ...]:
        """Return all passes, where ``pads`` enlarge the strides of tiles in shared memory."""
        key = tuple(pads)
        known = self._passes.get(key)
        if known is not None:
            return known
        planned = []
        for number in range(len(self.runs)):
            before, after = self.sizes_before(number), self.sizes_before(number + 1)
            from_ = self._places(before, pads, number == 0)
            to = self._places(after, pads, number == len(self.runs) - 1)
            planned.append(self._pass(number, before, from_, to))
        self._passes[key] = tuple(planned)
        return self._passes[key]

    def _places(self, sizes: Sequence[int], pads: Sequence[int], in_memory: bool) -> list[int]:
        """Return the strides of slices, modes and columns; in memory, the first two in rows."""
        if in_memory:
            return [*strides_of(sizes[:-1], [0] * (len(sizes) - 1)), 1]
        return strides_of(sizes, pads)

    def _pass(
        self, number: int, before: Sequence[int], from_: Sequence[int], to: Sequence[int]
    ) -> RegisterPass:
        low, high = self.runs[number]
        held = range(low + 1, high + 1)
        registers = [
            RegisterAxis(a - 1, before[a], self.outputs[a - 1], from_[a], to[a]) for a in held
        ]
        rest = {axis: before[axis] for axis in range(len(before)) if axis not in held}
        held_now = max(math.prod(r.C for r in registers), math.prod(r.K for r in registers))
        room = 3 * self.max_elements // (4 * held_now)
        # Several fibres of a thread, taken from the slowest mode, share the loads of the factors.
        if room > 1:
            for axis in sorted(rest):
                split = max(n for n in range(1, room + 1) if rest[axis] % n == 0)
                is_busy = math.prod(rest.values()) // split >= _MIN_BUSY_THREADS
                if 0 < axis < len(before) - 1 and split > 1 and is_busy:
                    rest[axis] //= split
                    far = rest[axis]
                    registers.insert(
                        0, RegisterAxis(-1, split, split, from_[axis] * far, to[axis] * far)
                    )
                    break
        last = len(before) - 1
        in_order = sorted(rest, reverse=True)
        threads = tuple(
            ThreadAxis(
                rest[axis], 1 if axis == 0 else 2 if axis == last else 0, from_[axis], to[axis]
            )
            for axis in in_order
            if rest[axis] > 1 or axis in (0, last)
        )
        return RegisterPass(tuple(registers), threads)

    def buffer(self, pads: Sequence[int]) -> int:
        """Return the elements of a buffer that is large enough for the tile between all passes."""
        largest: int = self._whole_words(max(self._extents(pads), default=0))
        return largest

    def _extents(self, pads: Sequence[Any] | Array) -> list[Any]:
        """Return the tile's padded elements after each pass but the last, as in `strides_of`."""
        between = map(self.sizes_before, range(1, len(self.runs)))
        return [strides_of(sizes, pads)[0] * sizes[0] for sizes in between]

    def _whole_words(self, elements: Any) -> Any:
        return -(-elements * self.itemsize // 16) * 16 // self.itemsize

    def _conflicts(self, pads: Array) -> Array:
        """Return the mean length of accesses to shared memory in each layout, at least 1."""
        words = max(1, self.itemsize // 4)
        axes = range(len(self.inputs) + 2)
        found = []
        for number in range(len(self.runs)):
            before, after = self.sizes_before(number), self.sizes_before(number + 1)
            one = self._pass(number, before, axes, axes)
            if number > 0:
                found.append(_conflicts(one.threads, strides_of(before, pads), words))
            if number < len(self.runs) - 1:
                found.append(_conflicts(one.threads, strides_of(after, pads), words))
        means: Array = np.mean(found, axis=0)
        return means

    def pads(self) -> tuple[int, ...]:
        """Return the padding, of at most two axes, that is best by bank conflicts and memory."""
        found = self.unpadded()
        if len(self.runs) == 1:
            return found
        plain, best = self.buffer(found), math.inf
        layouts = np.array(self._candidates())
        for some in layouts[:1], layouts[1:]:  # usually no padding is needed
            sizes = self._whole_words(np.max(self._extents(some.T), axis=0))
            fits = sizes <= _MAX_PADDED_RATIO * plain + 64
            some, sizes = some[fits], sizes[fits]
            costs = self._conflicts(some.T) + 0.5 * sizes / plain
            for pads, cost in zip(some.tolist(), costs.tolist(), strict=True):
                if cost < best - 1e-9:
                    best, found = cost, tuple(pads)
                if best <= 1.5:  # neither conflicts nor more memory than without padding
                    return found
        return found

    def _candidates(self) -> list[tuple[int, ...]]:
        """Return the paddings to try: none, then those of one or two axes, but not of columns."""
        axes = len(self.inputs) + 2
        found = {self.unpadded(): None}
        for pair in combinations(range(axes - 1), 2):
            for sizes in product((0, 1, 2, 4, 8), repeat=2):
                pads = [0] * axes
                for axis, size in zip(pair, sizes, strict=True):
                    pads[axis] = size
                found[tuple(pads)] = None
        return list(found)

    def unpadded(self) -> tuple[int, ...]:
        """Return a padding of 0 for all axes."""
        return (0,) * (len(self.inputs) + 2)

    def buffers(self) -> int:
        """Return the buffers in shared memory: one if all factors are square (in place)."""
        return min(1 if self.inputs == self.outputs else 2, len(self.runs) - 1)

    def shared_bytes(self, pads: Sequence[int], constant: bool = False) -> int:
        """Return the bytes of shared memory of a thread block."""
        staged = 0 if constant else staged_elements(self.inputs, self.outputs, self.itemsize)
        return (staged + self.buffers() * self.buffer(pads)) * self.itemsize
