"""Solves, determinants and exponentials of diagonal operators, entry by entry."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from batchkron.arrays import as_array, to_host
from batchkron.operators.factor_by_factor import right_hand_side
from batchkron.spec.kron import Array, compute_dtype

__all__ = ["DiagonalEntries"]


class DiagonalEntries:
    """The operator (A x)_i = d_i x_i, with the methods of `DiagonalisedTerms`.

    ``entries`` (ndarray, (N,) or (*batch_shape, N)): the diagonal d.
    ``module``: that of the entries and vectors, numpy or cupy.

    Examples
    --------
    >>> import numpy as np, batchkron as bk
    >>> (2.0 * bk.Diagonal([1.0, 4.0])).factorise().solve([2.0, 4.0])
    array([1. , 0.5])
    """

    unitary = True

    def __init__(self, entries: Array, module: Any) -> None:
        self._entries, self._module = entries, module

    def solve(self, b: ArrayLike) -> Array:
        """Solve A x = b for b (N,) or (N, K), or (..., *batch_shape, N).

        Raises `ValueError` if b does not fit. `numpy.linalg.LinAlgError` if an entry is 0.
        """
        rhs, entries = self._fitting(b)
        zero = self._entries == 0
        if zero.any():
            index = ", ".join(str(i) for i in np.argwhere(to_host(zero, "entries"))[0])
            raise np.linalg.LinAlgError(
                f"the operator is singular: the entry [{index}] of its diagonal is 0"
            )
        return rhs / entries

    def exponential(self, x: ArrayLike, t: complex) -> Array:
        """Compute exp(t A) x."""
        vectors, entries = self._fitting(x)
        return vectors * self._module.exp(t * entries)  # type: ignore[no-any-return]

    def slogdet(self) -> tuple[Any, Any]:
        """Return the sign, or phase, of det A and log |det A|; arrays for many systems."""
        entries = to_host(self._entries, "entries")
        entries = entries.astype(np.result_type(entries, np.float64))
        sizes = np.abs(entries)
        with np.errstate(divide="ignore"):
            logarithm = np.log(sizes).sum(axis=-1)
        sign = np.prod(entries / np.where(sizes == 0, 1.0, sizes), axis=-1)
        return sign, logarithm

    def _fitting(self, x: ArrayLike) -> tuple[Array, Array]:
        """Return vectors, and the entries in a shape that multiplies them."""
        entries = self._entries
        if entries.ndim == 1:
            vectors = right_hand_side(x, len(entries), self._module)
            return vectors, entries[:, None] if vectors.ndim == 2 else entries
        vectors = as_array(x, "b", self._module)
        if vectors.shape[max(0, vectors.ndim - entries.ndim) :] != entries.shape:
            raise ValueError(
                f"b has shape {vectors.shape}; expected (..., {str(entries.shape)[1:]}"
            )
        return vectors.astype(compute_dtype(vectors), copy=False), entries
