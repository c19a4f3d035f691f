"""Callbacks of click's options, which check and convert values of the command line."""

from __future__ import annotations

import math
import re
from itertools import pairwise

import click

__all__ = ["checkpoint_interval", "finite_number", "level_list", "levels", "positive_number"]

_INTERVAL = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(s|min|h)?", re.ASCII)
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}  # seconds in each unit of time


def finite_number(
    context: click.Context, parameter: click.Parameter, value: float | None
) -> float | None:
    """Return the value of an option if it is finite.

    Raises `click.BadParameter` if it is NaN or infinite.
    """
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is out of range; expected a finite number.")
    return value


def positive_number(
    context: click.Context, parameter: click.Parameter, value: float | None
) -> float | None:
    """Return the value of an option if it is finite and greater than 0.

    Raises `click.BadParameter` if it is not.
    """
    if value is not None and not 0.0 < value < math.inf:
        raise click.BadParameter(f"{value} is out of range; expected a finite number > 0.")
    return value


def levels(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> int | tuple[int, ...] | None:
    """Return the level for all axes from a text such as "6", or one per axis from "6,5".

    Raises
    ------
    click.BadParameter
        If the text is neither.
    """
    if value is None:
        return None
    words = value.split(",")
    if not all(re.fullmatch(r"[0-9]{1,4}", word, re.ASCII) for word in words):
        raise click.BadParameter(
            f"{value!r} is not a level; expected a whole number such as 6, or one per axis such "
            f"as 6,5."
        )
    numbers = tuple(int(word) for word in words)
    return numbers[0] if len(numbers) == 1 else numbers


def level_list(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> tuple[int, ...] | None:
    """Return ascending levels from a text: "3:7" stands for 3 to 7, or a list such as "2,4,6".

    Raises `click.BadParameter` if the text is neither, or has fewer than two levels.
    """
    if value is None:
        return None
    if bounds := re.fullmatch(r"([0-9]{1,4}):([0-9]{1,4})", value, re.ASCII):
        found = tuple(range(int(bounds[1]), int(bounds[2]) + 1))
    elif re.fullmatch(r"[0-9]{1,4}(,[0-9]{1,4})*", value, re.ASCII):
        found = tuple(int(word) for word in value.split(","))
    else:
        found = ()
    if len(found) < 2 or any(a >= b for a, b in pairwise(found)):
        raise click.BadParameter(
            f"{value!r} is no range of levels; expected two ascending levels or more, such as 3:7 "
            f"or 2,4,6."
        )
    return found


def checkpoint_interval(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> int | float | None:
    """Return a number of steps (an int, from "500"), or seconds (a float, from "30s", "10min").

    Raises `click.BadParameter` if the text is neither.
    """
    if value is None:
        return None
    found = _INTERVAL.fullmatch(value)
    number = float(found[1]) if found else 0.0
    unit = found[2] if found else None
    if not 0.0 < number < math.inf or (unit is None and not number.is_integer()):
        raise click.BadParameter(
            f"{value!r} is not an interval; expected a number of steps such as 500, or a time "
            f"with its unit such as 30s, 10min or 1h."
        )
    return int(number) if unit is None else number * _SECONDS[unit]
