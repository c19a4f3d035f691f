"""Values at points of some axes and by basis functions along the others, on a grid of all axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module
from batchkron.backends.workspace import Workspace
from batchkron.operators import SparseGridOperator, on_device

from ...grids.sparse_grid import SparseGrid
from ...statement.axis import Axis
from .tables import MAX_POINTS, CellBlocks, point_tables
from .transform import NUDGE, check_grid

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
    ) -> None:
        check_grid(grid, degree)
        self._n, self._m = degree + 1, min(degree + 2, MAX_POINTS)
        self._axes, self._grid, self._device = tuple(axes), grid, device
        self._positions = tuple(positions)
        self._sizes = tuple(
            self._m if k in self._positions else self._n for k in range(len(self._axes))
        )
        self._tables = {k: point_tables(grid.levels[k], self._n, self._m) for k in self._positions}
        self._spaces = [Workspace() for _ in range(2)]
        along = []
        for k, tables in self._tables.items():
            nudged = tables.places + NUDGE * tables.sides[(np.arange(len(tables.places)) > 0) * 1]
            along.append((axes[k].lower + axes[k].length * nudged).ravel())
        self.along = tuple(along)

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
        """Return the values (`shape`) of a state (num_cells n^d,), until the next call."""
        padded, whole = self._vectors(u)
        padded.fill(0.0)
        padded[self._given] = u.reshape(self._grid.num_cells, *[self._n] * len(self._axes))
        first, second = self._to_points
        for sweep in first:
            sweep.apply(*self._blocks(padded, whole))
            padded, whole = whole, padded
        for sweep in second:
            whole[...] = padded
            sweep.accumulate(*self._blocks(padded, whole))
            padded, whole = whole, padded
        return padded

    def coefficients(self, values: Values) -> Values:
        """Return the state (num_cells n^d,) of values (`shape`), which are overwritten."""
        vector, other = values, array_module(values).empty_like(values)
        first, second = self._to_coefficients
        for sweep in first:
            other[...] = vector
            sweep.accumulate(*self._blocks(vector, other))
            vector, other = other, vector
        for sweep in second:
            sweep.apply(*self._blocks(vector, other))
            vector, other = other, vector
        return array_module(values).ascontiguousarray(vector[self._given]).reshape(-1)  # type: ignore[no-any-return]

    def _vectors(self, like: Values) -> list[Values]:
        if array_module(like) is not np:
            return [array_module(like).empty(self.shape) for _ in self._spaces]
        size = math.prod(self.shape)
        return [space.array(size, like.dtype).reshape(self.shape) for space in self._spaces]

    def _blocks(self, *vectors: Values) -> tuple[Values, ...]:
        return tuple(vector.reshape(self._grid.num_cells, -1) for vector in vectors)

    @property
    def _given(self) -> tuple[slice, ...]:
        """The coefficients of states among those of one degree more along the positions."""
        return slice(None), *[slice(self._n)] * len(self._axes)

    @cached_property
    def _to_points(self) -> tuple[list[SparseGridOperator], list[SparseGridOperator]]:
        """B⁻¹J along all positions and then N - 1; along the last position both at once."""
        *rest, last = self._positions
        scales = {k: self._axes[k].length ** -0.5 for k in self._positions}
        tables = self._tables
        first = [self._sweep(k, tables[k].surpluses_of_state.scaled(scales[k])) for k in rest]
        first.append(self._sweep(last, tables[last].values_of_state.scaled(scales[last])))
        return first, [self._sweep(k, tables[k].values_of_surpluses) for k in rest]

    @cached_property
    def _to_coefficients(self) -> tuple[list[SparseGridOperator], list[SparseGridOperator]]:
        """S - 1 along all positions; then B, and then Jᵀ, along the last position both at once."""
        *rest, last = self._positions
        scales = {k: self._axes[k].length ** 0.5 for k in self._positions}
        tables = self._tables
        first = [self._sweep(k, tables[k].surpluses_of_values) for k in self._positions]
        second = [self._sweep(k, tables[k].coefficients_of_surpluses.scaled(scales[k]))
                  for k in rest]  # fmt: skip
        whole = tables[last].projected_surpluses or tables[last].coefficients_of_surpluses
        second.append(self._sweep(last, whole.scaled(scales[last])))
        for k in rest:
            projection = tables[k].projection
            if projection is not None:
                second.append(self._sweep(k, projection))
        return first, second

    def _sweep(self, mode: int, matrix: CellBlocks) -> SparseGridOperator:
        modes = [matrix if k == mode else None for k in range(len(self._axes))]
        found = SparseGridOperator(self._grid, [modes], self._sizes).to(self._device)
        assert isinstance(found, SparseGridOperator)
        return found
