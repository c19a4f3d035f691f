"""The kernel families for sums over edges, in order of preference.

Where both can compute a sum, children staged in shared memory were faster: without them the six
cells that have them took 1.74 times as long in the mean (H200, docs/results/gpu.md).
"""

from __future__ import annotations

from batchkron.backends.cuda.kernel import Kernel, first_kernel
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.segmented.general import GENERAL
from batchkron.backends.cuda.segmented.kernel import SumsShape
from batchkron.backends.cuda.segmented.staged import STAGED

FAMILIES = (STAGED, GENERAL)


def fastest_kernel(shape: SumsShape, device: DeviceLimits) -> Kernel:
    """Return the kernel of the first family that has one for these sums.

    Raises LookupError if all families that have one are switched off.
    """
    kernel = first_kernel(FAMILIES, shape, device)
    if kernel is None:
        raise LookupError("no family of kernels that sum over edges takes these")
    return kernel
