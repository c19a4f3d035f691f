"""The variant of a kernel in registers where there are few tiles: at most two to a multiprocessor.

A thread block then has a multiprocessor to itself: what counts is how long one tile takes, not how
many fit, and many threads take few turns. Pure arithmetic on sizes, without any device.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from batchkron.backends.cuda.kron.registers.passes import RegisterPass
from batchkron.backends.cuda.kron.registers.tile import (
    RegisterVariant,
    may_be_constant,
    planner_of,
    slices_to_spread,
    tiles_of,
    usual_planner,
)
from batchkron.backends.cuda.runtime.hardware import REGISTER_FILE, DeviceLimits, resident_blocks
from batchkron.backends.cuda.steps import ModeRun

_MIN_BLOCK_THREADS, _MAX_BLOCK_THREADS = 128, 512
_THREAD_ELEMENTS = (16, 32)  # in registers of a thread, tried beside the usual numbers
# Of a thread; the smallest that fits is taken: with more, the compiler's code is longer and slower.
_REGISTER_COUNTS = (64, 128, 256)
_OTHER_REGISTERS = 46  # of a thread, beside the elements that it holds
_FACTOR_REGISTERS = 24  # further ones, for factors that are complex or no constants of the kernel
_MAX_THREAD_BYTES = 512  # of a tile in the registers of one thread
_MAX_TILE_ROUNDS = 2  # tiles of a multiprocessor, one after another
_UNSHARED_THREADS = 128  # of a multiprocessor: one warp for each of its four schedulers

# Weights by which variants of a run are ordered, in cycles of a multiprocessor of an H200: they
# were fitted to 200 kernels so that the fastest comes first. ``cost`` has times to compare.
_TILE_OVERHEAD = 200  # of each tile, beside its passes
_PASS_OVERHEAD = 280  # of each pass, beside its items
_ITEM_OVERHEAD = 71  # of each item that a thread works on
_ELEMENT_ACCESS = 6.82  # reading and writing an element of four bytes
_MULTIPLY_ADD = 1.25  # of elements of four bytes
_MIN_MULTIPLY_ADD = 3.4  # of a warp alone on its scheduler, for factors larger than 2 x 2


def variant_of_few_tiles(run: ModeRun, device: DeviceLimits) -> RegisterVariant | None:
    """Return the fastest variant by its weights, None where there are more tiles, or none fits."""
    usual = usual_planner(run, device)
    spread = slices_to_spread(run.L, run.R, usual, device)
    if tiles_of(run.L, run.R, usual) > device.multiprocessors * spread:
        return None
    best = min(_ways(run, device), key=lambda way: way[0], default=None)
    return None if best is None else best[1]


def _ways(run: ModeRun, device: DeviceLimits) -> Iterator[tuple[float, RegisterVariant]]:
    """Yield weights and variants, one for each number of elements that a thread may hold."""
    usual = usual_planner(run, device)
    is_loaded = not may_be_constant(run) or run.dtype.kind != "f"
    largest = max(*run.inputs, *run.outputs)
    slices = usual.slices * slices_to_spread(run.L, run.R, usual, device)
    for held in dict.fromkeys((usual.max_elements, largest, largest**2, *_THREAD_ELEMENTS)):
        if held * run.itemsize > _MAX_THREAD_BYTES:
            continue
        planner = planner_of(run, slices, usual.columns, held)
        shared = planner.shared_bytes(planner.unpadded())
        rounds = -(-tiles_of(run.L, run.R, planner) // device.multiprocessors)
        if shared > device.shared_bytes or rounds > _MAX_TILE_ROUNDS:
            continue
        passes = planner.passes(planner.unpadded())
        holding = max(map(_elements, passes)) * run.itemsize // 4
        registers = holding + _OTHER_REGISTERS + _FACTOR_REGISTERS * is_loaded
        if registers <= _REGISTER_COUNTS[-1]:
            fitting = next(some for some in _REGISTER_COUNTS if some >= registers)
            threads = min(_threads(passes), REGISTER_FILE // fitting)
            resident = min(REGISTER_FILE // (threads * fitting), resident_blocks(shared, device))
            weight = rounds * _tile_weight(passes, threads, run.itemsize / 4)
            variant = RegisterVariant(slices, usual.columns, held, threads, max(1, resident))
            yield weight, variant


def _elements(one: RegisterPass) -> int:
    """Return the elements that a thread holds in a pass."""
    return math.prod(max(axis.C, axis.K) for axis in one.registers)


def _items(one: RegisterPass) -> int:
    return math.prod(axis.size for axis in one.threads)


def _threads(passes: Sequence[RegisterPass]) -> int:
    """Return a power of two: twice as many threads as have work were the fastest."""
    wanted = 2 * max(map(_items, passes))
    return min(max(1 << (wanted - 1).bit_length(), _MIN_BLOCK_THREADS), _MAX_BLOCK_THREADS)


def _tile_weight(passes: Sequence[RegisterPass], threads: int, words: float) -> float:
    """Return the weight of a tile of elements of so many ``words`` of four bytes."""
    weight = float(_TILE_OVERHEAD)
    for one in passes:
        held, items = _elements(one), _items(one)
        factors = [axis.C for axis in one.registers if axis.factor >= 0]
        sharing = max(1.0, min(threads, items) / _UNSHARED_THREADS) * words
        minimum = _MIN_MULTIPLY_ADD if max(factors, default=0) > 2 else 0.0
        work = sum(factors) * max(minimum, _MULTIPLY_ADD * sharing)
        turn = _ITEM_OVERHEAD + held * (_ELEMENT_ACCESS * sharing + work)
        weight += _PASS_OVERHEAD + -(-items // threads) * turn
    return weight
