"""The kernel of neighbouring small factors that go through registers, and what it is compiled for.

Its tile, the elements that a thread holds, threads, thread blocks: by rule, or with given knobs.
The kernel is ``csrc/cuda/kron/registers/kernel.cuh``. Pure arithmetic on sizes, without any device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
from batchkron.backends.cuda.steps import GroupShape
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
class RegisterKnobs:
    """What may be chosen.

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


@dataclass(frozen=True, slots=True)
class RegisterGroup:
    """Neighbouring modes that one kernel applies to x (L, input_size, R)."""

    tile: RegisterTile
    L: int
    R: int

    @property
    def elements(self) -> int:
        """Elements of the group's result."""
        return self.L * math.prod(self.tile.outputs) * self.R

    def tiles(self) -> int:
        """Return the number of tiles."""
        return tiles_of(self.L, self.R, self.tile)

    @property
    def knobs(self) -> RegisterKnobs:
        """What was chosen."""
        tile = self.tile
        return RegisterKnobs(tile.slices, tile.columns, tile.held, tile.threads, tile.blocks)


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


def register_knobs(part: GroupShape, constant: bool, limits: DeviceLimits) -> RegisterKnobs | None:
    """Return what the rule chooses for a group, None where no tile fits."""
    if not _may_be_held(part):
        return None
    planner = usual_planner(part, limits)
    size = planner.slices, planner.columns, planner.max_elements
    tile = _tile_with(part, *size, 0, constant, limits)
    return None if tile is None else RegisterKnobs(*size, tile.threads, tile.blocks)


def register_group(
    part: GroupShape, knobs: RegisterKnobs, R: int, constant: bool, limits: DeviceLimits
) -> RegisterGroup | None:
    """Return the kernel of a group with these knobs, None if there is none.

    ``R``: columns of the array, 0 if they are to be known only when the kernel runs.
    """
    whole = 0 < knobs.columns <= part.R and (knobs.columns == part.R or knobs.slices == 1)
    held = 0 < knobs.held * part.itemsize <= _MAX_THREAD_BYTES
    block = 0 < knobs.threads <= MAX_BLOCK_THREADS and knobs.threads % WARP == 0
    resident = 0 < knobs.blocks * knobs.threads <= _MAX_RESIDENT_THREADS
    if not (whole and held and block and resident and 0 < knobs.slices <= part.L):
        return None
    if not _may_be_held(part):
        return None
    tile = _tile_with(part, knobs.slices, knobs.columns, knobs.held, R, constant, limits)
    if tile is None or knobs.blocks > resident_blocks(tile.shared_bytes, limits):
        return None
    return RegisterGroup(replace(tile, threads=knobs.threads, blocks=knobs.blocks), part.L, part.R)


def _may_be_held(part: GroupShape) -> bool:
    """Whether there is a kernel for a group of these sizes."""
    return max(*part.inputs, *part.outputs) <= MAX_FACTOR_SIZE and len(part.inputs) <= MAX_MODES


@lru_cache(maxsize=256)
def _tile_with(
    part: GroupShape,
    slices: int,
    columns: int,
    held: int,
    R: int,
    constant: bool,
    limits: DeviceLimits,
) -> RegisterTile | None:
    """Return what a kernel with this tile is compiled for, None if it does not fit."""
    planner = _planner_with(part, slices, columns, held)
    if planner.shared_bytes(planner.unpadded()) > limits.shared_bytes:
        return None
    return tile_of(planner, R, constant, limits)


def tile_of(planner: TilePlanner, R: int, constant: bool, limits: DeviceLimits) -> RegisterTile:
    """Return what a kernel is compiled for: passes, padding, threads.

    ``R``: columns of the array, 0 if they are to be known only when the kernel runs.
    """
    elements = staged_elements(planner.inputs, planner.outputs, planner.itemsize)
    constant = constant and elements * planner.itemsize <= _MAX_CONSTANT_BYTES
    pads = planner.pads()
    if planner.shared_bytes(pads, constant) > limits.shared_bytes:
        pads = planner.unpadded()
    passes = planner.passes(pads)
    shared = planner.shared_bytes(pads, constant)
    held = max(
        math.prod(max(axis.C, axis.K) for axis in one.registers) * planner.itemsize // 4
        for one in passes
    )
    other = 40 if constant else 64  # for sums, words of a factor, addresses
    registers = min(MAX_THREAD_REGISTERS, held + other)
    room = max(WARP, REGISTER_FILE // registers // WARP * WARP)
    items = min(math.prod(axis.size for axis in one.threads) for one in passes)
    fitting = resident_blocks(shared, limits)
    minimum = (
        _LARGE_BLOCK_THREADS if shared > _LARGE_BLOCK_BYTES else _LARGE_BLOCK_THREADS * 3 // 2
    )  # items for so many
    maximum = 512 if fitting == 1 else _LARGE_BLOCK_THREADS if items >= minimum else 128
    threads = min(-(-items // WARP) * WARP, maximum, room)
    return RegisterTile(
        modes=tuple(range(planner.first, planner.first + len(planner.inputs))),
        inputs=planner.inputs,
        outputs=planner.outputs,
        slices=planner.slices,
        columns=planner.columns,
        R=R,
        held=planner.max_elements,
        buffer=planner.buffer(pads) if planner.buffers() else 0,
        buffers=planner.buffers(),
        threads=threads,
        blocks=max(1, min(room // threads, fitting, _MAX_RESIDENT_THREADS // threads)),
        constant=constant,
        shared_bytes=shared,
        passes=passes,
    )


def usual_planner(part: GroupShape, limits: DeviceLimits) -> TilePlanner:
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
    return _planner_with(part, slices, columns, held)


def _planner_with(part: GroupShape, slices: int, columns: int, held: int) -> TilePlanner:
    """Return the planner of a tile where a thread holds ``held`` elements."""
    largest = max(math.prod(part.inputs), math.prod(part.outputs))
    cached = part.L * part.R * largest * part.itemsize <= _TINY_BYTES
    sizes = part.inputs, part.outputs, slices, columns, part.itemsize
    return TilePlanner(part.first, *sizes, held, cached)


def _held(part: GroupShape, columns: int, share: int, largest: int) -> int:
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
