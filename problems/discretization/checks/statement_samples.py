"""Samples of a PDE's functions: exact solution, coefficients, data at the ends of axes.

A user's function that fails gives None or NaN here; the projection raises its error. Samples along
an axis are taken on `LINES` lines parallel to it, each at other coordinates along the other axes.
"Exact" is the exact solution.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...statement.axis import Axis
from ...statement.boundary import Condition
from ...statement.coefficients import Function
from ...statement.functions import FunctionOfAxes, function_of_axes
from ...statement.separable import Separable, separable_parts
from ...statement.statement import Statement
from ..basis.projection import differentiate, sample_points
from ..matrices.boundary_terms import SIDES, Side

__all__ = [
    "LEVEL",
    "LINES",
    "STEP",
    "Values",
    "end_data",
    "exact_at",
    "exact_on_lines",
    "initial_at",
    "number_at",
    "own_end_data",
    "places_inside",
    "product_at",
    "slope_across",
    "slope_at_end",
]

LEVEL = 3  # functions are sampled on 2^LEVEL cells, whatever the discretization's level is
LINES = 5  # number of lines along an axis
STEP = 1e-4  # step of difference quotients, in lengths of the axis
# Slopes at an end are computed in the first or last of this many cells of the axis; the difference
# of the two results is an estimate of the error.
_END_CELLS = 64, 512

Values: TypeAlias = NDArray[np.float64]


def own_end_data(pde: Statement, condition: Condition, axis: Axis, side: Side, t: float) -> Values:
    """Return the value that a condition gives at an end, on all lines; zero if it has no data.

    For data "from exact" it is the value of exact; NaN if that cannot be evaluated.
    """
    data = getattr(condition, "data", 0.0)
    if isinstance(data, str):
        end = np.full(LINES, axis.lower if side == "left" else axis.upper)
        values = exact_at(pde, {**places_inside(pde), axis: end}, t)
        return np.full(LINES, np.nan) if values is None else values
    return end_data(pde, data, axis, side, t, slope=False)


def end_data(pde: Statement, data: Any, axis: Axis, side: Side, t: float, *, slope: bool) -> Values:
    """Return boundary data at an end, on all lines; NaN where they cannot be evaluated.

    If ``slope``, data that depend on the axis itself are differentiated along it.
    """
    places = places_inside(pde)
    k = SIDES.index(side)
    if callable(data):
        function = function_of_axes("boundary data", data, pde.axes, in_time=True)
        end = np.full(LINES, axis.lower if side == "left" else axis.upper)
        points = [{**places, axis: end}[own] for own in pde.axes]
        values = _quietly(lambda: function(*points, t), (LINES,))
        return np.full(LINES, np.nan) if values is None else values
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
    """Return the slope of a function at an end of an axis, and an estimate of its error.

    ``at`` takes points (1, n) of the axis and returns values (..., 1, n), or None, for which both
    results are NaN. The slope is that of a polynomial in a small cell at the end, which resolves
    fast waves; the error is estimated from cells of two sizes.
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
    """Return ∂f/∂(other) of exact at an end of an axis, on all lines, and an error estimate.

    Central differences of two steps, extrapolated (Richardson).
    """
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
    """Return `LINES` random points inside the box, by axis; they are the same at every call."""
    shares = np.random.default_rng(29).uniform(0.1, 0.9, (len(pde.axes), LINES))
    return {
        axis: axis.lower + axis.length * share for axis, share in zip(pde.axes, shares, strict=True)
    }


def exact_on_lines(pde: Statement, axis: Axis, t: float, line: Values) -> Values | None:
    """Return exact at points ``line`` (cells, points of a cell) of an axis, on all lines.

    The result has the shape (lines, cells, points of a cell). None if exact cannot be evaluated.
    """
    points = {other: np.repeat(places, line.size) for other, places in places_inside(pde).items()}
    points[axis] = np.tile(line.ravel(), LINES)
    values = exact_at(pde, points, t)
    return None if values is None else values.reshape(LINES, *line.shape)


def exact_at(pde: Statement, points: dict[Axis, Values], t: float) -> Values | None:
    """Return exact at points, given as one array per axis; None if it cannot be evaluated."""
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


def initial_at(pde: Statement, points: dict[Axis, Values]) -> Values | None:
    """Return the initial state at points, as `exact_at` does; it is not that of a function."""
    arrays = [points[axis] for axis in pde.axes]
    if isinstance(pde.initial, FunctionOfAxes):
        function = pde.initial
        return _quietly(lambda: function(*arrays, pde.t0), arrays[0].shape)
    total = np.zeros_like(arrays[0])
    for part in pde.initial or ():
        values = separable_at(part, points, pde.t0)
        if values is None:
            return None
        total = total + values
    return total


def separable_at(part: Separable, points: dict[Axis, Values], t: float) -> Values | None:
    """Return a separable function at points; factors of axes that ``points`` lacks are left out."""
    number = part.coefficient * number_at(part.time, t)
    result: Values = np.asarray(number)
    for axis, places in points.items():
        values = product_at(part.factor(axis), 1.0, places)
        if values is None:
            return None
        result = result * values
    return result


def number_at(function: Callable[[float], Any], t: float) -> float:
    """Return the value of a function of time, NaN outside the table of a spline.

    NaN fails every comparison, so that it never counts as a contradiction.
    """
    value = _quietly(lambda: function(t), ())
    return float("nan") if value is None else float(value)


def product_at(function: Function, other: Function, points: Values) -> Values | None:
    """Return the product of two functions of a coordinate at points; None if one fails."""
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
    """Return the values of a user's function as floats, without warnings; None if it fails.

    It may fail because the ends of an axis are outside its domain. Other faults are reported when
    it is projected.
    """
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return np.array(np.broadcast_to(np.asarray(call(), dtype=np.float64), shape))
        except Exception:
            return None
