"""Tilings of batch lists of real elements for the float64 matrix units (tensor cores).

The kernel's contract is in ``csrc/cuda/batch/matrix_units.cuh``. A thread group evaluates a
product: a warp, or a warp for each result of a `split` mode. Without this family, the cell that has
it took 2.40 times as long ((5,4) in float64, H200, docs/results/gpu.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from batchkron.backends.cuda.batch.kernel import BatchShape, can_have_records, records_kernel
from batchkron.backends.cuda.kernel import Family, Kernel, LaunchShape
from batchkron.backends.cuda.runtime.hardware import WARP, DeviceLimits, carveout
from batchkron.backends.cuda.runtime.program import Program, device_program, template_type
from batchkron.backends.cuda.steps import Step

_HALF = 8  # rows of a matrix-unit fragment; a factor has one or two fragments of rows
# Smallest number of multiply-adds in one slice (last two modes of a block), by element size in
# bytes; below it other kernels were faster (H200).
_MIN_SLICE_MULTIPLIES = {8: 200, 4: 500}
# Element sizes in bytes with which a mode may be split between warps; with 4, other kernels were
# faster (H200).
_SPLIT_ITEMSIZES = (8,)
# Largest size of a leading mode, which each lane multiplies with ordinary arithmetic.
_MAX_LEADING_SIZE = 8
_MAX_SPLIT_PARTS = 4  # largest number of warps of a group, one for each result of the split mode
_MAX_THREAD_SUMS = 32  # float64 sums held by one lane, two registers each
# Elements of a block that a lane loads at a time, summed over the results of a split mode.
_MAX_CHUNK_ELEMENTS = 16
# Largest number of warps that share one output, so that a lane can have 255 registers. With 16
# warps a lane has 128: blocks of (6, 4) then took 1326 µs instead of 393 (H200).
_MAX_OUTPUT_WARPS = 8
# Warps wanted on each multiprocessor, so that some compute while others wait; chosen by hand.
_TARGET_WARPS = 8
# Number of times the list should fill the device, so that a partial last wave of thread blocks
# costs little; chosen by hand.
_WAVES = 6
# Products that a group should evaluate in a row, so that the latency of the first one's loads
# matters little; chosen by hand.
_MIN_PIPELINED_PRODUCTS = 8
_BLOCK_WARPS = 4  # warps of a thread block that computes several outputs; chosen by hand


@dataclass(frozen=True)
class UnitTiling:
    """How a kernel evaluates products F_slow X F_fast^T on matrix units."""

    steps: tuple[Step, ...]  # multiplies along one mode each, in the order of evaluation
    # index of the step along the first mode if each of its results is computed by another warp
    split: int | None
    # index of the step along the next mode, which each lane does with ordinary arithmetic
    lanes: int | None
    # slow, fast: indices of the steps that make F_slow and F_fast: one step of size up to 16, or
    # two of size 4, whose Kronecker product is taken
    slow: tuple[int, ...]
    fast: tuple[int, ...]
    # groups (a warp, or a group of warps for a split mode) that share the products of an output
    groups_per_output: int
    outputs: int  # outputs of a thread block
    chunk: int  # entries of the `lanes` mode that are loaded at a time
    short_ids: bool  # whether factor ids have 16 bits

    @property
    def warps(self) -> int:
        """Warps that evaluate one product."""
        return 1 if self.split is None else self.steps[self.split].C

    @property
    def block(self) -> int:
        """Threads of a thread block."""
        return WARP * self.warps * self.groups_per_output * self.outputs

    @property
    def size(self) -> int:
        """Elements of an output block."""
        return math.prod(step.K for step in self.steps)

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory of a thread block.

        They hold the matrices of the `lanes` mode, twice for each warp, and at the end the sums of
        the groups that share an output.
        """
        held = 0 if self.lanes is None else self.steps[self.lanes].C
        matrix = held * (held + held % 2)
        staged = self.block // WARP * 2 * matrix
        sharing = self.groups_per_output
        sums = 0 if sharing == 1 else self.outputs * sharing * self.size
        return 8 * max(staged, sums)


def unit_tiling(shape: BatchShape, device: DeviceLimits) -> UnitTiling | None:
    """Return the tiling for products of single vectors, None where matrix units are not used.

    Lists with identities are left to other kernels: matrix units would multiply by an explicit
    identity, and infinity times 0 is NaN.
    """
    steps, dtype, outputs = shape.steps, shape.dtype, shape.all_outputs
    if shape.identities or dtype.kind != "f":
        return None
    modes = sorted(range(len(steps)), key=lambda s: steps[s].mode)
    each = _modes_of_matrix([steps[s] for s in modes], dtype.itemsize)
    if each is None or len(modes) > 2 * each + 2:
        return None
    leading, slow, fast = modes[: -2 * each], modes[-2 * each : -each], modes[-each:]
    if not may_use_units([steps[s] for s in slow + fast] if each == 1 else [], dtype, device):
        return None
    lanes, split = leading[-1] if leading else None, leading[0] if len(leading) == 2 else None
    held, warps = (1 if s is None else steps[s].C for s in (lanes, split))
    halves = 2 if each == 2 else _halves(steps[fast[0]])
    slice_sums = 2 * halves**2
    if any(steps[s].C != steps[s].K or steps[s].C == 1 for s in leading):
        return None
    if warps > 1 and dtype.itemsize not in _SPLIT_ITEMSIZES:
        return None
    if held > _MAX_LEADING_SIZE or warps > _MAX_SPLIT_PARTS or held * slice_sums > _MAX_THREAD_SUMS:
        return None
    groups_per_output = _groups_per_output(warps, outputs, shape.all_products, device)
    if groups_per_output * warps * outputs < _TARGET_WARPS * device.multiprocessors:
        return None  # other kernels can share an output between more threads
    tiling = UnitTiling(
        steps=steps,
        split=split,
        lanes=lanes,
        slow=tuple(slow),
        fast=tuple(fast),
        groups_per_output=groups_per_output,
        outputs=max(1, _BLOCK_WARPS // (warps * groups_per_output)),
        chunk=_chunk(held, _MAX_CHUNK_ELEMENTS // (slice_sums * warps)),
        short_ids=shape.short_ids,
    )
    return tiling if tiling.shared_bytes <= device.shared_bytes else None


def may_use_units(
    matrices: Sequence[Step], dtype: np.dtype[np.generic], limits: DeviceLimits
) -> bool:
    """Whether float64 matrix units may multiply by these matrices.

    On devices whose float64 matrix units are no faster than their ordinary cores: only float64, and
    only sizes that need no padding.
    """
    if limits.double_units or dtype == np.float32:
        return limits.double_units
    return all(size % _HALF == 0 for step in matrices for size in (step.C, step.K))


def _modes_of_matrix(steps: Sequence[Step], itemsize: int) -> int | None:
    """Return how many modes each of F_slow and F_fast covers, None if units do not fit."""
    if [(step.C, step.K) for step in steps[-4:]] == [(4, 4)] * 4:
        return 2 if itemsize == 8 else None
    if len(steps) < 2:
        return None
    slow, fast = steps[-2:]
    if max(slow.C, slow.K, fast.C, fast.K) > 2 * _HALF or _halves(slow) != _halves(fast):
        return None
    multiplies = fast.K * slow.C * (fast.C + slow.K)
    return 1 if multiplies >= _MIN_SLICE_MULTIPLIES[itemsize] else None


def _halves(step: Step) -> int:
    """Return how many fragments of 8 rows the results of a step take."""
    return -(-step.K // _HALF)


def _chunk(held: int, maximum: int) -> int:
    """Return how many of ``held`` slices are loaded at a time: an even part of them, or all."""
    chunks = [held // count for count in range(2, held + 1, 2) if held % count == 0]
    return next((chunk for chunk in chunks if chunk <= max(1, maximum)), held)


def _groups_per_output(warps: int, outputs: int, products: int, limits: DeviceLimits) -> int:
    """Return how many groups of ``warps`` warps share an output, so that the device is filled."""
    wanted = _WAVES * _TARGET_WARPS * limits.multiprocessors
    maximum = min(
        _MAX_OUTPUT_WARPS // warps, products // max(1, outputs) // _MIN_PIPELINED_PRODUCTS
    )
    groups_per_output = 1
    while 2 * groups_per_output <= maximum and groups_per_output * warps * outputs < wanted:
        groups_per_output *= 2
    return groups_per_output


def _program(dtype: np.dtype[np.generic], tiling: UnitTiling) -> Program:
    elements = (step.C * step.K for step in tiling.steps)
    leading = (
        "batchkron::NoMode" if s is None else template_type("UnitMode", s, tiling.steps[s].C)
        for s in (tiling.split, tiling.lanes)
    )
    layout = template_type("UnitLayout", *elements)
    cut = template_type("UnitCut", tiling.groups_per_output, tiling.outputs, tiling.chunk)
    parts = (unit_matrix_type(dtype, tiling.steps, part) for part in (tiling.slow, tiling.fast))
    what = dtype, layout, cut, tiling.short_ids, *leading, *parts
    return device_program("batch/matrix_units", "batched_units", *what)


def unit_matrix_type(
    dtype: np.dtype[np.generic], steps: Sequence[Step], modes: Sequence[int]
) -> str:
    """Return the C++ type of F_slow or F_fast, which covers one or two modes."""
    if len(modes) == 2:
        return template_type("PairedModes", dtype, *modes)
    (mode,) = modes
    C, K = steps[mode].C, steps[mode].K
    return template_type("WideMode" if K > 8 else "NarrowMode", dtype, mode, C, K)


def matrix_units_kernel(shape: BatchShape, device: DeviceLimits) -> Kernel | None:
    """Return the kernel on matrix units, None if it does not fit or other families are faster.

    Others were faster on an H200 for small slices (``_MIN_SLICE_MULTIPLIES``), some split modes
    (``_SPLIT_ITEMSIZES``), and lists that do not fill the device (``_TARGET_WARPS``).
    """
    tiling = unit_tiling(shape, device) if can_have_records(shape) else None
    if tiling is None:
        return None
    threads, shared = tiling.block, tiling.shared_bytes
    on_chip = carveout(max(1, 16 * WARP // threads), shared)
    blocks = -(-shape.num_outputs // tiling.outputs)
    launch = LaunchShape(blocks, threads, 1, shared, carveout=on_chip)
    return records_kernel(MATRIX_UNITS, shape, tiling, _program(shape.dtype, tiling), launch)


MATRIX_UNITS = Family("batch", "matrix_units", matrix_units_kernel)
