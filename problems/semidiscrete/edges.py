"""Sources from boundary data that are functions of all axes, on a grid."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module
from batchkron.operators import on_device

from ..discretization.interpolation.transform import PointTransform
from ..discretization.parts import EdgeFunction, OperatorTerm
from ..grids.degrees import Degree, of_each_axis, sizes_of_degrees
from ..grids.sparse_grid import SparseGrid
from ..statement.axis import Axis
from ..statement.time import constant
from .operators import group_terms

__all__ = ["EdgeOnGrid"]

Values = NDArray[np.float64]


class EdgeOnGrid:
    """The vector e ⊗ (⊗_k A_k) P g(t) of an `EdgeFunction` on a grid.

    The data are projected on the grid's trace, the cells of the other axes.

    Parameters
    ----------
    edge : EdgeFunction
    axes : sequence of Axis
    grid : SparseGrid
    degree : int or tuple of int
    device : {"cpu", "cuda"}

    Attributes
    ----------
    edge : EdgeFunction
    """

    def __init__(
        self,
        edge: EdgeFunction,
        axes: Sequence[Axis],
        grid: SparseGrid,
        degree: Degree,
        device: str,
    ) -> None:
        self.edge, self._device = edge, device
        k, sizes = edge.axis, sizes_of_degrees(degree, len(axes))
        others = [j for j in range(len(axes)) if j != k]
        self._sizes = math.prod(sizes[:k]), math.prod(sizes[k + 1 :])
        along = edge.along.reshape(-1, sizes[k])[grid.cells[:, k]]
        self._along = on_device(np.ascontiguousarray(along), device)
        self._transform = self._operator = None
        if not others:
            return
        cells, places = np.unique(grid.cells[:, others], axis=0, return_inverse=True)
        trace = SparseGrid.custom(cells, [grid.levels[j] for j in others])
        degrees = of_each_axis(degree, len(axes))
        degree = tuple(degrees[j] for j in others)
        self._places = on_device(places.ravel(), device)
        self._transform = PointTransform([axes[j] for j in others], trace, degree, device=device)
        modes = tuple(edge.modes[j] for j in others)
        if any(mode is not None for mode in modes):
            group = group_terms([OperatorTerm(modes, constant())], trace, degree)[0]
            self._operator = group.to(device).operator

    def __call__(self, t: float) -> Values:
        """Return the vector (N,) at a time, without the function of time of its term."""
        blocks = self._along[:, None, :, None]
        if self._transform is None:
            value = float(self.edge.function(np.array([self.edge.end]), t)[0])
            return (value * blocks).ravel()
        points = list(self._transform.points())
        points.insert(self.edge.axis, np.full_like(points[0], self.edge.end))
        values = self.edge.function(*points, t)
        data = self._transform.coefficients(on_device(values, self._device))
        if self._operator is not None:
            product = array_module(data).empty_like(data)
            self._operator.matvec(data, product)
            data = product
        left, right = self._sizes
        shaped = data.reshape(-1, left, 1, right)[self._places]
        return (shaped * blocks).ravel()
