"""A known solution that is separable at each time, with factors that change with time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...discretization.space import DGSpace
from ...discretization.terms.manufactured_sources import exact_solution
from ...grids.sparse_grid import SparseGrid
from ...statement.separable import Separable, SeparableOnAxes
from .separable import SeparableSolution

__all__ = ["AtTimesOnGrid"]


class AtTimesOnGrid:
    """Projections on a grid of a function that is a sum of separable ones at each time.

    Those of the last time are kept. Errors of states are those against the `ExactSolution` of that
    time, for any number of axes.
    """

    def __init__(self, function: SeparableOnAxes, space: DGSpace, grid: SparseGrid) -> None:
        self._function, self._space, self._grid = function, space, grid
        self._last: tuple[float, SeparableSolution] | None = None

    def coefficients(self, t: float) -> NDArray[np.float64]:
        """Return the hierarchical coefficients of f(t), projected onto the grid."""
        return self._at(t).coefficients(t)

    def error(self, u: NDArray[np.float64], t: float) -> float:
        """Return ‖u - f(t)‖ of a state u."""
        return self._at(t).error(u, t)

    def norm(self, t: float) -> float:
        """Return ‖f(t)‖."""
        return self._at(t).norm(t)

    def _at(self, t: float) -> SeparableSolution:
        """Return the solution at a time, whose functions of time do not matter at other times."""
        last = self._last
        if last is not None and last[0] == t:
            return last[1]
        parts = self._function.parts(t) or (Separable(coefficient=0.0),)
        space = self._space
        known = SeparableSolution(
            exact_solution(parts, space), space.masses, self._grid, space.degrees
        )
        self._last = t, known
        return known
