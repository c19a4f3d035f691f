"""The limits of a solve, and the user's callback."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...products import Vector

_ITERATIONS_PER_UNKNOWN = 10  # default of maxiter / N, as in SciPy


class SolveLimits:
    """The tolerances and the largest number of iterations of a solve, and the user's callback.

    ValueError or TypeError if one of them is not what the functions document.
    """

    def __init__(
        self,
        rtol: float,
        atol: float,
        maxiter: int | None,
        callback: Callable[[Any], object] | None = None,
    ) -> None:
        check_tolerances(rtol, atol)
        self.rtol, self.atol = rtol, atol
        self._maxiter = None if maxiter is None else check_count("maxiter", maxiter)
        if callback is not None and not callable(callback):
            raise TypeError(f"callback is a {type(callback).__name__}; expected a function.")
        self.callback = callback
        self.confirms = True  # whether true residuals decide, not only their estimates
        self.norm_b, self.unknowns = 1.0, 0
        self.max_iterations = self.max_cycles = math.inf

    def begin_solve(self, size: int) -> None:
        """Set the limits for systems of N unknowns."""
        self.unknowns = size
        self.max_iterations = self._maximum()

    def _maximum(self) -> int:
        default = max(_ITERATIONS_PER_UNKNOWN * self.unknowns, 1)
        return default if self._maxiter is None else self._maxiter

    def iteration_ended(self, estimate: float, x: Vector) -> None:
        """Call back; ``estimate`` is that of the residual's norm."""
        seen = x.view()
        if isinstance(seen, np.ndarray):
            seen.flags.writeable = False
        assert self.callback is not None
        self.callback(seen)

    def cycle_ended(self, x: Vector) -> None:
        """Do nothing: only methods with cycles call back here."""


def check_tolerances(rtol: float, atol: float) -> None:
    """Raise ValueError unless rtol and atol are numbers ≥ 0."""
    for name, value in (("rtol", rtol), ("atol", atol)):
        if not (isinstance(value, (int, float, np.number)) and float(value) >= 0.0):
            raise ValueError(f"{name} is {value!r}; expected a number >= 0.")


def check_count(name: str, value: Any, *, minimum: int = 1) -> int:
    """Return ``value`` as an int ≥ ``minimum``; TypeError or ValueError if it is none."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} is {value!r}; expected an integer >= {minimum}.")
    if value < minimum:
        raise ValueError(f"{name} is {value}; expected an integer >= {minimum}.")
    return int(value)
