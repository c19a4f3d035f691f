"""The sources of a problem: separable ones, and functions of all axes at the points of its grid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from batchkron.operators import on_device

from ..discretization.interpolation.transform import PointTransform
from ..statement.functions import FunctionOfAxes
from ..statement.time_functions import TimeFunction
from .edges import EdgeOnGrid
from .time_combination import TimeCombination

__all__ = ["MovingSources", "Sources"]

Values = NDArray[np.float64]


class MovingSources:
    """The sum of sources that are functions of all axes and the time; there may be none.

    Each evaluation calls the functions with the points of the grid, and interpolates their sum.

    ``edges``: those of the data at ends of axes.
    ``transform``: returns the points of the grid; it is called when they are first needed.
    """

    def __init__(
        self,
        functions: Sequence[FunctionOfAxes],
        edges: Sequence[EdgeOnGrid],
        transform: Callable[[], PointTransform],
    ) -> None:
        self._functions, self._edges, self._transform = tuple(functions), tuple(edges), transform

    def __bool__(self) -> bool:
        return bool(self._functions or self._edges)

    def accumulate(self, t: float, out: Values) -> None:
        """Add the sum at a time to ``out``."""
        for edge in self._edges:
            out += edge.edge.time(t) * edge(t)
        if self._functions:
            first, *others = (function(*self._points, t) for function in self._functions)
            out += self._transform().coefficients(sum(others, first))

    def write(self, t: float, u: Values, out: Values) -> None:
        """Overwrite ``out`` with the sum at a time; it does not depend on u."""
        out[...] = 0.0
        self.accumulate(t, out)

    @cached_property
    def _points(self) -> list[Values]:
        transform = self._transform()
        points = list(transform.points())
        for own in points:
            own.setflags(write=False)  # a user's function gets the same arrays in each call
        return [on_device(own, transform.device) for own in points]


class Sources:
    """The sum of some separable sources of a problem and of all that are functions.

    ``separable``: the sources that are sums of products, and those that are functions of the axes
      alone.
    ``moving``: those that are functions of the time, too.
    ``parts``: functions of time, and the vectors that they multiply; not those of ``moving``.
    """

    def __init__(self, separable: TimeCombination, moving: MovingSources) -> None:
        self._separable, self.moving = separable, moving
        self.parts: tuple[tuple[TimeFunction, Values], ...] = separable.parts

    def evaluate(self, t: float, out: Values) -> Values:
        """Overwrite ``out`` with the sum at a time, and return it."""
        self._separable.evaluate(t, out)
        self.moving.accumulate(t, out)
        return out
