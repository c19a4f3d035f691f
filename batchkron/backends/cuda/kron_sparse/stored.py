"""Values of Kronecker-sparse matrices as kernels read them."""

from __future__ import annotations

from typing import Any

from batchkron.arrays import array_module
from batchkron.backends.cuda.kron_sparse.kernel import Stored, stored_row
from batchkron.spec.kron import Array


def stored_shape(shape: tuple[int, ...], itemsize: int, stored: Stored) -> tuple[int, ...]:
    """Return the shape of values (a, b, c, d) as they are stored."""
    a, b, c, d = shape
    return shape if stored == "given" else (a, d, b, stored_row(c, itemsize))


def stored_values(values: Array, stored: Stored, out: Array | None = None) -> Array:
    """Return values (a, b, c, d) as they are stored, in ``out`` if that is given.

    Either may be on the host or on a device, both in the same place. Padding is zero.
    """
    module: Any = array_module(values)
    shape = stored_shape(values.shape, values.dtype.itemsize, stored)
    target: Array = module.empty(shape, values.dtype) if out is None else out
    if stored == "given":
        target[...] = values
    else:
        target[..., : values.shape[2]] = values.transpose(0, 3, 1, 2)
        target[..., values.shape[2] :] = 0
    return target
