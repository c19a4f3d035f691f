"""Cuts of the work of fibre kernels, and their rank.

A cut is the size of a tile, the warps that share it, and the fibres and results of a warp, see
``csrc/cuda/kron/fibres/kernel.cuh``. Pure arithmetic on sizes, no device needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations, product

from batchkron.backends.cuda.estimates import slowest
from batchkron.backends.cuda.kron.fibres.tf32 import tf32_cut
from batchkron.backends.cuda.runtime.hardware import (
    MAX_THREAD_REGISTERS,
    REGISTER_FILE,
    SECTOR,
    WARP,
    DeviceLimits,
)

# Numbers below were chosen by hand where no source is given.
LANES = (1, 2, 4, 8, 16)  # choices for the lanes of a warp along results, single precision
_MAX_THREAD_SUMS = 128  # sums of a thread, single precision
_MAX_FIBRE_REGISTERS = 128  # registers of a thread for entries of fibres, double precision
_MAX_STAGED_ELEMENTS = 96 * 96  # elements of one factor in shared memory, double precision
_MIN_SPLIT_ELEMENTS = 96 * 96  # elements of a float32 factor for which float64 units are tried
_OTHER_REGISTERS = 52  # registers of a thread for words of factors and addresses
# For each number of warps of a team, the choices for the teams of a thread block.
_TEAM_COUNTS = {
    1: (4, 6, 8, 12, 16),
    2: (2, 4, 6, 8),
    3: (4,),
    4: (1, 2, 3, 4, 5, 6),
    6: (2,),
    8: (1, 2),
    12: (1,),
    16: (1,),
}
# Stages (tiles in shared memory) of a ring, whose warps are not synchronised with each other.
RING = 4
_MAX_UNPADDED_SHARE = 0.98  # share of shared memory that tiles may fill before padding is added

# Weights that rank the cuts of a run, in cycles of a multiprocessor of an H200. They were fitted
# together to 2350 kernels so that the fastest cut of a run comes first; a single number need not be
# physical, and ranks are no times to compare with other families (for these see `cost`).
_BYTES_A_CYCLE = 21.6  # bandwidth of memory for each multiprocessor, bytes per cycle
_FULL_TILE_SLOWDOWN = 0.7  # relative increase of memory time if tiles fill shared memory
_CACHED_BYTES_A_CYCLE = 44  # the same bandwidth of the second-level cache
_LATENCY = 1480  # from a tile's first request to the second-level cache to the last answer
# Time of multiplying a tile while another one is loaded: the p-norm of both times, with this p.
_COPY_OVERLAP_NORM = 2.2
_NARROW_BYTES = 64  # memory is slower if the rows of a tile have fewer contiguous bytes
_ROW_OVERHEAD_BYTES = 22  # extra time of each row of a tile, in bytes that it would transfer
_MATRIX_MULTIPLY_ADD = 11.3  # a 16 x 8 x 4 multiply-add on one of four matrix units
_MATRIX_LATENCY = 12.4  # between two of these that add to the same sums
_STORE_TILE = 6.9  # storing eight results
# Weights of the larger and the smaller of (multiply-add time, load time).
_LONGER_WEIGHT, _SHORTER_WEIGHT = 0.48, 0.44
_LOAD = 4.1  # a word from shared memory, for each of four warps that share its bandwidth
_STORE = 3.8  # one result of a thread
_FRAGMENT_OVERHEAD = 45  # of each group of fibres that a warp works on
# Division by the size of a tile's axis, for each fibre of a thread; nothing hides its latency.
_AXIS_DIVISION = 130
# Factor of the time of passes while copies run at the same time, by bytes of an element.
_COPY_INTERFERENCE = {4: 1.27, 8: 1.41}
# Relative increase of that time for each mode beyond the first, where tiles have one column.
_STRIDED_COST = 0.11
_IDLE_WARPS = 1.2  # warps that could issue in the cycles in which a multiprocessor issues nothing
# Power of the imbalance (warps rounded up to a multiple of the four schedulers, over warps).
_IMBALANCE_POWER = 1.45
_RESOURCE_NORM = 3  # p of the p-norm by which the times of several resources are combined
# Factor of the time of passes in a ring, whose warps need not wait for each other.
_RING_FACTOR = 0.75
_LAUNCH = 4000  # a kernel's launch, and its first loads
# Latency of the second-level cache, for each batch of factor values that a thread loads.
_STAGING_LATENCY = 800
_STAGING_BATCH = 8  # values of such a batch
_REGISTER_FACTOR_LOAD = 65  # loading a value of a factor that a thread keeps in registers
_CONVERT = 4  # reading a float32 value of a fibre for float64 matrix units
_TAIL = 0.22  # share of a team's tiles that run with no other team on the multiprocessor


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a run: see `ModeRun`.

    ``products``: TF32 multiply-adds of matrix units that replace one in float32, 0 for ordinary
    cores.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    L: int
    R: int
    itemsize: int
    products: int = 0

    @property
    def extents(self) -> tuple[int, ...]:
        """Size of each mode's axis in a tile, which holds inputs and outputs."""
        return tuple(max(pair) for pair in zip(self.inputs, self.outputs, strict=True))

    def word(self, columns: int) -> int:
        """Return the elements of a 16-byte word if tiles consist of whole words, else 1."""
        word = 16 // self.itemsize
        sizes = [self.inputs[-1], self.outputs[-1]] if columns == 1 else [columns]
        return word if all(size % word == 0 for size in sizes) else 1

    def steps(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield the modes in the order of least work, each with all sizes before its multiply."""
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
class Fragment:
    """A warp's share of a pass, see ``FibrePass`` of the kernel.

    If ``products`` is not 0, see ``Tf32Pass``: ``rows`` are its blocks, ``split`` its sharers.
    """

    rows: int
    columns: int
    across: int
    along: bool
    staged: int  # elements of the factor in shared memory
    split: int = 0
    products: int = 0


@dataclass(frozen=True, slots=True)
class Cut:
    """A cut of the work on a run: tile, teams of warps, and a warp's share of each pass.

    ``rank``: the smaller, the faster among the cuts of one run.
    """

    rank: float
    slices: int
    columns: int
    teams: int
    warps: int  # of a team
    stages: int
    fragments: tuple[Fragment, ...]


def _powers(maximum: int) -> list[int]:
    """Return the powers of two up to ``maximum``."""
    return [1 << bit for bit in range(maximum.bit_length())]


@lru_cache(maxsize=8192)  # cuts of many runs have the same passes
def _single(
    C: int, K: int, fibres: int, warps: int, registers: int, word: int, along: bool
) -> tuple[float, Fragment] | None:
    """Return the cycles of a pass in single precision on one of four schedulers, and the share."""
    across = 1 if along else word
    best: tuple[float, Fragment] | None = None
    for lanes in LANES:
        columns = -(-K // (4 * lanes)) * 4
        if lanes > 1 and -(-K // columns) <= lanes // 2:
            continue
        for rows in (1, 2, 4, 8, 12, 16):
            sums = rows * columns
            needed = sums + (4 if along else 2) * rows + _OTHER_REGISTERS
            if sums > _MAX_THREAD_SUMS or needed > registers or rows % across:
                continue
            items = -(-fibres // (WARP // lanes * rows))
            loads = _LOAD * (rows + columns)
            step = _LONGER_WEIGHT * max(sums, loads) + _SHORTER_WEIGHT * min(sums, loads)
            cycles = -(-items // warps) * (C * step + _STORE * sums + _FRAGMENT_OVERHEAD)
            if best is None or cycles < best[0]:
                best = cycles, Fragment(rows, columns, across, along, C * lanes * columns)
    return best


@lru_cache(maxsize=8192)  # cuts of many runs have the same passes
def _double(
    C: int, K: int, fibres: int, warps: int, registers: int, word: int, along: bool
) -> tuple[float, Fragment] | None:
    """Return the cycles of a pass in double precision on one of four schedulers, and the share."""
    steps, tiles = -(-C // 4), -(-K // 8)
    best: tuple[float, Fragment] | None = None
    for rows in (2, 4, 8):
        for together in (1, 2):
            held = 2 * rows * steps
            needed = held + 4 * rows * (together + 1) + _OTHER_REGISTERS
            if held > _MAX_FIBRE_REGISTERS or needed > registers or tiles % together:
                continue
            items = -(-fibres // (8 * rows))
            blocks = rows // 2
            chains = max(_MATRIX_MULTIPLY_ADD * blocks, _MATRIX_LATENCY / together)
            cycles = -(-items // warps) * (
                tiles * (steps * chains + _STORE_TILE / together) + _FRAGMENT_OVERHEAD
            )
            if best is None or cycles < best[0]:
                best = (
                    cycles,
                    Fragment(rows, together, 1 if along else word, along, 32 * tiles * steps),
                )
    return best


def _split(
    C: int, K: int, fibres: int, warps: int, registers: int, along: bool, itemsize: int
) -> tuple[float, Fragment] | None:
    """Return cycles and share in double precision if warps hold parts of the factor in registers.

    ``itemsize``: 4 for single precision, which is converted when it is read.
    """
    steps, mine = _share(C, K, warps)
    best: tuple[float, Fragment] | None = None
    for rows in (2, 4, 8):
        if 2 * mine * steps + rows * (4 * mine + 4) + _OTHER_REGISTERS > registers:
            continue
        chains = max(_MATRIX_MULTIPLY_ADD * (rows // 2 * mine), _LOAD * rows, 2 * _MATRIX_LATENCY)
        chains += 0 if itemsize == 8 else _CONVERT * rows
        cycles = -(-fibres // (8 * rows)) * (steps * chains + 70)
        if best is None or cycles < best[0]:
            best = cycles, Fragment(rows, 0, 1, along, 0, warps)
    return best


def _share(C: int, K: int, warps: int) -> tuple[int, int]:
    """Return the fragments along a factor's columns, and along the part of its rows of a warp."""
    steps, tiles = -(-C // 4), -(-K // 8)
    return steps, -(-tiles // warps)


def _single_on_units(
    C: int,
    K: int,
    fibres: int,
    warps: int,
    registers: int,
    word: int,
    along: bool,
    products: int,
) -> tuple[float, Fragment] | None:
    """Return the cycles of a pass in single precision on matrix units, and the share."""
    cut = tf32_cut(C, K, fibres, warps, registers, products)
    if cut is None:
        return None
    across = 1 if along else min(word, 2)
    return cut.cycles, Fragment(cut.blocks, 0, across, along, cut.staged, cut.sharers, products)


def _fragments(
    shape: Shape, slices: int, columns: int, warps: int, registers: int, double_units: bool
) -> tuple[float, tuple[Fragment, ...]] | None:
    """Return the cycles of all passes of a team over a tile, and a warp's share of each."""
    word, total, found = shape.word(columns), 0.0, []
    for mode, sizes in shape.steps():
        C, K = shape.inputs[mode], shape.outputs[mode]
        fibres = slices * math.prod(sizes) // C * columns
        along = word > 1 and columns == 1 and mode == len(sizes) - 1
        given = C, K, fibres, warps, registers, word, along
        if shape.itemsize == 8 and len(sizes) == 1 and C * K > _MAX_STAGED_ELEMENTS:
            one = _split(C, K, fibres, warps, registers, along, 8)
        else:
            one = _double(*given) if shape.itemsize == 8 else _single(*given)
            others = []
            if shape.products:
                others.append(_single_on_units(*given, shape.products))
            elif double_units and len(sizes) == 1 and C * K >= _MIN_SPLIT_ELEMENTS:
                others.append(_split(C, K, fibres, warps, registers, along, 4))
            one = min(filter(None, (one, *others)), key=lambda way: way[0], default=None)
        if one is None:
            return None
        total += one[0]
        found.append(one[1])
    longer = 1 + _STRIDED_COST * (len(found) - 1) if columns == 1 else 1.0
    return total * _COPY_INTERFERENCE[shape.itemsize] * longer, tuple(found)


def _address_cycles(
    shape: Shape, slices: int, columns: int, warps: int, fragments: Sequence[Fragment]
) -> float:
    """Return the cycles in which a warp finds where its fibres begin, by integer divisions.

    0 in single precision, where the estimates are as good without.
    """
    if shape.itemsize == 4:
        return 0.0
    total = 0
    for (mode, sizes), one in zip(shape.steps(), fragments, strict=True):
        axes = [size for m, size in enumerate(sizes) if m != mode and size > 1][::-1]
        together = 8 * one.rows
        if not one.split and not adds_without_carry(axes, together):
            turns = -(-slices * columns * math.prod(axes) // (together * warps))
            total += turns * one.rows * (len(axes) - 1)
    return float(total * _AXIS_DIVISION)


def adds_without_carry(axes: Sequence[int], step: int) -> bool:
    """Whether place(i + n step) = place(i) + place(n step) for all i < step and n.

    place(i) is the offset of fibre i in the axes: no addition carries from one axis to the next.
    """
    for size in axes[:-1]:
        if step % size:
            return size % step == 0
        step //= size
    return True


def _widths(shape: Shape) -> Iterator[tuple[int, int]]:
    """Yield the choices for slices and columns of a tile."""
    if shape.R <= 64:
        for slices in _powers(min(128, shape.L)):
            yield slices, shape.R
    for columns in (128, 64, 32, 16, 8, 4):
        if columns < shape.R and columns * shape.itemsize >= SECTOR:
            yield 1, columns


def writes_to_array(shape: Shape, columns: int, along: bool) -> bool:
    """Whether the last pass writes to the array: if the stores of a warp fill whole sectors."""
    *_, (mode, _) = shape.steps()
    sizes = shape.outputs
    if columns < shape.R:
        together = columns
    elif mode < len(sizes) - 1:
        together = math.prod(sizes[mode + 1 :]) * shape.R
    elif columns > 1:
        together = shape.R
    else:
        together = sizes[mode] if along else 1
    return together * shape.itemsize >= SECTOR


def _may_ring(shape: Shape, columns: int, teams: int, fragments: Sequence[Fragment]) -> bool:
    """Whether tiles may form a ring: one team, whose warps read tiles and write to the array."""
    last = fragments[-1]
    is_shared = teams == 1 and last.split > 0 and last.products == 0
    return is_shared and writes_to_array(shape, columns, last.along)


def cut_with(
    shape: Shape,
    slices: int,
    columns: int,
    teams: int,
    warps: int,
    stages: int,
    limits: DeviceLimits,
) -> Cut | None:
    """Return the cut with this tile and these teams, None if there is none."""
    if (slices, columns) not in _widths(shape) or teams not in _TEAM_COUNTS.get(warps, ()):
        return None  # such as numbers from a file
    found = _cuts(shape, [(slices, columns)], [(teams, warps)], limits)
    return next((cut for cut in found if cut.stages == stages), None)


def cuts_of(shape: Shape, limits: DeviceLimits) -> Iterator[Cut]:
    """Yield all cuts of a run that fit in shared memory and registers."""
    shared = [(teams, warps) for warps, numbers in _TEAM_COUNTS.items() for teams in numbers]
    return _cuts(shape, _widths(shape), shared, limits)


def _cuts(
    shape: Shape,
    widths: Iterable[tuple[int, int]],
    shared: Sequence[tuple[int, int]],
    limits: DeviceLimits,
) -> Iterator[Cut]:
    block = math.prod(shape.extents)
    moved = math.prod(shape.inputs) + math.prod(shape.outputs)
    for (slices, columns), (teams, warps) in product(widths, shared):
        buffer = slices * block * columns
        if teams * buffer * shape.itemsize > limits.shared_bytes:
            continue
        registers = min(MAX_THREAD_REGISTERS, REGISTER_FILE // (teams * warps * WARP) // 8 * 8)
        passes = _fragments(shape, slices, columns, warps, registers, limits.double_units)
        if passes is None:
            continue
        fragments = passes[1]
        places = _address_cycles(shape, slices, columns, warps, fragments)
        staged = sum(one.staged for one in fragments)
        width = columns * shape.itemsize
        narrow = (
            1.0
            if columns == shape.R
            else max(1.0, _NARROW_BYTES / width) + _ROW_OVERHEAD_BYTES / width
        )
        moving = slices * moved * width * narrow
        waiting = moving / _CACHED_BYTES_A_CYCLE + _LATENCY
        tiles = -(-shape.L // slices) * -(-shape.R // columns)
        rounds = -(-tiles // limits.multiprocessors)
        busy_teams = min(teams, rounds)
        turns = -(-rounds // teams)
        together = busy_teams * warps
        uneven = (-(-together // 4) * 4 / together) ** _IMBALANCE_POWER
        staging = _LAUNCH + staged * shape.itemsize / _CACHED_BYTES_A_CYCLE
        staging += _STAGING_LATENCY * -(-staged // (_STAGING_BATCH * teams * warps * WARP))
        if fragments[0].split and not fragments[0].products:
            (C,), (K,) = shape.inputs, shape.outputs
            staging += C * K * shape.itemsize / _CACHED_BYTES_A_CYCLE
            staging += _REGISTER_FACTOR_LOAD * math.prod(_share(C, K, warps))
        for stages in (1, 2, RING):
            if stages == RING and not _may_ring(shape, columns, teams, fragments):
                continue
            buffers = teams * stages * buffer
            if (staged + buffers) * shape.itemsize > _MAX_UNPADDED_SHARE * limits.shared_bytes:
                continue
            memory = moving / _BYTES_A_CYCLE
            memory *= 1 + _FULL_TILE_SLOWDOWN * (buffers * shape.itemsize / limits.shared_bytes)
            cycles = passes[0] * (_RING_FACTOR if stages == RING else 1)
            if stages == 1 or turns == 1:
                alone = cycles + waiting
            else:
                alone = slowest(_COPY_OVERLAP_NORM, cycles, waiting)
            busy = (1 + _IDLE_WARPS / together) * cycles * warps / 4 * uneven
            each = slowest(_RESOURCE_NORM, busy, memory, alone / busy_teams)
            last = alone * max(1, _TAIL * turns) + places
            total = staging + memory + max(rounds * each, last)
            yield Cut(total, slices, columns, teams, warps, stages, fragments)
