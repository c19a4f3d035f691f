"""Vectors that are spread over ranks: sums over all of them."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from batchkron.operators import Operator

from ..products import Vector, norms_of

__all__ = ["Ranks", "norms_over", "ranks_of"]


class Ranks(Protocol):
    """What a method needs of the ranks that share its vectors (`batchkron.distributed`)."""

    @property
    def size(self) -> int:
        """The number of ranks."""
        ...

    def allreduce(self, values: NDArray[Any], *, maxima: bool = False) -> None:
        """Replace numbers by their sums over the ranks, or maxima, with the same bits on each."""
        ...


def ranks_of(operator: Any) -> Ranks | None:
    """Return the ranks that share the vectors of an operator; None if it has them alone.

    Parameters
    ----------
    operator : object
        Anything that solvers take.

    Returns
    -------
    Ranks or None
    """
    ranks: Ranks | None = operator.communicator if isinstance(operator, Operator) else None
    return None if ranks is None or ranks.size == 1 else ranks


def norms_over(ranks: Ranks | None, rows: Vector) -> NDArray[np.float64]:
    """Return the norms (k,) of vectors (k, n) of which each rank has n elements.

    Parameters
    ----------
    ranks : Ranks or None
        None if the n elements are all.
    rows : ndarray, (k, n)

    Returns
    -------
    ndarray of float64, (k,)
        Without overflow or underflow of squares.
    """
    norms = norms_of(rows)
    if ranks is None:
        return norms
    largest = norms.copy()
    ranks.allreduce(largest, maxima=True)
    unit = np.where((largest > 0) & np.isfinite(largest), largest, 1.0)
    squares = (norms / unit) ** 2
    ranks.allreduce(squares)
    return unit * np.sqrt(squares)
