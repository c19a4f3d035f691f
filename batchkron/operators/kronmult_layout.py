"""The layout of kronmult's arguments: column-major matrices in one array, places as offsets."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from batchkron.arrays import to_host
from batchkron.spec.batch import index_array
from batchkron.spec.kron import Array

__all__ = ["PoolsOf", "bases_of", "block_ids", "offsets_of", "pools_of_layout"]

Ids = NDArray[np.int64]


PoolsOf: TypeAlias = Callable[[ArrayLike], list[Array]]
"""Returns the pools of matrices in one array of numbers, one (matrices_k, n, n) per mode."""


def pools_of_layout(
    matrices: ArrayLike, lda: int | None, offsets: ArrayLike, n: int
) -> tuple[PoolsOf, Ids]:
    """Return what finds the distinct matrices of each mode, and the number in its pool of each one.

    Matrices are (elements,), or (rows, columns), whose rows are the leading dimension if ``lda`` is
    None; offsets (products, modes). The text of an error names the first wrong entry.
    """
    given = to_host(matrices, "matrices")
    size = operator.index(n)
    leading = (given.shape[0] if given.ndim == 2 else size) if lda is None else operator.index(lda)
    if size < 1 or leading < size:
        raise ValueError(
            f"n is {size} and lda {leading}; expected n >= 1, and a leading dimension of at least n"
        )
    places = index_array(offsets, "matrix_offsets", 2)
    length = len(_elements(given))
    last = length - (leading * (size - 1) + size)
    wrong = np.argwhere((places < 0) | (places > last))
    if wrong.size:
        row, mode = wrong[0].tolist()
        raise IndexError(
            f"matrix_offsets[{row}, {mode}] is {places[row, mode]}; expected 0 to {last}, from "
            f"which a {size} × {size} matrix with lda {leading} fits into {length} elements"
        )
    found = [np.unique(column, return_inverse=True) for column in places.T]
    ids = np.empty(places.shape, np.int64)
    for k, (_, numbers) in enumerate(found):
        ids[:, k] = numbers
    return partial(_pools, [first for first, _ in found], size, leading, length), ids


def _pools(
    offsets: Sequence[Ids], size: int, lda: int, length: int, matrices: ArrayLike
) -> list[Array]:
    """Return the pools of matrices that begin at offsets; entry (i, j) is lda · j + i further."""
    values = _elements(matrices)
    if len(values) != length:
        raise ValueError(
            f"matrices has {len(values)} elements; expected {length}, as when the operator was "
            "built"
        )
    steps = np.arange(size)
    inside = steps[:, None] + lda * steps[None, :]
    return [values[first[:, None, None] + inside] for first in offsets]


def block_ids(offsets: ArrayLike, name: str, size: int) -> Ids:
    """Return the numbers of blocks of ``size`` elements from where they begin."""
    places = index_array(offsets, name, 1)
    blocks, rest = np.divmod(places, size)
    for wrong, error, expected in (
        (places < 0, IndexError, "0 or more"),
        (rest != 0, ValueError, f"a multiple of {size}, the elements of a block"),
    ):
        if wrong.any():
            b = int(np.argmax(wrong))
            raise error(f"{name}[{b}] is {places[b]}; expected {expected}")
    return blocks


def offsets_of(addresses: ArrayLike, base: int, itemsize: int, name: str, axes: int) -> Ids:
    """Return offsets in elements from addresses in bytes."""
    given = np.asarray(to_host(addresses, name))
    places = index_array(given.astype(np.int64) if given.dtype == np.uint64 else given, name, axes)
    offsets, rest = np.divmod(places - operator.index(base), itemsize)
    if rest.any():
        first = tuple(np.argwhere(rest)[0].tolist())
        raise ValueError(
            f"{name}[{', '.join(map(str, first))}] is {places[first]:#x}, which is no whole number "
            f"of elements of {itemsize} bytes from the base {base:#x}"
        )
    return offsets


def _elements(matrices: ArrayLike) -> Array:
    """Return all elements of an array in the order of columns."""
    given: Any = to_host(matrices, "matrices")
    if given.ndim not in (1, 2):
        raise ValueError(
            f"matrices has shape {given.shape}; expected one axis, or two of one large matrix"
        )
    return given.reshape(-1, order="F")  # type: ignore[no-any-return]


def bases_of(bases: Sequence[int]) -> tuple[int, int, int]:
    """Return the addresses of the arrays of matrices, of x and of y."""
    found = [operator.index(base) for base in bases]
    if len(found) != 3:
        raise ValueError(f"bases has {len(found)} addresses; expected those of matrices, x and y")
    return found[0], found[1], found[2]
