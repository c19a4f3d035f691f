"""Samples of the functions that a PDE is stated with: exact solution, coefficients, data at ends.

A function that fails at a point is the business of its projection; here it gives None or NaN. The
samples along an axis are taken on `LINES` lines, each at its own place of the other coordinates.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..statement.axis import Axis
from ..statement.boundary import Condition
from ..statement.coefficients import Function
from ..statement.separable import Separable, separable_parts
from ..statement.statement import Statement
from .boundary_terms import SIDES, Side
from .projection import differentiate, sample_points

__all__ = [
    "LEVEL",
    "LINES",
    "STEP",
    "Values",
    "end_data",
    "exact_at",
    "exact_on_lines",
    "number_at",
    "own_end_data",
    "places_inside",
    "product_at",
    "separable_at",
    "slope_across",
    "slope_at_end",
]

LEVEL = 3  # of the cells that functions are sampled on, whatever the discretization's
LINES = 5  # along an axis, at as many places of the other coordinates
STEP = 1e-4  # of differences along other axes, in lengths of the axis
_END_CELLS = 64, 512  # cells of an axis, whose first and last tell slopes at the ends

Values: TypeAlias = NDArray[np.float64]


def own_end_data(pde: Statement, condition: Condition, axis: Axis, side: Side, t: float) -> Values:
    """Return what a condition gives at an end, on all lines; "from exact" gives what exact is."""
    data = getattr(condition, "data", 0.0)
    if isinstance(data, str):
        end = np.full(LINES, axis.lower if side == "left" else axis.upper)
        values = exact_at(pde, {**places_inside(pde), axis: end}, t)
        return np.full(LINES, np.nan) if values is None else values
    return end_data(pde, data, axis, side, t, slope=False)


def end_data(pde: Statement, data: Any, axis: Axis, side: Side, t: float, *, slope: bool) -> Values:
    """Return boundary data at an end, on all lines; NaN where it cannot be evaluated."""
    places = places_inside(pde)
    k = SIDES.index(side)
    total = np.zeros(LINES)
    for part in separable_parts("boundary data", data, pde.axes):
        factor = part.factor(axis)
        at = partial(product_at, factor, 1.0)
        if slope and callable(factor):
            value, _ = slope_at_end(at, axis, side)
        else:
            line = at(sample_points(axis, LEVEL, 0))
            value = np.asarray(np.nan if line is None else line[-k, -k])
        others = {other: points for other, points in places.items() if other != axis}
        rest = separable_at(part, others, t)
        if rest is None:
            return np.full(LINES, np.nan)
        total = total + value * rest
    return total


def slope_at_end(
    at: Callable[[Values], Values | None], axis: Axis, side: Side
) -> tuple[Values, Values]:
    """Return the slope at an end of an axis, and how far it may be off; NaN if it is not known.

    The function takes points (1, n) of the axis and returns values (..., 1, n). Small cells resolve
    fast waves; two sizes tell how well.
    """
    slopes = []
    for cells in _END_CELLS:
        width = axis.length / cells
        start = axis.lower if side == "left" else axis.upper - width
        end = axis.lower + width if side == "left" else axis.upper
        cell = Axis(axis.name, start, end)
        values = at(sample_points(cell, 0, 0))
        if values is None:
            return np.full(LINES, np.nan), np.full(LINES, np.nan)
        place = 0 if side == "left" else -1
        lines = values.reshape(-1, 1, values.shape[-1])
        slopes.append(np.array([differentiate(line, cell)[0, place] for line in lines]))
    coarse, fine = slopes
    return fine, np.abs(fine - coarse)


def slope_across(
    pde: Statement, axis: Axis, side: Side, other: Axis, t: float
) -> tuple[Values, Values]:
    """Return ∂f/∂(other) of exact at an end of an axis, on all lines, and how far it may be off."""
    places = places_inside(pde)
    places[axis] = np.full(LINES, axis.lower if side == "left" else axis.upper)
    slopes = []
    for step in (STEP * other.length, 0.5 * STEP * other.length):
        ahead = exact_at(pde, {**places, other: places[other] + step}, t)
        behind = exact_at(pde, {**places, other: places[other] - step}, t)
        if ahead is None or behind is None:
            return np.full(LINES, np.nan), np.full(LINES, np.nan)
        slopes.append((ahead - behind) / (2.0 * step))
    coarse, fine = slopes
    return np.asarray((4.0 * fine - coarse) / 3.0), np.abs(fine - coarse)


def places_inside(pde: Statement) -> dict[Axis, Values]:
    """Return coordinates inside the box, the same at every call."""
    shares = np.random.default_rng(29).uniform(0.1, 0.9, (len(pde.axes), LINES))
    return {
        axis: axis.lower + axis.length * share for axis, share in zip(pde.axes, shares, strict=True)
    }


def exact_on_lines(pde: Statement, axis: Axis, t: float, line: Values) -> Values | None:
    """Return exact along an axis: (lines, cells, points of a cell); None if it cannot be called."""
    points = {other: np.repeat(places, line.size) for other, places in places_inside(pde).items()}
    points[axis] = np.tile(line.ravel(), LINES)
    values = exact_at(pde, points, t)
    return None if values is None else values.reshape(LINES, *line.shape)


def exact_at(pde: Statement, points: dict[Axis, Values], t: float) -> Values | None:
    """Return the exact solution at points, one array per axis; None if it cannot be called."""
    if pde.exact_function is not None:
        function = pde.exact_function
        arrays = [points[axis] for axis in pde.axes]
        return _quietly(lambda: function(*arrays, t), arrays[0].shape)
    total = np.zeros_like(points[pde.axes[0]])
    for part in pde.exact:
        values = separable_at(part, points, t)
        if values is None:
            return None
        total = total + values
    return total


def separable_at(part: Separable, points: dict[Axis, Values], t: float) -> Values | None:
    """Return a product of 1-D functions at points, on the axes that these have."""
    number = part.coefficient * number_at(part.time, t)
    result: Values = np.asarray(number)
    for axis, places in points.items():
        values = product_at(part.factor(axis), 1.0, places)
        if values is None:
            return None
        result = result * values
    return result


def number_at(function: Callable[[float], Any], t: float) -> float:
    """Return a function of time; NaN, which compares as no contradiction, outside its table."""
    value = _quietly(lambda: function(t), ())
    return float("nan") if value is None else float(value)


def product_at(function: Function, other: Function, points: Values) -> Values | None:
    """Return a product of two functions of a coordinate at points."""
    result = np.ones(points.shape)
    for entry in (function, other):
        if callable(entry):
            call: Callable[[Values], Any] = entry
            values = _quietly(partial(call, points.ravel().copy()), (points.size,))
            if values is None:
                return None
            result = result * values.reshape(points.shape)
        else:
            result = result * entry
    return result


def _quietly(call: Callable[[], Any], shape: tuple[int, ...]) -> Values | None:
    """Return what a user's function gives, as floats; None if it fails.

    Ends of an axis may be outside its domain. What is wrong with the function itself is said where
    it is projected.
    """
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return np.array(np.broadcast_to(np.asarray(call(), dtype=np.float64), shape))
        except Exception:
            return None
