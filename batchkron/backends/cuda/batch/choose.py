"""The choice of a batch list's kernel."""

from __future__ import annotations

from batchkron.backends.cuda.batch.families import FAMILIES
from batchkron.backends.cuda.batch.kernel import BatchKernel, BatchShape
from batchkron.backends.cuda.kernel_family import enabled
from batchkron.backends.cuda.runtime.hardware import DeviceLimits


def fastest_kernel(shape: BatchShape, device: DeviceLimits) -> BatchKernel | None:
    """Return the kernel of the first family that has one for this list, None if none has."""
    found = (family.fastest(shape, device) for family in enabled(FAMILIES))
    return next(filter(None, found), None)
