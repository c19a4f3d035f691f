"""The choice of the kernel that sums over edges."""

from __future__ import annotations

from batchkron.backends.cuda.kernel_family import enabled
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.segmented.families import FAMILIES
from batchkron.backends.cuda.segmented.kernel import SumsKernel, SumsShape


def fastest_kernel(shape: SumsShape, device: DeviceLimits) -> SumsKernel:
    """Return the kernel of the first family that has one for these sums.

    Raises
    ------
    LookupError
        If all families that have one are switched off.
    """
    for family in enabled(FAMILIES):
        kernel = family.fastest(shape, device)
        if kernel is not None:
            return kernel
    raise LookupError("no family of kernels that sum over edges takes these")
