"""The base class of operators: a linear map with a shape, a dtype and a device."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from batchkron.array_kinds import any_foreign, common_kind, in_kind
from batchkron.arrays import as_array, is_plain
from batchkron.attributes import attribute
from batchkron.backends import Backend, backend
from batchkron.operators.diagonal_blocks import DiagonalBlocks, blocks_of_terms
from batchkron.operators.kronecker_terms import KroneckerTerms
from batchkron.operators.linear_operator import LinearOperator
from batchkron.spec.kron import (
    Array,
    as_scalar,
    check_output,
    compute_dtype,
    is_finite,
    ready,
    times,
)

__all__ = ["OperatorBase"]

Related = TypeVar("Related", bound="OperatorBase[Any]")


class OperatorBase(LinearOperator[Related]):
    """A linear map y = A x of vectors along the last axis; the root of the class `Operator`.

    Concrete operators define `_run`. Three classes derive from each other and from this one: they
    add transposes and conversions (conversions.py), SciPy's products (scipy_protocol.py), and sums,
    multiples and compositions (algebra.py: `Operator`). The type variable ``Related`` stands for
    `Operator`, the type of transposes, conversions and sums.
    """

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    batch_shape: tuple[int, ...]
    # The fast path of a backend's plan: it writes A x and returns True, or returns False.
    _apply_fast: Callable[[object, object], bool] | None = None
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
        self._backend = backend() if chosen is None else chosen
        self._arrays = self._backend.array_module
        self._place = self._backend.current_device()

    @property
    def device(self) -> str:
        """The device of the operator's arrays and vectors: "cpu" or "cuda"."""
        return "cuda" if self._backend.name == "cuda" else "cpu"

    @property
    def communicator(self) -> Any:
        """The ranks that share vectors, if the operator is distributed or made of such; or None."""
        known = (attribute(part, "communicator") for part in self.args)
        return next((ranks for ranks in known if ranks is not None), None)

    def _layouts(self) -> tuple[Any, Any]:
        """Return who owns what of x and of A x, if the operator is distributed; None elsewhere."""
        return None, None

    def _grids(self) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Return the numbers of rows and of columns of the factors, if vectors are tensors."""
        return None

    def __repr__(self) -> str:
        """Return the shape, the kind, the dtype, and batch_shape if there are several systems."""
        batch = f", batch_shape={self.batch_shape}" if self.batch_shape else ""
        rows, columns = self.shape
        return f"<{rows}x{columns} {type(self).__name__} with dtype={self.dtype}{batch}>"

    @property
    def capturable(self) -> bool:
        """Whether products on a device may be captured in CUDA graphs."""
        return all(attribute(part, "capturable", True) for part in self.args)

    @abstractmethod
    def _run(
        self, x: Array, y: Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        """Map x (outer, N, inner) to alpha A x, added to y (outer, M, inner) or overwriting it.

        Both arrays are contiguous and of self.dtype.
        """

    def bound(self, x: Array, out: Array) -> Callable[[], object]:
        """Return a function that overwrites ``out`` with A x in each call.

        Parameters
        ----------
        x, out : ndarray, shape (N,), (M,)
            Contiguous vectors of the operator's dtype, which do not overlap; they are kept.

        Returns
        -------
        callable
            On the CPU, where the operator is a list of products or of sweeps, a pass of the
            compiled core, which the steps of `batchkron.solvers.evolve` do without Python.
        """
        fits = x.dtype == out.dtype == self.dtype and is_plain(x) and is_plain(out)
        found = self._bind(x, out) if fits else None
        if found is None:
            found = partial(self._dispatch, x, out, out.shape, 1, 1)
        return found

    def _bind(self, x: Array, y: Array) -> Callable[[], object] | None:
        """Return a pass of the core that overwrites y with A x, if there is one."""
        return None

    def _reserve(self, outer: int, inner: int) -> None:
        """Allocate workspace for `_run` on a device, so that it cannot fail after writing to y."""

    @abstractmethod
    def astype(self, dtype: DTypeLike) -> Related:
        """Return the operator with its entries converted."""

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
        # A real operator on complex vectors: real and imaginary parts become an innermost axis.
        empty = self._backend.empty
        result = empty(shape, dtype) if out is None else check_output(out, shape, dtype, (x,))
        target = result if is_plain(result) else empty(shape, dtype)
        parts = target.reshape(-1).view(self.dtype)
        self._run(x.reshape(-1).view(self.dtype), parts, outer, 2 * inner, 1, False)
        if target is not result:
            result[...] = target
        return result

    def _refuse_batch(self, name: str) -> None:
        """Raise if the operator has several systems: flat vectors have no axes for them."""
        if self.batch_shape:
            raise ValueError(
                f"the operator has batch_shape {self.batch_shape}, so {name} is not defined; "
                f"use apply on vectors with these axes"
            )

    def _refuse_blocks(self, name: str) -> None:
        """Raise if ranks share vectors: each of them would take its block for the whole."""
        ranks = self.communicator
        if ranks is not None and ranks.size > 1:
            self._no_whole_matrix(name)

    def _no_whole_matrix(self, name: str) -> NoReturn:
        raise TypeError(
            f"{name} needs the whole matrix, and a rank of a distributed operator has a block of "
            f"each vector; call {name} of the operator that was distributed"
        )

    def _refuse_elsewhere(self) -> None:
        """Raise where another device is the current one, on which factorisations would be kept."""
        here = self._backend.current_device()
        if here != self._place:
            raise TypeError(
                f"the operator is on CUDA device {self._place}, but device {here} is the current "
                f"one; call it inside of 'with cupy.cuda.Device({self._place})', or move it with "
                f"to('cuda')"
            )

    def _refuse_non_square(self, name: str) -> None:
        if self.shape[0] != self.shape[1]:
            raise ValueError(f"the {name} needs a square operator; this one is {self.shape}")

    @staticmethod
    def _in_kind(method: Callable[..., Any], x: Any, out: Any = None, **options: Any) -> Any:
        """Call a method on vectors of another library; its result is of their kind.

        Raises `TypeError` if x and out are of two kinds.
        """
        operands = (x,) if out is None else (x, out)
        return in_kind(method, common_kind(x=x, out=out), *operands, **options)

    def _outer(self, shape: tuple[int, ...], trailing: int) -> int:
        """Return the product of the axes before the last ``trailing``; they end in batch_shape."""
        leading = shape[: len(shape) - trailing]
        systems = len(self.batch_shape)
        if systems and leading[-systems:] != self.batch_shape:
            raise ValueError(
                f"x has shape {shape}; expected the axes of batch_shape {self.batch_shape} before "
                f"the last {trailing}"
            )
        return math.prod(leading)

    def _shape_of_vectors(self) -> str:
        """Return the shape of vectors that `apply` takes, for error messages."""
        return f"(..., {', '.join(map(str, (*self.batch_shape, self.shape[1])))})"

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
        if out is not None and self._apply_fast is not None and self._apply_fast(x, out):
            return out
        if type(x) is self._arrays.ndarray:
            vectors: Array = x  # type: ignore[assignment]
            if out is None and (fresh := self._fresh(vectors)) is not None:
                return fresh
        elif any_foreign(x, out):
            return cast(Array, self._in_kind(self.apply, x, out))
        else:
            vectors = as_array(x, "x", self._arrays)
        vectors, outer, inner, shape = OperatorBase._vectors(self, vectors)
        return self._dispatch(vectors, out, shape, outer, inner)

    def _fresh(self, x: Array) -> Array | None:
        """Return A x[..., :] in a new array by the fast path, None if that does not apply."""
        rows, columns = self.shape
        if self._apply_fast is None or x.ndim == 0 or x.shape[-1] != columns:
            return None
        if x.dtype != self.dtype:
            return None
        out = self._backend.empty((*x.shape[:-1], rows), x.dtype)
        return out if self._apply_fast(x, out) else None

    def apply_flat(self, x: Array, out: Array) -> Array:
        """Compute out[..., :] = A x[..., :] for flat vectors, as Krylov methods have them.

        The same as `apply`, except for operators on blocks, whose `apply` takes blocks.

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
            As for `matvec`.
        """
        return self.apply(x, out)

    def accumulate(self, x: ArrayLike, y: Array, *, alpha: complex = 1) -> Array:
        """Compute y += alpha A x in place.

        Parameters
        ----------
        x : array_like
            Vectors in a shape that `apply` takes.
        y : ndarray
            In the shape in which `apply` returns A x. Overwritten with the result; must have the
            dtype of A x.
        alpha : scalar
            Scales the product.

        Returns
        -------
        ndarray
            y itself.

        Raises
        ------
        ValueError, TypeError
            As for `matvec`; also if alpha is complex and y is real.
        """
        if type(x) is not self._arrays.ndarray and any_foreign(x, y):
            return cast(Array, self._in_kind(self.accumulate, x, y, alpha=alpha))
        vectors, outer, inner, shape = self._vectors(x)
        return self._add(vectors, y, shape, outer, alpha, inner)

    def _vectors(self, x: ArrayLike) -> tuple[Array, int, int, tuple[int, ...]]:
        """Return x as an array of (outer, N, inner) elements, outer, inner, and A x's shape."""
        is_native = type(x) is self._arrays.ndarray
        vectors: Array = x if is_native else as_array(x, "x", self._arrays)  # type: ignore[assignment]
        rows, columns = self.shape
        if vectors.ndim == 0 or vectors.shape[-1] != columns:
            raise ValueError(f"x has shape {vectors.shape}; expected (..., {columns})")
        return vectors, self._outer(vectors.shape, 1), 1, (*vectors.shape[:-1], rows)

    def _add(
        self, x: Array, y: Array, shape: tuple[int, ...], outer: int, alpha: complex, inner: int = 1
    ) -> Array:
        """Add alpha A x to y, which must have ``shape``; x has (outer, N, inner) elements."""
        scale = as_scalar(alpha, "alpha")
        same = x.dtype == self.dtype
        dtype = self.dtype if same else np.result_type(self.dtype, compute_dtype(x))
        if isinstance(scale, complex) and dtype.kind != "c":
            raise TypeError(f"alpha is {scale}; expected a real number for {dtype}")
        check_output(y, shape, dtype, (x,), "y")
        if dtype == x.dtype == self.dtype and is_plain(y) and is_finite(scale, dtype):
            self._run(ready(x, dtype), y, outer, inner, scale, True)
        else:
            product = self._dispatch(x, None, shape, outer, inner)
            y += product if scale == 1 else times(scale, product)
        return y

    def kronecker_terms(self) -> KroneckerTerms:
        """Return the operator as a sum of terms, Σ_t c_t A_t1 ⊗ … ⊗ A_td.

        Preconditioners are built from the terms.

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

    def recover_terms(self) -> KroneckerTerms:
        """Return the terms of `kronecker_terms`; batch lists find theirs if they do not know them.

        Raises
        ------
        TypeError
            If the operator has none.
        """
        return self.kronecker_terms()

    def diagonal_blocks(self) -> DiagonalBlocks:
        """Return the diagonal blocks, from which `block_jacobi` is built.

        Blocks are those of a batch list, the cells of a grid, or a whole Kronecker product or sum.

        Returns
        -------
        DiagonalBlocks

        Raises
        ------
        TypeError
            If the operator has no such structure.
        """
        return blocks_of_terms(self.kronecker_terms().balanced())

    def describe(self) -> str:
        """Return a few lines of text about the operator's structure and cost."""
        batch = f" for {self.batch_shape} systems" if self.batch_shape else ""
        return f"{type(self).__name__} {self.shape[0]}×{self.shape[1]} {self.dtype}{batch}"
