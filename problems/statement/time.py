"""Functions that make functions of time, and read them from JSON.

Users import them from `batchkron.problems.time`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from .number_checks import finite_number
from .time_functions import (
    MAXIMUM_DEPTH,
    MAXIMUM_SIZE,
    Constant,
    Cosine,
    Exponential,
    Polynomial,
    Sine,
    Spline,
    TimeFunction,
    check_size,
    product_of,
    sum_of,
)

__all__ = [
    "MAXIMUM_DEPTH",
    "MAXIMUM_SIZE",
    "TimeFunction",
    "constant",
    "cos",
    "exp",
    "from_json",
    "polynomial",
    "sin",
    "spline",
]


def constant(value: float = 1.0) -> TimeFunction:
    """Return the constant function c.

    Parameters
    ----------
    value : float
        The constant c.

    Returns
    -------
    TimeFunction

    Examples
    --------
    >>> constant(2.5)(7.0)
    2.5
    """
    return Constant(finite_number("value", value))


def polynomial(coefficients: Sequence[float]) -> TimeFunction:
    """Return the polynomial Σ_k c_k t^k.

    Parameters
    ----------
    coefficients : sequence of float
        c_0, c_1, …; an empty sequence is the zero function.

    Returns
    -------
    TimeFunction

    Examples
    --------
    >>> polynomial([1.0, 0.0, 3.0])(2.0)
    13.0
    """
    values = [finite_number(f"coefficients[{k}]", c) for k, c in enumerate(coefficients)]
    while values and values[-1] == 0.0:
        values.pop()
    check_size(len(values))
    if len(values) < 2:
        return Constant(values[0] if values else 0.0)
    return Polynomial(tuple(values))


def sin(omega: float, phase: float = 0.0) -> TimeFunction:
    """Return sin(omega t + phase).

    Parameters
    ----------
    omega : float
        Angular frequency, radians per unit of time.
    phase : float
        Phase in radians.

    Returns
    -------
    TimeFunction

    Examples
    --------
    >>> sin(2.0).derivative()(0.0)
    2.0
    """
    frequency, shift = finite_number("omega", omega), finite_number("phase", phase)
    return Sine(frequency, shift) if frequency else Constant(math.sin(shift))


def cos(omega: float, phase: float = 0.0) -> TimeFunction:
    """Return cos(omega t + phase).

    Parameters
    ----------
    omega : float
        Angular frequency, radians per unit of time.
    phase : float
        Phase in radians.

    Returns
    -------
    TimeFunction

    Examples
    --------
    >>> cos(3.0)(0.0)
    1.0
    """
    frequency, shift = finite_number("omega", omega), finite_number("phase", phase)
    return Cosine(frequency, shift) if frequency else Constant(math.cos(shift))


def exp(rate: float) -> TimeFunction:
    """Return exp(rate t).

    Parameters
    ----------
    rate : float
        Growth (or, if negative, decay) per unit of time.

    Returns
    -------
    TimeFunction

    Examples
    --------
    >>> exp(-2.0).derivative()(0.0)
    -2.0
    """
    value = finite_number("rate", rate)
    return Exponential(value) if value else Constant(1.0)


def spline(times: ArrayLike, values: ArrayLike) -> TimeFunction:
    """Return the not-a-knot cubic spline through a table.

    Parameters
    ----------
    times : array_like, shape (m,), float64
        Strictly increasing times, m at least 2.
    values : array_like, shape (m,), float64
        Values at those times.

    Returns
    -------
    TimeFunction
        Defined on [times[0], times[-1]], up to rounding errors; a call with a time outside raises
        ValueError.

    Raises
    ------
    ValueError
        If the shapes are others, the times do not increase, an entry is not finite, or the table
        is too long (see `MAXIMUM_SIZE`).

    Examples
    --------
    >>> f = spline([0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 8.0, 27.0])
    >>> round(f(1.5), 12)
    3.375
    """
    table = np.asarray(times, dtype=np.float64)
    heights = np.asarray(values, dtype=np.float64)
    if table.ndim != 1 or table.size < 2 or heights.shape != table.shape:
        raise ValueError(
            f"times and values must be one-dimensional, of one length of at least 2; "
            f"got shapes {table.shape} and {heights.shape}"
        )
    check_size(2 * table.size)
    if not (np.all(np.isfinite(table)) and np.all(np.isfinite(heights))):
        name, entries = ("values", heights) if np.all(np.isfinite(table)) else ("times", table)
        k = int(np.argmin(np.isfinite(entries)))
        raise ValueError(
            f"times and values must be finite; {name}[{k}] is {entries[k]!s}. Leave that entry out"
        )
    if not np.all(np.diff(table) > 0.0):
        k = int(np.argmin(np.diff(table) > 0.0))
        raise ValueError(
            f"times must increase strictly; times[{k}] = {table[k]!s} is followed by "
            f"{table[k + 1]!s}. Sort the table and drop repeated times"
        )
    return Spline(tuple(table.tolist()), tuple(heights.tolist()))


def from_json(data: object) -> TimeFunction:
    """Return the function of time that `TimeFunction.to_json` has written.

    Parameters
    ----------
    data : dict
        Plain JSON data: ``{"kind": "constant" | "polynomial" | "sin" | "cos" | "exp" |
        "spline" | "product" | "sum", ...}``. It may come from a file of unknown origin: kinds,
        keys, types, depth and size are checked.

    Returns
    -------
    TimeFunction

    Raises
    ------
    ValueError
        If `to_json` could not have written it; the text names the offending place.

    Examples
    --------
    >>> from_json(sin(2.0).to_json()) == sin(2.0)
    True
    """
    return _read(data, "function of time", MAXIMUM_DEPTH)


def _read(data: object, place: str, depth: int) -> TimeFunction:
    """Read one function, whose sums and products may be nested at most ``depth`` levels deep.

    ``place`` says where the function is in the data, for the error text.
    """
    if depth == 0:
        raise ValueError(f"{place}: nested deeper than {MAXIMUM_DEPTH} levels")
    if not isinstance(data, Mapping):
        raise ValueError(f"{place}: expected a dictionary, got {type(data).__name__}")
    kind = data.get("kind")
    if not isinstance(kind, str) or kind not in _FIELDS:
        raise ValueError(f"{place}: kind must be one of {', '.join(_FIELDS)}; got {kind!r}")
    if set(data) != {"kind", *_FIELDS[kind]}:
        raise ValueError(
            f"{place}: a {kind} has the entries kind, {', '.join(_FIELDS[kind])}; "
            f"got {', '.join(sorted(map(str, data)))}"
        )
    if kind == "product":
        coefficient = _number(data["coefficient"], f"{place}.coefficient")
        return product_of(coefficient, _children(data["factors"], f"{place}.factors", depth))
    if kind == "sum":
        return sum_of(_children(data["terms"], f"{place}.terms", depth))
    if kind == "polynomial":
        return polynomial(_numbers(data["coefficients"], f"{place}.coefficients"))
    if kind == "spline":
        return _read_spline(data, place)
    arguments = [_number(data[field], f"{place}.{field}") for field in _FIELDS[kind]]
    return _ELEMENTARY[kind](*arguments)


def _read_spline(data: Mapping[str, object], place: str) -> TimeFunction:
    """Read a spline or its derivative of order 1 to 3."""
    order = data["order"]
    if not isinstance(order, int) or isinstance(order, bool) or not 0 <= order <= 3:
        raise ValueError(f"{place}.order: expected an integer from 0 to 3, got {order!r}")
    times = _numbers(data["times"], f"{place}.times")
    result = spline(times, _numbers(data["values"], f"{place}.values"))
    for _ in range(order):
        result = result.derivative()
    return result


def _children(data: object, place: str, depth: int) -> list[TimeFunction]:
    if not isinstance(data, list) or not 1 <= len(data) <= MAXIMUM_SIZE:
        raise ValueError(
            f"{place}: expected a list of 1 to {MAXIMUM_SIZE} functions of time, got "
            f"{_describe(data)}"
        )
    return [_read(child, f"{place}[{k}]", depth - 1) for k, child in enumerate(data)]


def _numbers(data: object, place: str) -> list[float]:
    if not isinstance(data, list) or len(data) > MAXIMUM_SIZE:
        raise ValueError(
            f"{place}: expected a list of at most {MAXIMUM_SIZE} numbers, got {_describe(data)}"
        )
    return [_number(entry, f"{place}[{k}]") for k, entry in enumerate(data)]


def _describe(data: object) -> str:
    return f"one of {len(data)}" if isinstance(data, list) else type(data).__name__


def _number(data: object, place: str) -> float:
    if isinstance(data, bool) or not isinstance(data, (int, float)):
        raise ValueError(f"{place}: expected a number, got {type(data).__name__}")
    return finite_number(place, data)


# the entries of each kind in JSON, beside "kind"
_FIELDS: dict[str, tuple[str, ...]] = {
    "constant": ("value",),
    "polynomial": ("coefficients",),
    "sin": ("omega", "phase"),
    "cos": ("omega", "phase"),
    "exp": ("rate",),
    "spline": ("times", "values", "order"),
    "product": ("coefficient", "factors"),
    "sum": ("terms",),
}
# kinds whose entries are just numbers, in the order of the function's arguments
_ELEMENTARY: dict[str, Callable[..., TimeFunction]] = {
    "constant": constant,
    "sin": sin,
    "cos": cos,
    "exp": exp,
}
