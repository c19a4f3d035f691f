"""How a Kron-Matmul of small factors goes through registers, several modes at a time.

A group of neighbouring modes is one kernel, ``csrc/cuda/kron_registers.cuh``. Pure arithmetic on
sizes, without any device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations

import numpy as np

from batchkron.backends.device_register_passes import (
    RegisterPass,
    TilePlanner,
    cuts,
    multiply_adds,
    staged_elements,
)
from batchkron.backends.device_tiling import DeviceLimits
from batchkron.spec import Array

LARGEST_FACTOR = 16
MOST_MODES = 12
_MOST_GROUPS = 4
_MOST_CONSTANTS = 16 << 10  # bytes
_WARP = 32
_LINE = 128  # bytes that a warp should find together in memory
_SECTOR = 32  # bytes, the least that is worth reading
_PAGE = 4096  # bytes of shared memory by which tiles are told apart
_MOST_REGISTERS = 255
_REGISTER_FILE = 65536
_MOST_THREADS = 2048  # of a multiprocessor
_FULL = 256  # threads of a multiprocessor, at least
_FEWEST = 8  # elements that a thread holds, however small the problem
_TILE_BYTES = 48 << 10  # of several slices
_WIDE_BYTES = 56 << 10  # of tiles that many threads work on
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
    buffer: int
    buffers: int
    threads: int
    blocks: int
    constant: bool
    shared_bytes: int
    passes: tuple[RegisterPass, ...]


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
        return -(-self.L // self.tile.slices) * -(-self.R // self.tile.columns)


@dataclass(frozen=True, slots=True)
class _Shape:
    """A Kron-Matmul: sizes of its factors, rows, columns, bytes of an element."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    outer: int
    inner: int
    itemsize: int


@lru_cache(maxsize=1024)
def register_groups(
    inputs: tuple[int, ...],
    outputs: tuple[int, ...],
    outer: int,
    inner: int,
    dtype: np.dtype[np.generic],
    constant: bool,
    limits: DeviceLimits,
) -> tuple[RegisterGroup, ...] | None:
    """Return the kernels of a Kron-Matmul of small factors, None where it has others.

    The fewest groups whose tiles fit in shared memory, of these the order with least work.
    ``constant``: the factors may become constants of the kernels.
    """
    if not 0 < len(inputs) <= MOST_MODES or max(*inputs, *outputs) > LARGEST_FACTOR:
        return None
    shape = _Shape(inputs, outputs, outer, inner, dtype.itemsize)
    best: tuple[float, ...] | None = None
    found: list[tuple[TilePlanner, int, int]] = []
    for parts in range(1, min(len(inputs), _MOST_GROUPS) + 1):
        for cut in cuts(len(inputs), parts):
            orders = permutations(cut) if inputs != outputs else [tuple(reversed(cut))]
            for order in orders:
                planners = _planners(order, shape, limits)
                if planners is None:
                    continue
                tiles = [planner for planner, _, _ in planners]
                cost = (
                    multiply_adds(order, inputs, outputs),
                    sum(len(tile.runs) for tile in tiles),
                    -min(min(tile.columns * shape.itemsize, _LINE) for tile in tiles),
                    max(tile.shared_bytes(tile.unpadded()) for tile in tiles) // _PAGE,
                    -max(len(tile.inputs) for tile in tiles),
                )
                if best is None or cost < best:
                    best, found = cost, planners
        if found:
            return tuple(
                RegisterGroup(_tile(planner, R if inner == 1 else 0, constant, limits), L, R)
                for planner, L, R in found
            )
    return None


def _tile(planner: TilePlanner, R: int, constant: bool, limits: DeviceLimits) -> RegisterTile:
    """Return what the kernel is compiled for: passes, padding, threads."""
    elements = staged_elements(planner.inputs, planner.outputs, planner.itemsize)
    constant = constant and elements * planner.itemsize <= _MOST_CONSTANTS
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
    registers = min(_MOST_REGISTERS, held + other)
    room = max(_WARP, _REGISTER_FILE // registers // _WARP * _WARP)
    items = min(math.prod(axis.size for axis in one.threads) for one in passes)
    fitting = (limits.shared_bytes + 1024) // (shared + 1024)
    most = 512 if fitting == 1 else 256 if shared > _WIDE_BYTES else 128
    threads = min(-(-items // _WARP) * _WARP, most, room)
    return RegisterTile(
        modes=tuple(range(planner.first, planner.first + len(planner.inputs))),
        inputs=planner.inputs,
        outputs=planner.outputs,
        slices=planner.slices,
        columns=planner.columns,
        R=R,
        buffer=planner.buffer(pads) if planner.buffers() else 0,
        buffers=planner.buffers(),
        threads=threads,
        blocks=max(1, min(room // threads, fitting, _MOST_THREADS // threads)),
        constant=constant,
        shared_bytes=shared,
        passes=passes,
    )


def _planners(
    order: Sequence[tuple[int, int]], shape: _Shape, limits: DeviceLimits
) -> list[tuple[TilePlanner, int, int]] | None:
    """Return a planner, L and R of each group, None if a tile does not fit in shared memory."""
    sizes, planners = list(shape.inputs), []
    for low, high in order:
        L = shape.outer * math.prod(sizes[:low])
        R = math.prod(sizes[high:]) * shape.inner
        planner = _planner((low, high), shape, L, R, limits)
        if planner.shared_bytes(planner.unpadded()) > limits.shared_bytes:
            return None
        planners.append((planner, L, R))
        sizes[low:high] = shape.outputs[low:high]
    return planners


def _planner(
    modes: tuple[int, int], shape: _Shape, L: int, R: int, limits: DeviceLimits
) -> TilePlanner:
    """Return the planner of a group's tile: its slices and columns, what a thread holds."""
    inputs, outputs = shape.inputs[slice(*modes)], shape.outputs[slice(*modes)]
    largest = max(math.prod(inputs), math.prod(outputs))
    share = L * R * largest // (limits.multiprocessors * _FULL)
    most = _held(max(*inputs, *outputs), share, shape.itemsize)
    columns, slices = _columns(R, largest * shape.itemsize, shape.itemsize, limits), 1
    if columns == R:
        block = largest * R
        fitting = max(1, _TILE_BYTES // (block * shape.itemsize))
        slices = max(1, min(-(-_FULL * most // block), fitting, L // (2 * limits.multiprocessors)))
    cached = L * R * largest * shape.itemsize <= _TINY_BYTES
    return TilePlanner(modes[0], inputs, outputs, slices, columns, shape.itemsize, most, cached)


def _held(factor: int, share: int, itemsize: int) -> int:
    """Return the elements of a tile that a thread holds, with factors up to ``factor``.

    64 of four bytes, 16 of eight: beyond, too few threads share a multiprocessor. Two fibres of a
    long factor share the loads of it.
    """
    if factor > 8:
        return 3 * factor
    return max(factor, min(64 if itemsize == 4 else 128 // itemsize, max(share, _FEWEST)))


def _columns(R: int, column_bytes: int, itemsize: int, limits: DeviceLimits) -> int:
    """Return the columns of a tile: as many as half of shared memory holds, whole sectors."""
    if R == 1:
        return 1
    widths = [w for w in (32, 16, 8, 4, 2) if w * itemsize >= _SECTOR and w <= R] or [min(R, 8)]
    return next((w for w in widths if w * column_bytes <= limits.shared_bytes // 2), widths[-1])
