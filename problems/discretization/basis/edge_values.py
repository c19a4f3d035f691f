"""Values of a coefficient on both sides of the edges between cells, where it may jump.

A function that jumps at an edge has some value exactly there, that of one side or another one, and
rounding decides on which side of the jump the edge lies. So it is evaluated beside the edge, too.
"""

import numpy as np
from numpy.typing import NDArray

from ...grids.levels import check_level
from ...statement.axis import Axis
from ...statement.coefficients import Function
from .quadrature import cell_points, evaluate

__all__ = ["distance_beside", "edge_values", "end_value", "values_beside"]

Values = NDArray[np.float64]

# Distance from an edge, as a share of the axis's length, up to which a jump belongs to the edge.
# It is far above the rounding of coordinates, and far below the width of any layer on a grid.
_BESIDE = 1e-11
_MIN_ULPS = 4.0  # the same in units of the rounding of coordinates, of an axis far from 0
_FURTHER = 64.0  # a second distance, over which a continuous function changes much more
# A change over the first distance is a jump if it is this many times that between the distances.
# A smooth function has 1/63 of it, a layer as thin as the first distance, tanh, 3.2 times it.
_STEEPNESS = 4.0
# Changes up to these are rounding: relative to the values on both sides, and to the largest value.
_ROUNDING_HERE, _ROUNDING = 1e-8, 16.0 * float(np.finfo(np.float64).eps)
_WRAP = 1e-8  # relative difference of the two ends of a periodic axis that is taken as rounding


def distance_beside(axis: Axis) -> float:
    """Return the distance from an edge up to which a jump belongs to the edge.

    10⁻¹¹ of the axis's length, or a few roundings of its coordinates if that is more.
    """
    ulp = float(np.spacing(max(abs(axis.lower), abs(axis.upper))))
    return max(_BESIDE * axis.length, _MIN_ULPS * ulp)


def values_beside(
    function: Function, axis: Axis, points: Values, values: Values, what: str
) -> tuple[NDArray[np.intp], Values, Values]:
    """Find the points where a function jumps, and return its limits on both sides of them.

    Of points of the axis and the function's values there, both (m,), it returns the indices of
    those where the two limits, or the value at the point, differ, and the limits from the left and
    from the right. At an end of the axis the only side is the inside. ``what`` names the function
    in an error.
    """
    if not callable(function):
        return np.empty(0, dtype=np.intp), np.empty(0), np.empty(0)
    near = distance_beside(axis)
    steps = near * np.array([-_FURTHER, -1.0, 1.0, _FURTHER])
    beside = points[:, None] + steps
    beside = np.where(
        (beside < axis.lower) | (beside > axis.upper), points[:, None] - steps, beside
    )
    found = evaluate(function, beside, what, finite=False)
    with np.errstate(invalid="ignore", over="ignore"):
        own = np.column_stack([found[:, 1], values, found[:, 2]])
        jump = own.max(axis=1) - own.min(axis=1)
        slopes = found[:, [1, 2]] - found[:, [0, 3]]
        size = np.abs(own).max(axis=1)
        finite = np.isfinite(values) & np.isfinite(found).all(axis=1)
        rounding = _ROUNDING * np.abs(values[finite]).max(initial=0.0)
        is_jump = jump > np.maximum(_STEEPNESS * np.abs(slopes).sum(axis=1), _ROUNDING_HERE * size)
    places = np.flatnonzero(finite & is_jump & (jump > rounding))
    limits = found[places][:, [1, 2]] + slopes[places] / (_FURTHER - 1.0)
    return places, limits[:, 0], limits[:, 1]


def edge_values(
    function: Function, axis: Axis, level: int, what: str, *, periodic: bool = False
) -> Values:
    """Return the limits of a coefficient at the edges of the cells of a level, (2, 2^level + 1).

    They are from the left and from the right: the value at the edge itself, twice, unless the
    coefficient jumps there. At an end both are the limit from inside, except for a periodic axis
    with a coefficient that jumps where it closes. ``what`` names the coefficient in an error.
    """
    points = cell_points(axis, check_level(level), [-1.0])[:, 0]
    points = np.append(points, axis.upper)
    values = evaluate(function, points, what)
    places, before, behind = values_beside(function, axis, points, values, what)
    result = np.stack([values, values])
    result[0, places], result[1, places] = before, behind
    first, last = result[1, 0], result[0, -1]
    if periodic and abs(first - last) > _WRAP * np.abs(result).max():
        result[0, 0], result[1, -1] = last, first
    return result


def end_value(function: Function, axis: Axis, end: float, what: str) -> float:
    """Return a coefficient's value at an end of the axis, the limit from inside if it jumps."""
    point = np.array([end])
    value = evaluate(function, point, what)
    _, inside, _ = values_beside(function, axis, point, value, what)
    return float(inside[0] if inside.size else value[0])
