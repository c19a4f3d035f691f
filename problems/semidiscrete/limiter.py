"""The limiter of a problem on a full grid: states without negative values, with the same means."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from batchkron.errors import PointValueError

from ..discretization.basis.multiwavelets import legendre_values
from ..discretization.interpolation.tables import MAX_POINTS, point_tables
from ..discretization.matrices.mode_operator import sparse_transform
from .value import ProblemValue

__all__ = ["PositiveLimiter"]

Values = NDArray[np.float64]

# A mean of a cell above minus this, relative to the largest value, is 0 up to rounding.
_ROUNDING = 1e-12


class PositiveLimiter:
    """Scales f in each finest cell about its mean until no value at the points is negative.

    In a cell with the mean f̄ and the least value f_min < 0 it is f̄ + θ (f - f̄), with
    θ = f̄ / (f̄ - f_min). The points are those at which pointwise terms take f. Other cells stay as
    they are.

    Parameters
    ----------
    problem : ProblemValue
        A problem on a full grid, on the CPU, without volume elements.

    Notes
    -----
    It keeps the mean of each cell, to rounding, and with it ∫ f. Source: X. Zhang, C.-W. Shu, On
    maximum-principle-satisfying high order schemes for scalar conservation laws, J. Comput. Phys.
    229 (2010), section 2.
    """

    def __init__(self, problem: ProblemValue) -> None:
        self._axes, grid, n = problem.axes, problem.grid, max(problem.degrees) + 1
        extra = max((own.extra for own in problem.pointwise), default=0)
        m = min(n + extra, MAX_POINTS)
        self._n, self._cells = n, [1 << level for level in grid.levels]
        self._transforms = [sparse_transform(level, n - 1) for level in grid.levels]
        nodes = point_tables(0, m, m).places[0]
        widths = [
            axis.cell_width(level) for axis, level in zip(self._axes, grid.levels, strict=True)
        ]
        self._shapes = [legendre_values(2.0 * nodes - 1.0, n - 1, width) for width in widths]
        self._mean = math.prod(width**-0.5 for width in widths)  # of the coefficient of a constant

    def __call__(self, t: float, u: Values) -> None:
        """Limit a state (N,) in place.

        Raises PointValueError, a `NotPhysicalError`, if the mean of a cell is negative.
        """
        nodal = self._nodal(u)
        values = nodal
        for shapes in self._shapes:  # each takes the first axis of a cell to the end
            values = values.reshape(len(nodal), self._n, -1).transpose(0, 2, 1) @ shapes.T
        least = values.reshape(len(nodal), -1).min(axis=1)
        (negative,) = np.nonzero(least < 0.0)
        if not negative.size:
            return
        means, least = self._mean * nodal[negative, 0], least[negative]
        self._check_means(t, means, negative, float(np.abs(values).max()))
        means = np.maximum(means, 0.0)
        change = np.zeros_like(nodal)
        change[negative, 1:] = (means / (means - least) - 1.0)[:, None] * nodal[negative, 1:]
        u += self._hierarchical(change)

    def _check_means(self, t: float, means: Values, cells: NDArray[np.intp], size: float) -> None:
        worst = int(means.argmin())
        if means[worst] >= -_ROUNDING * size:
            return
        index = np.unravel_index(int(cells[worst]), self._cells)
        place = ", ".join(
            f"{axis.name} = {axis.lower + (k + 0.5) * axis.length / count:.6g}"
            for axis, k, count in zip(self._axes, index, self._cells, strict=True)
        )
        raise PointValueError(
            f"the mean of f in the cell around {place} is {means[worst]:.6g} at t = {t!r}, which "
            "no limiter makes positive; take a shorter step, or a larger bound of the speed"
        )

    def _nodal(self, u: Values) -> Values:
        """Return the Legendre coefficients of each finest cell, (cells, n^d)."""
        return self._changed(u, transposed=True)

    def _hierarchical(self, nodal: Values) -> Values:
        """Return the state (N,) of such coefficients."""
        return self._changed(nodal, transposed=False).ravel()

    def _changed(self, given: Values, *, transposed: bool) -> Values:
        """Return (cells, n^d) coefficients in the other basis."""
        d, n = len(self._cells), self._n
        order = [place for k in range(d) for place in (k, d + k)]
        mixed = given.reshape(*self._cells, *[n] * d).transpose(order)
        mixed = mixed.reshape([cells * n for cells in self._cells])
        return self._by_cells(self._transformed(mixed, transposed))

    def _transformed(self, mixed: Values, transposed: bool) -> Values:
        """Return a tensor with the transform along each axis, or its transpose."""
        for transform in self._transforms:
            matrix = transform.T if transposed else transform
            shape = mixed.shape
            mixed = np.asarray(matrix @ mixed.reshape(shape[0], -1)).reshape(shape)
            mixed = np.moveaxis(mixed, 0, -1)
        return mixed

    def _by_cells(self, mixed: Values) -> Values:
        """Return a tensor (cells_1 n, …) as (cells, n^d)."""
        d, n = len(self._cells), self._n
        parts = mixed.reshape([size for cells in self._cells for size in (cells, n)])
        order = [*range(0, 2 * d, 2), *range(1, 2 * d, 2)]
        return np.ascontiguousarray(parts.transpose(order)).reshape(-1, n**d)
