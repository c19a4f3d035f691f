"""The linear-operator interface that all operators share."""

from __future__ import annotations

import math
import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, cast, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from scipy.sparse import issparse

from batchkron.arrays import as_array, is_plain, is_scalar, refuse_masked
from batchkron.backends import Backend, backend, backend_on, building_on
from batchkron.operators.kronecker_terms import KroneckerTerms
from batchkron.operators.linear_operator import LinearOperator, Scalar, Vectors
from batchkron.spec.kron import (
    Array,
    as_scalar,
    check_dtype,
    check_output,
    compute_dtype,
    is_finite,
    ready,
    times,
)

_relatives_lock = threading.RLock()  # building relatives is rare, and may build others
_PANEL = 64  # columns of the identity that a generic diagonal applies the operator to at once


class Operator(LinearOperator):
    """A linear operator y = A x on flat vectors.

    A `scipy.sparse.linalg.LinearOperator`, so that it goes into SciPy's functions unchanged;
    every product is computed by batchkron, with ``out=`` where the caller brings the memory.
    Sums, products and multiples of operators are operators again. A copy, or what comes from a
    pickle, has values of its own, which a copy of the transpose beside it does not share.

    Attributes
    ----------
    shape : tuple of int, (M, N)
    dtype : numpy.dtype
        Of the matrix entries. A product is computed in `numpy.result_type` of it and the vector's
        dtype; for vectors of higher precision the operator keeps a second, converted copy.
    batch_shape : tuple of int
        () for one system. Otherwise the operator is many independent systems of one structure,
        and `apply` takes vectors with these axes before the last ones.
    """

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    batch_shape: tuple[int, ...]
    _apply_plain: Callable[[object, object], bool] | None = None  # a backend's own quick `apply`
    args: tuple[Any, ...] = ()  # SciPy's name for the operands of a composed operator

    def __init__(
        self,
        shape: tuple[int, int],
        dtype: np.dtype[Any],
        batch_shape: tuple[int, ...] = (),
        chosen: Backend | None = None,
    ) -> None:
        super().__init__(dtype, shape)
        self.batch_shape = batch_shape
        self._relatives: dict[str, Operator] = {}
        self._backend = backend() if chosen is None else chosen
        self._arrays = self._backend.array_module
        self._place = self._backend.current_device()

    @property
    def device(self) -> str:
        """Where the operator's arrays and vectors are: "cpu" or "cuda"."""
        return "cuda" if self._backend.name == "cuda" else "cpu"

    def to(self, device: str) -> Operator:
        """Return the operator on a device.

        Updates of either take effect in both.

        Parameters
        ----------
        device : {"cpu", "cuda"}
            "cuda" is CuPy's current device; vectors are CuPy arrays there.

        Returns
        -------
        Operator
            ``self`` if it is there already.

        Raises
        ------
        ValueError
            For any other device.
        BackendUnavailableError
            If CuPy is not installed; the text says what to install.
        """
        chosen = backend_on(device)
        place = chosen.current_device()
        if place == self._place:
            return self
        with _relatives_lock:
            if place not in self._relatives:
                with building_on(chosen):
                    moved = self._build_on(device)
                moved._relatives[self._place] = self
                self._relatives[place] = moved
            return self._relatives[place]

    @abstractmethod
    def _run(
        self, x: Array, y: Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        """Map x (outer, N, inner) to alpha A x (outer, M, inner), written or added to y.

        Both arrays are contiguous and of self.dtype.
        """

    def _reserve(self, outer: int, inner: int) -> None:
        """Allocate on a device what `_run` will need, before it writes anything."""

    @abstractmethod
    def _recipe(self) -> tuple[Callable[..., Operator], tuple[Any, ...]]:
        """Return a callable and its arguments that make this operator anew."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt_on, (self.device, *self._recipe())

    @abstractmethod
    def _build_transpose(self) -> Operator:
        """Return the transpose, as an operator of its own."""

    @abstractmethod
    def _build_conjugate(self) -> Operator:
        """Return the complex conjugate, as an operator of its own."""

    @abstractmethod
    def _build_as(self, dtype: np.dtype[Any]) -> Operator:
        """Return the operator converted to ``dtype``."""

    @abstractmethod
    def _build_on(self, device: str) -> Operator:
        """Return the operator on another device; called while its backend is being built on."""

    def _relative(self, kind: str, dtype: np.dtype[Any] | None = None) -> Operator:
        """Return the transpose, conjugate or converted operator, built when first needed."""
        with _relatives_lock:
            return self._locked_relative(kind, dtype)

    def _locked_relative(self, kind: str, dtype: np.dtype[Any] | None) -> Operator:
        if kind not in self._relatives:
            with building_on(self._backend):
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
        wanted = check_dtype(dtype)
        if wanted == self.dtype:
            return self
        if self.dtype.kind == "c" and wanted.kind != "c":
            raise TypeError(f"the operator is {self.dtype}; a conversion to {wanted} drops a part")
        return self._relative(wanted.name, wanted)

    def _dispatch(
        self, x: Array, out: Array | None, shape: tuple[int, ...], outer: int, inner: int
    ) -> Array:
        """Compute A x for x of (outer, N, inner) elements into ``out`` or a fresh array."""
        if x.dtype != self.dtype:
            return self._dispatch_mixed(x, out, shape, outer, inner)
        if out is None:
            target = self._backend.empty(shape, self.dtype)
        else:
            check_output(out, shape, self.dtype, (x,))
            target = out if is_plain(out) else self._backend.empty(shape, self.dtype)
        self._run(ready(x, self.dtype), target, outer, inner, 1, False)
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
        x = ready(x, dtype)
        if wide != self.dtype:
            return self.astype(wide)._dispatch(x, out, shape, outer, inner)
        if dtype == self.dtype:
            return self._dispatch(x, out, shape, outer, inner)
        # a real operator on complex vectors: real and imaginary parts are an innermost axis
        empty = self._backend.empty
        result = empty(shape, dtype) if out is None else check_output(out, shape, dtype, (x,))
        target = result if is_plain(result) else empty(shape, dtype)
        parts = target.reshape(-1).view(self.dtype)
        self._run(x.reshape(-1).view(self.dtype), parts, outer, 2 * inner, 1, False)
        if target is not result:
            result[...] = target
        return result

    def _refuse_batch(self, name: str) -> None:
        """Flat vectors have no axes for several systems."""
        if self.batch_shape:
            raise ValueError(
                f"the operator has batch_shape {self.batch_shape}, so {name} is not defined; "
                f"use apply on vectors with these axes"
            )

    def _outer(self, shape: tuple[int, ...], trailing: int) -> int:
        """Return the size of the axes before the last ``trailing``, which end in batch_shape."""
        leading = shape[: len(shape) - trailing]
        systems = len(self.batch_shape)
        if systems and leading[-systems:] != self.batch_shape:
            raise ValueError(
                f"x has shape {shape}; expected the axes of batch_shape {self.batch_shape} before "
                f"the last {trailing}"
            )
        return math.prod(leading)

    def apply(self, x: ArrayLike, out: Array | None = None) -> Array:
        """Compute y[..., :] = A x[..., :].

        Parameters
        ----------
        x : array_like, (..., N), or (..., *batch_shape, N)
            Vectors along the last axis.
        out : ndarray, (..., M), optional
            Where the result is written; with it, nothing is allocated.

        Returns
        -------
        ndarray, (..., M)

        Raises
        ------
        ValueError, TypeError
            As `matvec`.
        """
        if out is not None and self._apply_plain is not None and self._apply_plain(x, out):
            return out
        vectors = as_array(x, "x", self._arrays)
        rows, columns = self.shape
        if vectors.ndim == 0 or vectors.shape[-1] != columns:
            raise ValueError(f"x has shape {vectors.shape}; expected (..., {columns})")
        outer = self._outer(vectors.shape, 1)
        return self._dispatch(vectors, out, (*vectors.shape[:-1], rows), outer, 1)

    def apply_flat(self, x: Array, out: Array) -> Array:
        """Compute out[..., :] = A x[..., :] for flat vectors: what Krylov methods ask for.

        As `apply`, which operators on blocks define otherwise.

        Parameters
        ----------
        x : ndarray, (..., *batch_shape, N)
        out : ndarray, (..., *batch_shape, M)

        Returns
        -------
        ndarray
            ``out``.

        Raises
        ------
        ValueError, TypeError
            As `matvec`.
        """
        return self.apply(x, out)

    def accumulate(self, x: ArrayLike, y: Array, *, alpha: complex = 1) -> Array:
        """Compute y[..., :] += alpha A x[..., :], in place.

        Parameters
        ----------
        x : array_like, (..., N), or (..., *batch_shape, N)
            Vectors along the last axis.
        y : ndarray, (..., M)
            Written; of the dtype that A x has.
        alpha : scalar
            Scales the product; a number for this call, not part of the operator.

        Returns
        -------
        ndarray
            y itself.

        Raises
        ------
        ValueError, TypeError
            As `matvec`; also for a complex alpha where y is real.
        """
        vectors = as_array(x, "x", self._arrays)
        rows, columns = self.shape
        if vectors.ndim == 0 or vectors.shape[-1] != columns:
            raise ValueError(f"x has shape {vectors.shape}; expected (..., {columns})")
        outer = self._outer(vectors.shape, 1)
        return self._add(vectors, y, (*vectors.shape[:-1], rows), outer, alpha)

    def _add(self, x: Array, y: Array, shape: tuple[int, ...], outer: int, alpha: complex) -> Array:
        """Add alpha A x to y, of a shape, for x of (outer, N) elements."""
        scale = as_scalar(alpha, "alpha")
        dtype = np.result_type(self.dtype, compute_dtype(x))
        if isinstance(scale, complex) and dtype.kind != "c":
            raise TypeError(f"alpha is {scale}; expected a real number for {dtype}")
        check_output(y, shape, dtype, (x,), "y")
        if dtype == x.dtype == self.dtype and is_plain(y) and is_finite(scale):
            self._run(ready(x, dtype), y, outer, 1, scale, True)
        else:
            product = self._dispatch(x, None, shape, outer, 1)
            y += product if scale == 1 else times(scale, product)
        return y

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
            If x is on another device, an array is masked, or ``out`` has another dtype than the
            result.
        """
        plain = self._apply_plain
        if out is not None and plain is not None and getattr(x, "ndim", 0) == 1 and plain(x, out):
            return out
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
            As `matvec`.
        """
        if issparse(X):
            raise TypeError(
                "Unable to multiply a LinearOperator with a sparse matrix. Use X.toarray()."
            )
        matrix = as_array(X, "X", self._arrays)
        self._refuse_batch("matmat")
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
        """Compute A^H x for x (M,) or (M, 1), into ``out`` of N entries if given; see `matvec`."""
        return self.H.matvec(x, out)

    def rmatmat(self, X: ArrayLike, out: Array | None = None) -> Array:
        """Compute A^H X for X (M, K), into ``out`` (N, K) if given; see `matmat`."""
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
        return self.matmat(self._arrays.eye(self.shape[1], dtype=self.dtype))

    def diagonal(self) -> Array:
        """Return the diagonal, (min(M, N),)."""
        self._refuse_batch("diagonal")
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
        return self.diagonal().sum(-1)

    def _refuse_stack(self, x: object, expected: str, name: str) -> None:
        """NumPy multiplies stacks of matrices, SciPy's operators one; `apply` takes any number."""
        shape = x.shape if hasattr(x, "shape") else np.shape(cast(ArrayLike, x))
        if len(shape) > 2:
            vectors = (self if name == "apply" else self.T)._shape_of_vectors()
            raise ValueError(
                f"the operand of @ has shape {shape}; expected {expected}, because the operator "
                f"has shape {self.shape}. For stacks use {name}, which takes {vectors}"
            )

    def _shape_of_vectors(self) -> str:
        """Return the shape of what `apply` takes."""
        return f"(..., {', '.join(map(str, (*self.batch_shape, self.shape[1])))})"

    def _refuse_device(self, name: str) -> None:
        if self.device != "cpu":
            raise TypeError(f"{name} runs on the CPU; use to('cpu').{name}")

    def _refuse_non_square(self, name: str) -> None:
        if self.shape[0] != self.shape[1]:
            raise ValueError(f"the {name} needs a square operator; this one is {self.shape}")

    def kronecker_terms(self) -> KroneckerTerms:
        """Return the terms Σ_t c_t A_t1 ⊗ … ⊗ A_td that the operator is made of.

        Preconditioners are built from them.

        Returns
        -------
        KroneckerTerms

        Raises
        ------
        TypeError
            If the operator does not know its terms.
        """
        raise TypeError(
            f"{type(self).__name__} does not know its Kronecker terms, which preconditioners are "
            "built from; a KroneckerProduct, KroneckerSum, SparseGridOperator, sums and multiples "
            "of them, and the operator of a Problem do"
        )

    def describe(self) -> str:
        """Return a few lines on what the operator is and what it costs."""
        batch = f" for {self.batch_shape} systems" if self.batch_shape else ""
        return f"{type(self).__name__} {self.shape[0]}×{self.shape[1]} {self.dtype}{batch}"

    if not TYPE_CHECKING:  # a method of this name would make it an ArrayLike to type checkers

        def __array__(self, dtype: object = None, copy: object = None) -> NoReturn:
            """Refuse to be taken for an array, which would be one of a single object."""
            raise TypeError(
                f"a {type(self).__name__} is a linear operator, not an array; to_dense() returns "
                f"its matrix, of shape {self.shape}"
            )

    # The algebra is built on this class, hence the late imports.

    @overload
    def __add__(self, other: Operator) -> Operator: ...
    @overload
    def __add__(self, other: object) -> Any: ...
    def __add__(self, other: object) -> Any:
        if isinstance(other, Operator):
            from batchkron.operators.algebra import SumOperator

            return SumOperator([self, other])
        return super().__add__(other)

    @overload
    def __sub__(self, other: Operator) -> Operator: ...
    @overload
    def __sub__(self, other: object) -> Any: ...
    def __sub__(self, other: object) -> Any:
        if isinstance(other, Operator):
            return self + (-other)
        return super().__sub__(other)

    def __neg__(self) -> Operator:
        return self._scaled(-1)

    @overload
    def __rmul__(self, other: Scalar) -> Operator: ...
    @overload
    def __rmul__(self, other: Vectors) -> Array: ...
    @overload
    def __rmul__(self, other: object) -> Any: ...
    def __rmul__(self, other: object) -> Any:
        if is_scalar(other):
            return self._scaled(other)
        refuse_masked(other, "x")
        rows = self.shape[0]
        self._refuse_stack(other, f"({rows},) or (K, {rows})", "T.apply")
        if self.device == "cpu" and not hasattr(other, "__cuda_array_interface__"):
            return super().__rmul__(other)
        array = as_array(cast(Array, other), "x", self._arrays)
        return self.T.matvec(array) if array.ndim == 1 else self.T.matmat(array.T).T

    def __truediv__(self, other: object) -> Operator:
        if not is_scalar(other):
            raise ValueError(
                f"Can only divide a linear operator by a scalar, not by a {type(other).__name__}"
            )
        return self._scaled(1 / as_scalar(other, "the divisor"))

    def __pow__(self, exponent: int | np.integer[Any]) -> Operator:
        if isinstance(exponent, (int, np.integer)) and exponent >= 0:
            from batchkron.operators.algebra import PowerOperator

            return PowerOperator(self, int(exponent))
        return NotImplemented

    @overload
    def dot(self, x: Operator | Scalar) -> Operator: ...
    @overload
    def dot(self, x: Vectors) -> Array: ...
    @overload
    def dot(self, x: object) -> Any: ...
    def dot(self, x: object) -> Any:
        """Compute A x for a vector or matrix, or form the operator A x for an operator or number.

        Parameters
        ----------
        x : array_like, (N,) or (N, K); or an operator, or a number

        Returns
        -------
        ndarray or Operator
        """
        if isinstance(x, Operator):
            from batchkron.operators.algebra import ComposedOperator

            return ComposedOperator(self, x)
        if is_scalar(x):
            return self._scaled(x)
        refuse_masked(x, "x")
        columns = self.shape[1]
        self._refuse_stack(x, f"({columns},) or ({columns}, K)", "apply")
        if self.device == "cpu" and not hasattr(x, "__cuda_array_interface__"):
            return super().dot(x)
        array = as_array(cast(Array, x), "x", self._arrays)
        return self.matvec(array) if array.ndim == 1 else self.matmat(array)

    def _scaled(self, scalar: Any) -> Operator:
        from batchkron.operators.algebra import ScaledOperator

        return ScaledOperator(scalar, self)


def _rebuilt_on(
    device: str, build: Callable[..., Operator], arguments: tuple[Any, ...]
) -> Operator:
    """Make an operator from its recipe, where the one was that the recipe is of."""
    with building_on(backend_on(device)):
        return build(*arguments)


class ValuedOperator(Operator):
    """An operator whose entries can be replaced in place, together with its relatives' entries."""

    @abstractmethod
    def _assign(self, matrices: Sequence[Array], weights: Array | None) -> None:
        """Copy checked matrices (..., P_k, Q_k), one array per mode, and weights in place."""

    def _update(self, matrices: Sequence[Array], weights: Array | None, done: set[int]) -> None:
        """Assign new values here, and their transposes, conjugates and conversions there."""
        with _relatives_lock:  # none is built from the old values meanwhile
            done.add(id(self))
            self._assign(matrices, weights)
            for kind, relative in self._relatives.items():
                if id(relative) in done or not isinstance(relative, ValuedOperator):
                    continue
                if kind == "transpose":
                    relative._update([m.swapaxes(-1, -2) for m in matrices], weights, done)
                elif kind == "conjugate":
                    conjugate = None if weights is None else weights.conj()
                    relative._update([m.conj() for m in matrices], conjugate, done)
                else:
                    relative._update(matrices, weights, done)
