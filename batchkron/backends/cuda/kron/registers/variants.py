"""Variants of register kernels: which fit, and which are used without tuning.

If there are few tiles, the variant of the least weight is taken (`variant_of_few_tiles`); otherwise
the usual ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from batchkron.backends.cuda.kron.registers.passes import RegisterPass, TilePlanner, staged_elements
from batchkron.backends.cuda.runtime.hardware import (
    MAX_BLOCK_THREADS,
    MAX_RESIDENT_THREADS,
    MAX_THREAD_REGISTERS,
    REGISTER_FILE,
    SECTOR,
    WARP,
    DeviceLimits,
    resident_blocks,
)
from batchkron.backends.cuda.steps import ModeRun
from batchkron.spec.kron import Array

# Numbers below were chosen by hand where no source is given.
MAX_FACTOR_SIZE = 16  # largest number of rows or columns of a factor
MAX_MODES = 12  # largest number of modes of a run
_MAX_CONSTANT_BYTES = 16 << 10  # bytes of factors that a kernel may have in constant memory
_MAX_THREAD_BYTES = 1024  # bytes of a tile in the registers of one thread: 256 registers
_MIN_RESIDENT_THREADS = 256  # threads of a multiprocessor that should have elements to work on
# If there are more tiles than multiprocessors, up to this many are merged into one tile.
_MAX_MERGED_TILES = 2
_MAX_MERGED_ELEMENTS = 2048  # largest number of elements of a merged tile
_MIN_THREAD_ELEMENTS = 8  # elements of a thread, however small the problem
# Largest number of elements of a thread if tiles are whole rows, where measurements (H200) differ
# from the rule in `_held`. By (bytes of an element, size of the largest factor): the number for
# rows of at least this many elements.
_MAX_ROW_THREAD_ELEMENTS = {
    (4, 3): {1: 16},
    (4, 4): {1: 16, 4**7: 48},
    (4, 6): {4096: 36},
    (8, 4): {1: 25},
    (8, 6): {4096: 36},
}
_TILE_BYTES = 48 << 10  # bytes of shared memory for a tile of several slices
_LARGE_BLOCK_BYTES = 56 << 10  # bytes of a tile above which fewer items suffice for large blocks
_LARGE_BLOCK_THREADS = 256  # threads of a large thread block, for tiles of many items
_MAX_WHOLE_ROW = 256  # longest rows of which tiles have all columns; chosen by hand
# Arrays of up to this many bytes fit in the second-level cache, where scattered accesses cost
# little.
_TINY_BYTES = 4 << 20


class RegisterVariant(NamedTuple):
    """The numbers that tuning may change.

    Slices and columns of a tile, elements that a thread may hold, threads of a thread block, thread
    blocks of a multiprocessor.
    """

    slices: int
    columns: int
    held: int
    threads: int
    blocks: int


def factor_words(factors: Sequence[Array]) -> Array:
    """Return factors (K, C) in the kernel's layout (``FactorLayout``), one after another."""
    pack = 16 // factors[0].itemsize
    words = []
    for factor in factors:
        K, C = factor.shape
        padded = np.zeros((C, -(-K // pack) * pack), factor.dtype)
        padded[:, :K] = factor.T
        words.append(padded.ravel())
    return np.concatenate(words)


def tiles_of(L: int, R: int, tile: RegisterVariant | TilePlanner) -> int:
    """Return the number of tiles of an array."""
    return -(-L // tile.slices) * -(-R // tile.columns)


def slices_to_spread(L: int, R: int, planner: TilePlanner, limits: DeviceLimits) -> int:
    """Return how many small tiles to merge, 1 if none, so that no multiprocessor has two."""
    together = -(-tiles_of(L, R, planner) // limits.multiprocessors)
    largest = max(math.prod(planner.inputs), math.prod(planner.outputs))
    elements = together * planner.slices * planner.columns * largest
    small = together <= _MAX_MERGED_TILES and elements <= _MAX_MERGED_ELEMENTS
    return together if small and planner.columns == R else 1


def may_be_held(run: ModeRun) -> bool:
    """Whether there is a kernel for factors of these sizes."""
    return max(*run.inputs, *run.outputs) <= MAX_FACTOR_SIZE and len(run.inputs) <= MAX_MODES


def planner_of(run: ModeRun, slices: int, columns: int, held: int) -> TilePlanner:
    """Return the planner of a tile where a thread may hold ``held`` elements."""
    sizes = run.inputs, run.outputs, slices, columns, run.itemsize
    return tile_planner(*sizes, held, is_in_cache(run))


tile_planner = lru_cache(maxsize=4096)(TilePlanner)  # tiles of many runs have the same sizes


def is_in_cache(run: ModeRun) -> bool:
    """Whether the array is so small that scattered accesses cost little."""
    largest = max(math.prod(run.inputs), math.prod(run.outputs))
    return run.L * run.R * largest * run.itemsize <= _TINY_BYTES


def fits(run: ModeRun, variant: RegisterVariant, device: DeviceLimits) -> bool:
    """Whether a variant's numbers are valid, and its tile without padding fits in shared memory."""
    columns = 0 < variant.columns <= run.R
    whole = variant.columns == run.R or variant.slices == 1
    held = 0 < variant.held * run.itemsize <= _MAX_THREAD_BYTES
    block = 0 < variant.threads <= MAX_BLOCK_THREADS and variant.threads % WARP == 0
    resident = 0 < variant.blocks * variant.threads <= MAX_RESIDENT_THREADS
    slices = 0 < variant.slices <= run.L
    if not (columns and whole and held and block and resident and slices):
        return False
    planner = planner_of(run, variant.slices, variant.columns, variant.held)
    return planner.shared_bytes(planner.unpadded()) <= device.shared_bytes


def may_be_constant(run: ModeRun) -> bool:
    """Whether the factors are in the kernel's constant memory, not in shared memory."""
    elements = staged_elements(run.inputs, run.outputs, run.itemsize)
    return run.constant and elements * run.itemsize <= _MAX_CONSTANT_BYTES


def usual_variants(run: ModeRun, device: DeviceLimits) -> list[RegisterVariant]:
    """Return the variants that are used without tuning if there are many tiles.

    Where rows of the array are cut into pieces with a rest, also one for tiles of whole rows.
    """
    planner = usual_planner(run, device)
    variants = [_usual_variant(run, planner, device)]
    if run.R % planner.columns and run.R <= _MAX_WHOLE_ROW:
        variants.append(_usual_variant(run, usual_planner(run, device, run.R), device))
    return variants


def _usual_variant(run: ModeRun, planner: TilePlanner, device: DeviceLimits) -> RegisterVariant:
    constant, unpadded = may_be_constant(run), planner.unpadded()
    passes = planner.passes(unpadded)
    shared = planner.shared_bytes(unpadded, constant)
    held = max(one.held for one in passes) * run.itemsize // 4
    other = 40 if constant else 64  # registers for sums, words of a factor, addresses
    registers = min(MAX_THREAD_REGISTERS, held + other)
    room = max(WARP, REGISTER_FILE // registers // WARP * WARP)
    items = min(one.items for one in passes)
    fitting = max(1, resident_blocks(shared, device))
    minimum = (
        _LARGE_BLOCK_THREADS if shared > _LARGE_BLOCK_BYTES else _LARGE_BLOCK_THREADS * 3 // 2
    )  # smallest number of items for `_LARGE_BLOCK_THREADS`
    maximum = 512 if fitting == 1 else _LARGE_BLOCK_THREADS if items >= minimum else 128
    threads = min(-(-items // WARP) * WARP, maximum, room)
    blocks = max(1, min(room // threads, fitting, MAX_RESIDENT_THREADS // threads))
    return RegisterVariant(planner.slices, planner.columns, planner.max_elements, threads, blocks)


def usual_planner(part: ModeRun, limits: DeviceLimits, columns: int = 0) -> TilePlanner:
    """Return the planner with the usual slices, columns (if not given) and held elements."""
    largest, R = max(math.prod(part.inputs), math.prod(part.outputs)), part.R
    share = part.L * R * largest // (limits.multiprocessors * _MIN_RESIDENT_THREADS)
    columns = columns or _columns(R, largest * part.itemsize, part.itemsize, limits)
    slices = 1
    held = _held(part, columns, share, largest)
    if columns == R:
        block = largest * R
        fitting = max(1, _TILE_BYTES // (block * part.itemsize))
        slices = -(-_MIN_RESIDENT_THREADS * held // block)
        slices = max(1, min(slices, fitting, part.L // (2 * limits.multiprocessors)))
    return planner_of(part, slices, columns, held)


def _held(part: ModeRun, columns: int, share: int, largest: int) -> int:
    """Return how many elements a thread may hold.

    64 of 4 bytes, 16 of 8 bytes: with more, too few threads fit on a multiprocessor. For factors
    larger than 8, enough for two fibres, which share the loads of the factor.

    ``share``: elements of the array for each of `_MIN_RESIDENT_THREADS` of all multiprocessors;
    ``largest``: elements of a column of the tile.
    """
    factor = max(*part.inputs, *part.outputs)
    if factor > 8:
        return 3 * factor
    maximum = 64 if part.itemsize == 4 else 128 // part.itemsize
    if columns == 1:
        for minimum, of_rows in _MAX_ROW_THREAD_ELEMENTS.get((part.itemsize, factor), {}).items():
            maximum = of_rows if largest >= minimum else maximum
    return max(factor, min(maximum, max(share, _MIN_THREAD_ELEMENTS)))


def _columns(R: int, column_bytes: int, itemsize: int, limits: DeviceLimits) -> int:
    """Return the columns of a tile: whole sectors, as many as half of shared memory holds."""
    if R == 1:
        return 1
    widths = [w for w in (32, 16, 8, 4, 2) if w * itemsize >= SECTOR and w <= R] or [min(R, 8)]
    return next((w for w in widths if w * column_bytes <= limits.shared_bytes // 2), widths[-1])


_MIN_BLOCK_THREADS, _MAX_BLOCK_THREADS = 128, 512  # threads of a thread block; chosen by hand
_THREAD_ELEMENTS = (16, 32)  # elements of a thread that are tried besides the usual numbers
# Choices for the registers of a thread. The smallest that fits is taken: with more registers, the
# compiler's code is longer and slower.
_REGISTER_COUNTS = (64, 128, 256)
_OTHER_REGISTERS = 46  # registers of a thread besides those of its elements
# Further registers for factors that are complex or not in the kernel's constant memory.
_FACTOR_REGISTERS = 24
_FEW_TILES_THREAD_BYTES = 512  # bytes of a tile in the registers of one thread
_MAX_TILE_ROUNDS = 2  # largest number of tiles that a multiprocessor computes one after another
_UNSHARED_THREADS = 128  # threads of a multiprocessor with one warp on each of its four schedulers

# Weights that rank the variants of a run, in cycles of a multiprocessor of an H200. They were
# fitted to 200 kernels so that the fastest variant comes first; they are no estimates of time (for
# these see `family`).
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
        if held * run.itemsize > _FEW_TILES_THREAD_BYTES:
            continue
        planner = planner_of(run, slices, usual.columns, held)
        shared = planner.shared_bytes(planner.unpadded())
        rounds = -(-tiles_of(run.L, run.R, planner) // device.multiprocessors)
        if shared > device.shared_bytes or rounds > _MAX_TILE_ROUNDS:
            continue
        passes = planner.passes(planner.unpadded())
        holding = max(one.held for one in passes) * run.itemsize // 4
        registers = holding + _OTHER_REGISTERS + _FACTOR_REGISTERS * is_loaded
        if registers <= _REGISTER_COUNTS[-1]:
            fitting = next(some for some in _REGISTER_COUNTS if some >= registers)
            threads = min(_threads(passes), REGISTER_FILE // fitting)
            resident = min(REGISTER_FILE // (threads * fitting), resident_blocks(shared, device))
            weight = rounds * _tile_weight(passes, threads, run.itemsize / 4)
            variant = RegisterVariant(slices, usual.columns, held, threads, max(1, resident))
            yield weight, variant


def _threads(passes: Sequence[RegisterPass]) -> int:
    """Return the threads of a thread block, a power of two: twice those with work were fastest."""
    wanted = 2 * max(one.items for one in passes)
    return min(max(1 << (wanted - 1).bit_length(), _MIN_BLOCK_THREADS), _MAX_BLOCK_THREADS)


def _tile_weight(passes: Sequence[RegisterPass], threads: int, words: float) -> float:
    """Return the weight of a tile; ``words``: size of an element in units of 4 bytes."""
    weight = float(_TILE_OVERHEAD)
    for one in passes:
        held, items = one.held, one.items
        factors = [axis.C for axis in one.registers if axis.factor >= 0]
        sharing = max(1.0, min(threads, items) / _UNSHARED_THREADS) * words
        minimum = _MIN_MULTIPLY_ADD if max(factors, default=0) > 2 else 0.0
        work = sum(factors) * max(minimum, _MULTIPLY_ADD * sharing)
        turn = _ITEM_OVERHEAD + held * (_ELEMENT_ACCESS * sharing + work)
        weight += _PASS_OVERHEAD + -(-items // threads) * turn
    return weight
