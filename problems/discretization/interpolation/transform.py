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
from .tables import MAX_POINTS, CellBlocks, PointTables, check_points, point_tables

__all__ = ["PointTransform", "check_grid", "coordinates", "run_sweeps", "sweep_along"]

Values = NDArray[np.float64]

_NUDGE = 1e-11
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
        self._spaces = [Workspace() for _ in range(2)]

    @property
    def num_unknowns(self) -> int:
        """Number of coefficients, Π n_k for each cell."""
        return self.grid.num_cells * math.prod(self._n)

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
        to_points, back = (sum(sweep.multiply_adds for sweep in sweeps) for sweeps in ways)
        return to_points, back

    def points(self) -> Iterator[Values]:
        """Yield the coordinates of all points along each axis, (num_points,).

        Points at an edge of a cell are moved into the cell to which they belong by 1e-11 of the
        axis, so that functions that jump there, or are singular at an end, have their limit.
        """
        cells = self.grid.cells
        for k, (axis, tables) in enumerate(zip(self.axes, self._tables, strict=True)):
            places = coordinates(axis, tables)
            shape = [len(cells), *(m if j == k else 1 for j, m in enumerate(self._m))]
            own = places[cells[:, k]].reshape(shape)
            yield np.broadcast_to(own, [len(cells), *self._m]).ravel()

    def values(self, u: Values, out: Values | None = None) -> Values:
        """Return the values (num_points,) of a state (num_unknowns,), in ``out`` if it is given."""
        return self._run(self._to_points, u, out)

    def coefficients(self, values: Values, out: Values | None = None) -> Values:
        """Return the state (num_unknowns,) that has values at the points, in ``out`` if given."""
        return self._run(self._to_coefficients, values, out)

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
        first, second = (reduce(matmul, reversed(sweeps)) for sweeps in ways)
        return first, second

    def _run(
        self, sweeps: Sequence[SparseGridOperator], x: Values, result: Values | None = None
    ) -> Values:
        return run_sweeps(sweeps, x, self._spaces, result)

    # Which axis comes first does not change a product. Sizes of blocks change along the last axis
    # first, and back along it last: matrices along the last axis take longest, and blocks are
    # smallest there then.

    @cached_property
    def _to_points(self) -> list[SparseGridOperator]:
        """B⁻¹J along all axes and then N; along the first axis both at once."""
        sizes, found = list(self._n), []
        for mode in reversed(range(len(sizes))):
            tables, scale = self._tables[mode], self.axes[mode].length ** -0.5
            matrix = tables.surpluses_of_state if mode else tables.values_of_state
            found.append(self._sweep(matrix.scaled(scale), mode, sizes))
            sizes[mode] = self._m[mode]
        values = enumerate(tables.values_of_surpluses for tables in self._tables)
        return found + [self._sweep(N, mode, sizes, adds=True) for mode, N in values if mode]

    @cached_property
    def _to_surpluses(self) -> list[SparseGridOperator]:
        return [
            self._sweep(tables.surpluses_of_values, mode, self._m, adds=True)
            for mode, tables in enumerate(self._tables)
        ]

    @cached_property
    def _shapes(self) -> list[SparseGridOperator]:
        """B along each axis."""
        pairs = zip(self.axes, self._tables, strict=True)
        shapes = [t.coefficients_of_surpluses.scaled(axis.length**0.5) for axis, t in pairs]
        return [self._sweep(B, mode, self._m) for mode, B in enumerate(shapes)]

    @cached_property
    def _to_interpolant(self) -> list[SparseGridOperator]:
        return self._to_surpluses + self._shapes

    @cached_property
    def _to_coefficients(self) -> list[SparseGridOperator]:
        """S along all axes, then B, and then Jᵀ; along the first axis the latter two at once.

        Where an axis has as many points as functions, Jᵀ is the identity.
        """
        first, sizes = self._tables[0], list(self._m)
        found = [*self._to_surpluses, *self._shapes[1:]]
        if first.projected_surpluses is None:
            found.append(self._shapes[0])
        else:
            merged = first.projected_surpluses.scaled(self.axes[0].length ** 0.5)
            found.append(self._sweep(merged, 0, sizes))
            sizes[0] = self._n[0]
        for mode, tables in enumerate(self._tables[1:], start=1):
            if tables.projection is not None:
                found.append(self._sweep(tables.projection, mode, sizes))
                sizes[mode] = self._n[mode]
        return found

    def _sweep(
        self, matrix: CellBlocks, mode: int, sizes: Sequence[int], *, adds: bool = False
    ) -> SparseGridOperator:
        return sweep_along(self.grid, matrix, mode, sizes, adds=adds, device=self.device)


def coordinates(axis: Axis, tables: PointTables) -> Values:
    """Return the coordinates (cells, m) of points; those at edges of cells are moved inside."""
    nudged = tables.places + _NUDGE * tables.sides[(np.arange(len(tables.places)) > 0) * 1]
    return axis.lower + axis.length * nudged  # type: ignore[no-any-return]


def sweep_along(
    grid: SparseGrid,
    matrix: CellBlocks,
    mode: int,
    sizes: Sequence[int],
    *,
    adds: bool = False,
    device: str = "cpu",
) -> SparseGridOperator:
    """Return the sweep along an axis of blocks of these sizes.

    ``adds`` stands for the identity that a matrix leaves out.
    """
    made = [matrix.blocks.shape[1] if k == mode else n for k, n in enumerate(sizes)]
    modes = [matrix if k == mode else None for k in range(len(sizes))]
    sweep = SparseGridOperator(grid, [modes], made, inputs=sizes, plus_identity=adds).to(device)
    assert isinstance(sweep, SparseGridOperator)
    return sweep


def run_sweeps(
    sweeps: Sequence[SparseGridOperator],
    x: Values,
    spaces: Sequence[Workspace],
    result: Values | None = None,
) -> Values:
    """Return the product of sweeps, the first one first, with a vector, in ``result`` if given.

    ``spaces`` are two, for what is between on the CPU.
    """
    module = array_module(x)
    sizes = [int(sweep.shape[0]) for sweep in sweeps]
    largest = max(sizes)
    if module is np:
        between = [space.array(largest, np.dtype(np.float64)) for space in spaces]
    else:  # CuPy keeps memory that is free
        between = [module.empty(largest) for _ in spaces]
    vector: Values = module.ascontiguousarray(x).reshape(-1)
    if result is None:
        result = module.empty(sizes[-1])
    for number, (sweep, size) in enumerate(zip(sweeps, sizes, strict=True)):
        is_last = number == len(sweeps) - 1
        out = result if is_last else between[number % 2][:size]
        sweep.matvec(vector, out)
        vector = out
    return vector


def check_grid(grid: SparseGrid, degree: Degree) -> None:
    """Refuse grids and degrees without points, with ValueError; see `PointTransform`."""
    for own in of_each_axis(degree, grid.dimensions):
        check_points(own + 1)
    if not grid.is_downward_closed:
        raise ValueError(
            "functions of several axes are taken at points of grids that are closed downward, and "
            "this grid lacks an ancestor of one of its cells; grid.closed() has all of them"
        )
