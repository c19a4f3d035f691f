"""Equal matrices among many small ones."""

from __future__ import annotations

import numpy as np

from batchkron.operators.couplings import Ids
from batchkron.spec.kron import Array

__all__ = ["distinct_matrices"]


def distinct_matrices(matrices: Array) -> tuple[Ids, Ids]:
    """Return the distinct ones of some matrices of equal sizes, compared by their bytes.

    Parameters
    ----------
    matrices : ndarray, (count, rows, columns)
        Without negative zeros, which differ from positive ones.

    Returns
    -------
    first : ndarray of int64, (distinct,)
        Where each distinct matrix first occurs, ascending.
    numbers : ndarray of int64, (count,)
        Which of them each matrix equals.

    Examples
    --------
    >>> import numpy as np
    >>> distinct_matrices(np.array([[[2.0]], [[1.0]], [[2.0]]]))
    (array([0, 1]), array([0, 1, 0]))
    """
    count, width = len(matrices), matrices[:1].nbytes
    if not count or not width:
        return np.arange(min(count, 1)), np.zeros(count, np.int64)
    rows = np.ascontiguousarray(matrices).reshape(count, -1)
    as_bytes = rows.view(np.dtype((np.void, width))).ravel()
    _, first, inverse = np.unique(as_bytes, return_index=True, return_inverse=True)
    order = np.argsort(first)
    ranks = np.empty_like(order)
    ranks[order] = np.arange(order.size)
    return first[order], ranks[inverse]
