"""Variants of register kernels for small problems: at most two tiles for each multiprocessor.

A thread block then has a multiprocessor to itself. The latency of one tile counts, not the number
of tiles that run at the same time. Pure arithmetic on sizes, no device needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from batchkron.backends.cuda.kron.registers.passes import RegisterPass
from batchkron.backends.cuda.kron.registers.variants import (
    RegisterVariant,
    may_be_constant,
    planner_of,
    slices_to_spread,
    tiles_of,
    usual_planner,
)
from batchkron.backends.cuda.runtime.hardware import REGISTER_FILE, DeviceLimits, resident_blocks
from batchkron.backends.cuda.steps import ModeRun

_MIN_BLOCK_THREADS, _MAX_BLOCK_THREADS = 128, 512  # threads of a thread block; chosen by hand
_THREAD_ELEMENTS = (16, 32)  # elements of a thread that are tried besides the usual numbers
# Choices for the registers of a thread. The smallest that fits is taken: with more registers, the
# compiler's code is longer and slower.
_REGISTER_COUNTS = (64, 128, 256)
_OTHER_REGISTERS = 46  # registers of a thread besides those of its elements
# Further registers for factors that are complex or not in the kernel's constant memory.
_FACTOR_REGISTERS = 24
_MAX_THREAD_BYTES = 512  # bytes of a tile in the registers of one thread
_MAX_TILE_ROUNDS = 2  # largest number of tiles that a multiprocessor computes one after another
_UNSHARED_THREADS = 128  # threads of a multiprocessor with one warp on each of its four schedulers

# Weights that rank the variants of a run, in cycles of a multiprocessor of an H200. They were
# fitted to 200 kernels so that the fastest variant comes first; they are no estimates of time (for
# these see `cost`).
_TILE_OVERHEAD = 200  # for each tile
_PASS_OVERHEAD = 280  # for each pass
_ITEM_OVERHEAD = 71  # for each item that a thread works on
_ELEMENT_ACCESS = 6.82  # for reading and writing 4 bytes of an element
_MULTIPLY_ADD = 1.25  # for each multiply-add of 4 bytes
_MIN_MULTIPLY_ADD = 3.4  # the same for a warp alone on its scheduler, if factors exceed 2 x 2


def variant_of_few_tiles(run: ModeRun, device: DeviceLimits) -> RegisterVariant | None:
    """Return the variant of least weight; None if there are too many tiles, or none fits."""
    usual = usual_planner(run, device)
    spread = slices_to_spread(run.L, run.R, usual, device)
    if tiles_of(run.L, run.R, usual) > device.multiprocessors * spread:
        return None
    best = min(_ways(run, device), key=lambda way: way[0], default=None)
    return None if best is None else best[1]


def _ways(run: ModeRun, device: DeviceLimits) -> Iterator[tuple[float, RegisterVariant]]:
    """Yield (weight, variant) for each number of elements that a thread may hold."""
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
    """Return the threads of a thread block, a power of two.

    Twice as many threads as have work were fastest.
    """
    wanted = 2 * max(map(_items, passes))
    return min(max(1 << (wanted - 1).bit_length(), _MIN_BLOCK_THREADS), _MAX_BLOCK_THREADS)


def _tile_weight(passes: Sequence[RegisterPass], threads: int, words: float) -> float:
    """Return the weight of a tile; ``words``: size of an element in units of 4 bytes."""
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
