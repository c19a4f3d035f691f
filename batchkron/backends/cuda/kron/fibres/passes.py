"""Passes over a tile of fibre kernels, and how the warps of a thread group share them.

A tile has ``slices`` blocks of a run of modes and ``columns`` columns; it is multiplied in shared
memory along one mode after another. A pass is along one mode: a fibre is the entries of the tile
along it. A warp multiplies some fibres at a time, to all of their results or to some, see
``csrc/cuda/kron/fibres``. Of all shares that fit in a thread's registers the one of the fewest
cycles is taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from batchkron.backends.cuda.estimates import ceil_div
from batchkron.backends.cuda.runtime.hardware import SECTOR, WARP
from batchkron.backends.cuda.steps import ModeRun, plan_order
from batchkron.spec.kron import Precision

# TF32 multiply-adds of matrix units for each one in float32, by requested precision; 0: none.
PRODUCTS: dict[Precision | None, int] = {None: 0, "tf32": 1, "tf32x3": 3}

# Stages (tiles in shared memory) of a ring, whose warps are not synchronised with each other.
RING = 4

# Numbers below were chosen by hand where no source is given.
LANES = (1, 2, 4, 8, 16)  # choices for the lanes of a warp along results, single precision
_MAX_THREAD_SUMS = 128  # sums of a thread, single precision
_MAX_FIBRE_REGISTERS = 128  # registers of a thread for entries of fibres, double precision
_MAX_STAGED_ELEMENTS = 96 * 96  # elements of one factor in shared memory, double precision
_MIN_SPLIT_ELEMENTS = 96 * 96  # elements of a factor that warps may hold in registers in parts
_OTHER_REGISTERS = 52  # registers of a thread for words of factors and addresses
_BLOCK_FIBRES = 16  # fibres of a TF32 multiply-add of 16 x 8 x 8
_BLOCKS = (1, 2, 4)  # choices for such blocks of fibres that a warp multiplies at a time, in TF32
_SHARERS = (1, 2, 4, 8)  # choices for the warps that share a fibre's results, in TF32

# Cycles of one of a multiprocessor's four schedulers, which compare the shares of a pass. Of single
# and double precision they were fitted to 2350 kernels of an H200.
_MATRIX_MULTIPLY_ADD = 11.3  # a 16 x 8 x 4 multiply-add on float64 matrix units
_MATRIX_LATENCY = 12.4  # between two of these that add to the same sums
_STORE_TILE = 6.9  # storing eight results
# Weights of the larger and the smaller of (multiply-add time, load time).
_LONGER_WEIGHT, _SHORTER_WEIGHT = 0.48, 0.44
_LOAD = 4.1  # a word from shared memory, whose bandwidth four warps share
_STORE = 3.8  # one result of a thread
_ITEM_OVERHEAD = 45  # each group of fibres that a warp works on
_SPLIT_ITEM_OVERHEAD = 70  # the same if a factor is in registers
_CONVERT = 4  # reading a float32 value of a fibre for float64 matrix units
# Those of TF32 follow from the rate of an H200's matrix units, 318 TFLOP/s, and from counts of
# instructions.
_TF32_SCALE = 0.75  # makes them comparable with the fitted ones
_TF32_MULTIPLY_ADD = 6  # a 16 x 8 x 8 multiply-add
_TF32_LATENCY = 35  # between two of these that add to the same sums
_TF32_SPLIT = 3  # instructions to split a number into a leading and a trailing TF32 part
_TF32_ROUNDING = 4  # instructions to round a number to TF32, as compiled
_TF32_HIDDEN = 0.3  # share of the time of all resources but the slowest that adds to the total
_TF32_OVERHEAD = 60  # addresses of a warp's fibres, and the barrier before they are overwritten


class FibreVariant(NamedTuple):
    """The numbers that tuning may change.

    Slices and columns of a tile, teams (thread groups) of a thread block, warps of a team, tiles of
    a team in shared memory, and ``units``: 1 if matrix units multiply single precision in TF32.
    """

    slices: int
    columns: int
    teams: int
    warps: int
    stages: int
    units: int = 0


@dataclass(frozen=True, slots=True)
class Share:
    """A warp's share of a pass, see ``FibrePass`` of the kernel.

    ``staged`` are the factor's elements in shared memory, ``cycles`` the time of all that a warp
    does. If ``products`` is not 0, see ``Tf32Pass``: ``rows`` are its blocks, ``split`` its
    sharers.
    """

    cycles: float
    rows: int
    columns: int
    across: int
    along: bool
    staged: int
    split: int = 0
    products: int = 0

    @property
    def factor_in_registers(self) -> bool:
        """Whether each warp has a part of the factor in registers."""
        return self.split > 0 and self.products == 0


def at_the_front(run: ModeRun) -> ModeRun:
    """Return a run without what no choice depends on, so that choices are found again."""
    return replace(run, first=0, constant=False, fixed_columns=False, identities=())


@lru_cache(maxsize=64)
def alone(run: ModeRun) -> ModeRun:
    """Return a run of one vector, of which passes over a tile are the same."""
    return replace(at_the_front(run), L=1, R=1)


def mode_steps(run: ModeRun) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Return the modes in the order of least work, each with all sizes before its multiply."""
    return _mode_steps(run.inputs, run.outputs)


@lru_cache(maxsize=1024)
def _mode_steps(
    inputs: tuple[int, ...], outputs: tuple[int, ...]
) -> tuple[tuple[int, tuple[int, ...]], ...]:
    sizes, found = list(inputs), []
    for mode in plan_order(inputs, outputs):
        found.append((mode, tuple(sizes)))
        sizes[mode] = outputs[mode]
    return tuple(found)


def extents_of(run: ModeRun) -> tuple[int, ...]:
    """Return the size of each mode's axis in a tile, which holds inputs and outputs."""
    return tuple(map(max, run.inputs, run.outputs))


def word_of(run: ModeRun, columns: int) -> int:
    """Return the elements of a 16-byte word if tiles consist of whole words, else 1."""
    word = 16 // run.itemsize
    sizes = [run.inputs[-1], run.outputs[-1]] if columns == 1 else [columns]
    return word if all(size % word == 0 for size in sizes) else 1


def writes_to_array(run: ModeRun, columns: int, along: bool) -> bool:
    """Whether the last pass writes to the array: if the stores of a warp fill whole sectors."""
    *_, (mode, _) = mode_steps(run)
    sizes = run.outputs
    if columns < run.R:
        together = columns
    elif mode < len(sizes) - 1:
        together = math.prod(sizes[mode + 1 :]) * run.R
    elif columns > 1:
        together = run.R
    else:
        together = sizes[mode] if along else 1
    return together * run.itemsize >= SECTOR


@lru_cache(maxsize=8192)  # the stages of a tile, and many variants, have the same passes
def shares_of(
    run: ModeRun, slices: int, columns: int, warps: int, registers: int, double_units: bool
) -> tuple[Share, ...] | None:
    """Return a warp's share of each pass over a tile, None if some pass fits in no registers.

    ``run``: if it has ``products``, TF32 is tried as well; ``slices`` and ``columns``: of the tile;
    ``warps``: of the thread group; ``registers``: of a thread; ``double_units``: whether float64
    matrix units may multiply float32, too.
    """
    word, found = word_of(run, columns), []
    for mode, sizes in mode_steps(run):
        C, K = run.inputs[mode], run.outputs[mode]
        fibres = slices * math.prod(sizes) // C * columns
        along = word > 1 and columns == 1 and mode == len(sizes) - 1
        is_alone, sizes_and_room = len(sizes) == 1, (C, K, fibres, warps, registers)
        across = 1 if along else word
        if run.itemsize == 8 and is_alone and C * K > _MAX_STAGED_ELEMENTS:
            ways = [_split(*sizes_and_room, along, 8)]
        else:
            of_one_warp = (_double if run.itemsize == 8 else _single)(C, K, across, along)
            ways = [_fastest(of_one_warp, fibres, warps, registers)]
            if run.products:
                ways.append(_tf32(*sizes_and_room, min(across, 2), along, run.products))
            elif double_units and is_alone and C * K >= _MIN_SPLIT_ELEMENTS:
                ways.append(_split(*sizes_and_room, along, 4))
        best = min(filter(None, ways), key=_cycles, default=None)
        if best is None:
            return None
        found.append(best)
    return tuple(found)


def _cycles(share: Share) -> float:
    return share.cycles


# A way to multiply groups of fibres: registers of a thread, fibres of a group, its cycles, and the
# share without cycles.
_Way = tuple[int, int, float, Share]


@lru_cache(maxsize=8192)  # tiles of many runs have the same passes, as below
def _fastest(ways: Sequence[_Way], fibres: int, warps: int, registers: int) -> Share | None:
    """Return the share of a warp in the way of the fewest cycles, None if no way has room."""
    best: tuple[float, Share] | None = None
    for needed, group, cycles, share in ways:
        if needed <= registers:
            cycles *= ceil_div(ceil_div(fibres, group), warps)
            if best is None or cycles < best[0]:
                best = cycles, share
    return None if best is None else replace(best[1], cycles=best[0])


@lru_cache(maxsize=1024)
def _single(C: int, K: int, across: int, along: bool) -> tuple[_Way, ...]:
    """Return the ways in single precision on ordinary cores."""
    found = []
    for lanes in LANES:
        columns = -(-K // (4 * lanes)) * 4
        if lanes > 1 and -(-K // columns) <= lanes // 2:
            continue
        for rows in (1, 2, 4, 8, 12, 16):
            sums = rows * columns
            if sums > _MAX_THREAD_SUMS or rows % across:
                continue
            needed = sums + (4 if along else 2) * rows + _OTHER_REGISTERS
            loads = _LOAD * (rows + columns)
            step = _LONGER_WEIGHT * max(sums, loads) + _SHORTER_WEIGHT * min(sums, loads)
            cycles = C * step + _STORE * sums + _ITEM_OVERHEAD
            share = Share(0.0, rows, columns, across, along, C * lanes * columns)
            found.append((needed, WARP // lanes * rows, cycles, share))
    return tuple(found)


@lru_cache(maxsize=1024)
def _double(C: int, K: int, across: int, along: bool) -> tuple[_Way, ...]:
    """Return the ways in double precision, on matrix units."""
    steps, tiles, found = -(-C // 4), -(-K // 8), []
    for rows in (2, 4, 8):
        for together in (1, 2):
            held = 2 * rows * steps
            if held > _MAX_FIBRE_REGISTERS or tiles % together:
                continue
            needed = held + 4 * rows * (together + 1) + _OTHER_REGISTERS
            chains = max(_MATRIX_MULTIPLY_ADD * (rows // 2), _MATRIX_LATENCY / together)
            cycles = tiles * (steps * chains + _STORE_TILE / together) + _ITEM_OVERHEAD
            share = Share(0.0, rows, together, across, along, 32 * tiles * steps)
            found.append((needed, 8 * rows, cycles, share))
    return tuple(found)


def factor_fragments(C: int, K: int, warps: int) -> tuple[int, int]:
    """Return the fragments along a factor's columns, and along the part of its rows of a warp."""
    tiles = -(-K // 8)
    return -(-C // 4), -(-tiles // warps)


def _split(
    C: int, K: int, fibres: int, warps: int, registers: int, along: bool, itemsize: int
) -> Share | None:
    """Return the best share in double precision if warps hold parts of the factor in registers.

    ``itemsize``: 4 for single precision, which is converted when it is read.
    """
    steps, mine = factor_fragments(C, K, warps)
    found = []
    for rows in (2, 4, 8):
        if 2 * mine * steps + rows * (4 * mine + 4) + _OTHER_REGISTERS > registers:
            continue
        chains = max(_MATRIX_MULTIPLY_ADD * (rows // 2 * mine), _LOAD * rows, 2 * _MATRIX_LATENCY)
        chains += 0 if itemsize == 8 else _CONVERT * rows
        cycles = -(-fibres // (8 * rows)) * (steps * chains + _SPLIT_ITEM_OVERHEAD)
        found.append(Share(cycles, rows, 0, 1, along, 0, warps))
    return min(found, key=_cycles, default=None)


@lru_cache(maxsize=8192)
def _tf32(
    C: int, K: int, fibres: int, warps: int, registers: int, across: int, along: bool, products: int
) -> Share | None:
    """Return the best share in TF32, whose significands have 11 bits, on matrix units."""
    steps, all_tiles, found = -(-C // 8), -(-K // 8), []
    for sharers in _SHARERS:
        if warps % sharers or sharers > all_tiles:
            continue
        tiles = -(-all_tiles // sharers)
        for blocks in _BLOCKS:
            sums = 4 * blocks * tiles * (2 if products > 1 else 1)
            entries = blocks * (12 if products > 1 else 8)
            if sums + entries + _OTHER_REGISTERS > registers:
                continue
            cycles = _tf32_step(blocks, tiles, products) * steps
            cycles += 16 * blocks * tiles + _TF32_OVERHEAD  # storing results in shared memory
            items = -(-fibres // (_BLOCK_FIBRES * blocks))
            cycles *= _TF32_SCALE * -(-items // (warps // sharers))
            staged = sharers * tiles * steps * 64
            found.append(Share(cycles, blocks, 0, across, along, staged, sharers, products))
    return min(found, key=_cycles, default=None)


def _tf32_step(blocks: int, tiles: int, products: int) -> float:
    """Return the cycles in which a warp multiplies 8 entries of its fibres."""
    multiplies = products * blocks * tiles
    loads = 4 * (4 * blocks + 2 * tiles)  # from shared memory, whose bandwidth four warps share
    prepared = (
        _TF32_SPLIT * (4 * blocks + 2 * tiles) if products > 1 else _TF32_ROUNDING * 4 * blocks
    )
    issued = multiplies + 4 * blocks + tiles + prepared
    parts = [_TF32_MULTIPLY_ADD * multiplies, loads, issued]
    slowest = max(*parts, _TF32_LATENCY * min(products, 2))
    return slowest + _TF32_HIDDEN * (sum(parts) - max(parts))


def divisions_of(run: ModeRun, variant: FibreVariant, shares: Sequence[Share]) -> int:
    """Return the integer divisions of a warp to find its fibres; 0 in single precision."""
    if run.itemsize == 4:
        return 0
    total = 0
    for (mode, sizes), one in zip(mode_steps(run), shares, strict=True):
        axes = [size for m, size in enumerate(sizes) if m != mode and size > 1][::-1]
        together = 8 * one.rows
        if not one.split and not adds_without_carry(axes, together):
            fibres = variant.slices * variant.columns * math.prod(axes)
            total += -(-fibres // (together * variant.warps)) * one.rows * (len(axes) - 1)
    return total


def adds_without_carry(axes: Sequence[int], step: int) -> bool:
    """Whether place(i + n step) = place(i) + place(n step) for all i < step and n.

    place(i) is the offset of fibre i in the axes: no addition carries from one axis to the next.
    """
    for size in axes[:-1]:
        if step % size:
            return size % step == 0
        step //= size
    return True
