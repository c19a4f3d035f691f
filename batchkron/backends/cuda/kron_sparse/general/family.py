"""The family of kernels for any sizes and dtype, ``csrc/cuda/kron_sparse/general.cuh``."""

from __future__ import annotations

import math
from dataclasses import dataclass

from batchkron.backends.cuda.kernel_family import LaunchShape
from batchkron.backends.cuda.kron_sparse.general.cost import general_seconds
from batchkron.backends.cuda.kron_sparse.kernel import (
    SPARSE_SCALARS,
    SparseFamily,
    SparseKernel,
    SparseShape,
)
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.runtime.program import Program, template_type

_RESULTS = (1, 4, 8)  # choices for the sums of a thread
_THREADS = 128  # of a thread block
_BLOCKS = 64  # thread blocks for each multiprocessor; with more, they take several turns


@dataclass(frozen=True, slots=True)
class GeneralVariant:
    """The sums of a thread."""

    results: int


class General(SparseFamily):
    """Kernels for whatever no other family takes."""

    name = "general"
    variant_type = GeneralVariant

    def accepts(self, shape: SparseShape, device: DeviceLimits) -> bool:
        """Whether there is a kernel: always."""
        return True

    def variants(self, shape: SparseShape, device: DeviceLimits) -> list[GeneralVariant]:
        """Return the numbers of sums, up to the first that is not smaller than b."""
        least = next((one for one in _RESULTS if one >= shape.b), _RESULTS[-1])
        return [GeneralVariant(one) for one in _RESULTS if one <= least]

    def estimate(self, shape: SparseShape, variant: GeneralVariant, device: DeviceLimits) -> float:
        """Return the estimated seconds of a launch; infinite if there is no such kernel."""
        if variant.results not in _RESULTS:
            return math.inf
        return general_seconds(shape, variant.results, device)

    def kernel(
        self, shape: SparseShape, variant: GeneralVariant, device: DeviceLimits
    ) -> SparseKernel | None:
        """Return the kernel of a variant, None if there is no such kernel."""
        seconds = self.estimate(shape, variant, device)
        if math.isinf(seconds):
            return None
        return SparseKernel(self, shape, variant, variant, seconds)

    def program(self, kernel: SparseKernel) -> Program:
        """Return the program to compile."""
        scalar = SPARSE_SCALARS[kernel.shape.dtype]
        options = scalar, kernel.tile.results, _THREADS, *kernel.options
        expression = template_type("kron_sparse_general", *options)
        return Program("cuda/kron_sparse/general.cuh", expression)

    def launch(self, kernel: SparseKernel, device: DeviceLimits) -> LaunchShape:
        """Return the launch: a thread for some results, within limits."""
        shape = kernel.shape
        threads = shape.columns * shape.a * shape.d * -(-shape.b // kernel.tile.results)
        blocks = min(-(-threads // _THREADS), _BLOCKS * device.multiprocessors)
        return LaunchShape(blocks, _THREADS, 1, 0)
