"""Helpers for the texts that values say of themselves."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .axis import Axis
from .time_functions import TimeFunction

__all__ = ["axes_text", "count", "named_values", "rows_text", "size_of_state", "time_text"]

_MAX_LENGTH = 60  # characters of a repr that may be a table's; the rest is cut off


def count(number: int, noun: str) -> str:
    """Return "1 cell", "2 cells"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def axes_text(axes: Sequence[Axis]) -> str:
    """Return the axes with their intervals, in a line."""
    return ", ".join(f"{axis.name} in [{axis.lower:.6g}, {axis.upper:.6g}]" for axis in axes)


def time_text(function: TimeFunction) -> str:
    """Return a function of time in a line."""
    return _shortened(function)


def _shortened(value: object) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= _MAX_LENGTH else f"{text[:_MAX_LENGTH]}…"


def rows_text(rows: Sequence[tuple[str, str]]) -> str:
    """Lay out rows of a name and a text, the texts beginning in one column."""
    width = max(len(name) for name, _ in rows) + 2
    return "\n".join(
        f"{name:<{width}}" + text.replace("\n", "\n" + " " * width) for name, text in rows
    )


def named_values(values: Mapping[str, Any]) -> str:
    """Return names and values, one in a line."""
    return "\n".join(f"{name}: {_value_text(value)}" for name, value in values.items())


def _value_text(value: object) -> str:
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value)
    except (TypeError, ValueError):  # anything may be given; only saving it asks for JSON data
        return _shortened(value)


def size_of_state(u: NDArray[np.float64]) -> str:
    """Return the norm of a state's coefficients."""
    return f"‖u‖₂ = {float(np.linalg.norm(u)):.4g}"
