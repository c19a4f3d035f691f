"""The linear-operator interface that all operators share."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from scipy.sparse.linalg import LinearOperator

from batchkron.spec import Array, as_host_array, check_output, compute_dtype


class Operator(LinearOperator):  # type: ignore[misc]
    """A linear operator y = A x on flat vectors.

    A `scipy.sparse.linalg.LinearOperator`, so that it goes into SciPy's functions unchanged;
    every product is computed by batchkron, with ``out=`` where the caller brings the memory.

    Attributes
    ----------
    shape : tuple of int, (M, N)
    dtype : numpy.dtype
        Of the matrix entries. A product is computed in `numpy.result_type` of it and the vector's
        dtype; for vectors of higher precision the operator keeps a second, converted copy.
    """

    shape: tuple[int, int]
    dtype: np.dtype[Any]

    def __init__(self, shape: tuple[int, int], dtype: np.dtype[Any]) -> None:
        self.shape = shape
        self.dtype = dtype
        self._relatives: dict[str, Operator] = {}

    @abstractmethod
    def _run(self, x: Array, y: Array, outer: int, inner: int, accumulate: bool) -> None:
        """Map x (outer, N, inner) to y (outer, M, inner), both contiguous and of self.dtype."""

    @abstractmethod
    def _build_transpose(self) -> Operator:
        """Return the transpose, as an operator of its own."""

    @abstractmethod
    def _build_conjugate(self) -> Operator:
        """Return the complex conjugate, as an operator of its own."""

    @abstractmethod
    def _build_as(self, dtype: np.dtype[Any]) -> Operator:
        """Return the operator converted to ``dtype``."""

    def _relative(self, kind: str, dtype: np.dtype[Any] | None = None) -> Operator:
        """Return the transpose, conjugate or converted operator, built when first needed."""
        if kind not in self._relatives:
            if kind == "transpose":
                relative = self._build_transpose()
                relative._relatives["transpose"] = self
            elif kind == "conjugate":
                relative = self if self.dtype.kind == "f" else self._build_conjugate()
            else:
                assert dtype is not None
                relative = self._build_as(dtype)
            self._relatives[kind] = relative
        return self._relatives[kind]

    def astype(self, dtype: DTypeLike) -> Operator:
        """Return the operator with its entries converted.

        Parameters
        ----------
        dtype : float32, float64, complex64 or complex128

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
        if wanted == self.dtype:
            return self
        if self.dtype.kind == "c" and wanted.kind != "c":
            raise TypeError(f"the operator is {self.dtype}; a conversion to {wanted} drops a part")
        if compute_dtype(np.empty(0, wanted)) != wanted:
            raise TypeError(f"dtype is {wanted}; expected float32, float64 or their complex pairs")
        return self._relative(wanted.name, wanted)

    def _dispatch(
        self, x: Array, out: Array | None, shape: tuple[int, ...], outer: int, inner: int
    ) -> Array:
        """Compute A x for x of (outer, N, inner) elements into ``out`` or a fresh array."""
        if x.dtype != self.dtype:
            return self._dispatch_mixed(x, out, shape, outer, inner)
        if out is None:
            target = np.empty(shape, self.dtype)
        else:
            check_output(out, shape, self.dtype, (x,))
            target = out if out.flags.c_contiguous else np.empty(shape, self.dtype)
        self._run(x if x.flags.c_contiguous else x.copy(), target, outer, inner, False)
        if out is None or target is out:
            return target
        out[...] = target
        return out

    def _dispatch_mixed(
        self, x: Array, out: Array | None, shape: tuple[int, ...], outer: int, inner: int
    ) -> Array:
        """Compute A x where the dtypes differ, in the one that `numpy.result_type` gives."""
        dtype = np.result_type(self.dtype, compute_dtype(x))
        wide = np.result_type(self.dtype, dtype.type(0).real.dtype)
        x = np.ascontiguousarray(x, dtype)
        if wide != self.dtype:
            return self.astype(wide)._dispatch(x, out, shape, outer, inner)
        if dtype == self.dtype:
            return self._dispatch(x, out, shape, outer, inner)
        # a real operator on complex vectors: real and imaginary parts are an innermost axis
        result = np.empty(shape, dtype) if out is None else check_output(out, shape, dtype, (x,))
        target = result if result.flags.c_contiguous else np.empty(shape, dtype)
        parts = target.reshape(-1).view(self.dtype)
        self._run(x.reshape(-1).view(self.dtype), parts, outer, 2 * inner, False)
        if target is not result:
            result[...] = target
        return result

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
            If shapes do not fit, or ``out`` overlaps x or is read-only.
        TypeError
            If x is on another device, or ``out`` has another dtype than the result.
        """
        vector = x if type(x) is np.ndarray else as_host_array(x, "x")
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
            As `matvec`.
        """
        matrix = as_host_array(X, "X")
        rows, columns = self.shape
        if matrix.ndim != 2 or matrix.shape[0] != columns:
            raise ValueError(
                f"X has shape {matrix.shape}; expected ({columns}, K), because the operator has "
                f"shape {self.shape}"
            )
        count = matrix.shape[1]
        if out is None and matrix.flags.f_contiguous and not matrix.flags.c_contiguous:
            return self._dispatch(matrix.T, None, (count, rows), count, 1).T
        return self._dispatch(matrix, out, (rows, count), 1, count)

    def rmatvec(self, x: ArrayLike, out: Array | None = None) -> Array:
        """Compute A^H x; see `matvec`."""
        return self.H.matvec(x, out)

    def rmatmat(self, X: ArrayLike, out: Array | None = None) -> Array:
        """Compute A^H X; see `matmat`."""
        return self.H.matmat(X, out)

    def _matvec(self, x: Array) -> Array:
        return self.matvec(x)

    def _matmat(self, X: Array) -> Array:
        return self.matmat(X)

    def _adjoint(self) -> Operator:
        return self._relative("transpose")._relative("conjugate")

    def _transpose(self) -> Operator:
        return self._relative("transpose")

    @property
    def T(self) -> Operator:
        """The transpose, built when first needed."""
        return self._transpose()

    @property
    def H(self) -> Operator:
        """The adjoint (conjugate transpose), built when first needed."""
        return self._adjoint()

    def to_dense(self) -> Array:
        """Return the matrix itself, (M, N), by applying the operator to the identity."""
        return self.matmat(np.eye(self.shape[1], dtype=self.dtype))

    @abstractmethod
    def diagonal(self) -> Array:
        """Return the diagonal, (min(M, N),)."""

    def trace(self) -> Any:
        """Return the sum of the diagonal.

        Raises
        ------
        ValueError
            If the operator is not square.
        """
        if self.shape[0] != self.shape[1]:
            raise ValueError(f"the trace needs a square operator; this one has shape {self.shape}")
        return self.diagonal().sum()

    @abstractmethod
    def describe(self) -> str:
        """Return a few lines on what the operator is and what it costs."""

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


def leading_count(shape: tuple[int, ...], trailing: int) -> int:
    """Return the number of entries of the axes before the last ``trailing`` ones."""
    return math.prod(shape[: len(shape) - trailing])
