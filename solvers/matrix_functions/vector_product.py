"""Products with vectors, counted, and the columns that they are taken of."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from batchkron.arrays import array_module, as_array

from ..products import Vector, working_dtype
from ..rows import Multiplied, square_operator

__all__ = ["VectorProduct", "columns_of"]


class VectorProduct:
    """A times a vector (N,), in an array of its own; counted."""

    def __init__(self, A: Any, like: Vector) -> None:
        self._multiplied = Multiplied(A, "A", like)

    @property
    def products(self) -> int:
        """Vectors multiplied so far."""
        return self._multiplied.products

    def __call__(self, x: Vector) -> Vector:
        """Return A x."""
        return self._multiplied(x[None])[0]  # type: ignore[no-any-return]


def columns_of(
    A: Any, b: Any, name: str, *numbers: Any
) -> tuple[Vector, VectorProduct, tuple[int, ...]]:
    """Return the columns of b as rows (K, N), the product with A, and the shape of b.

    Complex numbers make the dtype complex. ValueError if shapes do not agree.
    """
    size, module = square_operator(A), array_module(b)
    given = as_array(b, name, module)
    if given.ndim not in (1, 2) or given.shape[0] != size:
        raise ValueError(f"{name} has shape {given.shape}; expected ({size},) or ({size}, K)")
    dtype = working_dtype(A, given)
    if any(isinstance(number, (complex, np.complexfloating)) for number in numbers):
        dtype = np.result_type(dtype, np.complex64)
    rows = module.ascontiguousarray(given.reshape(size, math.prod(given.shape[1:])).T.astype(dtype))
    return rows, VectorProduct(A, rows[:1] if len(rows) else rows.reshape(0, size)), given.shape
