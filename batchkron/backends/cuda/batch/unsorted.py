"""The family of kernels that add a list's products atomically, in the order in which they come.

A team of threads computes one product at a time, in passes (see `passes`); the results of a warp
are added to y together. Nothing is sorted. The kernel's contract is in
``csrc/cuda/batch/unsorted.cuh``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from batchkron.backends.cuda.batch.kernel import BatchFamily, BatchKernel, BatchShape
from batchkron.backends.cuda.batch.passes import BatchPass, pass_type, plan_passes
from batchkron.backends.cuda.batch.records import WORD, matrix_bytes
from batchkron.backends.cuda.batch.registers.cost import (
    best_cutting,
    input_size,
    thread_element_counts,
)
from batchkron.backends.cuda.kernel_family import LaunchShape
from batchkron.backends.cuda.runtime.hardware import DeviceLimits, resident_blocks, round_up
from batchkron.backends.cuda.runtime.program import SCALARS, Program, flag, template_type
from batchkron.backends.cuda.steps import MAX_FIXED_MODES, Step

_MAX_FACTOR_SIZE = 32  # largest number of rows or columns of a factor; chosen by hand
_BLOCK_THREADS = 128  # most threads of a thread block of small teams; chosen by hand
_MIN_BLOCKS = 4  # thread blocks of small teams that a multiprocessor should hold; chosen by hand
_MAX_NUMBER = 2**31 - 16  # largest number of products and blocks, which are given in 32 bits


@dataclass(frozen=True, slots=True)
class UnsortedVariant:
    """What may be chosen.

    Attributes
    ----------
    held : int
        Elements of a block that a thread may hold.
    """

    held: int


@dataclass(frozen=True)
class UnsortedTile:
    """How a kernel evaluates products.

    Attributes
    ----------
    steps : tuple of Step
        Multiplies along one mode each, in the order of evaluation.
    passes : tuple of BatchPass
        The steps grouped into passes over the block.
    run, gap : int
        After each ``run`` elements of a block in shared memory there are ``gap`` of padding.
    area : int
        Elements of shared memory for a block, in whole 16-byte words.
    exchange : int
        Elements of a second buffer; 0 if results can overwrite their inputs.
    team, block : int
        Threads of a product and of a thread block.
    min_blocks : int
        Thread blocks that a multiprocessor should hold, which bounds the registers of a thread.
    itemsize : int
        Bytes of an element.
    """

    steps: tuple[Step, ...]
    passes: tuple[BatchPass, ...]
    run: int
    gap: int
    area: int
    exchange: int
    team: int
    block: int
    min_blocks: int
    itemsize: int

    @property
    def teams(self) -> int:
        """Teams of a thread block."""
        return self.block // 32 * (32 // self.team) if self.team <= 32 else 1

    @cached_property
    def pitch(self) -> int:
        """Bytes of shared memory of one product, an odd number of words.

        Threads of a warp read the same place of several products at once, and an even number of
        words would put these into few banks.
        """
        matrices = sum(matrix_bytes(step.C * step.K, self.itemsize) for step in self.steps)
        words = (self.area * self.itemsize + matrices) // WORD
        return (words | 1) * WORD

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory of a thread block."""
        group = 32 if self.team <= 32 else self.block
        products = group // self.team
        lists = round_up(3 * products * (2 + len(self.steps)) * 4, 16)
        exchange = round_up(self.exchange * self.itemsize, 16)
        return self.block // group * (lists + products * (2 * self.pitch + exchange))


def unsorted_tile(
    steps: tuple[Step, ...], itemsize: int, held: int, limits: DeviceLimits
) -> UnsortedTile | None:
    """Return the tile where a thread holds up to ``held`` elements, None if none fits."""
    if len(steps) > MAX_FIXED_MODES or max(max(s.C, s.K) for s in steps) > _MAX_FACTOR_SIZE:
        return None
    cutting = best_cutting(steps, (held,), itemsize)
    if cutting is None:
        return None
    passes, run, gap = plan_passes(steps, cutting.cuts, itemsize)
    square = all(step.C == step.K for step in steps)
    largest = max(step.L * max(step.C, step.K) * step.R for step in steps)
    padded = largest + (largest // run - 1) * gap if gap else largest
    team = cutting.team
    block = team if team > 32 else _BLOCK_THREADS
    tile = UnsortedTile(
        steps=steps,
        passes=passes,
        run=run,
        gap=gap,
        area=matrix_bytes(padded, itemsize) // itemsize,
        exchange=0 if square or len(passes) == 1 else largest,
        team=team,
        block=block,
        min_blocks=max(1, min(512 // block, cutting.resident // block)),
        itemsize=itemsize,
    )
    while tile.team <= 32 < tile.block and tile.shared_bytes > limits.shared_bytes // _MIN_BLOCKS:
        tile = replace(tile, block=tile.block // 2)
    return tile if tile.shared_bytes <= limits.shared_bytes else None


def unsorted_program(
    dtype: np.dtype[np.generic], tile: UnsortedTile, number: str, by_row: bool, identities: bool
) -> Program:
    """Return the kernel of a tile.

    ``number`` is the C++ type of the list's numbers; ``by_row`` says that matrices are (K, C).
    """
    elements = (step.C * step.K for step in tile.steps)
    last = tile.steps[-1]
    sizes = input_size(tile.steps), last.L * last.K * last.R, tile.run, tile.gap, tile.area
    layout = template_type("BlockLayout", *sizes, *elements)
    cut = template_type("UnsortedCut", tile.team, tile.block, tile.pitch, tile.exchange)
    passes = map(pass_type, tile.passes)
    what = SCALARS[dtype], number, layout, cut, tile.min_blocks, flag(by_row), flag(identities)
    return Program("cuda/batch/unsorted.cuh", template_type("batched_unsorted", *what, *passes))


class Unsorted(BatchFamily):
    """Kernels with a team of threads for each product, which adds it to y atomically.

    The only family but the general one for lists without an order of sums. The estimate is that of
    a product's time in `registers`, without a unit.
    """

    name = "unsorted"
    variant_type = UnsortedVariant
    has_records = False

    def accepts(self, shape: BatchShape, device: DeviceLimits) -> bool:
        """Whether the registers of a team hold a block, and the numbers fit."""
        return _fits(shape) and any(True for _ in self.variants(shape, device))

    def variants(self, shape: BatchShape, device: DeviceLimits) -> Iterator[UnsortedVariant]:
        """Yield a variant for each number of elements that a thread may hold, the largest first.

        Of equal estimates the first one is taken: more elements need fewer passes.
        """
        itemsize = shape.dtype.itemsize
        for held in reversed(thread_element_counts(itemsize)) if _fits(shape) else ():
            if unsorted_tile(shape.steps, itemsize, held, device) is not None:
                yield UnsortedVariant(held)

    def estimate(self, shape: BatchShape, variant: UnsortedVariant, device: DeviceLimits) -> float:
        """Return the estimated time of a product, without a unit; infinite if it does not fit."""
        cutting = best_cutting(shape.steps, (variant.held,), shape.dtype.itemsize)
        return math.inf if cutting is None else cutting.cost()

    def kernel(
        self, shape: BatchShape, variant: UnsortedVariant, device: DeviceLimits
    ) -> BatchKernel | None:
        """Return the kernel of a variant, None if it does not fit."""
        itemsize = shape.dtype.itemsize
        if not _fits(shape) or variant.held not in thread_element_counts(itemsize):
            return None
        tile = unsorted_tile(shape.steps, itemsize, variant.held, device)
        return None if tile is None else BatchKernel(self, shape, variant, tile)

    def program(self, kernel: BatchKernel) -> Program:
        """Return the program for a plan's list: 32-bit numbers, matrices (C, K) and padded."""
        return unsorted_program(
            kernel.shape.dtype, kernel.tile, "int", False, kernel.shape.identities
        )

    def launch(self, kernel: BatchKernel, device: DeviceLimits) -> LaunchShape:
        """Return the launch for one vector of each system."""
        tile: UnsortedTile = kernel.tile
        return unsorted_launch(tile, kernel.shape.products, device)


def unsorted_launch(tile: UnsortedTile, products: int, device: DeviceLimits) -> LaunchShape:
    """Return the launch for a list: at most as many thread blocks as the device can hold."""
    resident = max(1, min(2048 // tile.block, resident_blocks(tile.shared_bytes, device)))
    blocks = max(1, min(-(-products // tile.teams), device.multiprocessors * resident))
    return LaunchShape(blocks, tile.block, tile.min_blocks, tile.shared_bytes)


def _fits(shape: BatchShape) -> bool:
    """Whether a list has no order, single vectors, and numbers of 32 bits."""
    sizes = shape.products, shape.num_outputs, shape.input_size, shape.output_size
    counted = max(shape.num_inputs, shape.num_outputs, shape.products) <= _MAX_NUMBER
    return not shape.owner and shape.inner == 1 and 0 not in sizes and counted
