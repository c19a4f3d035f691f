"""Values at points of some axes and by basis functions along the others, on a grid of all axes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from batchkron.backends.workspace import Workspace
from batchkron.operators import SparseGridOperator, on_device

from ...grids.sparse_grid import SparseGrid
from ...statement.axis import Axis
from .tables import MAX_POINTS, CellBlocks, point_tables
from .transform import check_grid, coordinates, run_sweeps, sweep_along

__all__ = ["PositionPoints"]

Values = NDArray[np.float64]


class PositionPoints:
    """Maps between states and values at points of the positions, exact along the other axes.

    Each cell of the grid has m points along every position, as in `PointTransform`, and n functions
    along every other axis. For each function of the other axes the coefficients of a state are
    those of a function of the positions, whose values at the points are exact; and functions of the
    positions are interpolated at the points, and projected. So what is multiplied by a function of
    the positions keeps its integral over the other axes to that of the same multiplication there:
    if this integral is zero, it stays zero.

    ``axes``: all axes.
    ``positions``: the numbers of those with points.
    ``grid``: a grid that is closed downward.
    ``degree``: degree of states.
    ``device`` ({"cpu", "cuda"}): where vectors are.
    ``extra``: by how much the degree of what interpolates is higher, as far as there are sets of
      points; with 0 values and states determine each other.
    ``along`` (tuple of ndarray, shape (cells_k m,), float64): the coordinates of all points along
      each position; those at edges of cells are moved into theirs.

    Raises `ValueError` if the grid is not closed downward, or there is no set of points for the
    degree.
    """

    def __init__(
        self,
        axes: Sequence[Axis],
        positions: Sequence[int],
        grid: SparseGrid,
        degree: int,
        device: str = "cpu",
        *,
        extra: int = 1,
    ) -> None:
        check_grid(grid, degree)
        self._n, self._m = degree + 1, min(degree + 1 + extra, MAX_POINTS)
        self._axes, self._grid, self._device = tuple(axes), grid, device
        self._positions = tuple(positions)
        self._sizes = tuple(
            self._m if k in self._positions else self._n for k in range(len(self._axes))
        )
        self._tables = {k: point_tables(grid.levels[k], self._n, self._m) for k in self._positions}
        self._spaces = [Workspace() for _ in range(2)]
        points = (coordinates(axes[k], tables) for k, tables in self._tables.items())
        self.along = tuple(own.ravel() for own in points)

    @cached_property
    def places(self) -> NDArray[np.int64]:
        """Where each point of the grid is among all combinations of the points of the positions.

        Of the shape of vectors at points, with 1 along the other axes: (num_cells, m or 1, …).
        """
        cells, d = self._grid.cells, len(self._axes)
        found = np.zeros((len(cells), *[1] * d), dtype=np.int64)
        for k, along in zip(self._positions, self.along, strict=True):
            shape = [len(cells), *(self._m if j == k else 1 for j in range(d))]
            own = (cells[:, k, None] * self._m + np.arange(self._m)).reshape(shape)
            found = found * along.size + own
        return on_device(found, self._device)

    def multiply(self, values: Values, factor: Values) -> None:
        """Multiply values (`shape`) in place by a function of the positions.

        ``factor`` has its values at all combinations of the points of the positions.
        """
        long, short = [self._grid.num_cells], [self._grid.num_cells]
        was_position = True
        for k, size in enumerate(self._sizes):  # neighbouring axes of a kind are one
            is_position = k in self._positions
            if is_position == was_position:
                long[-1] *= size
                short[-1] *= size if is_position else 1
            else:
                long.append(size)
                short.append(size if is_position else 1)
            was_position = is_position
        wide = values.reshape(long)
        wide *= factor.take(self.places.reshape(short))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of values: cells, then points or functions of each axis."""
        return self._grid.num_cells, *self._sizes

    def values(self, u: Values) -> Values:
        """Return the values (`shape`) of a state (num_cells n^d,)."""
        return run_sweeps(self._to_points, u, self._spaces).reshape(self.shape)

    def coefficients(self, values: Values) -> Values:
        """Return the state (num_cells n^d,) of values (`shape`)."""
        return run_sweeps(self._to_coefficients, values, self._spaces)

    @cached_property
    def _to_points(self) -> list[SparseGridOperator]:
        """B⁻¹J along all positions and then N; along the first position both at once."""
        sizes, found = [self._n] * len(self._axes), []
        first, *rest = self._positions
        for mode in reversed(self._positions):
            tables, scale = self._tables[mode], self._axes[mode].length ** -0.5
            matrix = tables.values_of_state if mode == first else tables.surpluses_of_state
            found.append(self._sweep(matrix.scaled(scale), mode, sizes))
            sizes[mode] = self._m
        for mode in rest:
            found.append(
                self._sweep(self._tables[mode].values_of_surpluses, mode, sizes, adds=True)
            )
        return found

    @cached_property
    def _to_coefficients(self) -> list[SparseGridOperator]:
        """S along all positions; then B, and then Jᵀ, along the first position both at once."""
        sizes, (first, *rest), found = list(self._sizes), self._positions, []
        scales = {k: self._axes[k].length ** 0.5 for k in self._positions}
        for mode in self._positions:
            found.append(
                self._sweep(self._tables[mode].surpluses_of_values, mode, sizes, adds=True)
            )
        for mode in rest:
            shapes = self._tables[mode].coefficients_of_surpluses.scaled(scales[mode])
            found.append(self._sweep(shapes, mode, sizes))
        tables = self._tables[first]
        whole = tables.projected_surpluses or tables.coefficients_of_surpluses
        found.append(self._sweep(whole.scaled(scales[first]), first, sizes))
        sizes[first] = self._n
        for mode in rest:
            projection = self._tables[mode].projection
            if projection is not None:
                found.append(self._sweep(projection, mode, sizes))
                sizes[mode] = self._n
        return found

    def _sweep(
        self, matrix: CellBlocks, mode: int, sizes: list[int], *, adds: bool = False
    ) -> SparseGridOperator:
        return sweep_along(self._grid, matrix, mode, sizes, adds=adds, device=self._device)
