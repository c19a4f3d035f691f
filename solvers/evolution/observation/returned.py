"""What functions of the user return, after a check that it is a number."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np

from batchkron.arrays import refuse_masked

__all__ = ["number_or_bool"]


def number_or_bool(given: Any, what: str, t: float) -> float | bool:
    """Return a real number or a bool, also one that is an array's only element.

    ``given``: the value; arrays of any library with ``shape`` and ``item()``.
    ``what``: the function that returned it, for the error.
    ``t``: the time, for the error.

    Raises `TypeError` if it is something else: None, a complex number, text, or several numbers.
    """
    refuse_masked(given, f"what {what} returns")
    found = given
    if hasattr(found, "item") and math.prod(getattr(found, "shape", (0,))) == 1:
        found = found.item()
    if isinstance(found, bool | np.bool_):
        return bool(found)
    is_complex = isinstance(found, numbers.Complex) and not isinstance(found, numbers.Real)
    if is_complex or not hasattr(type(found), "__float__") or getattr(found, "shape", ()) != ():
        shape = getattr(given, "shape", ())
        came = f"an array of shape {tuple(shape)}" if shape else f"a {type(found).__name__}"
        raise TypeError(
            f"{what} returns {came} at t = {t:.10g}; expected a real number, or a bool, or an "
            "array with one of them."
        )
    try:
        return float(found)
    except OverflowError:  # an integer beyond all floats
        return math.inf if found > 0 else -math.inf
