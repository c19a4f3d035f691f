"""The limiter of problems with full axes: states without negative values, with the same means."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module
from batchkron.errors import PointValueError
from batchkron.operators import on_device

from ..discretization.basis.multiwavelets import legendre_values
from ..discretization.interpolation.position_points import PositionPoints
from ..discretization.interpolation.tables import MAX_POINTS, point_tables
from ..discretization.matrices.mode_operator import sparse_transform
from ..grids.sparse_grid import SparseGrid, full_axes
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

    On a mixed grid the cells are those of its full axes, one for each point of the other axes, of
    which a cell of the grid has as many as functions. Where f̄ is negative, f becomes f̄.

    Parameters
    ----------
    problem : ProblemValue
        A problem on a grid with full axes (`full_axes`), without volume elements. A mixed grid is
        closed downward.

    Notes
    -----
    It keeps the mean of each cell, to rounding, and with it ∫ f; on a mixed grid also the integral
    over the full axes for each place of the others. Source: X. Zhang, C.-W. Shu, On
    maximum-principle-satisfying high order schemes for scalar conservation laws, J. Comput. Phys.
    229 (2010), section 2.
    """

    def __init__(self, problem: ProblemValue) -> None:
        self._axes, grid, n = problem.axes, problem.grid, max(problem.degrees) + 1
        full = full_axes(grid)
        extra = max((own.extra for own in problem.pointwise), default=0)
        m = min(n + extra, MAX_POINTS)
        # projected on degree p, a flux through points of degree p + 1 has other values at ends
        self._remedy = "degree='p' in a pointwise flux, " if extra else ""
        self._layout = _Layout(grid, full, n, problem.device)
        others = [k for k in range(grid.dimensions) if k not in full]
        self._points: PositionPoints | None = None
        if others:
            place = problem.axes, others, grid, n - 1, problem.device
            self._points = PositionPoints(*place, extra=0)
        self._n, self._cells = n, self._layout.cells
        nodes = point_tables(0, m, m).places[0]
        widths = [self._axes[k].cell_width(grid.levels[k]) for k in full]
        shapes = [legendre_values(2.0 * nodes - 1.0, n - 1, width) for width in widths]
        self._shapes = [on_device(own, problem.device) for own in shapes]
        self._mean = math.prod(width**-0.5 for width in widths)  # of the coefficient of a constant

    def __call__(self, t: float, u: Values) -> None:
        """Limit a state (N,) in place.

        Raises PointValueError, a `NotPhysicalError`, if the mean of a cell of a full grid is
        negative.
        """
        nodal, module = self._nodal(u), array_module(u)
        values = nodal
        for shapes in self._shapes:  # each takes the first axis of a cell to the end
            values = values.reshape(len(nodal), self._n, -1).transpose(0, 2, 1) @ shapes.T
        least = values.reshape(len(nodal), -1).min(axis=1)
        negative = module.flatnonzero(least < 0.0)
        if not negative.size:
            return
        means, least = self._mean * nodal[negative, 0], least[negative]
        if self._points is None:
            self._check_means(t, means, negative, float(abs(values).max()))
        means = module.maximum(means, 0.0)
        change = module.zeros_like(nodal)
        change[negative, 1:] = (means / (means - least) - 1.0)[:, None] * nodal[negative, 1:]
        u += self._hierarchical(change)

    def _check_means(self, t: float, means: Values, cells: NDArray[np.intp], size: float) -> None:
        least = float(means.min())
        if least >= -_ROUNDING * size:
            return
        worst = int(cells.take(int(means.argmin())))
        index = np.unravel_index(worst, self._cells)
        place = ", ".join(
            f"{axis.name} = {axis.lower + (k + 0.5) * axis.length / count:.6g}"
            for axis, k, count in zip(self._axes, index, self._cells, strict=True)
        )
        raise PointValueError(
            f"the mean of f in the cell around {place} is {least:.6g} at t = {t!r}, "
            f"which no limiter makes positive; take {self._remedy}a shorter step, a larger bound "
            "of the speed, or an initial state whose means are positive"
        )

    def _nodal(self, u: Values) -> Values:
        """Return the Legendre coefficients (cells, n^f) of each cell, for f full axes."""
        return self._layout.nodal(u if self._points is None else self._points.values(u))

    def _hierarchical(self, nodal: Values) -> Values:
        """Return the state (N,) of such coefficients."""
        blocks = self._layout.blocks(nodal)
        if self._points is None:
            return blocks
        return self._points.coefficients(blocks.reshape(self._points.shape))


class _Layout:
    """Coefficients by the grid's cells, and by finest cells of its full axes.

    Those of the other axes, or values at their points, stay: there are ``rest`` of them for each
    function of the full axes.

    ``cells``: the number of finest cells of each full axis.
    """

    def __init__(self, grid: SparseGrid, full: Sequence[int], n: int, device: str) -> None:
        others = [k for k in range(grid.dimensions) if k not in full]
        self.cells, self._n = [1 << grid.levels[k] for k in full], n
        order = np.lexsort(grid.cells[:, [*full, *others]].T[::-1])  # by cells of full axes first
        self._order, self._inverse = on_device(order, device), on_device(np.argsort(order), device)
        f, d = len(full), grid.dimensions
        # the axes of a tensor of cells of each full axis, of the others, and of functions
        self._sizes = (*self.cells, grid.num_cells // math.prod(self.cells), *[n] * d)
        inside = [place for k, axis in enumerate(full) for place in (k, f + 1 + axis)]
        self._places = (*inside, f, *(f + 1 + axis for axis in others))
        transforms = [sparse_transform(grid.levels[k], n - 1) for k in full]
        # a device gets dense matrices: there is one for each axis
        self._transforms = [
            own if device == "cpu" else on_device(own.toarray(), device) for own in transforms
        ]

    def nodal(self, blocks: Values) -> Values:
        """Return (rest cells, n^f) Legendre coefficients of hierarchical ones (N,)."""
        f = len(self.cells)
        sorted_ = blocks.reshape(self._order.size, -1).take(self._order, 0)
        parts = sorted_.reshape(self._sizes).transpose(self._places)
        mixed = self._transformed(self._joined(parts), transposed=True)
        parts = mixed.reshape(-1, *(size for cells in self.cells for size in (cells, self._n)))
        order = [0, *range(1, 2 * f, 2), *range(2, 2 * f + 1, 2)]
        return parts.transpose(order).reshape(-1, self._n**f)

    def blocks(self, nodal: Values) -> Values:
        """Return the hierarchical coefficients (N,) of Legendre ones."""
        f = len(self.cells)
        order = [place for k in range(1, f + 1) for place in (k, f + k)]
        parts = nodal.reshape(-1, *self.cells, *[self._n] * f).transpose(*order, 0)
        mixed = self._transformed(self._joined(parts), transposed=False)
        places = *self._places[2 * f :], *self._places[: 2 * f]  # the others are first now
        parts = mixed.reshape([self._sizes[place] for place in places]).transpose(
            [places.index(place) for place in range(len(places))]
        )
        return parts.reshape(self._order.size, -1).take(self._inverse, 0).ravel()

    def _joined(self, parts: Values) -> Values:
        """Return a tensor (cells_1, n, cells_2, n, …) as (cells_1 n, cells_2 n, …, rest)."""
        return parts.reshape(*(cells * self._n for cells in self.cells), -1)

    def _transformed(self, mixed: Values, *, transposed: bool) -> Values:
        """Return such a tensor with the transform along each full axis, or its transpose.

        The rest is its first axis then.
        """
        for transform in self._transforms:
            matrix = transform.T if transposed else transform
            product = matrix @ mixed.reshape(len(mixed), -1)
            mixed = product.reshape(mixed.shape).transpose(*range(1, mixed.ndim), 0)
        return mixed
