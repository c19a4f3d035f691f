"""Equal matrices among many small ones."""

from __future__ import annotations

import numpy as np

from batchkron.operators.couplings import Ids
from batchkron.spec.kron import Array

__all__ = ["distinct_matrices"]


def distinct_matrices(matrices: Array) -> tuple[Ids, Ids]:
    """Return the distinct ones of matrices (count, rows, columns), compared by their bytes.

    They are given by where each first occurs, ascending, and by which of them each matrix equals.
    There may be no negative zeros, which differ from positive ones.

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
