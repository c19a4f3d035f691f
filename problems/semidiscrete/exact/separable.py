"""A known solution that is a sum of separable functions: its projection onto a grid, and errors."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...discretization.parts import ExactSolution, Masses
from ...grids.degrees import Degree, sizes_of_degrees
from ...grids.sparse_grid import SparseGrid
from ..sources import TimeCombination
from ..weighted_norm import OrthonormalCoordinates
from .error import norm_matrix, tail_matrix

__all__ = ["SeparableSolution"]


class SeparableSolution:
    """Projections of an `ExactSolution` on a grid, and errors of states against it.

    ``masses`` are the mass blocks of the axes that have a volume element.
    """

    def __init__(
        self, exact: ExactSolution, masses: Masses, grid: SparseGrid, degree: Degree
    ) -> None:
        self._exact, self._masses, self._grid, self._degree = exact, masses, grid, degree
        self._sizes = sizes_of_degrees(degree, grid.dimensions)

    def coefficients(self, t: float) -> NDArray[np.float64]:
        """Return the hierarchical coefficients of f(t), projected onto the grid."""
        return self._projection.evaluate(t, np.empty(self._projection.size))

    def error(self, u: NDArray[np.float64], t: float) -> float:
        """Return ‖u - f(t)‖, from ‖u - f‖² = ‖u - Pf‖² + ‖f - Pf‖² with the projection P."""
        if self._coordinates is None:
            difference = self.coefficients(t)
        else:
            u = self._coordinates.of_state(u)
            difference = self._orthonormal_projection.evaluate(t, np.empty(u.size))
        difference -= u
        amplitudes = self._amplitudes(t)
        tail = amplitudes @ self._tail @ amplitudes
        return math.sqrt(difference @ difference + max(float(tail), 0.0))

    def norm(self, t: float) -> float:
        """Return ‖f(t)‖."""
        amplitudes = self._amplitudes(t)
        return math.sqrt(max(float(amplitudes @ self._norms @ amplitudes), 0.0))

    def _amplitudes(self, t: float) -> NDArray[np.float64]:
        """Values of the parts' functions of time at t."""
        return np.array([part.time(t) for part in self._exact.parts])

    @cached_property
    def _projection(self) -> TimeCombination:
        return TimeCombination(self._exact.parts, self._grid, self._sizes)

    @cached_property
    def _coordinates(self) -> OrthonormalCoordinates | None:
        if all(mass is None for mass in self._masses):
            return None
        return OrthonormalCoordinates(self._masses, self._grid, self._degree)

    @cached_property
    def _orthonormal(self) -> tuple[ExactSolution, SparseGrid]:
        """The solution in orthonormal coordinates (`weighted_norm`), and the grid of these."""
        if self._coordinates is None:
            return self._exact, self._grid
        parts = tuple(self._coordinates.of_vector(part) for part in self._exact.parts)
        return ExactSolution(parts, self._exact.remainders), self._coordinates.grid

    @cached_property
    def _orthonormal_projection(self) -> TimeCombination:
        exact, grid = self._orthonormal
        return TimeCombination(exact.parts, grid, self._sizes)

    @cached_property
    def _tail(self) -> NDArray[np.float64]:
        return tail_matrix(*self._orthonormal, self._sizes)

    @cached_property
    def _norms(self) -> NDArray[np.float64]:
        return norm_matrix(self._orthonormal[0], self._sizes)
