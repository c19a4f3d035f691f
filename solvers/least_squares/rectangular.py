"""Products of an operator (M, N) and of its adjoint with rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from batchkron.arrays import array_module, as_array, is_sparse
from batchkron.attributes import attribute
from batchkron.operators import Operator

from ..krylov.systems.foreign_arrays import refuse_foreign
from ..products import Vector, ranks_of, refuse_complex

__all__ = ["Rectangular"]

_Product = Callable[[Vector], Any]


class Rectangular:
    """A (M, N) and A* times rows, (k, N) and (k, M), counted one by one.

    ``like`` is an array of the dtype and kind of the rows. ValueError if A is not one matrix,
    TypeError if it has no products with vectors, no adjoint ones, or is distributed.
    """

    def __init__(self, A: Any, like: Vector) -> None:
        refuse_foreign(A, "A", b=like)
        known: Any = attribute(A, "shape")
        shape = tuple(known or ())
        if len(shape) != 2 or attribute(A, "batch_shape"):
            raise ValueError(f"A has shape {shape}; expected one operator (M, N)")
        if ranks_of(A) is not None:
            raise TypeError("A is distributed; least squares have no sums over ranks")
        refuse_complex("A", attribute(A, "dtype"), like.dtype)
        self.shape, self.products = shape, 0
        self._dtype = like.dtype
        self._forward, self._adjoint = _products_of(A, like)

    def forward(self, rows: Vector) -> Vector:
        """Return A times each row."""
        return self._taken(self._forward, rows, self.shape[0])

    def adjoint(self, rows: Vector) -> Vector:
        """Return A* times each row."""
        return self._taken(self._adjoint, rows, self.shape[1])

    def _taken(self, product: _Product, rows: Vector, size: int) -> Vector:
        """Return products as an array of its own, which may be overwritten."""
        self.products += len(rows)
        module = array_module(rows)
        out: Vector = module.empty((len(rows), size), self._dtype)
        if len(rows):
            found = module.asarray(product(rows))
            refuse_complex("a product of A", found.dtype, self._dtype)
            out[...] = found.reshape(out.shape)
        return out


def _products_of(A: Any, like: Vector) -> tuple[_Product, _Product]:
    """Return functions that multiply rows by A and by A*."""
    if isinstance(A, Operator):
        return A.apply, A.H.apply
    if is_sparse(A):
        adjoint = A.conj().T
        return lambda rows: (A @ rows.T).T, lambda rows: (adjoint @ rows.T).T
    if isinstance(A, array_module(A).ndarray):
        matrix = as_array(A, "A", array_module(like)).astype(like.dtype, copy=False)
        turned = matrix.conj() if matrix.dtype.kind == "c" else matrix
        return lambda rows: rows @ matrix.T, lambda rows: rows @ turned
    for name in ("matvec", "rmatvec"):
        if not callable(attribute(A, name)):
            raise TypeError(
                f"A is a {type(A).__name__} without {name}; expected an array, a sparse array, an "
                "operator, or an object with matvec and rmatvec."
            )
    module = array_module(like)

    def each(product: _Product) -> _Product:
        return lambda rows: module.stack([np.reshape(product(row), -1) for row in rows])

    return each(A.matvec), each(A.rmatvec)
