"""Validation of `batchkron.batched_gemm`, a batch of small matrix multiplies."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from batchkron.arrays import array_module, as_array
from batchkron.spec.batch import index_array
from batchkron.spec.kron import Array, compute_dtype, ready, scaled_dtype

Ids = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
"""Indices into a, b and c, each (products,)."""


def gemm_spec(
    a: ArrayLike,
    b: ArrayLike,
    c: ArrayLike | None,
    alpha: complex,
    beta: complex,
    transpose_b: bool,
    given_ids: tuple[ArrayLike | None, ArrayLike | None, ArrayLike | None],
) -> tuple[Array, Array, Array | None, Ids, tuple[int, int, int]]:
    """Validate one call of `batchkron.batched_gemm`.

    Returns a and b, C-contiguous and of the dtype of the result; c as the user passed it; the
    indices into a, b and the result; and the result's shape (count_c, m, n).

    Raises `ValueError`, `TypeError`, `IndexError` as `batchkron.batched_gemm` documents.
    """
    module = array_module(a, b, c)
    left, right = as_array(a, "a", module), as_array(b, "b", module)
    previous = None if c is None else as_array(c, "c", module)
    if beta != 0 and previous is None:
        raise ValueError(f"beta is {beta:g}, but c is missing; pass c, or beta=0 for no sum")
    used = [left, right] if previous is None else [left, right, previous]
    for name, array in zip("abc", used, strict=False):
        if array.ndim != 3:
            raise ValueError(f"{name} has shape {array.shape}; expected (count, rows, columns)")
    inner, n = (right.shape[2], right.shape[1]) if transpose_b else right.shape[1:]
    m, k = left.shape[1:]
    if inner != k:
        raise ValueError(
            f"b has shape {right.shape}; expected {k} {'columns' if transpose_b else 'rows'}, "
            f"because a has {k} columns (transpose_b={transpose_b})"
        )
    if previous is not None and previous.shape[1:] != (m, n):
        raise ValueError(f"c has shape {previous.shape}; expected (count, {m}, {n})")
    summed = used if beta != 0 else used[:2]
    dtype = scaled_dtype(compute_dtype(*summed), alpha, beta)
    ids, count_c = _ids(
        given_ids, len(left), len(right), None if previous is None else len(previous)
    )
    return ready(left, dtype), ready(right, dtype), previous, ids, (count_c, m, n)


def _ids(
    given: tuple[ArrayLike | None, ArrayLike | None, ArrayLike | None],
    count_a: int,
    count_b: int,
    count_c: int | None,
) -> tuple[Ids, int]:
    """Return the three id arrays, checked, and the number of outputs."""
    names = ("a_ids", "b_ids", "c_ids")
    arrays = {
        name: index_array(ids, name, 1)
        for name, ids in zip(names, given, strict=True)
        if ids is not None
    }
    lengths = {name: len(ids) for name, ids in arrays.items()}
    if "a_ids" not in arrays:
        lengths["a"] = count_a
    if "b_ids" not in arrays:
        lengths["b"] = count_b
    products = max(lengths.values())
    if min(lengths.values()) != products:
        text = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise ValueError(f"the numbers of products differ: {text}; give ids of one length")
    complete = [arrays.get(name, np.arange(products)) for name in names]
    if count_c is None:
        count_c = int(complete[2].max()) + 1 if products else 0
    for name, ids, count in zip(names, complete, (count_a, count_b, count_c), strict=True):
        wrong = (ids < 0) | (ids >= count)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise IndexError(f"{name}[{row}] is {ids[row]}; expected 0 to {count - 1}")
    return (complete[0], complete[1], complete[2]), count_c
