"""Checks of the sizes that chains are built from."""

from __future__ import annotations

from typing import Any

import numpy as np


def checked_size(value: Any, name: str) -> int:
    """Return a size, an integer of at least 1.

    Raises `TypeError` if it is not an integer. `ValueError` if it is less than 1.
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} is {value!r}; expected an integer")
    if value < 1:
        raise ValueError(f"{name} is {value}; expected 1 or more")
    return int(value)


def exponent(N: int, t: int = 1) -> int:
    """Return L, at least 1, of N = 2^L t.

    Raises `ValueError` if there is none.
    """
    power, rest = divmod(N, t)
    if rest or power < 2 or power & (power - 1):
        times = "" if t == 1 else f"{t} times "
        raise ValueError(f"N is {N}; expected {times}a power of two, 2 or more")
    return power.bit_length() - 1
