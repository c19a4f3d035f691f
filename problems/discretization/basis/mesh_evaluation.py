"""Values of a state on meshes, the tensor products of points of each axis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...grids.degrees import Degree, of_each_axis
from ...grids.sparse_grid import SparseGrid
from ...statement.axis import Axis
from .evaluation import evaluate_on_grid
from .multiwavelets import hierarchical_values

__all__ = ["evaluate_at", "evaluate_on_mesh"]

Values = NDArray[np.float64]


def evaluate_at(
    u: Values, points: Sequence[ArrayLike], axes: Sequence[Axis], grid: SparseGrid, degree: Degree
) -> Values:
    """Return the values of a state (num_cells Π n_k,) at points, or at the places that arrays give.

    ``points`` has one array (..., d), whose last index is the axis; or d arrays, the coordinates
    along each axis, which are broadcast together as those of `numpy.meshgrid`. With one axis an
    array (m,) is taken as coordinates. Raises ValueError for other shapes and for points outside
    the domain.

    Open meshes (``sparse=True`` of `numpy.meshgrid`) are evaluated axis by axis, which takes less
    work than all of their points one by one.
    """
    d = len(axes)
    names = ", ".join(axis.name for axis in axes)
    given = [np.asarray(part, dtype=np.float64) for part in points]
    if len(given) == 1:
        places = given[0]
        if d == 1 and places.ndim == 1:
            places = places[:, None]
        if places.ndim < 2 or places.shape[-1] != d:
            raise ValueError(
                f"points has shape {places.shape}; expected (m, {d}): one row per point, with the "
                f"coordinates {names}"
            )
        flat = evaluate_on_grid(u, places.reshape(-1, d), axes, grid, degree)
        return flat.reshape(places.shape[:-1])
    if len(given) != d:
        raise ValueError(
            f"{len(given)} arrays of coordinates are given; expected one for each of the {d} axes "
            f"{names}, or one array of points"
        )
    try:
        shape = np.broadcast_shapes(*(part.shape for part in given))
    except ValueError:
        shapes = ", ".join(str(part.shape) for part in given)
        raise ValueError(
            f"the coordinates along {names} have the shapes {shapes}, which do not broadcast; give "
            f"arrays such as those of numpy.meshgrid"
        ) from None
    order = _open_mesh(given, shape)
    if order is not None:
        mesh = evaluate_on_mesh(u, [part.ravel() for part in given], axes, grid, degree)
        return np.ascontiguousarray(mesh.transpose(np.argsort(order))).reshape(shape)
    rows = np.stack([part.ravel() for part in np.broadcast_arrays(*given)], axis=-1)
    return evaluate_on_grid(u, rows, axes, grid, degree).reshape(shape)


def _open_mesh(given: Sequence[Values], shape: tuple[int, ...]) -> list[int] | None:
    """Return the dimension along which each array varies if these differ, else None."""
    found = []
    for part in given:
        own = [k for k, size in enumerate(part.shape) if size > 1]
        if len(own) != 1:
            return None
        found.append(own[0] + len(shape) - part.ndim)
    return found if len(set(found)) == len(found) else None


def evaluate_on_mesh(
    u: Values, places: Sequence[Values], axes: Sequence[Axis], grid: SparseGrid, degree: Degree
) -> Values:
    """Return the values (m_1, …, m_d) of a state at all combinations of points (m_k,) of the axes.

    One axis after another, from the last to the first, is contracted with the values of its basis
    functions: Σ over the cells that begin with the same indices along the axes before it.
    """
    degrees, cells = of_each_axis(degree, len(axes)), grid.cells
    values = np.asarray(u, dtype=np.float64).reshape(len(cells), -1, 1)  # cells, functions, points
    for k in reversed(range(len(axes))):
        shapes = _values_of_cells(places[k], axes[k], grid.levels[k], degrees[k])
        prefixes, owner = np.unique(cells[:, :k], axis=0, return_inverse=True)
        order = np.argsort(owner.ravel(), kind="stable")
        ends = np.cumsum(np.bincount(owner.ravel(), minlength=len(prefixes)))
        size, n = len(places[k]), degrees[k] + 1
        summed = np.empty((len(prefixes), values.shape[1] // n, size * values.shape[2]))
        for prefix, members in enumerate(np.split(order, ends[:-1])):
            own = values[members].reshape(len(members), values.shape[1] // n, n, -1)
            product = np.tensordot(shapes[cells[members, k]], own, axes=((0, 1), (0, 2)))
            summed[prefix] = product.swapaxes(0, 1).reshape(values.shape[1] // n, -1)
        cells, values = prefixes, summed
    return values.reshape([len(part) for part in places])


def _values_of_cells(places: Values, axis: Axis, level: int, degree: int) -> Values:
    """Return the values of all hierarchical functions of an axis at points, (cells, n, points)."""
    cells, values = hierarchical_values(places, axis, level, degree)
    found = np.zeros((1 << level, degree + 1, len(places)))
    points = np.arange(len(places))
    for one in range(level + 1):
        found[cells[:, one], :, points] = values[:, one]
    return found
