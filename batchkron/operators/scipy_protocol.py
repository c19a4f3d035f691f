"""SciPy's protocol of linear operators, and to_dense, diagonal and trace as matrices have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse

from batchkron.array_kinds import any_foreign
from batchkron.arrays import as_array
from batchkron.operators.conversions import ConvertibleOperator
from batchkron.spec.kron import Array

__all__ = ["SciPyOperator"]

Related = TypeVar("Related", bound="SciPyOperator[Any]")

# Columns of the identity to which the operator is applied at a time, to find its diagonal; chosen
# by hand.
_PANEL = 64


class SciPyOperator(ConvertibleOperator[Related]):
    """An operator with every product of `scipy.sparse.linalg.LinearOperator`.

    All of them are overridden, so that SciPy's conversions and checks cost no time.
    """

    def matvec(self, x: ArrayLike, out: Array | None = None) -> Array:
        """Compute A x.

        Parameters
        ----------
        x : array_like, (N,) or (N, 1)
        out : ndarray, (M,) or (M, 1), optional
            Where the result is written; with it, nothing is allocated.

        Returns
        -------
        ndarray, (M,) or (M, 1)

        Raises
        ------
        ValueError
            If shapes do not fit, or ``out`` overlaps x or itself, or is read-only.
        TypeError
            If x is on another device, an array is masked, or ``out`` does not have the dtype of
            the result.
        """
        plain = self._apply_fast
        if out is not None and plain is not None and getattr(x, "ndim", 0) == 1 and plain(x, out):
            return out
        if type(x) is self._arrays.ndarray:
            vector: Array = x  # type: ignore[assignment]
            if out is None and vector.ndim == 1 and (fresh := self._fresh(vector)) is not None:
                return fresh
        elif any_foreign(x, out):
            return cast(Array, self._in_kind(self.matvec, x, out))
        else:
            vector = as_array(x, "x", self._arrays)
        self._refuse_batch("matvec")
        rows, columns = self.shape
        if vector.shape == (columns,):
            return self._dispatch(vector, out, (rows,), 1, 1)
        if vector.shape == (columns, 1):
            return self._dispatch(vector, out, (rows, 1), 1, 1)
        raise ValueError(
            f"x has shape {vector.shape}; expected ({columns},) or ({columns}, 1), because the "
            f"operator has shape {self.shape}"
        )

    def matmat(self, X: ArrayLike, out: Array | None = None) -> Array:
        """Compute A X for the columns of X.

        Parameters
        ----------
        X : array_like, (N, K)
        out : ndarray, (M, K), optional
            Where the result is written.

        Returns
        -------
        ndarray, (M, K)

        Raises
        ------
        ValueError, TypeError
            As for `matvec`.
        """
        if issparse(X):
            raise TypeError(
                "Unable to multiply a LinearOperator with a sparse matrix. Use X.toarray()."
            )
        if type(X) is self._arrays.ndarray:
            matrix: Array = X  # type: ignore[assignment]
        elif any_foreign(X, out):
            return cast(Array, self._in_kind(self.matmat, X, out))
        else:
            matrix = as_array(X, "X", self._arrays)
        self._refuse_batch("matmat")
        rows, columns = self.shape
        if matrix.ndim != 2 or matrix.shape[0] != columns:
            raise ValueError(
                f"X has shape {matrix.shape}; expected ({columns}, K), because the operator has "
                f"shape {self.shape}. apply takes {self._shape_of_vectors()}"
            )
        count = matrix.shape[1]
        if out is None and matrix.flags.f_contiguous and not matrix.flags.c_contiguous:
            return self._dispatch(matrix.T, None, (count, rows), count, 1).T
        return self._dispatch(matrix, out, (rows, count), 1, count)

    def rmatvec(self, x: ArrayLike, out: Array | None = None) -> Array:
        """Compute A^H x for x (M,) or (M, 1), into ``out`` of N entries if given; see `matvec`."""
        return self.H.matvec(x, out)

    def rmatmat(self, X: ArrayLike, out: Array | None = None) -> Array:
        """Compute A^H X for X (M, K), into ``out`` (N, K) if given; see `matmat`."""
        return self.H.matmat(X, out)

    def _matvec(self, x: Array) -> Array:
        return self.matvec(x)

    def _matmat(self, X: Array) -> Array:
        return self.matmat(X)

    def _refuse_stack(self, x: object, expected: str, name: str) -> None:
        """Raise for x with more than two axes: only `apply` takes stacks of vectors."""
        shape = x.shape if hasattr(x, "shape") else np.shape(cast(ArrayLike, x))
        if len(shape) > 2:
            grid = self._grids() if name == "apply" else None
            if grid is not None and len(grid[1]) > 1 and not self.batch_shape:
                expected = f"{expected}, or a tensor {grid[1]}"
            vectors = (self if name == "apply" else self.T)._shape_of_vectors()
            raise ValueError(
                f"the operand of @ has shape {shape}; expected {expected}, because the operator "
                f"has shape {self.shape}. For stacks use {name}, which takes {vectors}"
            )

    def to_dense(self) -> Array:
        """Return the matrix itself, (M, N), by applying the operator to the identity."""
        self._refuse_blocks("to_dense")
        return self.matmat(self._arrays.eye(self.shape[1], dtype=self.dtype))

    def toarray(self) -> Array:
        """Return the matrix itself, (M, N), as `to_dense`; SciPy's sparse arrays name it so."""
        return self.to_dense()

    def diagonal(self) -> Array:
        """Return the diagonal, (min(M, N),)."""
        self._refuse_batch("diagonal")
        self._refuse_blocks("diagonal")
        size = min(self.shape)
        result: Array = self._arrays.empty(size, self.dtype)
        for start in range(0, size, _PANEL):
            columns = self._arrays.arange(start, min(start + _PANEL, size))
            panel = self._arrays.zeros((self.shape[1], len(columns)), self.dtype)
            panel[columns, columns - start] = 1
            result[columns] = self.matmat(panel)[columns, columns - start]
        return result

    def trace(self) -> Any:
        """Return the sum of the diagonal.

        Raises
        ------
        ValueError
            If the operator is not square.
        """
        self._refuse_non_square("trace")
        self._refuse_blocks("trace")
        return self.diagonal().sum(-1)

    if not TYPE_CHECKING:  # a method of this name would make it an ArrayLike to type checkers

        def __array__(self, dtype: object = None, copy: object = None) -> NoReturn:
            """Raise: NumPy would make an array with the operator as its only object."""
            raise TypeError(
                f"a {type(self).__name__} is a linear operator, not an array; to_dense() returns "
                f"its matrix, of shape {self.shape}"
            )
