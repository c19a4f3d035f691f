"""Eigenvalues in ascending order, or some of them, with the eigenvectors that belong to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from batchkron.arrays import to_host
from batchkron.spec.kron import Array

if TYPE_CHECKING:
    from batchkron.operators.direct_methods import DirectOperator

__all__ = ["arranged"]


def arranged(
    pairs: tuple[Array, DirectOperator[Any]], sort: bool, k: int | None
) -> tuple[Array, Any]:
    """Return eigenvalues and eigenvectors as the arguments ``sort`` and ``k`` of `eigh` say.

    Raises `TypeError` if ``sort`` is not a bool, or k not an integer. `ValueError` if k is 0 or
    beyond the number of values, or there are several systems.
    """
    values, vectors = pairs
    if not isinstance(sort, (bool, np.bool_)):
        raise TypeError(f"sort is {sort!r}; expected True or False")
    if not sort and k is None:
        return values, vectors
    if values.ndim > 1:
        raise ValueError(
            f"there are systems of batch_shape {values.shape[:-1]}, each with an order of its own; "
            "expected sort=False and k=None. eigvalsh() sorts the values of each"
        )
    count = _chosen(k, len(values))
    order = np.argsort(to_host(values, "values"), kind="stable")
    order = order[:count] if count >= 0 else order[count:]
    (places,) = vectors._backend.place([order])
    if k is None:
        return values[places], vectors._in_order(order)
    unit = vectors._arrays.zeros((vectors.shape[1], len(order)), vectors.dtype)
    unit[places, vectors._arrays.arange(len(order))] = 1
    return values[places], vectors.matmat(unit)


def _chosen(k: Any, size: int) -> int:
    """Return k, or the number of values for None."""
    if k is None:
        return size
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)):
        raise TypeError(f"k is {k!r}; expected a number of eigenvalues, such as 6 or -6")
    count = int(k)
    if not 1 <= abs(count) <= size:
        raise ValueError(
            f"k is {k}; expected 1 to {size} for the smallest eigenvalues, or -1 to -{size} for "
            "the largest"
        )
    return count
