"""The choice of the kernel that writes a ⊗ b."""

from __future__ import annotations

from batchkron.backends.cuda.explicit.families import FAMILIES
from batchkron.backends.cuda.explicit.kernel import ProductKernel, ProductShape
from batchkron.backends.cuda.kernel_family import enabled
from batchkron.backends.cuda.runtime.hardware import DeviceLimits


def fastest_kernel(shape: ProductShape, device: DeviceLimits) -> ProductKernel:
    """Return the kernel with the smallest estimate.

    Raises
    ------
    LookupError
        If all families that have one are switched off.
    """
    found = (family.fastest(shape, device) for family in enabled(FAMILIES))
    best = min(filter(None, found), key=lambda way: way[0], default=None)
    if best is None:
        raise LookupError("no family of kernels that write products out takes these matrices")
    return best[1]
