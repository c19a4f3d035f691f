"""The bidiagonalisation of Golub and Kahan, for many right-hand sides at once."""

from __future__ import annotations

from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module

from ..products import Vector, norms_of
from ..rows import scaled
from .rectangular import Rectangular

__all__ = ["Bidiagonal", "Estimates", "Numbers", "Recurrence", "Rows", "rotation"]

Numbers = NDArray[np.float64]


class Rows:
    """Attributes that are arrays with a row or a number for each system."""

    def keep(self, kept: NDArray[np.bool_]) -> None:
        """Go on with some systems only."""
        for name, value in vars(self).items():
            place = array_module(value).asarray(np.flatnonzero(kept))
            setattr(self, name, value[place])


class Bidiagonal(Rows):
    """A V_k = U_(k+1) B_k, with rows u, v and the latest entries alpha, beta of B, of each system.

    Residuals are in units of ``unit_b``, A in units of ``unit_A``: both begin with 1, so that no
    square of them leaves the range of numbers.
    """

    def __init__(self, A: Rectangular, residuals: Vector) -> None:
        self.unit_b = norms_of(residuals)
        self.u = _divided(residuals, self.unit_b)
        self.v = A.adjoint(self.u)
        self.unit_A = norms_of(self.v)
        self.v = _divided(self.v, self.unit_A)
        self.alpha = np.where(self.unit_A > 0, 1.0, 0.0)
        self.beta = np.where(self.unit_b > 0, 1.0, 0.0)

    def step(self, A: Rectangular) -> None:
        """Extend the bases: beta u = A v - alpha u, alpha v = A* u - beta v."""
        unit = _inverse(self.unit_A)
        self.u = scaled(A.forward(self.v), unit) - scaled(self.u, self.alpha)
        self.beta = norms_of(self.u)
        self.u = _divided(self.u, self.beta)
        self.v = scaled(A.adjoint(self.u), unit) - scaled(self.v, self.beta)
        self.alpha = norms_of(self.v)
        self.v = _divided(self.v, self.alpha)


def _inverse(numbers: Numbers) -> Numbers:
    return 1.0 / np.where(numbers > 0, numbers, 1.0)


def _divided(rows: Vector, lengths: Numbers) -> Vector:
    return scaled(rows, _inverse(lengths))


Estimates: TypeAlias = tuple[Numbers, Numbers, Numbers, Numbers]
"""What a recurrence knows of each system, in the units of its `Bidiagonal`: the norms
(‖b - A x‖² + damp² ‖x‖²)^½, ‖A* (b - A x) - damp² x‖ and ‖A‖, and A's condition number."""


class Recurrence(Protocol):
    """A method: x (k, N), in units of unit_b / unit_A, from one bidiagonalisation.

    It is made of the `Bidiagonal` and of damp in units of unit_A, (k,).
    """

    x: Vector

    def __init__(self, bases: Bidiagonal, damp: Numbers) -> None: ...

    def step(self, bases: Bidiagonal) -> Estimates:
        """Update x after a step of the bases."""
        ...

    def keep(self, kept: NDArray[np.bool_]) -> None:
        """Go on with some systems only."""
        ...


def rotation(a: Numbers, b: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Return c, s, r of the rotations that turn (a, b) into (r, 0), 1, 0, 0 for (0, 0)."""
    r = np.hypot(a, b)
    unit = np.where(r > 0, r, 1.0)
    return np.where(r > 0, a / unit, 1.0), b / unit, r
