"""The family of kernels that add a list's products atomically, in the order in which they come.

A team of threads computes one product at a time, in passes (see `passes`); the results of a warp
are added to y together. Nothing is sorted. The kernel's contract is in
``csrc/cuda/batch/unsorted.cuh``. It is the only family but the general one for lists without an
order of sums, with which 31 cells took 2.56 times as long in the mean (H100, docs/results/gpu.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from batchkron.backends.cuda.batch.cutting import best_cutting, thread_element_counts
from batchkron.backends.cuda.batch.kernel import BatchShape
from batchkron.backends.cuda.batch.pass_tiling import PassTiling, pass_fields
from batchkron.backends.cuda.batch.records import WORD, unsorted_arguments
from batchkron.backends.cuda.kernel import Family, Kernel, record
from batchkron.backends.cuda.kernel_family import LaunchShape
from batchkron.backends.cuda.runtime.hardware import DeviceLimits, resident_blocks, round_up
from batchkron.backends.cuda.runtime.program import SCALARS, Program, flag, template_type
from batchkron.backends.cuda.steps import Step

_BLOCK_THREADS = 128  # most threads of a thread block of small teams; chosen by hand
_MIN_BLOCKS = 4  # thread blocks of small teams that a multiprocessor should hold; chosen by hand
_MAX_NUMBER = 2**31 - 16  # largest number of products and blocks, which are given in 32 bits


@dataclass(frozen=True)
class UnsortedTile(PassTiling):
    """How a kernel evaluates products, each by a team."""

    @cached_property
    def pitch(self) -> int:
        """Bytes of shared memory of one product, an odd number of words.

        Threads of a warp read the same place of several products at once, and an even number of
        words would put these into few banks.
        """
        return (self.product_words | 1) * WORD

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory of a thread block."""
        lists = round_up(3 * self.products * (2 + len(self.steps)) * 4, 16)
        exchange = round_up(self.exchange * self.itemsize, 16)
        group = lists + self.products * (2 * self.pitch + exchange)
        return self.block // self.group * group


def unsorted_tile(
    steps: tuple[Step, ...], itemsize: int, held: int, limits: DeviceLimits
) -> UnsortedTile | None:
    """Return the tile where a thread holds up to ``held`` elements, None if none fits."""
    fields = pass_fields(steps, itemsize, (held,), _BLOCK_THREADS)
    if fields is None:
        return None
    tile = UnsortedTile(**fields)
    while tile.team <= 32 < tile.block and tile.shared_bytes > limits.shared_bytes // _MIN_BLOCKS:
        tile = replace(tile, block=tile.block // 2)
    return tile if tile.shared_bytes <= limits.shared_bytes else None


def unsorted_program(
    dtype: np.dtype[np.generic], tile: UnsortedTile, number: str, by_row: bool, identities: bool
) -> Program:
    """Return the kernel of a tile.

    ``number`` is the C++ type of the list's numbers; ``by_row`` says that matrices are (K, C).
    """
    layout, passes = tile.types()
    cut = template_type("UnsortedCut", tile.team, tile.block, tile.pitch, tile.exchange)
    what = SCALARS[dtype], number, layout, cut, tile.min_blocks, flag(by_row), flag(identities)
    return Program("cuda/batch/unsorted.cuh", template_type("batched_unsorted", *what, *passes))


def unsorted_kernel(shape: BatchShape, device: DeviceLimits) -> Kernel | None:
    """Return the kernel for a list without an order of sums, None if it does not fit.

    A thread holds as many elements as are estimated to be the fastest; of equal estimates the
    largest number is taken, which needs fewer passes. The program is that for a plan's list: 32-bit
    numbers, matrices (C, K) and padded.
    """
    if not _fits(shape):
        return None
    itemsize, best, least = shape.dtype.itemsize, None, math.inf
    for held in reversed(thread_element_counts(itemsize)):
        tile = unsorted_tile(shape.steps, itemsize, held, device)
        cutting = None if tile is None else best_cutting(shape.steps, (held,), itemsize)
        if cutting is not None and cutting.cost() < least:
            best, least = tile, cutting.cost()
    if best is None:
        return None
    program = unsorted_program(shape.dtype, best, "int", False, shape.identities)
    launch = unsorted_launch(best, shape.products, device)
    steps = len(shape.steps)
    arguments = record(
        unsorted_arguments(shape.dtype, steps),
        columns=np.arange(steps),
        limits=np.iinfo(np.int32).max,  # ids are checked when a list is built
        **shape.counts,
    )
    return Kernel(UNSORTED, shape, best, program, launch, arguments)


UNSORTED = Family("batch", "unsorted", unsorted_kernel)


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
