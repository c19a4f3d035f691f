"""Kernels in registers where there are few tiles: at most one for each multiprocessor.

A thread block then has a multiprocessor to itself: what counts is how long one tile takes, not how
many fit. More groups of fewer modes have more tiles, and many threads take few turns. Pure
arithmetic on sizes, without any device.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import permutations

from batchkron.backends.cuda.kron.registers.passes import RegisterPass, TilePlanner, cuts
from batchkron.backends.cuda.kron.registers.tile import (
    RegisterGroup,
    slices_to_spread,
    tile_of,
    tiles_of,
    usual_planner,
)
from batchkron.backends.cuda.runtime.hardware import REGISTER_FILE, DeviceLimits, resident_blocks
from batchkron.backends.cuda.steps import GroupShape, group_shapes

_LEAST_THREADS, _MOST_THREADS = 128, 512  # of a thread block, the only one of its multiprocessor
_HELD = (16, 32)  # elements that a thread may hold, beside the usual ones
_REGISTERS = (64, 128, 256)  # that a thread has: with more than it needs, code is longer and slower
_OTHER_REGISTERS = 46  # of a thread, beside the elements that it holds
_TO_LOAD_FACTORS = 24  # more, of factors that are no constants, or complex
_MOST_HELD_BYTES = 512
_MOST_ROUNDS = 2  # of tiles, one after another in a multiprocessor: beyond, estimates are too short
_MOST_ORDERED = 3  # groups whose every order is looked at
_ALONE = 128  # threads of a multiprocessor that have its schedulers to themselves

# Estimated times, in cycles of a multiprocessor of an H200: fitted to 200 measured kernels.
_LAUNCH = 1646  # of a kernel in a graph, and its first loads
_TILE = 200
_PASS = 280
_TURN = 71  # of a thread to other elements
_ELEMENT = 6.82  # of four bytes, to read and write it
_MULTIPLY_ADD = 1.25  # of four bytes
_MULTIPLY_ADD_ALONE = 3.4  # at least, of a warp by itself; code of factors of two is shorter
_BYTES_A_CYCLE = 2000  # of all multiprocessors, of vectors that are read and written


@dataclass(frozen=True, slots=True)
class _Way:
    """A way to work on a group: estimated cycles, its planner, threads and their registers."""

    cycles: float
    part: GroupShape
    planner: TilePlanner
    threads: int
    registers: int


def few_tiles_groups(
    shape: GroupShape, constant: bool, most: int, limits: DeviceLimits
) -> tuple[RegisterGroup, ...]:
    """Return at most ``most`` kernels of least estimated time, none where no tile fits.

    ``shape``: all modes; ``constant``: the factors may become constants of the kernels.
    """
    best: list[_Way] = []
    for parts in range(1, min(most, len(shape.inputs)) + 1):
        if best and _cycles(best) <= parts * _LAUNCH:
            break  # as many kernels take longer whatever they do
        for cut in cuts(len(shape.inputs), parts):
            square = shape.inputs == shape.outputs or parts > _MOST_ORDERED
            for order in [tuple(reversed(cut))] if square else permutations(cut):
                bound = _cycles(best) if best else math.inf
                best = _quickest_ways(shape, order, bound, constant, limits) or best
    return tuple(_group(way, shape.R == 1, constant, limits) for way in best)


def _quickest_ways(
    shape: GroupShape,
    order: Sequence[tuple[int, int]],
    bound: float,
    constant: bool,
    limits: DeviceLimits,
) -> list[_Way]:
    """Return ways to work on the groups of a cut in less than ``bound`` cycles, if there are."""
    ways: list[_Way] = []
    for part in group_shapes(order, shape.inputs, shape.outputs, shape.L, shape.R, shape.dtype):
        way = _quickest(part, constant, limits)
        if way is None:
            return []
        ways.append(way)
        if _cycles(ways) + (len(order) - len(ways)) * _LAUNCH >= bound:
            return []
    return ways


def _cycles(ways: list[_Way]) -> float:
    return sum(way.cycles for way in ways)


def _group(way: _Way, single: bool, constant: bool, limits: DeviceLimits) -> RegisterGroup:
    """Return a kernel; ``single``: its columns are known before it runs."""
    tile = tile_of(way.planner, way.part.R if single else 0, constant, limits)
    fitting = resident_blocks(tile.shared_bytes, limits)
    blocks = max(1, min(REGISTER_FILE // (way.threads * way.registers), fitting))
    return RegisterGroup(replace(tile, threads=way.threads, blocks=blocks), way.part.L, way.part.R)


@lru_cache(maxsize=4096)  # cuts of a product, and of others like it, have parts in common
def _quickest(part: GroupShape, constant: bool, limits: DeviceLimits) -> _Way | None:
    """Return the way of least estimated time, None where no tile fits."""
    return min(_ways(part, constant, limits), key=lambda way: way.cycles, default=None)


def _ways(part: GroupShape, constant: bool, limits: DeviceLimits) -> Iterator[_Way]:
    usual = usual_planner(part, limits)
    loading = 0 if constant and part.dtype.kind == "f" else _TO_LOAD_FACTORS
    largest = max(*part.inputs, *part.outputs)
    slices = usual.slices * slices_to_spread(part.L, part.R, usual, limits)
    elements = part.L * part.R * max(math.prod(part.inputs), math.prod(part.outputs))
    moving = elements * part.itemsize / _BYTES_A_CYCLE
    for held in dict.fromkeys((usual.most, largest, largest**2, *_HELD)):
        if held * part.itemsize > _MOST_HELD_BYTES:
            continue
        planner = usual.holding(held, slices)
        if planner.shared_bytes(planner.unpadded()) > limits.shared_bytes:
            continue
        rounds = -(-tiles_of(part.L, part.R, planner) // limits.multiprocessors)
        if rounds > _MOST_ROUNDS:
            continue
        passes = planner.passes(planner.unpadded())
        holding = max(_held(one) for one in passes) * part.itemsize // 4
        registers = holding + _OTHER_REGISTERS + loading
        if registers <= _REGISTERS[-1]:
            fitting = next(some for some in _REGISTERS if some >= registers)
            threads = min(_threads(passes), REGISTER_FILE // fitting)
            cycles = _LAUNCH + rounds * _tile_cycles(passes, threads, part.itemsize / 4) + moving
            yield _Way(cycles, part, planner, threads, fitting)


def _held(one: RegisterPass) -> int:
    return math.prod(max(axis.C, axis.K) for axis in one.registers)


def _items(one: RegisterPass) -> int:
    return math.prod(axis.size for axis in one.threads)


def _threads(passes: Sequence[RegisterPass]) -> int:
    """Return a power of two: twice as many threads as have work were the quickest."""
    wanted = 2 * max(_items(one) for one in passes)
    return min(max(1 << (wanted - 1).bit_length(), _LEAST_THREADS), _MOST_THREADS)


def _tile_cycles(passes: Sequence[RegisterPass], threads: int, words: float) -> float:
    """Return the estimated cycles of a tile, of elements of so many ``words``."""
    cycles = float(_TILE)
    for one in passes:
        held, items = _held(one), _items(one)
        factors = [axis.C for axis in one.registers if axis.factor >= 0]
        sharing = max(1.0, min(threads, items) / _ALONE) * words
        least = _MULTIPLY_ADD_ALONE if max(factors, default=0) > 2 else 0.0
        work = sum(factors) * max(least, _MULTIPLY_ADD * sharing)
        turn = _TURN + held * (_ELEMENT * sharing + work)
        cycles += _PASS + -(-items // threads) * turn
    return cycles
