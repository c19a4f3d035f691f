"""Linear systems A x = b, checked once, with their products counted."""

from __future__ import annotations

from typing import Any

import numpy as np

from batchkron.arrays import array_module, is_plain
from batchkron.attributes import attribute

from ...products import Vector, allocating_product, as_product, is_alike
from .foreign_arrays import refuse_foreign
from .layouts import as_systems


class LinearSystem:
    """A x = b for one or many b, with its products counted: what every Krylov method shares.

    A and M are what `as_product` takes, (N, N), or None for no M; b is C-contiguous, (..., N), and
    never written; the caller sees vectors in the layout ``batched``. ValueError if a shape is
    wrong, TypeError if a kind of object or a dtype is.
    """

    def __init__(self, A: Any, b: Vector, M: Any, batched: str | None) -> None:
        refuse_foreign(A, "A", b=b)
        refuse_foreign(M, "M", b=b)
        self.b, self.batched = b, batched
        self.operators = A, M
        self.recordable = all(
            op is None or attribute(op, "capturable", False) is True for op in (A, M)
        )
        self._product = as_product(A, "A", b)
        self._allocating = allocating_product(A, b)
        self._precondition = None if M is None else as_product(M, "M", b)
        self.preconditioned = M is not None
        self.applications = 0
        self.preconditioner_applications = 0

    def apply(self, x: Vector, out: Vector) -> None:
        """Write A x into ``out``."""
        self.applications += 1
        self._product(x, out)

    def product(self, x: Vector, out: Vector) -> Vector:
        """Return A x: in ``out``, or where an operator left it that makes arrays of its own.

        Such an array may be x itself, and is the operator's: it may only be read.
        """
        if self._allocating is None:
            self.apply(x, out)
            return out
        self.applications += 1
        product = self._allocating(x)
        if is_alike(product, out) and is_plain(product) and product.device == out.device:
            return product
        np.copyto(out, np.reshape(product, out.shape), casting="same_kind")
        return out

    def precondition(self, x: Vector, out: Vector) -> None:
        """Write M x into ``out``; without M it must be x itself, and nothing is done."""
        if self._precondition is not None:
            self.preconditioner_applications += 1
            self._precondition(x, out)

    def initial_guess(self, x0: Any, x: Vector) -> bool:
        """Write the initial guess into ``x``, (..., N); return whether it may be anything but zero.

        ``x0`` is an array of b's layout, "Mb" for M b, or None for zero. ValueError if it has
        another shape or is another string, TypeError if it is complex and the system is not, or
        elsewhere than b.
        """
        if x0 is None:
            x.fill(0.0)
            return False
        if isinstance(x0, str):
            if x0 != "Mb":
                raise ValueError(f"x0 is {x0!r}; expected an array, None or 'Mb'.")
            if self.preconditioned:
                self.precondition(self.b, x)
            else:
                np.copyto(x, self.b)
            return True
        refuse_foreign(x0, "x0", b=self.b)
        guess = as_systems(x0, "x0", self.batched, x.dtype, array_module(x))
        if guess.shape != x.shape:
            wanted = x.shape[::-1] if self.batched == "columns" else x.shape
            raise ValueError(f"x0 has shape {np.shape(x0)}; expected {wanted}, the shape of b.")
        np.copyto(x, guess)
        return True

    def seen(self, x: Vector) -> Vector:
        """Return vectors (..., N) as the caller sees them: a view."""
        return x.T if self.batched == "columns" else x
