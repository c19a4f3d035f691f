"""Gauss quadrature on the cells of an axis, and checked evaluation of users' functions."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.polynomial.legendre import leggauss
from numpy.typing import ArrayLike, NDArray

from ...statement.axis import Axis
from ...statement.coefficients import Function
from ...statement.number_checks import is_number


@lru_cache(maxsize=64)
def gauss_rule(count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Nodes and weights (count,) of the Gauss rule on [-1, 1], exact for degrees up to 2 count - 1.

    Examples
    --------
    >>> nodes, weights = gauss_rule(2)
    >>> weights
    array([1., 1.])
    """
    nodes, weights = (np.asarray(part, dtype=np.float64) for part in leggauss(count))
    nodes.setflags(write=False)
    weights.setflags(write=False)
    return nodes, weights


def cell_points(axis: Axis, level: int, nodes: ArrayLike) -> NDArray[np.float64]:
    """Map points (q,) of the reference cell [-1, 1] into each of the 2^level cells: (2^level, q).

    No point is outside the axis, and the points at an edge that two cells share are equal, in spite
    of rounding.

    Examples
    --------
    >>> cell_points(Axis("x", 0, 4), 1, [-1, 0, 1])
    array([[0., 1., 2.],
           [2., 3., 4.]])
    """
    cells = 1 << level
    steps = np.arange(cells)[:, None] + (1 + np.asarray(nodes, dtype=np.float64)) / 2
    points = axis.lower + axis.length * (steps / cells)
    points[steps == cells] = axis.upper
    return np.minimum(points, axis.upper)


def evaluate(
    function: Function, points: NDArray[np.float64], what: str, *, finite: bool = True
) -> NDArray[np.float64]:
    """Return the values of a function or number at points, real and, if ``finite``, finite ones.

    A function is called once, with a one-dimensional array of all points. ``what`` names it in the
    text of an error: ``coefficient of div in 'x'``.

    Examples
    --------
    >>> evaluate(lambda s: s**2, np.array([1.0, 2.0]), "the coefficient")
    array([1., 4.])
    """
    if is_number(function):
        values = np.full(points.size, float(function))
    elif callable(function):
        values = _call(function, points.ravel().copy(), what)
    else:
        raise TypeError(
            f"{what} is {type(function).__name__}; expected a number or a function of one array"
        )
    wrong = np.flatnonzero(~np.isfinite(values))
    if finite and wrong.size:
        raise ValueError(
            f"{what} is {values[wrong[0]]} at {points.ravel()[wrong[0]]}; expected finite values"
        )
    return values.reshape(points.shape)


def _call(
    function: Callable[[NDArray[np.float64]], Any], points: NDArray[np.float64], what: str
) -> NDArray[np.float64]:
    try:
        # no warnings of division by zero and the like: the caller checks the values
        with np.errstate(divide="ignore", invalid="ignore"):
            values = np.asarray(function(points))
    except Exception as error:
        error.add_note(
            f"This came from {what}: it is called with an array of points; write it with NumPy "
            "functions (np.cos, np.where), not with math or if."
        )
        raise
    if values.dtype.kind not in "iufb":
        raise TypeError(f"{what} gave dtype {values.dtype}; expected real numbers")
    if values.shape not in ((), points.shape):
        raise ValueError(
            f"{what} gave shape {values.shape} for {points.size} points; "
            f"expected {points.shape} or a single number"
        )
    return np.array(np.broadcast_to(values, points.shape), dtype=np.float64)
