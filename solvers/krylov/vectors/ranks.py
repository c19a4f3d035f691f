"""Vectors that are spread over ranks: sums over all of them."""

from __future__ import annotations

import inspect
import math
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from batchkron.attributes import attribute
from batchkron.operators import Operator

from ...products import Vector, dot, norm, norms_of


class Ranks(Protocol):
    """What a method needs of the ranks that share its vectors (`batchkron.distributed`)."""

    @property
    def rank(self) -> int:
        """The number of this rank."""
        ...

    @property
    def size(self) -> int:
        """The number of ranks."""
        ...

    @property
    def capturable(self) -> bool:
        """Whether what ranks do on a device may be captured in a CUDA graph."""
        ...

    def allreduce(self, values: NDArray[Any], *, maxima: bool = False) -> None:
        """Replace numbers by their sums over the ranks, or maxima, with the same bits on each."""
        ...

    def gather_into(self, values: Vector, gathered: Vector) -> None:
        """Write the values (n,) of all ranks to ``gathered``, (size, n), on a device."""
        ...


class OnRanks:
    """An operator of solvers whose vectors may be spread over ranks."""

    communicator: Ranks | None = None


def ranks_of(operator: Any) -> Ranks | None:
    """Return the ranks that share the vectors of an operator; None if it has them alone."""
    known = isinstance(operator, (Operator, OnRanks))
    ranks: Ranks | None = operator.communicator if known else None
    return None if ranks is None or ranks.size == 1 else ranks


def ranks_of_problem(problem: Any) -> Ranks | None:
    """Return the ranks that share the state of a problem in time; None if it has it alone.

    Its ``communicator`` counts if that is one of `batchkron.distributed`; otherwise those of the
    operators that it holds. Operators that are made for each question are not looked at.
    """
    given = attribute(problem, "communicator")
    if given is not None and _has_maxima(given):
        return None if given.size == 1 else given
    held = getattr(problem, "__dict__", {})
    found = (ranks_of(held.get(name)) for name in ("operator", "implicit_operator"))
    return next((ranks for ranks in found if ranks is not None), None)


def _has_maxima(ranks: Any) -> bool:
    """Whether an object's ``allreduce`` is that of `Ranks`; mpi4py's is not."""
    try:
        return "maxima" in inspect.signature(ranks.allreduce).parameters
    except (AttributeError, TypeError, ValueError):
        return False


def sum_over(ranks: Ranks | None, values: NDArray[Any]) -> NDArray[Any]:
    """Return numbers, (n,), or their sums over the ranks; they are overwritten."""
    if ranks is not None:
        ranks.allreduce(values)
    return values


def max_over(ranks: Ranks | None, value: float) -> float:
    """Return a number, or the largest one of all ranks."""
    if ranks is None:
        return value
    values = np.array([value], np.float64)
    ranks.allreduce(values, maxima=True)
    return float(values[0])


def any_over(ranks: Ranks | None, value: bool) -> bool:
    """Return whether a condition holds on any rank."""
    return bool(max_over(ranks, float(value)))


def dot_over(ranks: Ranks | None, x: Vector, y: Vector) -> complex:
    """Return (x, y) = Σ conj(x_i) y_i of vectors of which each rank has some elements."""
    return complex(sum_over(ranks, np.array([dot(x, y)]))[0])


def norm_over(ranks: Ranks | None, x: Vector) -> float:
    """Return ‖x‖₂ of a vector of which each rank has some elements; `norm` if one has all.

    Every rank has the same result, so that all of them decide alike.
    """
    if ranks is None:
        return norm(x)
    limits = np.finfo(x.dtype)
    square = dot_over(ranks, x, x).real
    if limits.tiny / limits.eps < square < math.inf:
        return math.sqrt(square)
    return float(norms_over(ranks, x[None])[0])


def norms_over(ranks: Ranks | None, rows: Vector) -> NDArray[np.float64]:
    """Return the norms (k,) of vectors (k, n) of which each rank has n elements.

    Squares neither overflow nor underflow.
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
