"""The choice of kernels for a product with a Kronecker-sparse matrix."""

from __future__ import annotations

from functools import lru_cache, partial

from batchkron.backends.cuda.kernel_family import enabled
from batchkron.backends.cuda.kron_sparse.families import FAMILIES
from batchkron.backends.cuda.kron_sparse.kernel import SparseFamily, SparseKernel, SparseShape
from batchkron.backends.cuda.kron_sparse.transposed import (
    TRANSPOSED,
    TransposedProduct,
    transposed_product,
)
from batchkron.backends.cuda.runtime.hardware import DeviceLimits


def fastest_way(shape: SparseShape, device: DeviceLimits) -> SparseKernel | TransposedProduct:
    """Return what takes the least estimated time for y = A x.

    Raises
    ------
    LookupError
        If all families that have a kernel are switched off.
    """
    return _fastest_way(shape, device, enabled(FAMILIES), bool(enabled((TRANSPOSED,))))


@lru_cache(maxsize=1024)
def _fastest_way(
    shape: SparseShape,
    device: DeviceLimits,
    families: tuple[SparseFamily, ...],
    transposed: bool,
) -> SparseKernel | TransposedProduct:
    kernel = _fastest(shape, device, families)
    if transposed:
        kernel_for = partial(_fastest, device=device, families=families)
        way = transposed_product(shape, kernel_for, device)
        if way is not None and way.seconds < kernel.seconds:
            return way
    return kernel


def fastest_kernel(
    shape: SparseShape, device: DeviceLimits, families: tuple[SparseFamily, ...] = FAMILIES
) -> SparseKernel:
    """Return the kernel of the least estimated time, which may also scale and accumulate.

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
