"""Kernels of Kron-Matmuls whose tiles pass through shared memory slice by slice.

So a tile may be larger than shared memory. The slices lie along the first mode of a run, the lead.
A slice is multiplied along all other modes, and threads keep its results; after the last slice they
multiply along the lead. In single precision a tile may be one slice, without a lead. Neighbouring
modes whose sizes have the product 8 or 16 are treated as one mode. The kernel's contract is in
``csrc/cuda/kron/slices.cuh``. The estimated time is

    time = launch and first slices + slowest(a multiprocessor's work, memory)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import ClassVar

from batchkron.backends.cuda.estimates import NANOSECOND, Count, ceil_div, slowest
from batchkron.backends.cuda.kernel import Kernel, LaunchShape
from batchkron.backends.cuda.kron.kernel import KronFamily
from batchkron.backends.cuda.runtime.hardware import DeviceLimits, shared_bytes_for_blocks
from batchkron.backends.cuda.runtime.program import Program, device_program, template_type
from batchkron.backends.cuda.steps import ModeRun

_THREADS = 256  # threads of a thread block
_MAX_MODES = 16  # largest number of modes of a run
_MAX_SLOTS = 6  # largest number of slices that are copied or multiplied at the same time
# Thread blocks of a multiprocessor, and slots of each, if a tile is one slice.
_TILE_BLOCKS, _TILE_SLOTS = 2, 3
_LINES, _NO_LEAD = "batchkron::InnerLines", "batchkron::NoLead"


# The supported shapes of slices: bytes of an element; sizes of the outer and the inner modes of a
# slice, each of which may be several modes with this product; columns; supported sizes of the lead,
# 1 if there is none; the fewest tiles for each multiprocessor, and the smallest mode, from which on
# the kernel is used.
_KINDS: tuple[tuple[int, tuple[int, ...], tuple[int, ...], int, tuple[int, ...], int, int], ...] = (
    (8, (8, 8), (8, 8), 1, (4, 6, 8), 0, 1),
    (8, (16,), (16, 16), 1, (4, 6, 8), 0, 1),
    (8, (8, 8), (), 64, (4, 6, 8), 0, 1),
    (8, (16,), (16,), 8, (8, 16), 0, 1),
    (4, (8, 8), (8, 8), 1, (8,), 0, 1),
    (4, (16,), (16, 16), 1, (8, 16), 0, 1),
    (4, (8, 8), (8, 8), 1, (1,), 4, 8),
    (4, (16,), (16, 16), 1, (1,), 4, 8),
)


@dataclass(frozen=True, slots=True)
class SliceTile:
    """The sizes of a tile."""

    lead: tuple[int, ...]  # sizes of the modes that make the lead; empty if a tile is one slice
    # outer, inner: for each outer and inner mode of a slice, the sizes of the modes that make it
    outer: tuple[tuple[int, ...], ...]
    inner: tuple[tuple[int, ...], ...]
    columns: int  # neighbouring columns of a tile

    @property
    def slices(self) -> int:
        """Slices of a tile."""
        return math.prod(self.lead)

    @property
    def slice_elements(self) -> int:
        """Elements of a slice."""
        return math.prod(map(math.prod, (*self.outer, *self.inner))) * self.columns

    @property
    def blocks(self) -> int:
        """Thread blocks of a multiprocessor."""
        return 1 if self.lead else _TILE_BLOCKS


class Slices(KronFamily):
    """Kernels of real factors whose tiles pass through shared memory slice by slice."""

    name = "slices"
    # slices that are copied or multiplied at the same time, and those held in registers
    numbers = "slots", "held"
    constants: ClassVar = {
        "launch": (
            6000,
            "a kernel launch in a CUDA graph, the loads of the first slices and the stores "
            "of the last ones",
        ),
        "element": (0.16, "a multiprocessor's time for each element of a tile: copies, barriers"),
        "multiply_add": (
            0.004,
            "its time for each multiply-add in double precision, on matrix units",
        ),
        "single": (0.8, "factor of these two in single precision"),
        "memory_rate": (3000, "bandwidth of memory, bytes per nanosecond"),
        "sharpness": (2.5, "see `slowest`"),
    }

    def accepts(self, run: ModeRun, device: DeviceLimits) -> bool:
        """Whether there is a kernel for the sizes."""
        return bool(self.variants(run, device))

    def variants(self, run: ModeRun, device: DeviceLimits) -> list[tuple[int, int]]:
        """Return the variants that fit in shared memory, the default one first."""
        tile = tile_of(run, device)
        if tile is None:
            return []
        found = ((_slots(run, tile, n, device), n) for n in _held(tile.slices))
        return [(slots, held) for slots, held in found if slots >= 2]

    def work(
        self, run: ModeRun, variant: tuple[int, int], device: DeviceLimits
    ) -> SimpleNamespace | None:
        """Count the elements and multiply-adds of all tiles of a multiprocessor."""
        tile = tile_of(run, device)
        if tile is None or variant not in self.variants(run, device):
            return None
        rounds = ceil_div(run.L * run.R // tile.columns, device.multiprocessors)
        elements = rounds * tile.slices * tile.slice_elements
        modes = [*tile.outer, *tile.inner, *([tile.lead] if tile.lead else [])]
        return SimpleNamespace(
            elements=elements,
            multiply_adds=elements * sum(map(math.prod, modes)),
            is_single=int(run.itemsize == 4),
            moved=run.bytes,
        )

    def seconds(self, work: SimpleNamespace, costs: SimpleNamespace) -> Count:
        """Return the estimated seconds of a launch."""
        busy = costs.element * work.elements + costs.multiply_add * work.multiply_adds
        busy = busy * (work.is_single * costs.single + 1 - work.is_single)
        total = costs.launch + slowest(costs.sharpness, busy, work.moved / costs.memory_rate)
        return total * NANOSECOND

    def choose(self, run: ModeRun, device: DeviceLimits) -> tuple[float, tuple[int, int]] | None:
        """Return the default variant: the variants' estimates do not differ."""
        usual = next(iter(self.variants(run, device)), None)
        return None if usual is None else (self.estimate(run, usual, device), usual)

    def kernel(self, run: ModeRun, variant: tuple[int, int], device: DeviceLimits) -> Kernel | None:
        """Return the kernel of a variant, None if it does not fit."""
        tile = tile_of(run, device)
        if tile is None or variant not in self.variants(run, device):
            return None
        tiles = run.L * run.R // tile.columns
        blocks = min(tiles, tile.blocks * device.multiprocessors)
        slots, held = variant
        shared = _kept_bytes(run, tile, held)
        shared += slots * tile.slice_elements * run.itemsize
        launch = LaunchShape(blocks, _THREADS, tile.blocks, shared)
        return self.made(run, variant, device, _program(run, tile, variant), launch, tile)


def tile_of(run: ModeRun, device: DeviceLimits) -> SliceTile | None:
    """Return the tile for a run of modes, None if there is no kernel for their sizes."""
    sizes = run.inputs
    if run.dtype.kind != "f" or not device.double_units or run.products:
        return None
    if sizes != run.outputs or len(sizes) > _MAX_MODES:
        return None
    for itemsize, outer, inner, columns, leads, rounds, smallest in _KINDS:
        fits = run.R == 1 if columns == 1 else run.R % columns == 0
        if itemsize != run.itemsize or not fits:
            continue
        parts = _divided(sizes, (*outer, *inner))
        if parts is None or math.prod(parts[0]) not in leads:
            continue
        tiles = run.L * run.R // columns
        if min(sizes) >= smallest and tiles >= rounds * device.multiprocessors:
            first = 1 + len(outer)
            return SliceTile(parts[0], parts[1:first], parts[first:], columns)
    return None


def _held(slices: int) -> Iterator[int]:
    """Yield how many slices' results may be held in registers, the default first."""
    usual = 1 if slices == 1 else 4 if slices <= 8 else 7
    yield usual
    yield from (held for held in (usual - 1, usual + 1) if 0 < held <= min(slices, 8))


def _slots(run: ModeRun, tile: SliceTile, held: int, device: DeviceLimits) -> int:
    """Return how many slices fit in shared memory while they are copied or multiplied."""
    if tile.lead:
        whole, maximum = device.shared_bytes, _MAX_SLOTS
    else:
        whole, maximum = shared_bytes_for_blocks(_TILE_BLOCKS, device), _TILE_SLOTS
    room = whole - _kept_bytes(run, tile, held)
    return min(maximum, room // (tile.slice_elements * run.itemsize))


def _kept_bytes(run: ModeRun, tile: SliceTile, held: int) -> int:
    """Return the bytes of shared memory besides the slots.

    These are the lead's factor, results that registers do not hold, and in single precision a slice
    that is converted to float64.
    """
    elements = tile.slices**2 + (tile.slices - held) * tile.slice_elements
    return elements * run.itemsize + (0 if run.itemsize == 8 else 8 * tile.slice_elements)


def _divided(sizes: tuple[int, ...], products: Sequence[int]) -> tuple[tuple[int, ...], ...] | None:
    """Return the rest of sizes and last parts with these products; None if that is not possible."""
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


def _program(run: ModeRun, tile: SliceTile, variant: tuple[int, int]) -> Program:
    def one(sizes: Sequence[int]) -> str:
        return template_type("Composite", *sizes)

    eights = len(tile.outer) > 1
    if tile.columns > 1:
        inner = template_type("InnerColumns", *map(one, tile.inner)) if tile.inner else _LINES
    else:
        inner = template_type("InnerEights" if eights else "InnerSixteens", *map(one, tile.inner))
    outer = template_type("OuterEights" if eights else "OuterSixteen", *map(one, tile.outer))
    modes = one(tile.lead) if tile.lead else _NO_LEAD, outer, inner
    return device_program("kron/slices", "kron_slices", run.dtype, *modes, *variant)
