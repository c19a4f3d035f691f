"""The kernel of neighbouring small factors that go through registers, and what it is compiled for.

Its tile, the elements that a thread holds, threads, thread blocks: by rule, or with given knobs.
The kernel is ``csrc/cuda/kron/registers/kernel.cuh``. Pure arithmetic on sizes, without any device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from batchkron.backends.cuda.kron.registers.passes import RegisterPass, TilePlanner, staged_elements
from batchkron.backends.cuda.runtime.hardware import (
    MAX_BLOCK_THREADS,
    MAX_THREAD_REGISTERS,
    REGISTER_FILE,
    WARP,
    DeviceLimits,
    resident_blocks,
)
from batchkron.backends.cuda.runtime.program import SCALARS, Program, template_type
from batchkron.backends.cuda.steps import ModeRun
from batchkron.spec.kron import Array

MAX_FACTOR_SIZE = 16  # rows or columns of a factor that is applied in registers
MAX_MODES = 12  # of a group
_MAX_CONSTANT_BYTES = 16 << 10  # of factors in constant memory
_SECTOR = 32  # bytes, the unit of memory transactions
_MAX_RESIDENT_THREADS = 2048  # of a multiprocessor
_MAX_THREAD_BYTES = 1024  # of a tile in a thread: 256 registers
_MIN_RESIDENT_THREADS = 256  # of a multiprocessor that should have elements to hold
_MAX_MERGED_TILES = 2  # that become one tile, where there are more of them than multiprocessors
_MAX_MERGED_ELEMENTS = 2048  # of a tile that is merged so; chosen by hand
_MIN_THREAD_ELEMENTS = 8  # in registers of a thread, however small the problem
# Largest number of elements of a tile of whole rows in registers of a thread, where measurements
# (H200) differ from `_held`: by bytes of an element and the largest factor, from each row size on.
_MAX_ROW_THREAD_ELEMENTS = {
    (4, 3): {1: 16},
    (4, 4): {1: 16, 4**7: 48},
    (4, 6): {4096: 36},
    (8, 4): {1: 25},
    (8, 6): {4096: 36},
}
_TILE_BYTES = 48 << 10  # of shared memory for a tile of several slices
_LARGE_BLOCK_BYTES = 56 << 10  # of a tile from which `_LARGE_BLOCK_THREADS` work on it
_LARGE_BLOCK_THREADS = 256  # of a thread block, for tiles of many items
_TINY_BYTES = 4 << 20  # scattered accesses cost little where the cache holds everything


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """What one kernel of the group is compiled for.

    Attributes
    ----------
    modes : tuple of int
        The group's modes, in their order in memory.
    inputs, outputs : tuple of int
        Their sizes.
    slices, columns : int
        Of a tile.
    R : int
        Columns of the array, 0 if they are known only when the kernel runs.
    held : int
        Elements that a thread may hold.
    buffer : int
        Elements of a buffer in shared memory.
    buffers : int
    threads, blocks : int
        Threads of a thread block, thread blocks of a multiprocessor.
    constant : bool
        Whether the factors are constants of the kernel, not in shared memory.
    shared_bytes : int
    passes : tuple of RegisterPass
    """

    modes: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    slices: int
    columns: int
    R: int
    held: int
    buffer: int
    buffers: int
    threads: int
    blocks: int
    constant: bool
    shared_bytes: int
    passes: tuple[RegisterPass, ...]


@dataclass(frozen=True, slots=True)
class RegisterVariant:
    """How a run of small factors goes through registers.

    Slices and columns of a tile, the elements of it that a thread holds, threads of a thread block,
    thread blocks of a multiprocessor.
    """

    slices: int
    columns: int
    held: int
    threads: int
    blocks: int


def factor_words(factors: Sequence[Array]) -> Array:
    """Return factors (K, C) one after another as the kernel reads them, see ``FactorLayout``."""
    pack = 16 // factors[0].itemsize
    words = []
    for factor in factors:
        K, C = factor.shape
        padded = np.zeros((C, -(-K // pack) * pack), factor.dtype)
        padded[:, :K] = factor.T
        words.append(padded.ravel())
    return np.concatenate(words)


def tiles_of(L: int, R: int, tile: RegisterTile | TilePlanner) -> int:
    """Return the number of tiles of an array."""
    return -(-L // tile.slices) * -(-R // tile.columns)


def slices_to_spread(L: int, R: int, planner: TilePlanner, limits: DeviceLimits) -> int:
    """Return by what to multiply the slices of small tiles so that each multiprocessor has one.

    1 where that is not worth it, or cannot be.
    """
    together = -(-tiles_of(L, R, planner) // limits.multiprocessors)
    largest = max(math.prod(planner.inputs), math.prod(planner.outputs))
    elements = together * planner.slices * planner.columns * largest
    small = together <= _MAX_MERGED_TILES and elements <= _MAX_MERGED_ELEMENTS
    return together if small and planner.columns == R else 1


def may_be_held(run: ModeRun) -> bool:
    """Whether there is a kernel for factors of these sizes."""
    return max(*run.inputs, *run.outputs) <= MAX_FACTOR_SIZE and len(run.inputs) <= MAX_MODES


@lru_cache(maxsize=1024)
def planner_of(run: ModeRun, slices: int, columns: int, held: int) -> TilePlanner:
    """Return the planner of a tile where a thread holds ``held`` elements."""
    sizes = run.inputs, run.outputs, slices, columns, run.itemsize
    return TilePlanner(run.first, *sizes, held, is_in_cache(run))


def is_in_cache(run: ModeRun) -> bool:
    """Whether the array is so small that scattered accesses cost little."""
    largest = max(math.prod(run.inputs), math.prod(run.outputs))
    return run.L * run.R * largest * run.itemsize <= _TINY_BYTES


def fits(run: ModeRun, variant: RegisterVariant, device: DeviceLimits) -> bool:
    """Whether a variant's numbers make sense, and its tile without pads fits in shared memory."""
    columns = 0 < variant.columns <= run.R
    whole = variant.columns == run.R or variant.slices == 1
    held = 0 < variant.held * run.itemsize <= _MAX_THREAD_BYTES
    block = 0 < variant.threads <= MAX_BLOCK_THREADS and variant.threads % WARP == 0
    resident = 0 < variant.blocks * variant.threads <= _MAX_RESIDENT_THREADS
    slices = 0 < variant.slices <= run.L
    if not (columns and whole and held and block and resident and slices):
        return False
    planner = planner_of(run, variant.slices, variant.columns, variant.held)
    return planner.shared_bytes(planner.unpadded()) <= device.shared_bytes


@lru_cache(maxsize=256)
def register_tile(run: ModeRun, variant: RegisterVariant, device: DeviceLimits) -> RegisterTile:
    """Return what the kernel of a variant that `fits` is compiled for."""
    planner = planner_of(run, variant.slices, variant.columns, variant.held)
    constant = may_be_constant(run)
    pads = planner.pads()
    if planner.shared_bytes(pads, constant) > device.shared_bytes:
        pads = planner.unpadded()
    shared = planner.shared_bytes(pads, constant)
    return RegisterTile(
        modes=tuple(range(run.first, run.first + len(run.inputs))),
        inputs=run.inputs,
        outputs=run.outputs,
        slices=variant.slices,
        columns=variant.columns,
        R=run.R if run.fixed_columns else 0,
        held=variant.held,
        buffer=planner.buffer(pads) if planner.buffers() else 0,
        buffers=planner.buffers(),
        threads=variant.threads,
        blocks=max(1, min(variant.blocks, resident_blocks(shared, device))),
        constant=constant,
        shared_bytes=shared,
        passes=planner.passes(pads),
    )


def may_be_constant(run: ModeRun) -> bool:
    """Whether the factors are constants of the kernel, not in shared memory."""
    elements = staged_elements(run.inputs, run.outputs, run.itemsize)
    return run.constant and elements * run.itemsize <= _MAX_CONSTANT_BYTES


def usual_variant(run: ModeRun, device: DeviceLimits) -> RegisterVariant:
    """Return the variant that is right where there are many tiles: by rule, without a search."""
    planner = usual_planner(run, device)
    constant, unpadded = may_be_constant(run), planner.unpadded()
    passes = planner.passes(unpadded)
    shared = planner.shared_bytes(unpadded, constant)
    held = max(
        math.prod(max(axis.C, axis.K) for axis in one.registers) * run.itemsize // 4
        for one in passes
    )
    other = 40 if constant else 64  # for sums, words of a factor, addresses
    registers = min(MAX_THREAD_REGISTERS, held + other)
    room = max(WARP, REGISTER_FILE // registers // WARP * WARP)
    items = min(math.prod(axis.size for axis in one.threads) for one in passes)
    fitting = max(1, resident_blocks(shared, device))
    minimum = (
        _LARGE_BLOCK_THREADS if shared > _LARGE_BLOCK_BYTES else _LARGE_BLOCK_THREADS * 3 // 2
    )  # items for so many
    maximum = 512 if fitting == 1 else _LARGE_BLOCK_THREADS if items >= minimum else 128
    threads = min(-(-items // WARP) * WARP, maximum, room)
    blocks = max(1, min(room // threads, fitting, _MAX_RESIDENT_THREADS // threads))
    return RegisterVariant(planner.slices, planner.columns, planner.max_elements, threads, blocks)


def usual_planner(part: ModeRun, limits: DeviceLimits) -> TilePlanner:
    """Return the planner of a group's tile: its slices and columns, what a thread holds."""
    largest, R = max(math.prod(part.inputs), math.prod(part.outputs)), part.R
    share = part.L * R * largest // (limits.multiprocessors * _MIN_RESIDENT_THREADS)
    columns, slices = _columns(R, largest * part.itemsize, part.itemsize, limits), 1
    held = _held(part, columns, share, largest)
    if columns == R:
        block = largest * R
        fitting = max(1, _TILE_BYTES // (block * part.itemsize))
        slices = -(-_MIN_RESIDENT_THREADS * held // block)
        slices = max(1, min(slices, fitting, part.L // (2 * limits.multiprocessors)))
    return planner_of(part, slices, columns, held)


def _held(part: ModeRun, columns: int, share: int, largest: int) -> int:
    """Return the elements of a tile that a thread holds; ``largest``: of a column of the tile.

    64 of four bytes, 16 of eight: beyond, too few threads share a multiprocessor. Two fibres of a
    long factor share the loads of it.
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
    """Return the columns of a tile: as many as half of shared memory holds, whole sectors."""
    if R == 1:
        return 1
    widths = [w for w in (32, 16, 8, 4, 2) if w * itemsize >= _SECTOR and w <= R] or [min(R, 8)]
    return next((w for w in widths if w * column_bytes <= limits.shared_bytes // 2), widths[-1])


def _pass_type(one: RegisterPass) -> str:
    registers = (
        f"batchkron::RegisterAxis<{a.factor}, {a.C}, {a.K}, {a.from_}, {a.to}>"
        for a in one.registers
    )
    threads = (
        f"batchkron::ThreadAxis<{a.size}, {a.bound}, {a.from_}, {a.to}>" for a in one.threads
    )
    return (
        f"batchkron::Pass<batchkron::RegisterAxes<{', '.join(registers)}>, "
        f"batchkron::ThreadAxes<{', '.join(threads)}>>"
    )


def register_program(dtype: np.dtype[np.generic], tile: RegisterTile) -> Program:
    """Return the kernel of neighbouring small factors that go through registers."""
    scalar = SCALARS[dtype]
    sizes = (
        f"batchkron::FactorSize<{C}, {K}>" for C, K in zip(tile.inputs, tile.outputs, strict=True)
    )
    constants, kind = 0, "Shared"
    if tile.constant:
        constants, kind = staged_elements(tile.inputs, tile.outputs, dtype.itemsize), "Constant"
    shape = (tile.slices, tile.columns, tile.R, math.prod(tile.inputs), math.prod(tile.outputs))
    room = (tile.buffer, tile.buffers, tile.threads, tile.blocks)
    return Program(
        "cuda/kron/registers/kernel.cuh",
        template_type(
            "kron_registers",
            scalar,
            f"batchkron::RegisterTile<{', '.join(map(str, shape + room))}>",
            f"batchkron::{kind}Factors<{scalar}, {', '.join(sizes)}>",
            *map(_pass_type, tile.passes),
        ),
        constants,
        scalar,
    )
