"""Batch lists on float64 matrix units where all warps of a thread block share a product.

For three large modes. The kernel's contract is in ``csrc/cuda/batch/unit_slices.cuh``. Without this
family, the four cells that have it took 2.18 times as long in the mean (H200, docs/results/gpu.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from batchkron.backends.cuda.batch.kernel import BatchShape, can_have_records, records_kernel
from batchkron.backends.cuda.batch.matrix_units import may_use_units, unit_matrix_type
from batchkron.backends.cuda.kernel import Family, Kernel, LaunchShape
from batchkron.backends.cuda.runtime.hardware import WARP, DeviceLimits, carveout
from batchkron.backends.cuda.runtime.program import device_program, template_type

_LEADING_SIZES = (8, 12, 16)  # supported sizes of the first mode
_OTHER_SIZES = (12, 16)  # supported sizes of the second and third mode
# Bytes of a float64 sum; and of an asynchronous copy, by which each row of a matrix is padded.
_SUM_BYTES, _COPY_BYTES = 8, 16


def unit_slices_kernel(shape: BatchShape, device: DeviceLimits) -> Kernel | None:
    """Return the kernel with a thread block for each product, None if it does not fit.

    There is one for the sizes that were measured (``_LEADING_SIZES`` and ``_OTHER_SIZES``) if there
    is an output for each multiprocessor. Lists with identities are left to other kernels: matrix
    units would multiply by an explicit identity, and infinity times 0 is NaN. The variant is
    (warps of a thread block, thread blocks of a multiprocessor).
    """
    steps, dtype = shape.steps, shape.dtype
    if not can_have_records(shape) or shape.identities or dtype.kind != "f" or len(steps) != 3:
        return None
    if shape.all_outputs < device.multiprocessors or not may_use_units(steps, dtype, device):
        return None
    modes = sorted(range(3), key=lambda s: steps[s].mode)
    sizes = [steps[s].C for s in modes]
    if any(step.C != step.K for step in steps) or sizes[0] not in _LEADING_SIZES:
        return None
    if not all(size in _OTHER_SIZES for size in sizes[1:]):
        return None
    # Slices of 2 products and matrices of 3: the copies of one overlap the work on another.
    slices = sizes[0] * (math.prod(sizes[1:]) + 4)
    matrices = sum(n * (n * dtype.itemsize + _COPY_BYTES) for n in sizes)
    shared = 2 * _SUM_BYTES * slices + 3 * matrices
    if shared > device.shared_bytes:
        return None
    warps, blocks = _share(sizes, dtype.itemsize)
    layout = template_type("UnitLayout", *(step.C * step.K for step in steps))
    leading = template_type("UnitMode", modes[0], sizes[0])
    others = (unit_matrix_type(dtype, steps, (mode,)) for mode in modes[1:])
    what = dtype, layout, warps, blocks, shape.short_ids, leading, *others
    program = device_program("batch/unit_slices", "batched_unit_slices", *what)
    sizes_of_block = shape.num_outputs, WARP * warps, blocks, shared
    launch = LaunchShape(*sizes_of_block, carveout=carveout(blocks, shared))
    return records_kernel(UNIT_SLICES, shape, (warps, blocks), program, launch)


def _share(sizes: Sequence[int], itemsize: int) -> tuple[int, int]:
    """Return the fastest (warps of a thread block, blocks of a multiprocessor), by sizes (H200)."""
    elements = math.prod(sizes)
    if elements >= 4096:
        return 8, 1 if itemsize == 8 else 2
    if elements >= 3072:
        return 4, 2
    return (6, 2) if sizes[0] == 12 and itemsize == 8 else (4, 3)


UNIT_SLICES = Family("batch", "unit_slices", unit_slices_kernel)
