"""Tilings whose tiles may be larger than shared memory: they pass through it slice by slice.

The slices lie along the first mode of a run, the lead. A slice is multiplied along all other modes,
and threads keep its results; after the last slice they multiply along the lead. In single precision
a tile may be one slice, without a lead. Neighbouring modes whose sizes have the product 8 or 16 are
treated as one mode. Pure arithmetic on sizes, no device needed; the kernel's contract is in
``csrc/cuda/kron/slices.cuh``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from batchkron.backends.cuda.runtime.hardware import DeviceLimits, shared_bytes_for_blocks
from batchkron.backends.cuda.runtime.program import SCALARS, Program, template_type
from batchkron.backends.cuda.steps import ModeRun

_THREADS = 256  # threads of a thread block
_MAX_MODES = 16  # largest number of modes of a run
_MAX_SLOTS = 6  # largest number of slices that are copied or multiplied at the same time
# Thread blocks of a multiprocessor, and slots of each, if a tile is one slice.
_TILE_BLOCKS, _TILE_SLOTS = 2, 3
_LINES, _NO_LEAD = "batchkron::InnerLines", "batchkron::NoLead"


@dataclass(frozen=True, slots=True)
class _Kind:
    """A supported shape of slices.

    Attributes
    ----------
    itemsize : int
        Bytes of an element.
    outer, inner : tuple of int
        Sizes of the outer and inner modes of a slice; each may be several modes with this product.
    columns : int
        Columns of a slice.
    leads : tuple of int
        Supported sizes of the lead, 1 if there is none.
    minimum : (int, int)
        Smallest number of tiles for each multiprocessor, and smallest mode size, for which the
        kernel is used.
    """

    itemsize: int
    outer: tuple[int, ...]
    inner: tuple[int, ...]
    columns: int
    leads: tuple[int, ...]
    minimum: tuple[int, int] = (0, 1)

    @property
    def entries(self) -> int:
        """Elements of a slice."""
        return math.prod((*self.outer, *self.inner)) * self.columns


_KINDS = (
    _Kind(8, (8, 8), (8, 8), 1, (4, 6, 8)),
    _Kind(8, (16,), (16, 16), 1, (4, 6, 8)),
    _Kind(8, (8, 8), (), 64, (4, 6, 8)),
    _Kind(8, (16,), (16,), 8, (8, 16)),
    _Kind(4, (8, 8), (8, 8), 1, (8,)),
    _Kind(4, (16,), (16, 16), 1, (8, 16)),
    _Kind(4, (8, 8), (8, 8), 1, (1,), (4, 8)),
    _Kind(4, (16,), (16, 16), 1, (1,), (4, 8)),
)


@dataclass(frozen=True, slots=True)
class SliceVariant:
    """Slices that are copied or multiplied at the same time, and slices held in registers."""

    slots: int
    held: int


@dataclass(frozen=True, slots=True)
class SliceTile:
    """The tiling of one kernel.

    Attributes
    ----------
    modes : tuple of int
        The run's modes, in their order in memory.
    lead : tuple of int
        Sizes of the modes that make the lead; empty if a tile is one slice.
    outer, inner : tuple of tuple of int
        For each outer and inner mode of a slice, the sizes of the modes that make it.
    columns : int
        Neighbouring columns of a tile.
    slots, held : int
        Slices in shared memory that are copied or multiplied; slices with results in registers.
    shared_bytes : int
        Bytes of shared memory of a thread block.
    """

    modes: tuple[int, ...]
    lead: tuple[int, ...]
    outer: tuple[tuple[int, ...], ...]
    inner: tuple[tuple[int, ...], ...]
    columns: int
    slots: int
    held: int
    shared_bytes: int

    @property
    def threads(self) -> int:
        """Threads of a thread block."""
        return _THREADS

    @property
    def blocks(self) -> int:
        """Thread blocks of a multiprocessor."""
        return 1 if self.lead else _TILE_BLOCKS

    @property
    def elements(self) -> int:
        """Elements of a tile."""
        slices = (math.prod(one) for one in (*self.outer, *self.inner))
        return math.prod(self.lead) * math.prod(slices) * self.columns


def tiles_of(part: ModeRun, limits: DeviceLimits) -> Iterator[SliceTile]:
    """Yield the tilings that fit a run of modes, the default one first."""
    sizes, size = part.inputs, part.itemsize
    if part.dtype.kind != "f" or not limits.double_units or part.products:
        return
    if sizes != part.outputs or len(sizes) > _MAX_MODES:
        return
    modes = tuple(range(part.first, part.first + len(sizes)))
    for kind in _KINDS:
        fits = part.R == 1 if kind.columns == 1 else part.R % kind.columns == 0
        runs = _runs(sizes, (*kind.outer, *kind.inner)) if kind.itemsize == size and fits else None
        if runs is None or math.prod(runs[0]) not in kind.leads:
            continue
        rounds, smallest = kind.minimum
        tiles = part.L * part.R // kind.columns
        if min(sizes) < smallest or tiles < rounds * limits.multiprocessors:
            continue
        slices, slice_bytes = math.prod(runs[0]), kind.entries * size
        # The lead's factor, and in single precision a slice that is converted to float64.
        own = slices**2 * size + (0 if size == 8 else kind.entries * 8)
        cut = runs[0], runs[1 : 1 + len(kind.outer)], runs[1 + len(kind.outer) :], kind.columns
        for held in _held(slices):
            whole, maximum = (limits.shared_bytes, _MAX_SLOTS) if runs[0] else _shared(limits)
            room = whole - own - (slices - held) * slice_bytes
            slots = min(maximum, room // slice_bytes)
            if slots >= 2:
                shared = own + (slots + slices - held) * slice_bytes
                yield SliceTile(modes, *cut, slots, held, shared)
        return


def _shared(limits: DeviceLimits) -> tuple[int, int]:
    """Return bytes of shared memory and largest number of slots, if a tile is one slice."""
    return shared_bytes_for_blocks(_TILE_BLOCKS, limits), _TILE_SLOTS


def _held(slices: int) -> Iterator[int]:
    """Yield how many slices' results may be held in registers, the default first."""
    usual = 1 if slices == 1 else 4 if slices <= 8 else 7
    yield usual
    yield from (held for held in (usual - 1, usual + 1) if 0 < held <= min(slices, 8))


def _runs(sizes: tuple[int, ...], products: Sequence[int]) -> tuple[tuple[int, ...], ...] | None:
    """Divide sizes so that the last parts have these ``products``; return the rest and the parts.

    None if that is not possible.
    """
    found, high = [], len(sizes)
    for product in reversed(products):
        low, size = high, 1
        while size < product and low > 0:
            low -= 1
            size *= sizes[low]
        if size != product:
            return None
        found.append(sizes[low:high])
        high = low
    return (sizes[:high], *reversed(found))


def kron_slices_program(dtype: np.dtype[np.generic], tile: SliceTile) -> Program:
    """Return the kernel whose tiles pass through shared memory slice by slice."""

    def one(sizes: Sequence[int]) -> str:
        return template_type("Composite", *sizes)

    eights = len(tile.outer) > 1
    if tile.columns > 1:
        inner = template_type("InnerColumns", *map(one, tile.inner)) if tile.inner else _LINES
    else:
        inner = template_type("InnerEights" if eights else "InnerSixteens", *map(one, tile.inner))
    outer = template_type("OuterEights" if eights else "OuterSixteen", *map(one, tile.outer))
    modes = one(tile.lead) if tile.lead else _NO_LEAD, outer, inner
    return Program(
        "cuda/kron/slices.cuh",
        template_type("kron_slices", SCALARS[dtype], *modes, tile.slots, tile.held),
    )
