"""The choice of how a product with a Kronecker-sparse matrix is computed."""

from __future__ import annotations

from functools import lru_cache, partial

from batchkron.backends.cuda.kernel import chosen_kernel, fastest_choice
from batchkron.backends.cuda.kernel_family import enabled, forgotten, is_enabled
from batchkron.backends.cuda.kron_sparse.families import FAMILIES
from batchkron.backends.cuda.kron_sparse.kernel import SparseShape
from batchkron.backends.cuda.kron_sparse.library import LIBRARY, library_product
from batchkron.backends.cuda.kron_sparse.transposed import (
    TRANSPOSED,
    DirectWay,
    Way,
    seconds_of,
    transposed_product,
)
from batchkron.backends.cuda.runtime.hardware import DeviceLimits


@forgotten
@lru_cache(maxsize=1024)
def fastest_way(shape: SparseShape, device: DeviceLimits, *, plain: bool = True) -> Way:
    """Return what takes least for y = A x, without scalars if ``plain``; LookupError if nothing."""
    ways: list[Way | None] = [_fastest(shape, device)]
    if plain and is_enabled(TRANSPOSED):
        ways.append(
            transposed_product(shape, partial(_fastest, device=device, zeros=False), device)
        )
    possible = [way for way in ways if way]
    if not possible:
        raise LookupError("no family of kernels for Kronecker-sparse matrices takes this one")
    return min(possible, key=seconds_of)


@forgotten
@lru_cache(maxsize=1024)
def _fastest(shape: SparseShape, device: DeviceLimits, zeros: bool = True) -> DirectWay | None:
    """``zeros``: whether values may be stored with the zeros of the matrix."""
    choice = fastest_choice(enabled(FAMILIES), shape, device)
    library = library_product(shape, device, zeros) if is_enabled(LIBRARY) else None
    if choice is None or (library is not None and library.seconds < choice[0]):
        return library
    return chosen_kernel(choice, shape, device)
