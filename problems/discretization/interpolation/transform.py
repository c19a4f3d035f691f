"""Values of functions at the points of a grid, and the coefficients of functions from values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, reduce
from operator import matmul

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module
from batchkron.backends.workspace import Workspace
from batchkron.operators import Operator, SparseGridOperator, on_device

from ...grids.degrees import Degree, of_each_axis
from ...grids.sparse_grid import SparseGrid
from ...statement.axis import Axis
from .mode_sweep import ModeSweep
from .tables import MAX_POINTS, CellBlocks, check_points, point_tables

__all__ = ["NUDGE", "PointTransform", "check_grid"]

Values = NDArray[np.float64]

NUDGE = 1e-11
"""Of an axis: distance of points at edges from these, as functions are given them."""


class PointTransform:
    """Maps between states of a grid and values at points, of which each cell of the grid has Π m_k.

    A function is interpolated at the points by functions of degree m - 1 on the same grid, and
    projected onto those of the state's degree: with m larger than the degree + 1 that is nearly the
    L² projection, with m = degree + 1 the interpolant itself. Degrees may differ by axis.

    Parameters
    ----------
    axes : sequence of Axis
        The d axes.
    grid : SparseGrid
        A grid that is closed downward.
    degree : int or tuple of int
        Degree of states along all axes or each.
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
        degree: Degree,
        *,
        extra: int = 1,
        device: str = "cpu",
    ) -> None:
        check_grid(grid, degree)
        self.axes, self.grid, self.degree, self.device = tuple(axes), grid, degree, device
        self._n = [own + 1 for own in of_each_axis(degree, grid.dimensions)]
        self._m = [min(n + extra, MAX_POINTS) for n in self._n]
        self._tables = [
            point_tables(*own) for own in zip(grid.levels, self._n, self._m, strict=True)
        ]
        self._spaces = [Workspace() for _ in range(4)]

    @property
    def num_points(self) -> int:
        """Number of points, Π m_k for each cell."""
        return self.grid.num_cells * math.prod(self._m)

    @property
    def degrees_at_points(self) -> tuple[int, ...]:
        """The degrees of what interpolates values, m_k - 1."""
        return tuple(m - 1 for m in self._m)

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
        cells = self.grid.cells
        for k, (axis, tables) in enumerate(zip(self.axes, self._tables, strict=True)):
            nudged = tables.places + NUDGE * tables.sides[(np.arange(len(tables.places)) > 0) * 1]
            places = axis.lower + axis.length * nudged
            shape = [len(cells), *(m if j == k else 1 for j, m in enumerate(self._m))]
            own = places[cells[:, k]].reshape(shape)
            yield np.broadcast_to(own, [len(cells), *self._m]).ravel()

    def values(self, u: Values) -> Values:
        """Return the values (num_points,) at the points of a state (num_cells Π n_k,)."""
        return self._run(self._to_points, u)

    def coefficients(self, values: Values) -> Values:
        """Return the state (num_cells Π n_k,) of which values at the points are given."""
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
        first = self._sweeps(states, given=self._n)
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
        """S along all axes, then B, and then Jᵀ; along the last axis the latter two at once.

        Where an axis has as many points as functions, Jᵀ is the identity.
        """
        shapes, last = self._scaled_shapes, self._tables[-1]
        if last.projected_surpluses is None:
            merged = shapes[-1]
        else:
            merged = last.projected_surpluses.scaled(self.axes[-1].length ** 0.5)
        found = [*self._to_surpluses, *self._sweeps(shapes[:-1])]
        found += self._sweeps([merged], first=len(shapes) - 1, kept=self._n)
        sizes = [*self._m[:-1], self._n[-1]]
        for mode, tables in enumerate(self._tables[:-1]):
            if tables.projection is not None:
                found.append(self._sweep(tables.projection, mode, sizes, kept=self._n[mode]))
                sizes[mode] = self._n[mode]
        return found

    def _sweeps(
        self,
        matrices: Sequence[CellBlocks],
        *,
        given: Sequence[int] | None = None,
        kept: Sequence[int] | None = None,
        first: int = 0,
        adds: bool = False,
    ) -> list[ModeSweep]:
        """Return sweeps along the axes from ``first`` on, one for each matrix.

        Of the functions of each axis ``given`` are given and ``kept`` kept, all m if it is None;
        ``adds`` stands for the identity that a matrix leaves out.
        """
        sizes, sweeps = list(self._m), []
        if given is not None:
            sizes[first:] = given[first:]
        for mode, matrix in enumerate(matrices, start=first):
            number = sizes[mode]
            sizes[mode] = self._m[mode]
            left = None if kept is None else kept[mode]
            sweeps.append(self._sweep(matrix, mode, sizes, given=number, kept=left, adds=adds))
        return sweeps

    def _sweep(
        self,
        matrix: CellBlocks,
        mode: int,
        sizes: Sequence[int],
        *,
        given: int | None = None,
        kept: int | None = None,
        adds: bool = False,
    ) -> ModeSweep:
        """Return the sweep along an axis of blocks of these sizes."""
        modes = [matrix if k == mode else None for k in range(self.grid.dimensions)]
        product = SparseGridOperator(self.grid, [modes], sizes).to(self.device)
        assert isinstance(product, SparseGridOperator)
        m = sizes[mode]
        return ModeSweep(product, tuple(sizes), mode, given or m, kept or m, adds)


def check_grid(grid: SparseGrid, degree: Degree) -> None:
    """Refuse grids and degrees without points, with ValueError; see `PointTransform`."""
    for own in of_each_axis(degree, grid.dimensions):
        check_points(own + 1)
    if not grid.is_downward_closed:
        raise ValueError(
            "functions of several axes are taken at points of grids that are closed downward, and "
            "this grid lacks an ancestor of one of its cells; grid.closed() has all of them"
        )
