"""The choice of the kernel for Kronecker sums of many systems."""

from __future__ import annotations

from batchkron.backends.cuda.kernel_family import enabled
from batchkron.backends.cuda.kron_sum.families import FAMILIES
from batchkron.backends.cuda.kron_sum.systems import SumKernel, SumShape
from batchkron.backends.cuda.runtime.hardware import DeviceLimits


def fastest_kernel(shape: SumShape, device: DeviceLimits) -> SumKernel | None:
    """Return the kernel of the first family that has one, None if a batch list is used instead."""
    found = (family.fastest(shape, device) for family in enabled(FAMILIES))
    return next(filter(None, found), None)
