"""The families of kernels that write a ⊗ b, and the choice among them."""

from __future__ import annotations

from batchkron.backends.cuda.explicit.bands import BANDS
from batchkron.backends.cuda.explicit.kernel import ProductShape
from batchkron.backends.cuda.explicit.tiles import TILES, tiles_are_faster
from batchkron.backends.cuda.kernel import Kernel, first_kernel
from batchkron.backends.cuda.runtime.hardware import DeviceLimits

FAMILIES = (BANDS, TILES)


def fastest_kernel(shape: ProductShape, device: DeviceLimits) -> Kernel:
    """Return the kernel of the faster family.

    Raises LookupError if all families that have one are switched off.
    """
    kernel = first_kernel(FAMILIES[:: -1 if tiles_are_faster(shape) else 1], shape, device)
    if kernel is None:
        raise LookupError("no family of kernels that write products out takes these matrices")
    return kernel
