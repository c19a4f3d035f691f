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

# Of a thread block that has its multiprocessor to itself.
_MIN_BLOCK_THREADS, _MAX_BLOCK_THREADS = 128, 512
_THREAD_ELEMENTS = (16, 32)  # in registers of a thread, tried beside the usual numbers
# Of a thread; the smallest that fits is taken: with more, the compiler's code is longer and slower.
_REGISTER_COUNTS = (64, 128, 256)
_OTHER_REGISTERS = 46  # of a thread, beside the elements that it holds
_FACTOR_REGISTERS = 24  # further ones, for factors that are complex or no constants of the kernel
_MAX_THREAD_BYTES = 512  # of a tile in the registers of one thread
_MAX_TILE_ROUNDS = 2  # tiles of a multiprocessor, one after another; beyond, estimates are too low
_MAX_PERMUTED = 3  # groups up to which every order of them is tried
_UNSHARED_THREADS = 128  # of a multiprocessor: one warp for each of its four schedulers

# Estimated times, in cycles of a multiprocessor of an H200: fitted to 200 measured kernels.
_LAUNCH = 1646  # a kernel's launch in a graph, and its first loads
_TILE_OVERHEAD = 200  # of each tile, beside its passes
_PASS_OVERHEAD = 280  # of each pass, beside its items
_ITEM_OVERHEAD = 71  # of each item that a thread works on
_ELEMENT_ACCESS = 6.82  # reading and writing an element of four bytes
_MULTIPLY_ADD = 1.25  # of elements of four bytes
_MIN_MULTIPLY_ADD = 3.4  # of a warp alone on its scheduler, for factors larger than 2 x 2
_BYTES_A_CYCLE = 2000  # of vectors, read and written by all multiprocessors together


@dataclass(frozen=True, slots=True)
class _Way:
    """A way to work on a group: estimated cycles, its planner, threads and their registers."""

    cycles: float
    part: GroupShape
    planner: TilePlanner
    threads: int
    registers: int


def few_tiles_groups(
    shape: GroupShape, constant: bool, maximum: int, limits: DeviceLimits
) -> tuple[RegisterGroup, ...]:
    """Return at most ``maximum`` kernels of least estimated time, none where no tile fits.

    ``shape``: all modes; ``constant``: the factors may become constants of the kernels.
    """
    best: list[_Way] = []
    for parts in range(1, min(maximum, len(shape.inputs)) + 1):
        if best and _cycles(best) <= parts * _LAUNCH:
            break  # as many kernels take longer whatever they do
        for cut in cuts(len(shape.inputs), parts):
            square = shape.inputs == shape.outputs or parts > _MAX_PERMUTED
            for order in [tuple(reversed(cut))] if square else permutations(cut):
                bound = _cycles(best) if best else math.inf
                best = _fastest_ways(shape, order, bound, constant, limits) or best
    return tuple(_group(way, shape.R == 1, constant, limits) for way in best)


def _fastest_ways(
    shape: GroupShape,
    order: Sequence[tuple[int, int]],
    bound: float,
    constant: bool,
    limits: DeviceLimits,
) -> list[_Way]:
    """Return ways to work on the groups of a cut in less than ``bound`` cycles, if there are."""
    ways: list[_Way] = []
    for part in group_shapes(order, shape.inputs, shape.outputs, shape.L, shape.R, shape.dtype):
        way = _fastest(part, constant, limits)
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
def _fastest(part: GroupShape, constant: bool, limits: DeviceLimits) -> _Way | None:
    """Return the way of least estimated time, None where no tile fits."""
    return min(_ways(part, constant, limits), key=lambda way: way.cycles, default=None)


def _ways(part: GroupShape, constant: bool, limits: DeviceLimits) -> Iterator[_Way]:
    usual = usual_planner(part, limits)
    loading = 0 if constant and part.dtype.kind == "f" else _FACTOR_REGISTERS
    largest = max(*part.inputs, *part.outputs)
    slices = usual.slices * slices_to_spread(part.L, part.R, usual, limits)
    elements = part.L * part.R * max(math.prod(part.inputs), math.prod(part.outputs))
    moving = elements * part.itemsize / _BYTES_A_CYCLE
    for held in dict.fromkeys((usual.max_elements, largest, largest**2, *_THREAD_ELEMENTS)):
        if held * part.itemsize > _MAX_THREAD_BYTES:
            continue
        planner = usual.holding(held, slices)
        if planner.shared_bytes(planner.unpadded()) > limits.shared_bytes:
            continue
        rounds = -(-tiles_of(part.L, part.R, planner) // limits.multiprocessors)
        if rounds > _MAX_TILE_ROUNDS:
            continue
        passes = planner.passes(planner.unpadded())
        holding = max(_held(one) for one in passes) * part.itemsize // 4
        registers = holding + _OTHER_REGISTERS + loading
        if registers <= _REGISTER_COUNTS[-1]:
            fitting = next(some for some in _REGISTER_COUNTS if some >= registers)
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
    return min(max(1 << (wanted - 1).bit_length(), _MIN_BLOCK_THREADS), _MAX_BLOCK_THREADS)


def _tile_cycles(passes: Sequence[RegisterPass], threads: int, words: float) -> float:
    """Return the estimated cycles of a tile, of elements of so many ``words``."""
    cycles = float(_TILE_OVERHEAD)
    for one in passes:
        held, items = _held(one), _items(one)
        factors = [axis.C for axis in one.registers if axis.factor >= 0]
        sharing = max(1.0, min(threads, items) / _UNSHARED_THREADS) * words
        minimum = _MIN_MULTIPLY_ADD if max(factors, default=0) > 2 else 0.0
        work = sum(factors) * max(minimum, _MULTIPLY_ADD * sharing)
        turn = _ITEM_OVERHEAD + held * (_ELEMENT_ACCESS * sharing + work)
        cycles += _PASS_OVERHEAD + -(-items // threads) * turn
    return cycles
