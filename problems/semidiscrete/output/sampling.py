"""Points at which functions are drawn, and the plane that is drawn if none is chosen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import to_host

from ...statement.axis import Axis
from ..fields.field import Field
from ..value import ProblemValue
from .cut import Cut

__all__ = ["choose_plane", "inside_cells", "sample"]

# All numbers were chosen by hand.
_LINE_POINTS = 2000  # wanted number of points of a curve
_PIXELS = 384  # wanted number of pixels in each direction of an image
_PROBES = 4096  # random points at which a state is evaluated to find where it is large
# The middle plane is not used if the state there is below this fraction of its largest value.
_VANISHING = 1e-3


def sample(field: Field) -> tuple[list[NDArray[np.float64]], NDArray[np.float64]]:
    """Return points (m_k,) of each axis, and a function's values (m_1, …) at their combinations.

    The points are midpoints of equal parts, the same number in each of the finest cells.
    """
    wanted = _LINE_POINTS if len(field.axes) == 1 else _PIXELS
    points = [
        inside_cells(axis, level, wanted)
        for axis, level in zip(field.axes, field.grid.levels, strict=True)
    ]
    return points, field.evaluate(*np.meshgrid(*points, indexing="ij", sparse=True))


def inside_cells(axis: Axis, level: int, wanted: int) -> NDArray[np.float64]:
    """Return the midpoints of about ``wanted`` equal parts of an axis.

    Each of the finest cells has a whole number of them, unless there are more cells than that.
    """
    cells = 1 << level
    count = wanted if cells > wanted else cells * (wanted // cells)
    return axis.lower + axis.length * (np.arange(count) + 0.5) / count


def choose_plane(problem: ProblemValue, u: NDArray[np.float64], axes: Sequence[Axis]) -> Cut:
    """Return the cut through the middle of some axes, or through a place where the state is large.

    If the state nearly vanishes in the middle, it is the largest of 4096 values at random points.
    """
    middle = np.array([(axis.lower + axis.upper) / 2.0 for axis in axes])
    if len(axes):
        fixed = [problem.axes.index(axis) for axis in axes]
        whole = Field(problem.axes, problem.grid, problem.degree, to_host(u, "u"), problem.masses)
        lower = np.array([axis.lower for axis in problem.axes])
        lengths = np.array([axis.length for axis in problem.axes])
        places = lower + lengths * np.random.default_rng(0).random((_PROBES, len(lower)))
        everywhere = np.abs(whole.evaluate(places))
        largest = places[np.argmax(everywhere)][fixed]
        places[:, fixed] = middle
        in_middle = np.abs(whole.evaluate(places))
        if in_middle.max() < _VANISHING * everywhere.max():
            middle = largest
    return Cut(tuple((axis, float(at)) for axis, at in zip(axes, middle, strict=True)))
