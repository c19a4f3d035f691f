"""Values of a state at points."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...grids.degrees import Degree, of_each_axis
from ...grids.sparse_grid import SparseGrid
from ...statement.axis import Axis
from .multiwavelets import hierarchical_values

__all__ = ["evaluate_on_grid"]

_CHUNK_ELEMENTS = 1 << 20  # coefficients that are gathered at once: 8 MiB of float64


def evaluate_on_grid(
    u: NDArray[np.float64],
    points: ArrayLike,
    axes: Sequence[Axis],
    grid: SparseGrid,
    degree: Degree,
) -> NDArray[np.float64]:
    """Return f(x) = Σ_blocks Σ_j u_(block, j) Π_k ψ_(block_k, j_k)(x_k) at points x (m, d).

    ψ are the 1-D hierarchical basis functions; block_k is the cell of a block along axis k, and u
    has the coefficients (num_cells Π n_k,). Raises ValueError for points outside the domain.
    """
    places = np.asarray(points, dtype=np.float64)
    if places.ndim != 2 or places.shape[1] != len(axes):
        raise ValueError(
            f"points has shape {places.shape}; expected (m, {len(axes)}): one row per point, "
            f"with the coordinates {', '.join(axis.name for axis in axes)}"
        )
    blocks = u.reshape(grid.num_cells, -1)
    chunk = max(1, _CHUNK_ELEMENTS // blocks.shape[1])
    values, degrees = np.empty(len(places)), of_each_axis(degree, len(axes))
    for first in range(0, len(places), chunk):
        some = slice(first, first + chunk)
        values[some] = _evaluate(blocks, places[some], axes, grid, degrees)
    return values


def _evaluate(
    blocks: NDArray[np.float64],
    places: NDArray[np.float64],
    axes: Sequence[Axis],
    grid: SparseGrid,
    degrees: Sequence[int],
) -> NDArray[np.float64]:
    """Sum over the grid's level multi-indices; each has one block that contains the point."""
    cells, shapes = [], []
    for k, axis in enumerate(axes):
        found, values = hierarchical_values(places[:, k], axis, grid.levels[k], degrees[k])
        cells.append(found)
        shapes.append(values)
    total = np.zeros(len(places))
    for levels in grid.level_sets:
        wanted = [found[:, level] for found, level in zip(cells, levels, strict=True)]
        rows = grid.find(np.column_stack(wanted))
        present = np.flatnonzero(rows >= 0)
        values = blocks[rows[present]]
        for k in reversed(range(len(axes))):
            shape, level, n = shapes[k], levels[k], degrees[k] + 1
            values = values.reshape(len(present), values.shape[1] // n, n)
            values = np.einsum("paj,pj->pa", values, shape[present, level])
        total[present] += values[:, 0]
    return total
