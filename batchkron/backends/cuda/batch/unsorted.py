"""The family of kernels that add a list's products atomically, in the order in which they come.

A group of threads computes one product at a time, in passes (see `passes`); the results of a warp
are added to y together. Nothing is sorted. The kernel's contract is in
``csrc/cuda/batch/unsorted.cuh``. It is the only family but the general one for lists without an
order of sums, with which 31 cells took 2.56 times as long in the mean (H100, docs/results/gpu.md).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from batchkron.backends.cuda.batch.kernel import WORD, BatchShape, unsorted_arguments
from batchkron.backends.cuda.batch.passes import PassTiling, pass_tiling, thread_element_counts
from batchkron.backends.cuda.kernel import Family, Kernel, LaunchShape, record
from batchkron.backends.cuda.runtime.hardware import DeviceLimits, resident_blocks, round_up
from batchkron.backends.cuda.runtime.program import Program, device_program, template_type
from batchkron.backends.cuda.steps import Step

_BLOCK_THREADS = 128  # most threads of a thread block of small groups; chosen by hand
_MIN_BLOCKS = 4  # thread blocks of small groups that a multiprocessor should hold; chosen by hand
_MAX_NUMBER = 2**31 - 16  # largest number of products and blocks, which are given in 32 bits


def unsorted_pitch(tile: PassTiling) -> int:
    """Return the bytes of shared memory of one product, an odd number of words.

    Threads of a warp read the same place of several products at once, and an even number of
    words would put these into few banks.
    """
    return (tile.product_words | 1) * WORD


def unsorted_shared_bytes(tile: PassTiling) -> int:
    """Return the bytes of shared memory of a thread block."""
    lists = round_up(3 * tile.products * (2 + len(tile.steps)) * 4, 16)
    exchange = round_up(tile.exchange * tile.itemsize, 16)
    each = lists + tile.products * (2 * unsorted_pitch(tile) + exchange)
    return tile.block // tile.loaders * each


def unsorted_tile(
    steps: tuple[Step, ...], itemsize: int, held: int, device: DeviceLimits
) -> PassTiling | None:
    """Return the tile where a thread holds up to ``held`` elements, None if none fits."""
    tile = pass_tiling(steps, itemsize, (held,), _BLOCK_THREADS)
    if tile is None:
        return None
    most = device.shared_bytes // _MIN_BLOCKS
    while tile.group <= 32 < tile.block and unsorted_shared_bytes(tile) > most:
        tile = replace(tile, block=tile.block // 2)
    return tile if unsorted_shared_bytes(tile) <= device.shared_bytes else None


def unsorted_program(
    dtype: np.dtype[np.generic], tile: PassTiling, number: str, by_row: bool, identities: bool
) -> Program:
    """Return the kernel of a tile, for numbers of a C++ type; ``by_row``: matrices are (K, C)."""
    layout, passes = tile.types()
    sizes = tile.group, tile.block, unsorted_pitch(tile), tile.exchange
    cut = template_type("UnsortedCut", *sizes)
    what = dtype, number, layout, cut, tile.min_blocks, by_row, identities
    return device_program("batch/unsorted", "batched_unsorted", *what, *passes)


def unsorted_kernel(shape: BatchShape, device: DeviceLimits) -> Kernel | None:
    """Return the kernel for a list without an order of sums, None if it does not fit.

    A thread holds as many elements as are estimated to be the fastest; of equal estimates the
    largest number is taken, which needs fewer passes. The program is that for a plan's list: 32-bit
    numbers, matrices (C, K) and padded.
    """
    if not _fits(shape):
        return None
    steps, itemsize = shape.steps, shape.dtype.itemsize
    held = reversed(thread_element_counts(itemsize))
    tiles = filter(None, (unsorted_tile(steps, itemsize, one, device) for one in held))
    best = min(tiles, key=lambda tile: tile.cost, default=None)
    if best is None:
        return None
    arguments = record(
        unsorted_arguments(shape.dtype, len(steps)),
        columns=np.arange(len(steps)),
        limits=np.iinfo(np.int32).max,  # ids are checked when a list is built
        **shape.counts,
    )
    program = unsorted_program(shape.dtype, best, "int", False, shape.identities)
    launch = _launch(best, shape.products, device)
    return Kernel(UNSORTED, shape, best, program, launch, arguments)


UNSORTED = Family("batch", "unsorted", unsorted_kernel)


def _launch(tile: PassTiling, products: int, device: DeviceLimits) -> LaunchShape:
    """Return the launch for a list: at most as many thread blocks as the device can hold."""
    shared = unsorted_shared_bytes(tile)
    resident = max(1, min(2048 // tile.block, resident_blocks(shared, device)))
    blocks = max(1, min(-(-products // tile.groups), device.multiprocessors * resident))
    return LaunchShape(blocks, tile.block, tile.min_blocks, shared)


def _fits(shape: BatchShape) -> bool:
    """Whether a list has no order, single vectors, and numbers of 32 bits."""
    sizes = shape.products, shape.num_outputs, shape.input_size, shape.output_size
    counted = max(shape.num_inputs, shape.num_outputs, shape.products) <= _MAX_NUMBER
    return not shape.owner and shape.inner == 1 and 0 not in sizes and counted
