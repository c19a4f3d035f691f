"""Values of functions at the points of a grid, and the coefficients of functions from values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module
from batchkron.functions.segmented import SegmentedModeMultiply
from batchkron.operators import on_device
from batchkron.operators.sparse_grid.fibres import Fibres

from ...grids.sparse_grid import SparseGrid
from ...statement.axis import Axis
from .tables import MAX_POINTS, CellBlocks, check_points, point_tables

__all__ = ["PointTransform", "check_grid"]

Values = NDArray[np.float64]

_NUDGE = 1e-11  # of an axis: distance of points at edges from these, as functions are given them


class _Sweep(NamedTuple):
    """The product of one mode with a matrix, which may be added to the vector itself."""

    product: SegmentedModeMultiply
    adds: bool
    multiply_adds: int

    def __call__(self, x: Values) -> Values:
        if self.adds:
            return self.product.accumulate(x, x.copy())
        return self.product.apply(x)


class PointTransform:
    """Maps between states of a grid and values at points, of which each cell of the grid has m^d.

    A function is interpolated at the points by functions of degree m - 1 on the same grid, and
    projected onto those of the state's degree: with m larger than the degree + 1 that is nearly the
    L² projection, with m = degree + 1 the interpolant itself.

    Parameters
    ----------
    axes : sequence of Axis
        The d axes.
    grid : SparseGrid
        A grid that is closed downward.
    degree : int
        Degree of states.
    extra : int
        By how much the degree of the interpolant is higher, as far as there are sets of points.
    device : {"cpu", "cuda"}
        Where vectors are.

    Raises
    ------
    ValueError
        If the grid is not closed downward, or there is no set of points for the degree.

    Notes
    -----
    Let N be the values of surpluses along an axis, S = N⁻¹, and B the multiwavelet coefficients of
    surpluses (`tables`). N and S map cells to themselves and finer ones, B and B⁻¹ to themselves
    and coarser ones. So on a grid that is closed downward the restriction of N ⊗ … ⊗ N after that
    of B⁻¹ ⊗ … ⊗ B⁻¹ evaluates functions exactly, and B ⊗ … ⊗ B after S ⊗ … ⊗ S is its inverse. Each
    product takes a sweep for each axis.
    """

    def __init__(
        self,
        axes: Sequence[Axis],
        grid: SparseGrid,
        degree: int,
        *,
        extra: int = 1,
        device: str = "cpu",
    ) -> None:
        check_grid(grid, degree)
        n = degree + 1
        self.axes, self.grid, self.degree, self.device = tuple(axes), grid, degree, device
        self._n, self._m = n, min(n + extra, MAX_POINTS)
        self._tables = [point_tables(level, n, self._m) for level in grid.levels]
        self._fibres = [Fibres(grid.cells, mode) for mode in range(grid.dimensions)]

    @property
    def num_points(self) -> int:
        """Number of points, m^d for each cell."""
        return int(self.grid.num_cells * self._m**self.grid.dimensions)

    @property
    def degree_at_points(self) -> int:
        """The degree of what interpolates values, m - 1."""
        return self._m - 1

    @property
    def multiply_adds(self) -> tuple[int, int]:
        """Multiply-adds of `values` and of `coefficients`."""
        ways = self._to_points, self._to_coefficients
        to_points, back = (sum(step.multiply_adds for step in steps) for steps in ways)
        return to_points, back

    def points(self) -> Iterator[Values]:
        """Yield the coordinates of all points along each axis, (num_points,).

        Points at an edge of a cell are moved into the cell to which they belong by 1e-11 of the
        axis, so that functions that jump there, or are singular at an end, have their limit.
        """
        d, cells = self.grid.dimensions, self.grid.cells
        for k, (axis, tables) in enumerate(zip(self.axes, self._tables, strict=True)):
            nudged = tables.places + _NUDGE * tables.sides[(np.arange(len(tables.places)) > 0) * 1]
            places = axis.lower + axis.length * nudged
            shape = [len(cells), *(self._m if j == k else 1 for j in range(d))]
            own = places[cells[:, k]].reshape(shape)
            yield np.broadcast_to(own, [len(cells), *[self._m] * d]).ravel()

    def values(self, u: Values) -> Values:
        """Return the values (num_points,) at the points of a state (num_cells n^d,)."""
        return self._run(self._to_points, u)

    def coefficients(self, values: Values) -> Values:
        """Return the state (num_cells n^d,) of which values at the points are given."""
        return self._run(self._to_coefficients, values)

    def project(self, function: Callable[..., Values], t: float) -> Values:
        """Return the state of a function f(x_1, …, x_d, t), called once, with arrays of NumPy."""
        values = function(*self.points(), t)
        return self.coefficients(on_device(values, self.device))

    def interpolant(self, values: Values) -> Values:
        """Return the coefficients (num_points,) of degree m - 1 of what interpolates values."""
        return self._run(self._to_interpolant, values)

    def _run(self, steps: Sequence[_Sweep], x: Values) -> Values:
        blocks: Values = array_module(x).asarray(x).reshape(self.grid.num_cells, -1)
        for step in steps:
            blocks = step(blocks)
        return blocks.reshape(-1)

    @cached_property
    def _to_points(self) -> list[_Sweep]:
        scales = [axis.length**-0.5 for axis in self.axes]
        states = [t.surpluses_of_state.scaled(s) for t, s in zip(self._tables, scales, strict=True)]
        first = self._sweeps(states, adds=False, before=self._m, behind=self._n)
        return first + self._sweeps([t.values_of_surpluses for t in self._tables])

    @cached_property
    def _to_interpolant(self) -> list[_Sweep]:
        scales = [axis.length**0.5 for axis in self.axes]
        shapes = [
            t.coefficients_of_surpluses.scaled(s) for t, s in zip(self._tables, scales, strict=True)
        ]
        first = self._sweeps([t.surpluses_of_values for t in self._tables])
        return first + self._sweeps(shapes, adds=False)

    @cached_property
    def _to_coefficients(self) -> list[_Sweep]:
        found = [t.projection for t in self._tables if t.projection is not None]
        last = self._sweeps(found, adds=False, before=self._n)
        return self._to_interpolant + last

    def _sweeps(
        self,
        matrices: Sequence[CellBlocks],
        *,
        adds: bool = True,
        before: int | None = None,
        behind: int | None = None,
    ) -> list[_Sweep]:
        """Return a sweep for each axis, with blocks of these sizes along the axes on each side.

        By default these have m; ``adds`` stands for the identity that a matrix leaves out.
        """
        steps, cells = [], self.grid.num_cells
        for mode, matrix in enumerate(matrices):
            edges = self._fibres[mode].edges(matrix.connections, "full")
            sizes = (before or self._m) ** mode, (behind or self._m) ** (len(matrices) - mode - 1)
            product = SegmentedModeMultiply(
                matrix.blocks,
                np.append(0, np.cumsum(np.bincount(edges.outputs, minlength=cells))),
                edges.blocks,
                edges.inputs,
                before=sizes[0],
                behind=sizes[1],
                num_inputs=cells,
            )
            work = len(edges.blocks) * math.prod(matrix.blocks.shape[1:]) * math.prod(sizes)
            steps.append(_Sweep(product.to(self.device), adds, work))
        return steps


def check_grid(grid: SparseGrid, degree: int) -> None:
    """Refuse grids and degrees without points, with ValueError; see `PointTransform`."""
    check_points(degree + 1)
    if not grid.is_downward_closed:
        raise ValueError(
            "functions of several axes are taken at points of grids that are closed downward, and "
            "this grid lacks an ancestor of one of its cells; grid.closed() has all of them"
        )
