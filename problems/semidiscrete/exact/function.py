"""A known solution that is not separable: projection, and errors by quadrature on finest cells."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...discretization.basis.multiwavelets import legendre_values, to_hierarchical, to_nodal
from ...discretization.basis.projection import projection_nodes
from ...discretization.basis.quadrature import cell_points, evaluate, gauss_rule
from ...discretization.space import DGSpace
from ...grids.degrees import sizes_of_degrees
from ...grids.sparse_grid import SparseGrid
from ...statement.functions import checked_values
from ...statement.separable import SeparableOnAxes
from .at_times import AtTimesOnGrid
from .interpolated import InterpolatedOnGrid

__all__ = ["ExactFunction", "FunctionOnGrid", "OnGrid"]

_MAX_POINTS = 1 << 25  # quadrature points of a grid, 256 MiB for each array of values; not tuned


class OnGrid(Protocol):
    """A known solution with its projections on a grid, and errors of states against it."""

    def coefficients(self, t: float) -> NDArray[np.float64]:
        """Return the hierarchical coefficients of f(t), projected onto the grid."""
        ...

    def error(self, u: NDArray[np.float64], t: float) -> float:
        """Return ‖u - f(t)‖ of a state u."""
        ...

    def norm(self, t: float) -> float:
        """Return ‖f(t)‖."""
        ...


@dataclass(frozen=True, eq=False)
class ExactFunction:
    """The known solution f(x_1, …, x_d, t) as a function.

    It is Python code and therefore not saved in problem files.

    Attributes
    ----------
    function : callable
        It takes one array per axis, each of shape (points,), and the time, a float.
    space : DGSpace
        Axes, finest levels, degrees and volume elements.
    """

    function: Callable[..., Any]
    space: DGSpace = field(repr=False)

    def on(self, grid: SparseGrid) -> OnGrid:
        """Return the function with its projections on a grid.

        Parameters
        ----------
        grid : SparseGrid
            A grid with the space's finest levels.

        Returns
        -------
        OnGrid
            Of a `SeparableOnAxes` those of its parts at each time. Otherwise by quadrature on the
            finest cells, or by interpolation if these have more than 2^25 Gauss points.

        Raises
        ------
        ValueError
            If there are more, and the grid is not closed downward or the degree is above 5.
        """
        if isinstance(self.function, SeparableOnAxes):
            return AtTimesOnGrid(self.function, self.space, grid)
        if self._count > _MAX_POINTS:
            return InterpolatedOnGrid(self.function, self.space, grid)
        return FunctionOnGrid(self, grid)

    @property
    def nodes(self) -> int:
        """Number of Gauss nodes of a finest cell along each axis."""
        space = self.space
        if len(space.axes) == 1:
            return projection_nodes(space.levels[0], space.degrees[0])
        return 2 * (max(space.degrees) + 1) + 4

    @property
    def _count(self) -> int:
        """Number of Gauss nodes of all finest cells."""
        return math.prod(self.nodes << level for level in self.space.levels)


class FunctionOnGrid:
    """Projections of an `ExactFunction` on a grid, and errors of states against it.

    ``exact``: the function.
    ``grid``: the grid.
    """

    def __init__(self, exact: ExactFunction, grid: SparseGrid) -> None:
        space = exact.space
        self._function, self._space, self._grid = exact.function, space, grid
        self._nodes = exact.nodes

    def coefficients(self, t: float) -> NDArray[np.float64]:
        """Return the hierarchical coefficients of f(t), projected onto the grid."""
        space = self._space
        values = self._values(t)
        for k, axis in enumerate(space.axes):
            weights = self._weights(k)
            values = values * _along(weights.ravel(), k, values.ndim)
            values = _per_cell(values, k, weights.shape[0], self._shapes(k))
            if axis in space.volume:
                values = np.moveaxis(values, k, 0)
                flat = values.reshape(values.shape[0], -1)
                divided = space.volume[axis].inverse_mass @ flat
                values = np.moveaxis(divided.reshape(values.shape), 0, k)
            values = to_hierarchical(values, space.levels[k], space.degrees[k], axis=k)
        return np.ascontiguousarray(values.reshape(self._tensor_shape)[self._places]).ravel()

    def error(self, u: NDArray[np.float64], t: float) -> float:
        """Return ‖u - f(t)‖ of a state u, by quadrature of the difference."""
        space, sizes = self._space, sizes_of_degrees(self._space.degrees, len(self._space.axes))
        tensor = np.zeros(self._tensor_shape)
        blocks = u.reshape(self._grid.num_cells, *sizes)
        tensor[self._places] = blocks
        values = tensor.reshape([n << level for n, level in zip(sizes, space.levels, strict=True)])
        for k, level in enumerate(space.levels):
            values = to_nodal(values, level, space.degrees[k], axis=k)
            values = _per_cell(values, k, 1 << level, self._shapes(k).T)
        return self._norm(values - self._values(t))

    def norm(self, t: float) -> float:
        """Return ‖f(t)‖, by quadrature."""
        return self._norm(self._values(t))

    def _norm(self, values: NDArray[np.float64]) -> float:
        """Return the square root of ∫ f² dV, from the values of f at the quadrature points."""
        result = values**2
        for k in range(len(self._space.axes)):
            result = np.tensordot(self._weights(k).ravel(), result, axes=(0, 0))
        return math.sqrt(float(result))

    def _values(self, t: float) -> NDArray[np.float64]:
        """Return f(t) at all quadrature points, an array with one dimension per axis."""
        space, (nodes, _) = self._space, gauss_rule(self._nodes)
        places = [
            cell_points(axis, level, nodes).ravel()
            for axis, level in zip(space.axes, space.levels, strict=True)
        ]
        mesh = np.meshgrid(*places, indexing="ij")
        points = [part.ravel() for part in mesh]
        values = checked_values("exact", lambda: self._function(*points, t), space.axes, points, t)
        return values.reshape(mesh[0].shape)

    def _weights(self, k: int) -> NDArray[np.float64]:
        """Quadrature weights of the points of axis k, times its volume element: (cells, q)."""
        axis, level = self._space.axes[k], self._space.levels[k]
        nodes, weights = gauss_rule(self._nodes)
        points = cell_points(axis, level, nodes)
        volume = evaluate(self._space.coefficient(1.0, axis), points, "volume element")
        return volume * (weights * (axis.cell_width(level) / 2))

    def _shapes(self, k: int) -> NDArray[np.float64]:
        """Values of a cell's nodal functions at its quadrature points along axis k: (q, n)."""
        axis, level = self._space.axes[k], self._space.levels[k]
        nodes, _ = gauss_rule(self._nodes)
        return legendre_values(nodes, self._space.degrees[k], axis.cell_width(level))

    @property
    def _tensor_shape(self) -> tuple[int, ...]:
        pairs = zip(self._space.levels, self._space.degrees, strict=True)
        return tuple(size for level, degree in pairs for size in (1 << level, degree + 1))

    @property
    def _places(self) -> tuple[Any, ...]:
        """Index of the grid's blocks in the tensor (cells_1, n, …, cells_d, n) of coefficients."""
        return tuple(
            place
            for k in range(len(self._space.axes))
            for place in (self._grid.cells[:, k], slice(None))
        )


def _along(values: NDArray[np.float64], k: int, dimensions: int) -> NDArray[np.float64]:
    """Reshape a vector so that it multiplies a tensor along its dimension k."""
    return values.reshape([-1 if axis == k else 1 for axis in range(dimensions)])


def _per_cell(
    values: NDArray[np.float64], k: int, cells: int, matrix: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Multiply each cell's entries along dimension k by ``matrix``, shape (inputs, outputs)."""
    moved = np.moveaxis(values, k, -1)
    others = moved.shape[:-1]
    product = moved.reshape(*others, cells, matrix.shape[0]) @ matrix
    return np.moveaxis(product.reshape(*others, cells * matrix.shape[1]), -1, k)
