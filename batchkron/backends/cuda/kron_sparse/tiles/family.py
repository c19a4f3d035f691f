"""The family of kernels by panels."""

from __future__ import annotations

import math

from batchkron.backends.cuda.kernel_family import LaunchShape
from batchkron.backends.cuda.kron_sparse.kernel import (
    SparseFamily,
    SparseKernel,
    SparseShape,
)
from batchkron.backends.cuda.kron_sparse.tiles.cost import tile_seconds
from batchkron.backends.cuda.kron_sparse.tiles.tile import (
    SparseCut,
    TileVariant,
    layout_of,
    sparse_cut,
    sparse_program,
    tile_variants,
)
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.runtime.program import Program


class Tiles(SparseFamily):
    """Kernels that multiply by panels, on matrix units in all real dtypes but float32."""

    name = "tiles"
    stored = "blocks"
    variant_type = TileVariant

    def accepts(self, shape: SparseShape, device: DeviceLimits) -> bool:
        """Whether the dtype is real, and there are columns enough."""
        real = shape.dtype in ("float16", "bfloat16", "float32", "float64")
        return real and layout_of(shape) is not None

    def variants(self, shape: SparseShape, device: DeviceLimits) -> list[TileVariant]:
        """Return the tiles that fit in shared memory and are not far too large."""
        return tile_variants(shape, device)

    def estimate(self, shape: SparseShape, variant: TileVariant, device: DeviceLimits) -> float:
        """Return the estimated seconds of a launch; infinite if the variant does not fit."""
        cut = sparse_cut(shape, variant, device) if self.accepts(shape, device) else None
        return math.inf if cut is None else tile_seconds(shape, cut, device)

    def kernel(
        self, shape: SparseShape, variant: TileVariant, device: DeviceLimits
    ) -> SparseKernel | None:
        """Return the kernel of a variant, None if it does not fit."""
        cut = sparse_cut(shape, variant, device) if self.accepts(shape, device) else None
        if cut is None:
            return None
        return SparseKernel(self, shape, variant, cut, tile_seconds(shape, cut, device))

    def program(self, kernel: SparseKernel) -> Program:
        """Return the program to compile."""
        return sparse_program(kernel.tile, *kernel.options)

    def tiles(self, kernel: SparseKernel, device: DeviceLimits) -> tuple[int, int]:
        """Return the number of tiles, and how many of columns go through the values together."""
        cut: SparseCut = kernel.tile
        columns, down, matrices = cut.tile_counts(kernel.shape)
        together = cut.together(kernel.shape, cut.blocks * device.multiprocessors)
        return -(-columns // together) * together * down * matrices, together

    def launch(self, kernel: SparseKernel, device: DeviceLimits) -> LaunchShape:
        """Return the launch: as many thread blocks as there is place for, if not less work."""
        cut: SparseCut = kernel.tile
        tiles, together = self.tiles(kernel, device)
        work = tiles // together if cut.kept else tiles
        blocks = min(work, cut.blocks * device.multiprocessors)
        return LaunchShape(blocks, cut.threads, cut.blocks, cut.shared_bytes)
