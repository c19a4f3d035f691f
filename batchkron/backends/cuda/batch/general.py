"""The kernel for batch lists of any shape; results between steps are kept in buffers."""

from __future__ import annotations

from batchkron.backends.cuda.batch.kernel import BatchShape
from batchkron.backends.cuda.general_kernel import batch_arguments, batch_program, batch_tiling
from batchkron.backends.cuda.kernel import Family, Kernel, LaunchShape, record
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.steps import has_fixed_steps


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
