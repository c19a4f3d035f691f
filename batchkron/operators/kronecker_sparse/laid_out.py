"""Operators whose `apply` takes vectors along the last axis, or along the first one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, cast, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from batchkron.array_kinds import any_foreign
from batchkron.arrays import as_array
from batchkron.operators.algebra import Operator
from batchkron.operators.linear_operator import Scalar, Vectors
from batchkron.spec.kron import Array
from batchkron.spec.kron_sparse import Layout, is_half, split_vectors

__all__ = ["LaidOutOperator"]


class LaidOutOperator(Operator):
    """An operator with a ``layout``, which its transposes, conversions and copies keep.

    The layout is that of the arrays of `apply` and `accumulate`. All other products are as of any
    operator: ``A @ X`` takes X (N, K). Where ``A @ B`` is a `KroneckerSparseChain` and ``A + B``
    a `KroneckerSparse`, they have the layout of A and B. ``2 * A`` and other sums and products have
    none: their `apply` takes (..., N).
    """

    # The class of products of two such operators: it is defined above them.
    _class_of_products: ClassVar[Callable[..., Operator]]

    _array_layout: Layout  # ``layout``, which has another meaning where vectors are on ranks
    # The fast path of a backend's plan for "batch-last", as `_apply_fast` is for the other layout.
    _apply_last_fast: Callable[[object, object], bool] | None = None

    def __init_subclass__(cls, *, is_chain: bool = False, **options: Any) -> None:
        super().__init_subclass__(**options)
        if is_chain:
            LaidOutOperator._class_of_products = cls

    def _chain_factors(self) -> Sequence[Operator]:
        """Return the factors of the chain that the operator is; none if it cannot be in one."""
        return ()

    @overload
    def dot(self, x: Operator | Scalar) -> Operator: ...
    @overload
    def dot(self, x: Vectors) -> Array: ...
    @overload
    def dot(self, x: object) -> Any: ...
    def dot(self, x: object) -> Any:
        """Compute A x for a vector or matrix, or form the operator A x for an operator or number.

        If both are Kronecker-sparse matrices, or chains of them, of one layout and on one device,
        and their sizes fit, it is a `KroneckerSparseChain`.

        Parameters
        ----------
        x : array_like, (N,) or (N, K); or an operator, or a number

        Returns
        -------
        ndarray or Operator
        """
        if isinstance(x, LaidOutOperator) and self._chains_with(x):
            factors = [*self._chain_factors(), *x._chain_factors()]
            return LaidOutOperator._class_of_products(factors, layout=self._array_layout)
        return super().dot(x)

    def _chains_with(self, other: LaidOutOperator) -> bool:
        """Whether the product with another one is a chain."""
        if not self._chain_factors() or not other._chain_factors():
            return False
        alike = (self._array_layout, self._place, self.shape[1])
        return alike == (other._array_layout, other._place, other.shape[0])

    def _vectors(self, x: ArrayLike) -> tuple[Array, int, int, tuple[int, ...]]:
        """Return x as an array, its (outer, inner), and the shape of A x."""
        vectors = as_array(x, "x", self._arrays)
        return (vectors, *split_vectors(vectors.shape, self.shape, self._array_layout))

    def _shape_of_vectors(self) -> str:
        columns = self.shape[1]
        return f"(..., {columns})" if self._array_layout == "batch-first" else f"({columns}, ...)"

    def astype(self, dtype: DTypeLike) -> Operator:
        """Return the operator with its entries converted.

        Parameters
        ----------
        dtype : float32, float64, complex64 or complex128; on a device also float16 or bfloat16

        Returns
        -------
        Operator
            ``self`` if it has this dtype already.

        Raises
        ------
        TypeError
            For any other dtype, or complex to real.
        """
        wanted = np.dtype(dtype)
        if is_half(wanted) and self._backend.has_half and self.dtype.kind != "c":
            return self if wanted == self.dtype else self._relative(wanted.name, wanted)
        return super().astype(dtype)

    def apply(self, x: ArrayLike, out: Array | None = None) -> Array:
        """Compute y[..., :] = A x[..., :], or y[:, ...] = A x[:, ...] with "batch-last".

        Parameters
        ----------
        x : array_like, (..., N), or (N, ...) with "batch-last"
        out : ndarray, (..., M), or (M, ...) with "batch-last", optional
            Where the result is written; with it, nothing is allocated.

        Returns
        -------
        ndarray, (..., M), or (M, ...) with "batch-last"

        Raises
        ------
        ValueError, TypeError
            As for `Operator.matvec`.
        """
        if out is not None:
            first = self._array_layout == "batch-first"
            plain = self._apply_fast if first else self._apply_last_fast
            if plain is not None and plain(x, out):
                return out
        if type(x) is not self._arrays.ndarray and any_foreign(x, out):
            return cast(Array, self._in_kind(self.apply, x, out))
        vectors, outer, inner, shape = self._vectors(x)
        return self._dispatch(vectors, out, shape, outer, inner)

    def apply_flat(self, x: Array, out: Array) -> Array:
        """Compute out[..., :] = A x[..., :], whatever the layout; see `Operator.apply_flat`."""
        return super().apply(x, out)
