"""The choice of the kernel for a product with a Kronecker-sparse matrix."""

from __future__ import annotations

from functools import lru_cache

from batchkron.backends.cuda.kernel_family import enabled
from batchkron.backends.cuda.kron_sparse.families import FAMILIES
from batchkron.backends.cuda.kron_sparse.kernel import SparseFamily, SparseKernel, SparseShape
from batchkron.backends.cuda.runtime.hardware import DeviceLimits


def fastest_kernel(
    shape: SparseShape, device: DeviceLimits, families: tuple[SparseFamily, ...] = FAMILIES
) -> SparseKernel:
    """Return the kernel of the least estimated time.

    Raises
    ------
    LookupError
        If all families that have one are switched off.
    """
    return _fastest(shape, device, enabled(families))


@lru_cache(maxsize=1024)
def _fastest(
    shape: SparseShape, device: DeviceLimits, families: tuple[SparseFamily, ...]
) -> SparseKernel:
    found = [one for one in (family.fastest(shape, device) for family in families) if one]
    if not found:
        raise LookupError("no family of kernels for Kronecker-sparse matrices takes this one")
    return min(found, key=lambda kernel: kernel.seconds)
