"""Identities among the factors of a Kronecker product, which are not multiplied.

In lists of factors for backends an int n stands for the identity of n rows. `IdentityFactor` marks
one in the user's lists, and a matrix of `identity_matrix` in an operator's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[Any]


class IdentityFactor:
    """The base class of what users pass as a factor to say that it is an identity."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]


# Size of identities that are larger, and fit into no array: so that all sizes fit into 64 bits.
_MAX_SIZE = 2**62

Factor: TypeAlias = ArrayLike | IdentityFactor
"""What users pass as a factor."""


def identity_matrix(size: int, dtype: Any) -> Array:
    """Return the identity as a read-only matrix (n, n) in memory for 2 n - 1 elements.

    Its rows are windows of one vector of zeros around a 1, so `is_identity` knows it at once.
    """
    if size == 0:
        return np.eye(0, dtype=dtype)
    vector = np.zeros(2 * size - 1, dtype)
    vector[size - 1] = 1
    return np.lib.stride_tricks.sliding_window_view(vector, size)[::-1]


def is_identity(factor: Any) -> bool:
    """Whether a factor is a matrix of `identity_matrix`, or the transpose of one."""
    if not isinstance(factor, np.ndarray) or factor.ndim != 2 or 0 in factor.shape:
        return False
    if factor.shape == (1, 1):
        return bool(factor[0, 0] == 1)
    down, across = factor.strides
    if factor.shape[0] != factor.shape[1] or down != -across or abs(down) != factor.itemsize:
        return False
    ends = factor[0], factor[:, 0]
    return bool(factor[0, 0] == 1) and all(np.count_nonzero(end) == 1 for end in ends)


def multiple_of_identity(matrix: Array) -> Any:
    """Return c if a matrix is exactly c I with a finite c that is not 0, else None."""
    if is_identity(matrix):
        return matrix[0, 0]
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
        return None
    scale = matrix[0, 0]
    if scale == 0 or not np.isfinite(scale) or np.count_nonzero(matrix[0]) > 1:
        return None
    is_multiple = (matrix.diagonal() == scale).all() and np.count_nonzero(matrix) == len(matrix)
    return scale if is_multiple else None


def with_marks_as_matrices(factors: Sequence[Any], dtype: Any = None) -> list[Any]:
    """Return the user's factors with `identity_matrix` for each mark.

    Without ``dtype`` that of a mark counts only if all factors are marks.
    """
    marks = [factor for factor in factors if isinstance(factor, IdentityFactor)]
    if marks and dtype is None:
        every = len(marks) == len(factors)
        dtype = np.result_type(*[mark.dtype for mark in marks]) if every else np.float32
    return [
        identity_matrix(factor.shape[0], dtype) if isinstance(factor, IdentityFactor) else factor
        for factor in factors
    ]


def merged_identities(factors: Sequence[Any]) -> tuple[int, list[Any], int]:
    """Take the identities at both ends off a list of matrices and ints, and merge those between.

    Returns ``before``: rows of the identity before the other factors; 1 if there are no others;
    ``factors``: matrices, and ints between them; empty if there are only ints; ``behind``: rows of
    the identity behind the other factors.
    """
    merged: list[Any] = []
    for factor in factors:
        if isinstance(factor, int) and merged and isinstance(merged[-1], int):
            merged[-1] = min(merged[-1] * factor, _MAX_SIZE)
        else:
            merged.append(factor)
    behind = merged.pop() if isinstance(merged[-1], int) else 1
    before = merged.pop(0) if merged and isinstance(merged[0], int) else 1
    return (
        before,
        [factor for factor in merged if not (type(factor) is int and factor == 1)],
        behind,
    )


def runs_between_identities(
    inputs: Sequence[int], outputs: Sequence[int], skipped: Sequence[bool]
) -> Iterator[tuple[int, int, int, int]]:
    """Yield the runs of neighbouring factors that are not skipped, the last one first.

    A run is (low, high, before, behind): the factors ``low`` to ``high - 1``, and the products of
    the sizes of the axes before and behind them when all later runs are multiplied.
    """
    high = len(skipped)
    while high > 0:
        low = high
        while low > 0 and not skipped[low - 1]:
            low -= 1
        if low < high:
            yield low, high, math.prod(inputs[:low]), math.prod(outputs[high:])
        high = low - 1


def sizes_of(factors: Sequence[Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the rows and the columns of factors (..., rows, columns), of which some are ints."""
    shapes = [(one, one) if isinstance(one, int) else one.shape[-2:] for one in factors]
    return tuple(rows for rows, _ in shapes), tuple(columns for _, columns in shapes)


def skipped_modes(factors: Sequence[Any]) -> tuple[bool, ...]:
    """Return which factors are ints; an empty tuple if none is."""
    flags = tuple(isinstance(factor, int) for factor in factors)
    return flags if any(flags) else ()
