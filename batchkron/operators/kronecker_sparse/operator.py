"""One Kronecker-sparse matrix as a linear operator."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol, overload

import numpy as np
from numpy.typing import ArrayLike

from batchkron.array_kinds import native
from batchkron.arrays import array_module, to_host
from batchkron.backends import (
    backend_for,
    building_on,
    own_apply,
    own_apply_last,
    reserve,
    tuned_plans,
    tuning_for,
)
from batchkron.operators.algebra import Operator, SumOperator
from batchkron.operators.diagonal_blocks import DiagonalBlocks
from batchkron.operators.kronecker_sparse.laid_out import LaidOutOperator
from batchkron.operators.valued_operator import ValuedOperator
from batchkron.spec.kron import (
    Array,
    Precision,
    check_precision,
    check_replacement,
    read_only_copies,
)
from batchkron.spec.kron_sparse import (
    Layout,
    Pattern,
    as_pattern,
    check_layout,
    is_half,
    pattern_of,
    value_dtype,
)


class Merged(Protocol):
    """A matrix of the values of others, which follows their updates."""

    def merge_again(self) -> None:
        """Take the values that the others have now."""


class KroneckerSparse(LaidOutOperator, ValuedOperator):
    """A matrix K whose support is I_a ⊗ 1_{b×c} ⊗ I_d.

    It consists of a diagonal blocks. A block is a b × c array of diagonal d × d matrices; in other
    words, d dense b × c matrices that are interleaved. K has a b d rows, a c d columns, and a b c d
    entries that may be non-zero, 1/(a d) of all.

    Parameters
    ----------
    values : array_like, (a, b, c, d)
        The entries K[i b d + k d + j, i c d + l d + j] = values[i, k, l, j]; they are copied.
    layout : {"batch-first", "batch-last"}
        The arrays that `apply` and `accumulate` take: vectors along the last axis, (..., N), or
        along the first one, (N, ...). ``K @ X`` takes X (N, K) in either case.
    precision : {None, "tf32x3", "tf32"}
        How a device multiplies float32, as for `batchkron.gekmm`; other dtypes, and the CPU, ignore
        it.
    tune : bool
        On a CUDA device, search the fastest kernels for each number of vectors when it first
        occurs, as for `KroneckerProduct`. No effect on the CPU.

    Attributes
    ----------
    values : ndarray, (a, b, c, d)
        On the host, read-only; `update` replaces them.
    pattern : Pattern
        The named tuple (a, b, c, d).
    layout : str
    precision : str or None

    Raises
    ------
    ValueError
        If values do not have four axes, or the layout or the precision is another one.
    TypeError
        If the dtype has no kernels, values are masked, or ``tune`` is not a bool.

    Notes
    -----
    Definition 2.1 of Gonon, Zheng, Carrivain and Le, "Fast inference with Kronecker-sparse
    matrices" (2024), multiplied by as in their algorithm 2. An operator of float16 values, or of
    bfloat16 ones (of the package ml_dtypes), is one of float32 on the CPU, and of that dtype on a
    device, where sums are in float32.

    Examples
    --------
    >>> import numpy as np, batchkron as bk
    >>> K = bk.KroneckerSparse(np.arange(1.0, 9.0).reshape(1, 2, 2, 2))
    >>> K.to_dense()
    array([[1., 0., 3., 0.],
           [0., 2., 0., 4.],
           [5., 0., 7., 0.],
           [0., 6., 0., 8.]])
    >>> K.apply([[1.0, 1.0, 1.0, 1.0], [1.0, 0.0, 0.0, 0.0]])
    array([[ 4.,  6., 12., 14.],
           [ 1.,  0.,  5.,  0.]])
    """

    def __init__(
        self,
        values: ArrayLike,
        *,
        layout: Layout = "batch-first",
        precision: Precision | None = None,
        tune: bool = False,
    ) -> None:
        tuning, self._tune = tuning_for(tune), tune
        self.layout: Layout = check_layout(layout)
        self._array_layout = self.layout
        self.precision = check_precision(precision)
        values = native(values, "values")
        chosen = backend_for(array_module(values))
        given = to_host(values, "values")
        self.pattern: Pattern = pattern_of(given)
        dtype = value_dtype(given, chosen.has_half)
        self._half = given.dtype if is_half(given.dtype) else None  # on a device
        (self.values,) = read_only_copies([given], dtype)
        with tuned_plans(tuning):
            self._product = chosen.kron_sparse_product(self.values, precision)
        self._apply_fast = own_apply(self._product)
        self._apply_last_fast = own_apply_last(self._product)
        super().__init__(self.pattern.shape, dtype, (), chosen)
        self._merged: weakref.WeakSet[Merged] = weakref.WeakSet()

    @classmethod
    def from_dense(
        cls, matrix: ArrayLike, pattern: Sequence[int], *, layout: Layout = "batch-first"
    ) -> KroneckerSparse:
        """Return the matrix's entries in the support of a pattern; those outside are dropped.

        It is the nearest matrix of this pattern in the Frobenius norm.

        Parameters
        ----------
        matrix : array_like, (a b d, a c d)
        pattern : sequence of four int
            The numbers (a, b, c, d).
        layout : {"batch-first", "batch-last"}

        Returns
        -------
        KroneckerSparse

        Raises
        ------
        ValueError
            If the matrix does not have the pattern's shape.
        TypeError
            If the dtype has no kernels.

        Examples
        --------
        >>> import numpy as np, batchkron as bk
        >>> bk.KroneckerSparse.from_dense(np.ones((4, 4)), (2, 1, 1, 2)).to_dense().trace()
        np.float64(4.0)
        """
        a, b, c, d = checked = as_pattern(pattern, "pattern")
        given = to_host(native(matrix, "matrix"), "matrix")
        if given.shape != checked.shape:
            raise ValueError(
                f"matrix has shape {given.shape}; expected {checked.shape} for {checked}"
            )
        entries = given.reshape(a, b, d, a, c, d)
        i, j = np.arange(a)[:, None], np.arange(d)[None, :]
        values = entries[i, :, j, i, :, j]  # (a, d, b, c)
        return cls(values.transpose(0, 2, 3, 1), layout=layout)

    def _like(self, values: Array) -> KroneckerSparse:
        """Return a product of other values, with the same numbers of 16 bits on a device."""
        given = values if self._half is None else values.astype(self._half, copy=False)
        return KroneckerSparse(given, **self._options)

    @property
    def _options(self) -> dict[str, Any]:
        options = {"layout": self.layout, "precision": self.precision}
        # subclasses need not take it
        return {**options, "tune": True} if self._tune else options

    def _recipe(self) -> tuple[Any, ...]:
        made = partial(type(self), **self._options)
        return made, (self.values if self._half is None else self.values.astype(self._half),)

    def _reserve(self, outer: int, inner: int) -> None:
        reserve(self._product, outer, inner)

    def _run(
        self, x: Array, y: Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        self._product.run(x, y, outer, inner, alpha, accumulate)

    def update(self, values: ArrayLike) -> None:
        """Replace the values by others of the same shape, in place, here and in .T, .H, ….

        It must not be called while another thread applies the operator.

        Parameters
        ----------
        values : array_like, (a, b, c, d)

        Raises
        ------
        ValueError
            If the shape differs.
        TypeError
            If the dtype cannot be converted to the operator's (casting "same_kind").
        """
        given = to_host(native(values, "values"), "values")
        check_replacement(given, self.values.shape, self.dtype, "values")
        # as matrices (a, d, b, c), which a relative may have to transpose
        blocks = given.astype(self.dtype, copy=False).transpose(0, 3, 1, 2)
        self._update([blocks], None)

    def _assign(self, matrices: Sequence[Array], weights: Array | None) -> None:
        values = matrices[0].transpose(0, 2, 3, 1)
        if self._half is not None:
            values = values.astype(self._half)
        (self.values,) = read_only_copies([values], self.dtype)
        self._product.set_values(self.values)
        for merged in self._merged:
            merged.merge_again()

    @overload  # type: ignore[override]
    def __add__(self, other: KroneckerSparse) -> Operator: ...  # type: ignore[overload-overlap]
    @overload
    def __add__(self, other: Operator) -> SumOperator: ...
    @overload
    def __add__(self, other: object) -> Any: ...
    def __add__(self, other: object) -> Any:
        """Form A + B: of one pattern, layout, dtype and device it is a `KroneckerSparse`."""
        if isinstance(other, KroneckerSparse) and self._merges_with(other):
            return _MergedSum(self, other, 1)
        return super().__add__(other)

    @overload  # type: ignore[override]
    def __sub__(self, other: KroneckerSparse) -> Operator: ...  # type: ignore[overload-overlap]
    @overload
    def __sub__(self, other: Operator) -> SumOperator: ...
    @overload
    def __sub__(self, other: object) -> Any: ...
    def __sub__(self, other: object) -> Any:
        """Form A - B, as A + B."""
        if isinstance(other, KroneckerSparse) and self._merges_with(other):
            return _MergedSum(self, other, -1)
        return super().__sub__(other)

    def _merges_with(self, other: KroneckerSparse) -> bool:
        """Whether the sum with another one is one of these.

        Sums of numbers of 16 bits would be rounded to 16 bits, where both products are in 32 bits.
        """
        if self._half is not None or other._half is not None:
            return False
        alike = (self.pattern, self.layout, self.precision, self.dtype, self._place)
        return alike == (other.pattern, other.layout, other.precision, other.dtype, other._place)

    def _chain_factors(self) -> Sequence[KroneckerSparse]:
        return (self,)

    def _build_transpose(self) -> KroneckerSparse:
        return self._like(self.values.swapaxes(1, 2))

    def _build_conjugate(self) -> KroneckerSparse:
        return self._like(self.values if self._half is not None else self.values.conj())

    def _build_as(self, dtype: np.dtype[Any]) -> KroneckerSparse:
        return KroneckerSparse(self.values.astype(dtype), **self._options)

    def _build_on(self, device: str) -> KroneckerSparse:
        return self._like(self.values)

    def to_dense(self) -> Array:
        """Return the matrix itself, (a b d, a c d)."""
        a, b, c, d = self.pattern
        dense = np.zeros((a, b, d, a, c, d), self.dtype)
        i, j = np.arange(a)[:, None], np.arange(d)[None, :]
        dense[i, :, j, i, :, j] = self.values.transpose(0, 3, 1, 2)
        return self._arrays.asarray(dense.reshape(self.shape))  # type: ignore[no-any-return]

    def diagonal(self) -> Array:
        """Return the diagonal, (min(a b d, a c d),)."""
        _, b, c, d = (max(n, 1) for n in self.pattern)  # of an empty matrix there are no places
        places = np.arange(min(self.shape))
        index, j = np.divmod(places, d)
        (i, k), (block, column) = np.divmod(index, b), np.divmod(index, c)
        entries = np.zeros(len(places), self.dtype)
        inside = np.flatnonzero(i == block)
        entries[inside] = self.values[i[inside], k[inside], column[inside], j[inside]]
        return self._arrays.asarray(entries)  # type: ignore[no-any-return]

    def diagonal_blocks(self) -> DiagonalBlocks:
        """Return the a d interleaved b × b blocks, whose inverses are exact.

        Raises
        ------
        TypeError
            If they are not square.
        """
        a, b, c, d = self.pattern
        if b != c:
            raise TypeError(f"the blocks of {self.pattern} are {b} × {c}; expected square ones")
        numbers = np.arange(a * d)
        pool = self.values.transpose(0, 3, 1, 2).reshape(a * d, b, b)
        return DiagonalBlocks(
            a * d, (pool,), numbers[:, None], numbers, np.ones(a * d), interleaved=d
        )

    def describe(self) -> str:
        """Return a text with the pattern and the number of stored entries."""
        precision = "" if self.precision is None else f"\n  float32 on a GPU as {self.precision}"
        return (
            f"{super().describe()}: pattern (a, b, c, d) = {tuple(self.pattern)}, {self.layout}\n"
            f"  {self.pattern.nonzeros} stored entries instead of {self.shape[0] * self.shape[1]}"
            f"{precision}"
        )


class _MergedSum(KroneckerSparse):
    """A + B, or A - B, of two matrices of one pattern; it follows updates of A and B."""

    def __init__(self, left: KroneckerSparse, right: KroneckerSparse, sign: int) -> None:
        self._summands, self._sign = (left, right), sign
        with building_on(left._backend):
            options = {**left._options, "tune": left._tune or right._tune}
            super().__init__(self._sum(), **options)
        self._place = left._place
        self.args = (left, right)
        for summand in self._summands:
            summand._merged.add(self)

    def _sum(self) -> Array:
        left, right = self._summands
        total: Array = left.values + self._sign * right.values
        return total

    def _recipe(self) -> tuple[Any, ...]:
        return partial(KroneckerSparse, **self._options), (self.values,)

    def merge_again(self) -> None:
        """Take the values that A and B have now."""
        self.update(self._sum())
