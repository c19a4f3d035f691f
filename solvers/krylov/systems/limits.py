"""The limits of a solve, and the user's callback."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...products import Vector
from .layouts import from_systems
from .system import check_count

_ITERATIONS_PER_UNKNOWN = 10  # default of maxiter / N, as in SciPy


class SolveLimits:
    """The limits of a solve, and the user's callback.

    Parameters
    ----------
    maxiter : int or None
        The largest number of iterations; 10 N by default.
    callback : callable or None
        Called with the iterate after each iteration: a read-only view.
    """

    def __init__(
        self, maxiter: int | None, callback: Callable[[Any], object] | None = None
    ) -> None:
        self._maxiter = None if maxiter is None else check_count("maxiter", maxiter)
        if callback is not None and not callable(callback):
            raise TypeError(f"callback is a {type(callback).__name__}; expected a function.")
        self.callback = callback
        self.norm_b = 1.0
        self.max_iterations = self.max_cycles = math.inf

    def begin_solve(self, size: int) -> None:
        """Set the limits for systems of N unknowns."""
        self.max_iterations = self._max_iterations(size)

    def _max_iterations(self, size: int) -> int:
        return max(_ITERATIONS_PER_UNKNOWN * size, 1) if self._maxiter is None else self._maxiter

    def iteration_ended(self, estimate: float, x: Vector, batched: str | None) -> None:
        """Call back."""
        seen = from_systems(x, batched).view()
        if isinstance(seen, np.ndarray):
            seen.flags.writeable = False
        assert self.callback is not None
        self.callback(seen)

    def cycle_ended(self, x: Vector, batched: str | None) -> None:
        """Do nothing: only methods with cycles call back here."""
