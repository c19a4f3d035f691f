"""The kernel for batch lists of any shape; results between steps are kept in buffers.

Its contract is in ``csrc/cuda/batch/general.cuh``.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from batchkron.backends.cuda.batch.kernel import BatchShape
from batchkron.backends.cuda.general_kernel import SHARED_TARGET, Tiling
from batchkron.backends.cuda.kernel import Family, Kernel, LaunchShape, record
from batchkron.backends.cuda.runtime.arguments import struct
from batchkron.backends.cuda.runtime.hardware import DeviceLimits, power_of_two, round_up
from batchkron.backends.cuda.runtime.program import SCALARS, Program, device_program
from batchkron.backends.cuda.steps import Step, has_fixed_steps, steps_argument, steps_type


def batch_tiling(
    steps: tuple[Step, ...], inner: int, buffers: int, itemsize: int, limits: DeviceLimits
) -> Tiling:
    """Return the tiling of one product of a batch list, for ``inner`` vectors at once.

    Tiny blocks are evaluated by part of a warp, others by a thread block. Blocks that do not fit in
    shared memory are kept in the workspace.
    """
    width = min(32, power_of_two(inner + 1) // 2) if inner > 1 else 1

    def tiling(threads: int, staged: bool, in_shared: bool) -> Tiling:
        return Tiling(steps, width, 0, threads, staged, in_shared, buffers, itemsize)

    items = max(step.items(width) for step in steps)
    first = max(width, power_of_two(min(items, 33)))
    small = [size for size in (1, 2, 4, 8, 16, 32) if size >= first]
    whole = min(256, max(64, round_up(items, 32)))
    for threads in [*small, whole]:
        choice = tiling(threads, True, True)
        if choice.shared_bytes <= min(SHARED_TARGET, limits.shared_bytes):
            return choice
    for staged, in_shared in ((True, True), (False, True), (True, False)):
        choice = tiling(whole, staged, in_shared)
        if choice.shared_bytes <= limits.shared_bytes:
            return choice
    return tiling(whole, False, False)


def batch_program(dtype: np.dtype[np.generic], tiling: Tiling, owner: bool) -> Program:
    """Return the general kernel of a batch list."""
    steps = steps_type(SCALARS[dtype], tiling.steps)
    cut = tiling.width, tiling.threads, owner, tiling.staged, tiling.in_shared
    return device_program("batch/general", "batched_kron", dtype, steps, *cut)


@cache
def batch_arguments(dtype: np.dtype[Any], modes: int, fixed: bool) -> np.dtype[Any]:
    """Return the layout of the C++ struct BatchArguments for products of ``modes`` factors."""
    pointers = "*x *y *workspace *ids *inputs *outputs *starts *weights"
    steps = "steps", steps_argument(modes, fixed)
    sizes = "products outer inner num_inputs num_outputs input_size output_size systems"
    others = "weight_system staged buffer group accumulate"
    return struct(pointers, steps, sizes, others, ("alpha", dtype))


def general_kernel(shape: BatchShape, device: DeviceLimits) -> Kernel:
    """Return the kernel for ``inner`` vectors at once, its launch for one group of them."""
    itemsize, steps = shape.dtype.itemsize, shape.steps
    tiling = batch_tiling(steps, shape.inner, 3 if shape.owner else 2, itemsize, device)
    units = shape.num_outputs if shape.owner else shape.products
    blocks = min(-(-units // tiling.groups), tiling.max_blocks(device))
    workspace = blocks * tiling.workspace_bytes
    launch = LaunchShape(blocks, tiling.block, 1, tiling.shared_bytes, workspace)
    arguments = record(
        batch_arguments(shape.dtype, len(steps), has_fixed_steps(steps)),
        inner=shape.inner,
        products=shape.products,
        **shape.counts,
        input_size=shape.input_size,
        output_size=shape.output_size,
        staged=tiling.staged_elements,
        buffer=tiling.buffer_elements,
        group=tiling.group_elements,
    )
    program = batch_program(shape.dtype, tiling, shape.owner)
    return Kernel(GENERAL, shape, tiling, program, launch, arguments)


GENERAL = Family("batch", "general", general_kernel)
