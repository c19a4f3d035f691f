"""The tolerance of a step, with which errors of states are compared."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..products import Ranks, Vector, max_over, norm_over, sum_over

__all__ = ["ErrorScale"]


class ErrorScale:
    """Sizes of vectors relative to the tolerance of a state.

    For a number atol the size of e is ‖e‖₂ / (atol + rtol ‖u‖₂), for a vector it is the root of the
    mean square of e_i / (atol_i + rtol |u_i|).

    ``atol`` (float or ndarray, shape (N,)): the absolute tolerance.
    ``ranks``: those that share the vectors, if there are any.
    """

    def __init__(self, rtol: float, atol: float | NDArray[Any], ranks: Ranks | None = None) -> None:
        self.rtol, self._atol, self._ranks = rtol, atol, ranks
        self._is_vector = not isinstance(atol, float)
        self._allowed: Any = math.nan

    def set(self, *states: Vector) -> None:
        """Take the tolerance of these states, the largest one of each element, or of the norms."""
        if self._is_vector:
            largest = abs(states[0])
            for state in states[1:]:
                largest = np.maximum(largest, abs(state))
            self._allowed = self._atol + self.rtol * largest
        else:
            self._allowed = self._atol + self.rtol * max(
                norm_over(self._ranks, state) for state in states
            )

    def size(self, vector: Vector) -> float:
        """Return the size of a vector (N,); 1 is the tolerance. 0 for the vector 0 in any case."""
        if self._is_vector:
            return norm_over(self._ranks, vector / self._allowed) / self._root(vector)
        size = norm_over(self._ranks, vector)
        if size == 0.0:
            return 0.0
        return size / self._allowed if self._allowed > 0.0 else math.inf

    @property
    def smallest(self) -> float:
        """The largest ‖e‖₂ of which the size is at most 1, whatever the direction of e."""
        if not self._is_vector:
            return float(self._allowed)
        least = float(self._allowed.min()) if self._allowed.size else math.inf
        return -max_over(self._ranks, -least) * self._root(self._allowed)

    def weights(self, like: Vector) -> Vector:
        """Return a tolerance for each element of a vector."""
        if self._is_vector:
            return self._allowed  # type: ignore[no-any-return]
        return np.full_like(like.real, self._allowed / self._root(like))

    def _root(self, vector: Vector) -> float:
        """Return the root of the number of elements, those of all ranks."""
        count = sum_over(self._ranks, np.array([float(vector.size)]))[0]
        return math.sqrt(max(count, 1.0))
