"""The family of kernels for small matrices, whose values are in registers."""

from __future__ import annotations

import math

from batchkron.backends.cuda.kernel_family import LaunchShape
from batchkron.backends.cuda.kron_sparse.kernel import SparseFamily, SparseKernel, SparseShape
from batchkron.backends.cuda.kron_sparse.registers.cost import register_seconds
from batchkron.backends.cuda.kron_sparse.registers.tile import (
    THREADS,
    RegisterVariant,
    register_program,
    register_tile,
    register_variants,
)
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.runtime.program import Program

_BLOCKS = 32  # thread blocks for each multiprocessor; with more, they take several turns


class Registers(SparseFamily):
    """Kernels for small b and c, such as factors of butterflies, of any dtype."""

    name = "registers"
    variant_type = RegisterVariant

    def accepts(self, shape: SparseShape, device: DeviceLimits) -> bool:
        """Whether some variant fits in registers."""
        return bool(register_variants(shape))

    def variants(self, shape: SparseShape, device: DeviceLimits) -> list[RegisterVariant]:
        """Return the variants that fit in registers."""
        return register_variants(shape)

    def estimate(self, shape: SparseShape, variant: RegisterVariant, device: DeviceLimits) -> float:
        """Return the estimated seconds of a launch; infinite if the variant does not fit."""
        tile = register_tile(shape, variant)
        return math.inf if tile is None else register_seconds(shape, tile, device)

    def kernel(
        self, shape: SparseShape, variant: RegisterVariant, device: DeviceLimits
    ) -> SparseKernel | None:
        """Return the kernel of a variant, None if it does not fit."""
        tile = register_tile(shape, variant)
        if tile is None:
            return None
        return SparseKernel(self, shape, variant, tile, register_seconds(shape, tile, device))

    def program(self, kernel: SparseKernel) -> Program:
        """Return the program to compile."""
        return register_program(kernel.tile, *kernel.options)

    def launch(self, kernel: SparseKernel, device: DeviceLimits) -> LaunchShape:
        """Return the launch: a thread for some places and vectors, within limits."""
        shape, tile = kernel.shape, kernel.tile
        places = shape.a * shape.d * shape.inner // tile.width
        threads = places * -(-shape.outer // tile.turns)
        blocks = min(-(-threads // THREADS), _BLOCKS * device.multiprocessors)
        return LaunchShape(blocks, THREADS, 1, 0)
