"""Which arguments are numbers."""

from __future__ import annotations

import sys
from numbers import Real
from typing import TypeGuard

__all__ = ["finite_number", "is_number"]


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a real number; truth values are none."""
    return isinstance(value, Real) and not isinstance(value, bool)


def finite_number(name: str, value: float) -> float:
    """Return the number as a float, or raise what is wrong with the argument `name`."""
    if not is_number(value):
        raise TypeError(f"{name} must be a real number, got {type(value).__name__}")
    if not abs(value) <= sys.float_info.max:
        came = value if isinstance(value, float) else "an integer beyond it"
        raise ValueError(f"{name} must be finite and within float64's range, got {came}")
    return float(value)
