"""A known solution of many axes that is not separable: projection and errors by interpolation."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...discretization.interpolation.transform import PointTransform
from ...discretization.matrices.volume_element import VolumeElement
from ...discretization.space import DGSpace
from ...grids.sparse_grid import SparseGrid
from ...statement.functions import checked_values
from ..weighted_norm import OrthonormalCoordinates

__all__ = ["InterpolatedOnGrid"]


class InterpolatedOnGrid:
    """A function at the points of a grid, interpolated, and errors of states against that.

    The interpolant has one degree more than states, so that its own error, which is not part of the
    errors that are returned, is of higher order than theirs.

    ``function``: f(x_1, …, x_d, t), of one array for each axis.
    ``space``: axes, degree and volume elements.
    ``grid``: the grid.

    Raises `ValueError` if the grid is not closed downward, or the degree has no points.
    """

    def __init__(self, function: Callable[..., Any], space: DGSpace, grid: SparseGrid) -> None:
        self._function, self._space, self._grid = function, space, grid
        self._transform = PointTransform(space.axes, grid, space.degrees)

    def coefficients(self, t: float) -> NDArray[np.float64]:
        """Return the hierarchical coefficients of f(t), nearly its projection."""
        return self._transform.coefficients(self._values(t))

    def error(self, u: NDArray[np.float64], t: float) -> float:
        """Return ‖u - f(t)‖ of a state u, with what interpolates the difference."""
        return self._norm(self._transform.values(u) - self._values(t))

    def norm(self, t: float) -> float:
        """Return ‖f(t)‖, that of what interpolates f."""
        return self._norm(self._values(t))

    def _values(self, t: float) -> NDArray[np.float64]:
        points, axes = list(self._transform.points()), self._space.axes
        return checked_values("exact", lambda: self._function(*points, t), axes, points, t)

    def _norm(self, values: NDArray[np.float64]) -> float:
        found = self._transform.interpolant(values)
        if self._coordinates is not None:
            found = self._coordinates.of_state(found)
        return float(np.linalg.norm(found))

    @cached_property
    def _coordinates(self) -> OrthonormalCoordinates | None:
        """Coordinates in which the norm has the volume elements, None without these."""
        space, degrees = self._space, self._transform.degrees_at_points
        if not space.volume:
            return None
        masses = tuple(
            VolumeElement(axis, level, degree, space.volume[axis].function).mass_blocks
            if axis in space.volume
            else None
            for axis, level, degree in zip(space.axes, space.levels, degrees, strict=True)
        )
        return OrthonormalCoordinates(masses, self._grid, degrees)
