"""Values of functions at the points of a grid, and the coefficients of functions from values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, reduce
from operator import matmul

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module
from batchkron.backends.workspace import Workspace
from batchkron.operators import Operator, SparseGridOperator, on_device

from ...grids.sparse_grid import SparseGrid
from ...statement.axis import Axis
from .mode_sweep import ModeSweep
from .tables import MAX_POINTS, CellBlocks, check_points, point_tables

__all__ = ["NUDGE", "PointTransform", "check_grid"]

Values = NDArray[np.float64]

NUDGE = 1e-11
"""Of an axis: distance of points at edges from these, as functions are given them."""


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
        self._spaces = [Workspace() for _ in range(4)]

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
        to_points, back = (sum(step.product.multiply_adds for step in steps) for steps in ways)
        return to_points, back

    def points(self) -> Iterator[Values]:
        """Yield the coordinates of all points along each axis, (num_points,).

        Points at an edge of a cell are moved into the cell to which they belong by 1e-11 of the
        axis, so that functions that jump there, or are singular at an end, have their limit.
        """
        d, cells = self.grid.dimensions, self.grid.cells
        for k, (axis, tables) in enumerate(zip(self.axes, self._tables, strict=True)):
            nudged = tables.places + NUDGE * tables.sides[(np.arange(len(tables.places)) > 0) * 1]
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

    @cached_property
    def operators(self) -> tuple[Operator, Operator]:
        """`values` and `coefficients` as operators, which have transposes."""
        ways = self._to_points, self._to_coefficients
        first, second = (
            reduce(matmul, [sweep.operator for sweep in reversed(sweeps)]) for sweeps in ways
        )
        return first, second

    def _run(self, sweeps: Sequence[ModeSweep], x: Values) -> Values:
        module = array_module(x)
        largest = max(sweep.size for sweep in sweeps)
        if module is np:
            spaces = [space.array(largest, np.dtype(np.float64)) for space in self._spaces]
        else:  # CuPy keeps memory that is free
            spaces = [module.empty(largest) for _ in self._spaces]
        vector: Values = module.ascontiguousarray(x).reshape(-1)
        for number, sweep in enumerate(sweeps):
            is_last = number == len(sweeps) - 1
            out = (
                module.empty(sweep.kept_size) if is_last else spaces[number % 2][: sweep.kept_size]
            )
            sweep.write(vector, out, spaces[2][: sweep.size], spaces[3][: sweep.size])
            vector = out
        return vector

    @cached_property
    def _to_points(self) -> list[ModeSweep]:
        """B⁻¹J along all axes and then N; along the last axis both at once."""
        scales = [axis.length**-0.5 for axis in self.axes]
        states = [t.surpluses_of_state.scaled(s) for t, s in zip(self._tables, scales, strict=True)]
        states[-1] = self._tables[-1].values_of_state.scaled(scales[-1])
        first = self._sweeps(states, before=self._m, given=self._n, behind=self._n)
        return first + self._sweeps([t.values_of_surpluses for t in self._tables[:-1]], adds=True)

    @cached_property
    def _to_surpluses(self) -> list[ModeSweep]:
        return self._sweeps([t.surpluses_of_values for t in self._tables], adds=True)

    @cached_property
    def _to_interpolant(self) -> list[ModeSweep]:
        return self._to_surpluses + self._sweeps(self._scaled_shapes)

    @property
    def _scaled_shapes(self) -> list[CellBlocks]:
        return [
            tables.coefficients_of_surpluses.scaled(axis.length**0.5)
            for axis, tables in zip(self.axes, self._tables, strict=True)
        ]

    @cached_property
    def _to_coefficients(self) -> list[ModeSweep]:
        """S along all axes, then B, and then Jᵀ; along the last axis the latter two at once."""
        *found, last = [(t.projection, t.projected_surpluses) for t in self._tables]
        if last[1] is None:
            return self._to_interpolant
        shapes = [*self._scaled_shapes[:-1], last[1].scaled(self.axes[-1].length ** 0.5)]
        return [
            *self._to_surpluses,
            *self._sweeps(shapes[:-1]),
            *self._sweeps(shapes[-1:], first=len(found), kept=self._n),
            *self._sweeps(
                [own for own, _ in found if own is not None],
                before=self._n,
                kept=self._n,
                last=self._n,
            ),
        ]

    def _sweeps(
        self,
        matrices: Sequence[CellBlocks],
        *,
        before: int | None = None,
        given: int | None = None,
        kept: int | None = None,
        behind: int | None = None,
        last: int | None = None,
        first: int = 0,
        adds: bool = False,
    ) -> list[ModeSweep]:
        """Return sweeps along the axes from ``first`` on, one for each matrix.

        Along the axes ``before`` and ``behind`` its own, and along the last one if that is another,
        blocks have as many functions, m if that is not given; ``adds`` stands for the identity that
        a matrix leaves out.
        """
        sweeps, m, d = [], self._m, self.grid.dimensions
        for mode, matrix in enumerate(matrices, start=first):
            sizes = [before or m] * mode + [m] + [behind or m] * (d - mode - 1)
            if last is not None:
                sizes[-1] = last
            modes = [matrix if k == mode else None for k in range(d)]
            product = SparseGridOperator(self.grid, [modes], sizes).to(self.device)
            assert isinstance(product, SparseGridOperator)
            sweeps.append(ModeSweep(product, tuple(sizes), mode, given or m, kept or m, adds))
        return sweeps


def check_grid(grid: SparseGrid, degree: int) -> None:
    """Refuse grids and degrees without points, with ValueError; see `PointTransform`."""
    check_points(degree + 1)
    if not grid.is_downward_closed:
        raise ValueError(
            "functions of several axes are taken at points of grids that are closed downward, and "
            "this grid lacks an ancestor of one of its cells; grid.closed() has all of them"
        )
