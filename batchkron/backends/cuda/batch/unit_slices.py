"""Tilings of batch lists on float64 matrix units where all warps of a thread block share a product.

For three large modes. Pure arithmetic on sizes, no device needed; the kernel's contract is in
``csrc/cuda/batch/unit_slices.cuh``. Without this family, the four cells that have it took 2.18
times as long in the mean (H200, docs/results/gpu.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from batchkron.backends.cuda.batch.kernel import BatchShape, can_have_records, records_kernel
from batchkron.backends.cuda.batch.matrix_units import may_use_units, unit_matrix_type
from batchkron.backends.cuda.kernel import Family, Kernel
from batchkron.backends.cuda.runtime.hardware import WARP, DeviceLimits, carveout
from batchkron.backends.cuda.runtime.program import SCALARS, Program, flag, template_type
from batchkron.backends.cuda.steps import Step

_LEADING_SIZES = (8, 12, 16)  # supported sizes of the first mode
_OTHER_SIZES = (12, 16)  # supported sizes of the second and third mode
# Bytes of a float64 sum; and of an asynchronous copy, by which each row of a matrix is padded.
_SUM_BYTES, _COPY_BYTES = 8, 16


@dataclass(frozen=True)
class UnitSliceTiling:
    """How a kernel evaluates products of three modes on matrix units."""

    steps: tuple[Step, ...]  # multiplies along one mode each, in the order of evaluation
    # leading, slow, fast: indices of the steps along the first, second and third mode
    leading: int
    slow: int
    fast: int
    warps: int  # warps of a thread block, which computes one output
    blocks: int  # thread blocks that share a multiprocessor
    short_ids: bool  # whether factor ids have 16 bits
    itemsize: int  # bytes of an element

    @property
    def block(self) -> int:
        """Threads of a thread block."""
        return WARP * self.warps

    @property
    def outputs(self) -> int:
        """Outputs of a thread block."""
        return 1

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory of a thread block: slices of 2 products, matrices of 3.

        Several products are in flight, so that the copies of one overlap the work on another.
        """
        sizes = [self.steps[s].C for s in (self.leading, self.slow, self.fast)]
        slices = sizes[0] * (math.prod(sizes[1:]) + 4)
        matrices = sum(n * (n * self.itemsize + _COPY_BYTES) for n in sizes)
        return 2 * _SUM_BYTES * slices + 3 * matrices

    @property
    def carveout(self) -> int:
        """Percentage of the on-chip memory to use as shared memory; the cache gets the rest."""
        return carveout(self.blocks, self.shared_bytes)


def unit_slice_tiling(
    steps: tuple[Step, ...],
    dtype: np.dtype[np.generic],
    outputs: int,
    short_ids: bool,
    identities: bool,
    limits: DeviceLimits,
) -> UnitSliceTiling | None:
    """Return the tiling for products of single vectors, None where this kernel does not fit.

    ``outputs`` counts those of all systems. Lists with identities are left to other kernels: matrix
    units would multiply by an explicit identity, and infinity times 0 is NaN.
    """
    if identities or dtype.kind != "f" or len(steps) != 3 or outputs < limits.multiprocessors:
        return None
    if not may_use_units(steps, dtype, limits):
        return None
    leading, slow, fast = sorted(range(3), key=lambda s: steps[s].mode)
    sizes = [steps[s].C for s in (leading, slow, fast)]
    square = all(step.C == step.K for step in steps)
    if (
        not square
        or sizes[0] not in _LEADING_SIZES
        or not all(size in _OTHER_SIZES for size in sizes[1:])
    ):
        return None
    warps, blocks = _share(sizes, dtype.itemsize)
    itemsize = dtype.itemsize
    tiling = UnitSliceTiling(steps, leading, slow, fast, warps, blocks, short_ids, itemsize)
    return tiling if tiling.shared_bytes <= limits.shared_bytes else None


def _share(sizes: Sequence[int], itemsize: int) -> tuple[int, int]:
    """Return (warps of a thread block, thread blocks of a multiprocessor).

    These were fastest on an H200 for blocks of 1152 to 4096 elements.
    """
    elements = math.prod(sizes)
    if elements >= 4096:
        return 8, 1 if itemsize == 8 else 2
    if elements >= 3072:
        return 4, 2
    return (6, 2) if sizes[0] == 12 and itemsize == 8 else (4, 3)


def unit_slice_program(dtype: np.dtype[np.generic], tiling: UnitSliceTiling) -> Program:
    """Return the kernel of a batch list whose products are shared by warps on matrix units."""
    elements = (step.C * step.K for step in tiling.steps)
    return Program(
        "cuda/batch/unit_slices.cuh",
        template_type(
            "batched_unit_slices",
            SCALARS[dtype],
            template_type("UnitLayout", *elements),
            tiling.warps,
            tiling.blocks,
            flag(tiling.short_ids),
            template_type("UnitMode", tiling.leading, tiling.steps[tiling.leading].C),
            *(
                unit_matrix_type(dtype, tiling.steps, (mode,))
                for mode in (tiling.slow, tiling.fast)
            ),
        ),
    )


def unit_slices_kernel(shape: BatchShape, device: DeviceLimits) -> Kernel | None:
    """Return the kernel with a thread block for each product, None if it does not fit.

    There is one for the sizes that were measured (``_LEADING_SIZES`` and ``_OTHER_SIZES``) if there
    is an output for each multiprocessor.
    """
    if not can_have_records(shape):
        return None
    kinds = shape.short_ids, shape.identities
    tiling = unit_slice_tiling(shape.steps, shape.dtype, shape.all_outputs, *kinds, device)
    if tiling is None:
        return None
    program = unit_slice_program(shape.dtype, tiling)
    return records_kernel(UNIT_SLICES, shape, tiling, tiling, program, resident=tiling.blocks)


UNIT_SLICES = Family("batch", "unit_slices", unit_slices_kernel)
