"""How a Kron-Matmul of large factors is cut: tiles in shared memory, fibres multiplied in place.

A group of neighbouring modes is one kernel, ``csrc/cuda/kron_fibres.cuh``: single precision on
ordinary cores, double precision on matrix units. Tiles, teams and fibres of a warp are those of the
least estimated time. Pure arithmetic on sizes, without any device.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations, permutations, product

import numpy as np

from batchkron.backends.device_register_passes import cuts, strides_of
from batchkron.backends.device_tiling import DeviceLimits
from batchkron.spec import Array

SMALLEST_FACTOR = 16  # the largest factor of a product has at least as many rows or columns
_MOST_MODES = 8
_MOST_IN_GROUP = 4
_MOST_ORDERED = 4  # groups whose every order is looked at
_WARP = 32
_BANKS = 32  # of four bytes each
_SECTOR = 32  # bytes, the least that is worth reading
_LANES = (1, 2, 4, 8, 16)  # lanes of a warp along results, single precision
_MOST_SUMS = 128  # of a thread, single precision
_MOST_HELD = 128  # registers of a thread for its fibres, double precision
_MOST_STAGED = 96 * 96  # elements of one factor in shared memory, double precision
_REGISTER_FILE = 65536
_MOST_REGISTERS = 255
_OTHER_REGISTERS = 52  # for words of factors, addresses
_TEAMS = ((1, 4), (1, 8), (1, 12), (1, 16), (2, 2), (2, 4), (2, 6), (2, 8), (3, 4), (4, 2), (4, 4))
_MOST_PADDED = 0.98  # of shared memory is filled without pads

# Estimated times, in cycles of a multiprocessor of an H200: fitted to 1000 measured kernels.
_BYTES_A_CYCLE = 15  # of memory
_CACHED_BYTES_A_CYCLE = 130  # of the second-level cache
_LATENCY = 1700  # from asking the second-level cache for a tile to the last answer
_HIDDEN = 0.4  # of these two remains where a tile is loaded while another is multiplied
_NARROW = 85  # bytes of neighbouring columns below which memory gets slower
_MATRIX_CYCLES = 16  # of a 16 x 8 x 4 multiply-add on a quarter of the matrix units
_SINGLE = 1.3  # what multiply-adds in single precision cost more than one cycle
_IDLE = 1.0  # warps' worth of a multiprocessor that does not issue
_NORM = 5  # how nearly the slowest of several resources is the time
_LAUNCH = 6000  # of a launch, and its first loads


@dataclass(frozen=True, slots=True)
class FibrePass:
    """One mode of a tile, see ``FibrePass`` of the kernel; ``fibres``: (size, stride) of axes."""

    C: int
    K: int
    stride: int
    rows: int
    columns: int
    across: int
    along: bool
    split: int
    fibres: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class FibreTile:
    """What one kernel of a group is compiled for.

    Attributes
    ----------
    modes : tuple of int
        The group's modes, in the order of the passes.
    slices, columns : int
        Of a tile.
    inputs, outputs : tuple of (int, int)
        Size and stride of the tile's axes in shared memory, the fastest first.
    word : int
        Elements that are copied together.
    buffer : int
        Elements of a tile in shared memory.
    threads, teams, stages : int
        Threads of a team, teams of a thread block, tiles of a team in shared memory.
    shared_bytes : int
    passes : tuple of FibrePass
    """

    modes: tuple[int, ...]
    slices: int
    columns: int
    inputs: tuple[tuple[int, int], ...]
    outputs: tuple[tuple[int, int], ...]
    word: int
    buffer: int
    threads: int
    teams: int
    stages: int
    shared_bytes: int
    passes: tuple[FibrePass, ...]

    @property
    def input_size(self) -> int:
        """Elements of a block's column before."""
        return math.prod(size for size, _ in self.inputs) // (self.slices * self.columns)

    @property
    def output_size(self) -> int:
        """Elements of a block's column afterwards."""
        return math.prod(size for size, _ in self.outputs) // (self.slices * self.columns)


@dataclass(frozen=True, slots=True)
class FibreGroup:
    """Neighbouring modes that one kernel applies to x (L, input_size, R)."""

    tile: FibreTile
    L: int
    R: int

    @property
    def elements(self) -> int:
        """Elements of the group's result."""
        return self.L * self.tile.output_size * self.R

    def blocks(self, limits: DeviceLimits) -> int:
        """Return the number of thread blocks."""
        tiles = -(-self.L // self.tile.slices) * -(-self.R // self.tile.columns)
        return min(tiles, limits.multiprocessors)


@dataclass(frozen=True, slots=True)
class _Shape:
    """What a group is given: sizes of its modes, L, R, bytes of an element."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    L: int
    R: int
    itemsize: int

    @property
    def extents(self) -> tuple[int, ...]:
        """The room of each mode in a tile."""
        return tuple(max(pair) for pair in zip(self.inputs, self.outputs, strict=True))

    def word(self, columns: int) -> int:
        """Return how many elements of a tile always lie together, at most 16 bytes."""
        word = 16 // self.itemsize
        sizes = [self.inputs[-1], self.outputs[-1]] if columns == 1 else [columns]
        return word if all(size % word == 0 for size in sizes) else 1

    def steps(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield the modes in the order of least work, each with all sizes before it."""
        modes = tuple(reversed(range(len(self.inputs))))
        if self.inputs != self.outputs:
            modes = min(permutations(modes), key=self._work)
        sizes = list(self.inputs)
        for mode in modes:
            yield mode, tuple(sizes)
            sizes[mode] = self.outputs[mode]

    def _work(self, order: tuple[int, ...]) -> int:
        sizes, total = list(self.inputs), 0
        for mode in order:
            sizes[mode] = self.outputs[mode]
            total += math.prod(sizes) * self.inputs[mode]
        return total


@dataclass(frozen=True, slots=True)
class _Fragment:
    """What a warp takes in a pass, see ``FibrePass`` of the kernel."""

    rows: int
    columns: int
    across: int
    along: bool
    staged: int  # elements of the factor in shared memory
    split: int = 0


@dataclass(frozen=True, slots=True)
class _Cut:
    """A way to work on a group, and its estimated cycles."""

    cycles: float
    slices: int
    columns: int
    teams: int
    warps: int  # of a team
    stages: int
    fragments: tuple[_Fragment, ...]


def _powers(most: int) -> list[int]:
    """Return the powers of two up to ``most``."""
    return [1 << bit for bit in range(most.bit_length())]


def _single(
    C: int, K: int, fibres: int, warps: int, registers: int, word: int, along: bool
) -> tuple[float, _Fragment] | None:
    """Return the cycles of a pass in single precision on a quarter of a multiprocessor."""
    across = 1 if along else word
    best: tuple[float, _Fragment] | None = None
    for lanes in _LANES:
        columns = -(-K // (4 * lanes)) * 4
        if lanes > 1 and -(-K // columns) <= lanes // 2:
            continue
        for rows in (1, 2, 4, 8, 12, 16):
            sums = rows * columns
            needed = sums + (4 if along else 2) * rows + _OTHER_REGISTERS
            if sums > _MOST_SUMS or needed > registers or rows % across:
                continue
            items = -(-fibres // (_WARP // lanes * rows))
            loads = 4 * (rows + columns)  # cycles of shared memory, which four warps share
            cycles = _SINGLE * -(-items // warps) * C * (max(sums, loads) + 0.3 * min(sums, loads))
            if best is None or cycles < best[0]:
                best = cycles, _Fragment(rows, columns, across, along, C * lanes * columns)
    return best


def _double(
    C: int, K: int, fibres: int, warps: int, registers: int
) -> tuple[float, _Fragment] | None:
    """Return the cycles of a pass in double precision on a quarter of a multiprocessor."""
    steps, tiles = -(-C // 4), -(-K // 8)
    best: tuple[float, _Fragment] | None = None
    for rows in (2, 4, 8):
        for together in (1, 2):
            held = 2 * rows * steps
            needed = held + 4 * rows * (together + 1) + _OTHER_REGISTERS
            if held > _MOST_HELD or needed > registers or tiles % together:
                continue
            items = -(-fibres // (8 * rows))
            blocks = rows // 2
            chains = max(_MATRIX_CYCLES * blocks, 36 / together)
            cycles = -(-items // warps) * tiles * (steps * chains + 40 / together)
            if best is None or cycles < best[0]:
                best = cycles, _Fragment(rows, together, 1, False, 32 * tiles * steps)
    return best


def _split(
    C: int, K: int, fibres: int, warps: int, registers: int
) -> tuple[float, _Fragment] | None:
    """Return the same where all warps share the factor, in their registers."""
    steps = -(-C // 4)
    tiles = -(-K // 8)
    mine = -(-tiles // warps)
    best: tuple[float, _Fragment] | None = None
    for rows in (2, 4, 8):
        if 2 * mine * steps + rows * (4 * mine + 4) + _OTHER_REGISTERS > registers:
            continue
        loads = 8 * rows  # cycles of shared memory, which four warps share
        chains = max(_MATRIX_CYCLES * rows // 2 * mine, loads, 36)
        cycles = -(-fibres // (8 * rows)) * (steps * chains + 100)
        if best is None or cycles < best[0]:
            best = cycles, _Fragment(rows, 0, 1, False, 0, warps)
    return best


def _fragments(
    shape: _Shape, slices: int, columns: int, warps: int, registers: int
) -> tuple[float, tuple[_Fragment, ...]] | None:
    """Return the cycles of all passes of a tile by a team, and what its warps take."""
    word, total, found = shape.word(columns), 0.0, []
    for mode, sizes in shape.steps():
        C, K = shape.inputs[mode], shape.outputs[mode]
        fibres = slices * math.prod(sizes) // C * columns
        if shape.itemsize == 8 and len(sizes) == 1 and C * K > _MOST_STAGED:
            one = _split(C, K, fibres, warps, registers)
        elif shape.itemsize == 8:
            one = _double(C, K, fibres, warps, registers)
        else:
            along = word > 1 and columns == 1 and mode == len(sizes) - 1
            one = _single(C, K, fibres, warps, registers, word, along)
        if one is None:
            return None
        total += one[0]
        found.append(one[1])
    return total, tuple(found)


def _widths(shape: _Shape) -> Iterator[tuple[int, int]]:
    """Yield slices and columns that a tile may have."""
    if shape.R <= 64:
        for slices in _powers(min(128, shape.L)):
            yield slices, shape.R
    for columns in (128, 64, 32, 16, 8, 4):
        if columns < shape.R and columns * shape.itemsize >= _SECTOR:
            yield 1, columns


@lru_cache(maxsize=4096)
def _best_cut(shape: _Shape, limits: DeviceLimits) -> _Cut | None:
    """Return the fastest way to work on a group, None if no tile fits in shared memory."""
    best: _Cut | None = None
    for cut in sorted(_cuts_of(shape, limits), key=lambda cut: cut.cycles):
        if best is not None and cut.cycles >= best.cycles:
            break
        slower = 1 + (_layout(shape, cut, limits).conflicts - 1) / 2
        if best is None or cut.cycles * slower < best.cycles:
            best = replace(cut, cycles=cut.cycles * slower)
    return best


def _cuts_of(shape: _Shape, limits: DeviceLimits) -> Iterator[_Cut]:
    """Yield all ways to work on a group, with estimated cycles."""
    block = math.prod(shape.extents)
    moved = math.prod(shape.inputs) + math.prod(shape.outputs)
    for (slices, columns), (teams, warps), stages in product(_widths(shape), _TEAMS, (1, 2)):
        buffer = slices * block * columns
        if teams * stages * buffer * shape.itemsize > limits.shared_bytes:
            continue
        registers = min(_MOST_REGISTERS, _REGISTER_FILE // (teams * warps * _WARP) // 8 * 8)
        passes = _fragments(shape, slices, columns, warps, registers)
        if passes is None:
            continue
        cycles, fragments = passes
        staged = sum(one.staged for one in fragments)
        if (staged + teams * stages * buffer) * shape.itemsize > _MOST_PADDED * limits.shared_bytes:
            continue
        width = columns * shape.itemsize
        narrow = max(1.0, _NARROW / width) if columns < shape.R else 1.0
        moving = slices * moved * width * narrow
        memory = moving / _BYTES_A_CYCLE
        waiting = moving / _CACHED_BYTES_A_CYCLE + _LATENCY
        alone = cycles + waiting * (1 if stages == 1 else _HIDDEN)
        busy = (1 + _IDLE / (teams * warps)) * cycles * max(warps, 4) / 4
        each = sum(part**_NORM for part in (busy, memory, alone / teams)) ** (1 / _NORM)
        tiles = -(-shape.L // slices) * -(-shape.R // columns)
        rounds = -(-tiles // limits.multiprocessors)
        staging = _LAUNCH + staged * shape.itemsize / _CACHED_BYTES_A_CYCLE
        total = staging + memory + max(rounds * each, cycles)
        yield _Cut(total, slices, columns, teams, warps, stages, fragments)


@lru_cache(maxsize=1024)
def fibre_groups(
    inputs: tuple[int, ...],
    outputs: tuple[int, ...],
    outer: int,
    inner: int,
    dtype: np.dtype[np.generic],
    limits: DeviceLimits,
) -> tuple[FibreGroup, ...] | None:
    """Return the kernels of a Kron-Matmul of large real factors, None where it has others."""
    if dtype.kind != "f" or not 0 < len(inputs) <= _MOST_MODES:
        return None
    if max(*inputs, *outputs) < SMALLEST_FACTOR:
        return None
    best, found = math.inf, None
    for parts in range(1, len(inputs) + 1):
        for cut in cuts(len(inputs), parts):
            if any(high - low > _MOST_IN_GROUP for low, high in cut):
                continue
            reverse = inputs == outputs or parts > _MOST_ORDERED
            for order in [tuple(reversed(cut))] if reverse else permutations(cut):
                groups = _cuts(order, inputs, outputs, outer, inner, dtype.itemsize, limits)
                if groups is None:
                    continue
                cycles = sum(one.cycles for _, _, one in groups)
                if cycles < best:
                    best, found = cycles, groups
    if found is None:
        return None
    return tuple(
        FibreGroup(_tile(low, shape, cut, limits), shape.L, shape.R) for low, shape, cut in found
    )


def _cuts(
    order: Sequence[tuple[int, int]],
    inputs: tuple[int, ...],
    outputs: tuple[int, ...],
    outer: int,
    inner: int,
    itemsize: int,
    limits: DeviceLimits,
) -> list[tuple[int, _Shape, _Cut]] | None:
    """Return first mode, shape and cut of each group, None if one does not fit."""
    sizes, found = list(inputs), []
    for low, high in order:
        L, R = outer * math.prod(sizes[:low]), math.prod(sizes[high:]) * inner
        shape = _Shape(inputs[low:high], outputs[low:high], L, R, itemsize)
        cut = _best_cut(shape, limits)
        if cut is None:
            return None
        found.append((low, shape, cut))
        sizes[low:high] = outputs[low:high]
    return found


def _passes(shape: _Shape, cut: _Cut, strides: Sequence[int]) -> tuple[FibrePass, ...]:
    """Return the passes of a tile whose axes (slices, modes, columns) have ``strides``."""
    found = []
    for (mode, sizes), fragment in zip(shape.steps(), cut.fragments, strict=True):
        axes = [(cut.columns, strides[-1])]
        axes += [(sizes[m], strides[m + 1]) for m in reversed(range(len(sizes))) if m != mode]
        axes.append((cut.slices, strides[0]))
        found.append(
            FibrePass(
                shape.inputs[mode],
                shape.outputs[mode],
                strides[mode + 1],
                fragment.rows,
                fragment.columns,
                fragment.across,
                fragment.along,
                fragment.split,
                tuple(axis for axis in axes if axis[0] > 1) or ((1, 1),),
            )
        )
    return tuple(found)


def _accesses(one: FibrePass, itemsize: int) -> Iterator[tuple[Array, Array, int]]:
    """Yield fibres and entries of a warp's reads and writes in shared memory, elements of each."""
    lane = np.arange(_WARP)
    if itemsize == 8:
        yield lane // 4, lane % 4, 1
        return
    lanes = _LANES[-1]
    for candidate in reversed(_LANES):
        if candidate * one.columns >= one.K:
            lanes = candidate
    along_fibres = _WARP // lanes
    fibre = lane % along_fibres * one.across
    yield fibre, np.zeros_like(lane), 4 if one.along else one.across
    yield fibre, lane // along_fibres * 4, 4 if one.along and one.K % 4 == 0 else one.across


def _places(fibres: Sequence[tuple[int, Array]], fibre: Array) -> Array:
    """Return where fibres begin; ``fibres``: axes, each with its strides in every layout."""
    place = np.zeros((len(fibres[0][1]), _WARP), np.int64)
    for size, strides in fibres:
        place += strides[:, None] * (fibre % size)
        fibre = fibre // size
    return place


def _length(places: Array, lanes: int) -> Array:
    """Return, for each row of places of words, the most of ``lanes`` that lie in one bank."""
    rows = len(places)
    found = np.sort(places, axis=1)
    first = np.ones(found.shape, bool)
    first[:, 1:] = found[:, 1:] != found[:, :-1]  # the same word is read once
    banks = found % lanes + np.arange(rows)[:, None] * lanes
    counts = np.bincount(banks[first], minlength=rows * lanes)
    longest: Array = counts.reshape(rows, lanes).max(axis=1)
    return longest


def _conflicts(shape: _Shape, cut: _Cut, strides: Array) -> list[float]:
    """Return the mean length of accesses to shared memory in each layout, 1 without conflicts."""
    numbers = tuple(range(strides.shape[1]))
    found = []
    for one in _passes(shape, cut, numbers):  # with numbers of axes in place of their strides
        fibres = [(size, strides[:, axis]) for size, axis in one.fibres]
        for fibre, entry, word in _accesses(one, shape.itemsize):
            places = _places(fibres, fibre) + strides[:, one.stride, None] * entry
            lanes = _BANKS // (word * shape.itemsize // 4)
            for begin in range(0, _WARP, lanes):
                found.append(_length(places[:, begin : begin + lanes] // word, lanes))
    return [round(float(mean), 3) for mean in np.mean(found, axis=0)]


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where a tile lies in shared memory: strides of slices, modes and columns."""

    strides: tuple[int, ...]
    passes: tuple[FibrePass, ...]
    buffer: int
    shared_bytes: int
    conflicts: float


@lru_cache(maxsize=1024)
def _layout(shape: _Shape, cut: _Cut, limits: DeviceLimits) -> _Layout:
    """Return the layout of least bank conflicts, of at most two axes' strides padded."""
    word = shape.word(cut.columns)
    extents = [cut.slices, *shape.extents, cut.columns]
    staged = sum(one.staged for one in cut.fragments)
    found: list[tuple[tuple[int, ...], int, int]] = []
    axes = range(len(extents) - 1 - (cut.columns == 1))
    for pads in product([word * n for n in range(6)], repeat=min(2, len(axes))):
        for pair in combinations(axes, len(pads)):
            padded = [0] * len(extents)
            for axis, pad in zip(pair, pads, strict=True):
                padded[axis] = pad
            strides = tuple(strides_of(extents, padded))
            buffer = -(-strides[0] * cut.slices // 4) * 4
            shared = (staged + cut.teams * cut.stages * buffer) * shape.itemsize
            if shared <= limits.shared_bytes:
                found.append((strides, buffer, shared))
    assert found, "a tile without pads fits"
    conflicts = _conflicts(shape, cut, np.array([strides for strides, _, _ in found]))
    best = min(range(len(found)), key=lambda layout: (conflicts[layout], found[layout][1]))
    strides, buffer, shared = found[best]
    return _Layout(strides, _passes(shape, cut, strides), buffer, shared, conflicts[best])


def _tile(low: int, shape: _Shape, cut: _Cut, limits: DeviceLimits) -> FibreTile:
    """Return what the kernel is compiled for."""
    layout = _layout(shape, cut, limits)
    modes = range(len(shape.inputs))

    def axes_of(sizes: Sequence[int]) -> tuple[tuple[int, int], ...]:
        return (
            (cut.columns, layout.strides[-1]),
            *((sizes[m], layout.strides[m + 1]) for m in reversed(modes)),
            (cut.slices, layout.strides[0]),
        )

    return FibreTile(
        tuple(low + mode for mode, _ in shape.steps()),
        cut.slices,
        cut.columns,
        axes_of(shape.inputs),
        axes_of(shape.outputs),
        shape.word(cut.columns),
        layout.buffer,
        cut.warps * _WARP,
        cut.teams,
        cut.stages,
        layout.shared_bytes,
        layout.passes,
    )
