"""The choice of how a product with a Kronecker-sparse matrix is computed."""

from __future__ import annotations

from functools import lru_cache, partial

from batchkron.backends.cuda.kernel_family import enabled, forget_by, is_enabled
from batchkron.backends.cuda.kron_sparse.families import FAMILIES
from batchkron.backends.cuda.kron_sparse.kernel import SparseKernel, SparseShape
from batchkron.backends.cuda.kron_sparse.library import LIBRARY, LibraryProduct, library_product
from batchkron.backends.cuda.kron_sparse.transposed import (
    TRANSPOSED,
    TransposedProduct,
    transposed_product,
)
from batchkron.backends.cuda.runtime.hardware import DeviceLimits

DirectWay = SparseKernel | LibraryProduct
"""What computes a product of the vectors as they are, and may scale and accumulate."""
Way = DirectWay | TransposedProduct


@lru_cache(maxsize=1024)
def fastest_way(shape: SparseShape, device: DeviceLimits, *, plain: bool = True) -> Way:
    """Return what takes the least estimated time for y = A x.

    Parameters
    ----------
    shape : SparseShape
    device : DeviceLimits
    plain : bool
        Whether it need neither scale nor accumulate.

    Raises
    ------
    LookupError
        If all families that have a kernel are switched off.
    """
    ways: list[Way | None] = [_fastest(shape, device)]
    if plain and is_enabled(TRANSPOSED):
        ways.append(transposed_product(shape, partial(_fastest, device=device), device))
    found = [way for way in ways if way]
    if not found:
        raise LookupError("no family of kernels for Kronecker-sparse matrices takes this one")
    return min(found, key=lambda way: way.seconds)


@lru_cache(maxsize=1024)
def _fastest(shape: SparseShape, device: DeviceLimits) -> DirectWay | None:
    ways: list[DirectWay | None] = [one.fastest(shape, device) for one in enabled(FAMILIES)]
    if is_enabled(LIBRARY):
        ways.append(library_product(shape, device))
    return min((way for way in ways if way), key=lambda way: way.seconds, default=None)


forget_by(fastest_way.cache_clear)
forget_by(_fastest.cache_clear)
