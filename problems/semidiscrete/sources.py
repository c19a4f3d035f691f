"""The sources of a problem, and other vectors on its grid that depend on time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module
from batchkron.functions.vector_sum import linear_combination
from batchkron.operators import on_device

from ..discretization.interpolation.transform import PointTransform
from ..discretization.parts import EdgeFunction, OperatorTerm, SeparableVector
from ..grids.degrees import Degree, of_each_axis, sizes_of_degrees
from ..grids.sparse_grid import SparseGrid
from ..statement.axis import Axis
from ..statement.functions import FunctionOfAxes
from ..statement.time import constant
from ..statement.time_functions import TimeFunction, split_number
from .operators import group_terms

__all__ = ["EdgeOnGrid", "MovingSources", "Sources", "TimeCombination", "kron_on_grid"]

Values = NDArray[np.float64]


def kron_on_grid(
    factors: Sequence[NDArray[np.float64]], grid: SparseGrid, n: int | Sequence[int]
) -> NDArray[np.float64]:
    """Restrict the Kronecker product of 1-D coefficients (cells_k * n_k,) to the blocks of a grid.

    In the result (num_cells * Π n_k,) the index of the block is the slowest; within a block that of
    the last axis is the fastest.
    """
    blocks = np.ones((grid.num_cells, 1))
    sizes = of_each_axis(n, grid.dimensions)
    for k, (factor, size) in enumerate(zip(factors, sizes, strict=True)):
        values = np.asarray(factor).reshape(-1, size)[grid.cells[:, k]]
        blocks = (blocks[:, :, None] * values[:, None, :]).reshape(grid.num_cells, -1)
    return np.ascontiguousarray(blocks.ravel())


class TimeCombination:
    """The vector Σ_g f_g(t) v_g of distinct functions of time f_g and fixed vectors v_g.

    Parameters
    ----------
    parts : sequence of SeparableVector
        Separable functions. Those whose functions of time differ by a constant factor only are
        added up when the combination is built.
    grid : SparseGrid
        The grid that they are restricted to.
    n : int or sequence of int
        Coefficients per cell, degree + 1, for all axes or for each.
    device : {"cpu", "cuda"}
        Where the vectors are.
    vectors : sequence of (TimeFunction, ndarray of float64 of shape (N,))
        More functions of time and vectors.

    Attributes
    ----------
    size : int
        Length of the vector.
    parts : tuple of (TimeFunction, ndarray)
        The functions of time and their vectors.
    """

    def __init__(
        self,
        parts: Sequence[SeparableVector],
        grid: SparseGrid,
        n: int | Sequence[int],
        device: str = "cpu",
        vectors: Sequence[tuple[TimeFunction, NDArray[np.float64]]] = (),
    ) -> None:
        collected: dict[TimeFunction, NDArray[np.float64]] = {}
        given = [(part.time, kron_on_grid(part.factors, grid, n)) for part in parts]
        for time, vector in (*given, *vectors):
            number, function = split_number(time)
            vector = number * vector
            if function in collected:
                collected[function] += vector
            else:
                collected[function] = vector
        self.parts = tuple(
            (function, on_device(vector, device)) for function, vector in collected.items()
        )
        self.size = grid.num_cells * math.prod(of_each_axis(n, grid.dimensions))

    def evaluate(self, t: float, out: NDArray[np.float64]) -> NDArray[np.float64]:
        """Overwrite `out` with Σ_g f_g(t) v_g, and return it.

        Allocates nothing after a thread's first call.
        """
        if not self.parts:
            out[...] = 0.0
            return out
        return linear_combination(
            [function(t) for function, _ in self.parts],
            [vector for _, vector in self.parts],
            out,
        )


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
            first, *others = self._functions
            values: Any = first(*self._points, t)
            if others:  # one after another: functions may return the same array of their own
                values = sum((other(*self._points, t) for other in others), values.copy())
            out += self._transform().coefficients(values)

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
