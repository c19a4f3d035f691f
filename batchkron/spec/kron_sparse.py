"""Validation of Kronecker-sparse matrices: their patterns, their values, the layout of vectors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike

from batchkron.arrays import array_module, as_array
from batchkron.spec.kron import Array, check_precision, compute_dtype, ready

Layout = Literal["batch-first", "batch-last"]
"""Where a matrix has the axis that it acts on: last in (..., N), or first in (N, ...)."""


class Pattern(NamedTuple):
    """The support I_a ⊗ 1_{b×c} ⊗ I_d of a Kronecker-sparse matrix.

    Attributes
    ----------
    a : int
        Number of diagonal blocks.
    b, c : int
        Rows and columns of the dense matrices in a block.
    d : int
        Number of these dense matrices, which lie interleaved: their entries are d rows, and d
        columns, apart.
    """

    a: int
    b: int
    c: int
    d: int

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the matrix, (a b d, a c d)."""
        return self.a * self.b * self.d, self.a * self.c * self.d

    @property
    def nonzeros(self) -> int:
        """The number of entries that may be non-zero, a b c d."""
        return math.prod(self)


def is_half(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype has 16 bits: float16, or bfloat16 of the package ml_dtypes."""
    return dtype.name in ("float16", "bfloat16")


def value_dtype(values: Array, has_half: bool) -> np.dtype[Any]:
    """Return the dtype in which a matrix of these values is stored.

    It is that of `batchkron.spec.kron.compute_dtype`; where ``has_half``, numbers of 16 bits stay
    as they are, else they become float32.

    Raises `TypeError` for dtypes without kernels.
    """
    if is_half(values.dtype):
        return values.dtype if has_half else np.dtype(np.float32)
    return compute_dtype(values)


def check_layout(layout: str) -> Layout:
    """Return a layout after checking its name.

    Raises `ValueError` if it is not one of `Layout`.
    """
    if layout not in get_args(Layout):
        raise ValueError(f"layout is {layout!r}; expected 'batch-first' or 'batch-last'")
    return layout  # type: ignore[return-value]


def as_pattern(value: Sequence[int], name: str, least: int = 0) -> Pattern:
    """Return a pattern of four integers (a, b, c, d), each at least ``least``.

    Raises `TypeError` if it is not a sequence of integers. `ValueError` if there are not four, or
    one is too small.
    """
    entries = tuple(value) if isinstance(value, Iterable) else None
    if entries is None or not all(
        isinstance(n, (int, np.integer)) and not isinstance(n, bool) for n in entries
    ):
        raise TypeError(f"{name} is {value!r}; expected four integers (a, b, c, d)")
    if len(entries) != 4 or min(entries) < least:
        raise ValueError(
            f"{name} is {value!r}; expected four integers (a, b, c, d), each {least} or more"
        )
    return Pattern(*map(int, entries))


def pattern_of(values: Array, name: str = "values") -> Pattern:
    """Return the pattern of values (a, b, c, d).

    Raises `ValueError` if the array does not have four axes.
    """
    if values.ndim != 4:
        raise ValueError(f"{name} has shape {values.shape}; expected 4 dimensions, (a, b, c, d)")
    return Pattern(*values.shape)


def split_vectors(
    shape: tuple[int, ...], pattern_shape: tuple[int, int], layout: Layout
) -> tuple[int, int, tuple[int, ...]]:
    """Return (outer, inner) of vectors of this shape, and the shape of the result.

    Raises `ValueError` if the vectors do not have as many elements as the matrix has columns.
    """
    rows, columns = pattern_shape
    axis = -1 if layout == "batch-first" else 0
    if len(shape) == 0 or shape[axis] != columns:
        expected = f"(..., {columns})" if layout == "batch-first" else f"({columns}, ...)"
        raise ValueError(f"x has shape {shape}; expected {expected} for layout {layout!r}")
    if layout == "batch-first":
        return math.prod(shape[:-1]), 1, (*shape[:-1], rows)
    return 1, math.prod(shape[1:]), (rows, *shape[1:])


def kron_sparse_call(
    values: ArrayLike, x: ArrayLike, layout: str, precision: str | None = None
) -> tuple[Array, Array, int, int, tuple[int, ...], tuple[Array, Array]]:
    """Validate one call of `batchkron.kronecker_sparse_multiply`.

    Returns values (a, b, c, d) and x, (outer, a c d, inner) elements, C-contiguous and of the dtype
    of the result; outer and inner; the result's shape; and both as the user passed them: an output
    must not overlap them.

    Raises `ValueError`, `TypeError` as `batchkron.kronecker_sparse_multiply` documents.
    """
    module = array_module(values, x)
    given, vectors = as_array(values, "values", module), as_array(x, "x", module)
    pattern = pattern_of(given)
    outer, inner, shape = split_vectors(vectors.shape, pattern.shape, check_layout(layout))
    check_precision(precision)
    if module is not np and given.dtype == vectors.dtype and is_half(given.dtype):
        dtype = given.dtype
    else:
        dtype = compute_dtype(given, vectors)
    matrices, x = ready(given, dtype), ready(vectors, dtype)
    return matrices, x, outer, inner, shape, (given, vectors)
