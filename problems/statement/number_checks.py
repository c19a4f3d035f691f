"""Checks of arguments that must be numbers."""

from __future__ import annotations

import sys
from numbers import Real
from typing import TypeGuard

import numpy as np

__all__ = ["check_integer", "finite_number", "is_number"]


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a real number; True and False do not count as numbers."""
    return isinstance(value, Real) and not isinstance(value, bool)


def finite_number(name: str, value: float) -> float:
    """Return a number as a float; raise TypeError or ValueError unless it is real and finite.

    ``name`` is the argument's name in the error text.
    """
    if not is_number(value):
        raise TypeError(f"{name} must be a real number, got {type(value).__name__}")
    if isinstance(value, np.floating):  # comparing a float32 with the largest float64 overflows
        value = float(value)
    if not abs(value) <= sys.float_info.max:
        came = value if isinstance(value, float) else "an integer beyond it"
        raise ValueError(f"{name} must be finite and within float64's range, got {came}")
    return float(value)


def check_integer(name: str, value: int, largest: int) -> int:
    """Return an integer as an int; raise TypeError or ValueError unless it is in 0 … largest.

    ``name`` is the argument's name in the error text.
    """
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
        raise TypeError(f"{name} is {type(value).__name__}; expected an integer")
    if not 0 <= value <= largest:
        raise ValueError(f"{name} is {value}; expected 0 … {largest}")
    return int(value)
