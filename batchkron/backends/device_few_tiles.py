"""Kernels in registers where there are fewer tiles than multiprocessors.

A thread block then has a multiprocessor to itself: what counts is how long one tile takes, not how
many fit. More groups of fewer modes have more tiles, and many threads take few turns, with all the
registers that they want. Pure arithmetic on sizes, without any device.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import permutations

from batchkron.backends.device_register_passes import TilePlanner, cuts
from batchkron.backends.device_registers import RegisterGroup, tile_of, usual_planner
from batchkron.backends.device_tiling import DeviceLimits, GroupShape, group_shapes

_THREADS = (512, 256)  # of a thread block, the only one of its multiprocessor
_REGISTER_FILE = 65536
_OTHER_REGISTERS = 40  # of a thread, beside the elements that it holds
_MOST_HELD_BYTES = 512
_MOST_ORDERED = 3  # groups whose every order is looked at

# Estimated times, in cycles of a multiprocessor of an H200: fitted to 920 measured kernels.
_LAUNCH = 2250  # of a kernel in a graph, and its first loads
_TILE = 198
_PASS = 86
_TURN = 233  # of a thread to other elements
_MULTIPLY_ADD = 4.06  # of four bytes, one after another in a thread
_BYTES_A_CYCLE = 886  # of all multiprocessors, of vectors that are read and written


@dataclass(frozen=True, slots=True)
class _Way:
    """A way to work on a group: estimated cycles, its planner, threads of a thread block."""

    cycles: float
    part: GroupShape
    planner: TilePlanner
    threads: int


def few_tiles_groups(
    shape: GroupShape, constant: bool, most: int, limits: DeviceLimits
) -> tuple[RegisterGroup, ...]:
    """Return at most ``most`` kernels of least estimated time, none where no tile fits.

    ``shape``: all modes; ``constant``: the factors may become constants of the kernels.
    """
    best: list[_Way] = []
    sizes = shape.inputs, shape.outputs, shape.L, shape.R, shape.dtype
    for parts in range(1, min(most, len(shape.inputs)) + 1):
        if best and _cycles(best) <= parts * _LAUNCH:
            break  # as many kernels take longer whatever they do
        for cut in cuts(len(shape.inputs), parts):
            square = shape.inputs == shape.outputs or parts > _MOST_ORDERED
            for order in [tuple(reversed(cut))] if square else permutations(cut):
                ways = []
                for part in group_shapes(order, *sizes):
                    ways += _quickest(part, limits)
                whole = len(ways) == parts
                if whole and (not best or _cycles(ways) < _cycles(best)):
                    best = ways
    return tuple(_group(way, shape.R == 1, constant, limits) for way in best)


def _cycles(ways: list[_Way]) -> float:
    return sum(way.cycles for way in ways)


def _group(way: _Way, single: bool, constant: bool, limits: DeviceLimits) -> RegisterGroup:
    """Return a kernel; ``single``: its columns are known before it runs."""
    tile = tile_of(way.planner, way.part.R if single else 0, constant, limits)
    return RegisterGroup(replace(tile, threads=way.threads, blocks=1), way.part.L, way.part.R)


def _quickest(part: GroupShape, limits: DeviceLimits) -> list[_Way]:
    """Return the way of least estimated time, none where no tile fits."""
    return sorted(_ways(part, limits), key=lambda way: way.cycles)[:1]


def _ways(part: GroupShape, limits: DeviceLimits) -> Iterator[_Way]:
    usual = usual_planner(part, limits)
    largest = max(*part.inputs, *part.outputs)
    for held in dict.fromkeys((usual.most, largest, largest**2)):
        if held * part.itemsize > _MOST_HELD_BYTES:
            continue
        planner = usual.holding(held)
        if planner.shared_bytes(planner.unpadded()) > limits.shared_bytes:
            continue
        tiles = -(-part.L // planner.slices) * -(-part.R // planner.columns)
        rounds = -(-tiles // limits.multiprocessors)
        elements = part.L * part.R * max(math.prod(part.inputs), math.prod(part.outputs))
        moving = elements * part.itemsize / _BYTES_A_CYCLE
        for threads in _THREADS:
            cycles = _tile_cycles(planner, threads)
            if cycles is not None:
                yield _Way(_LAUNCH + rounds * cycles + moving, part, planner, threads)


def _tile_cycles(planner: TilePlanner, threads: int) -> float | None:
    """Return the estimated cycles of a tile, None where a thread cannot hold its elements."""
    words, cycles = planner.itemsize / 4, float(_TILE)
    for one in planner.passes(planner.unpadded()):
        held = math.prod(max(axis.C, axis.K) for axis in one.registers)
        if held * words + _OTHER_REGISTERS > _REGISTER_FILE // threads:
            return None
        work = held * sum(axis.C for axis in one.registers if axis.factor >= 0)
        turns = -(-math.prod(axis.size for axis in one.threads) // threads)
        cycles += _PASS + turns * (_TURN + _MULTIPLY_ADD * work * words)
    return cycles
