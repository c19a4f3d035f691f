"""The kernel for batch lists of any shape; results between steps are kept in buffers."""

from __future__ import annotations

from dataclasses import dataclass

from batchkron.backends.cuda.batch.kernel import BatchFamily, BatchKernel, BatchShape
from batchkron.backends.cuda.general_kernel import Tiling, batch_program, batch_tiling
from batchkron.backends.cuda.kernel_family import LaunchShape
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.runtime.program import Program


@dataclass(frozen=True, slots=True)
class GeneralVariant:
    """The only variant: the sizes decide everything."""


class General(BatchFamily):
    """Kernels of lists of any shape, dtype and number of vectors.

    The last family of the table: the others are faster where they can be used. The estimate is
    constant, because there is only one variant.
    """

    name = "general"
    variant_type = GeneralVariant
    takes_single_vectors = False
    has_records = False

    def accepts(self, shape: BatchShape, device: DeviceLimits) -> bool:
        """Whether there is a kernel for this list: always."""
        return True

    def variants(self, shape: BatchShape, device: DeviceLimits) -> tuple[GeneralVariant, ...]:
        """Return the only variant."""
        return (GeneralVariant(),)

    def estimate(self, shape: BatchShape, variant: GeneralVariant, device: DeviceLimits) -> float:
        """Return 1, without a unit."""
        return 1.0

    def kernel(
        self, shape: BatchShape, variant: GeneralVariant, device: DeviceLimits
    ) -> BatchKernel:
        """Return the kernel."""
        buffers = 3 if shape.owner else 2
        itemsize = shape.dtype.itemsize
        tiling = batch_tiling(shape.steps, shape.inner, buffers, itemsize, device)
        return BatchKernel(self, shape, variant, tiling)

    def program(self, kernel: BatchKernel) -> Program:
        """Return the program to compile."""
        return batch_program(kernel.shape.dtype, kernel.tile, kernel.shape.owner)

    def launch(self, kernel: BatchKernel, device: DeviceLimits) -> LaunchShape:
        """Return the launch for one group of vectors: ``tile.width`` of the inner axis."""
        tile: Tiling = kernel.tile
        units = kernel.shape.num_outputs if kernel.shape.owner else kernel.shape.products
        blocks = min(-(-units // tile.teams), tile.max_blocks(device))
        workspace = blocks * tile.workspace_bytes
        return LaunchShape(blocks, tile.block, 1, tile.shared_bytes, workspace)
