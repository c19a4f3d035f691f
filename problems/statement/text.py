"""Helpers for the reprs and summaries of problems and their parts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .axis import Axis
from .time_functions import TimeFunction

__all__ = ["axes_text", "count", "named_values", "rows_text", "size_of_state", "time_text"]

_MAX_LENGTH = 60  # characters of a value in a line; the repr of a long table is cut off there


def count(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural if need be: "1 cell", "2 cells"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def axes_text(axes: Sequence[Axis]) -> str:
    """Return one line with the axes and their intervals: "x in [0, 1], v in [-1, 1]"."""
    return ", ".join(f"{axis.name} in [{axis.lower:.6g}, {axis.upper:.6g}]" for axis in axes)


def time_text(function: TimeFunction) -> str:
    """Return a function of time as one line, cut off if it is long."""
    return _shortened(function)


def _shortened(value: object) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= _MAX_LENGTH else f"{text[:_MAX_LENGTH]}…"


def rows_text(rows: Sequence[tuple[str, str]]) -> str:
    """Return a table of rows (name, text), in which all texts begin in the same column."""
    width = max(len(name) for name, _ in rows) + 2
    return "\n".join(
        f"{name:<{width}}" + text.replace("\n", "\n" + " " * width) for name, text in rows
    )


def named_values(values: Mapping[str, Any]) -> str:
    """Return the names and values of a mapping, one "name: value" per line."""
    return "\n".join(f"{name}: {_value_text(value)}" for name, value in values.items())


def _value_text(value: object) -> str:
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value)
    except (TypeError, ValueError):  # values need to be JSON data only to be saved in a file
        return _shortened(value)


def size_of_state(u: NDArray[np.float64]) -> str:
    """Return the Euclidean norm of a state's coefficients as a text."""
    return f"‖u‖₂ = {float(np.linalg.norm(u)):.4g}"
