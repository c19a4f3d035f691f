"""The kernel that takes batch lists of any shape, each product between two buffers."""

from __future__ import annotations

from dataclasses import dataclass

from batchkron.backends.cuda.batch.kernel import BatchFamily, BatchKernel, BatchShape
from batchkron.backends.cuda.general_kernel import Tiling, batch_program, batch_tiling
from batchkron.backends.cuda.kernel_family import LaunchShape
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.runtime.program import Program


@dataclass(frozen=True, slots=True)
class GeneralVariant:
    """There is only one way: the sizes decide it."""


class General(BatchFamily):
    """Kernels of lists of any shape, dtype and number of vectors.

    The last of the table: others are faster wherever they work. The estimate is constant, for there
    is one variant.
    """

    name = "general"
    variant_type = GeneralVariant
    has_records = False

    def accepts(self, shape: BatchShape, device: DeviceLimits) -> bool:
        """Whether there is a kernel for this list at all: always."""
        return True

    def variants(self, shape: BatchShape, device: DeviceLimits) -> tuple[GeneralVariant, ...]:
        """Return the only variant."""
        return (GeneralVariant(),)

    def estimate(self, shape: BatchShape, variant: GeneralVariant, device: DeviceLimits) -> float:
        """Return 1, in no unit."""
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
        """Return what is compiled."""
        return batch_program(kernel.shape.dtype, kernel.tile, kernel.shape.owner)

    def launch(self, kernel: BatchKernel, device: DeviceLimits) -> LaunchShape:
        """Return how it is launched for one slab of vectors, ``tile.width`` of those inside."""
        tile: Tiling = kernel.tile
        units = kernel.shape.num_outputs if kernel.shape.owner else kernel.shape.products
        blocks = min(-(-units // tile.teams), tile.max_blocks(device))
        workspace = blocks * tile.workspace_bytes
        return LaunchShape(blocks, tile.block, 1, tile.shared_bytes, workspace)
