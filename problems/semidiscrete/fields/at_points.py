"""Fields of a state at the points of a grid, as arguments of pointwise functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module
from batchkron.operators import on_device

from ...discretization.basis.quadrature import gauss_rule
from ...discretization.interpolation.tables import point_tables
from ...discretization.interpolation.transform import PointTransform
from ...discretization.matrices.dg_matrices import volume_nodes
from ...discretization.parts import FieldAtPoints, Masses
from ...grids.degrees import of_each_axis
from ...statement.axis import Axis
from .evaluation import FieldEvaluation

__all__ = ["FieldsAtPoints"]

Values = NDArray[np.float64]


class FieldsAtPoints:
    """Computes fields of a state at all points of its grid.

    Each is the polynomial through its values at the Gauss points of a finest cell of its axis,
    which for moments is exact.

    Parameters
    ----------
    fields : sequence of FieldAtPoints
    transform : PointTransform
        The points.
    masses : sequence of (ndarray or None)
        Mass blocks of the axes with a volume element.
    """

    def __init__(
        self, fields: Sequence[FieldAtPoints], transform: PointTransform, masses: Masses
    ) -> None:
        by_axis: dict[Axis, list[FieldAtPoints]] = {}
        for own in fields:
            known = by_axis.setdefault(own.axis, [])
            if all(own.field != other.field for other in known):
                known.append(own)
        self._groups = [
            (
                members,
                FieldEvaluation(
                    [own.field for own in members], axis, transform.axes, transform.grid,
                    transform.degree, masses, transform.device,
                ),
                _AlongAxis(axis, transform),
            )
            for axis, members in by_axis.items()
        ]  # fmt: skip

    def __call__(
        self, t: float, u: Values
    ) -> Callable[[Sequence[FieldAtPoints]], dict[str, Values]]:
        """Return a function that has the values (points,) of some of the fields by their names.

        The names are those of one function: others may have other fields of the same name. t is for
        texts of errors. Raises NotPhysicalError if a field is not defined for the state.
        """
        known = [
            (own.axis, own.field, spread(values))
            for members, evaluate, spread in self._groups
            for own, values in zip(members, evaluate(t, u), strict=True)
        ]

        def values_of(own: FieldAtPoints) -> Values:
            return next(v for axis, field, v in known if (axis, field) == (own.axis, own.field))

        return lambda fields: {own.name: values_of(own) for own in fields}


class _AlongAxis:
    """From values at the Gauss points of an axis's finest cells to all points of a grid."""

    def __init__(self, axis: Axis, transform: PointTransform) -> None:
        grid, device = transform.grid, transform.device
        k, dimensions = transform.axes.index(axis), grid.dimensions
        sizes = [degree + 1 for degree in transform.degrees_at_points]
        m, degree = sizes[k], of_each_axis(transform.degree, dimensions)[k]
        tables = point_tables(grid.levels[k], degree + 1, m)
        count = 1 << grid.levels[k]
        sides = tables.sides[(np.arange(count) > 0) * 1]
        places = tables.places * count  # exact where a point is at an edge
        cells = np.where(sides < 0, np.ceil(places) - 1, np.floor(places)).astype(np.int64)
        # in the coordinate of a cell that is -1 and 1 at its ends, as Gauss points are
        local, self._cells = 2.0 * (places - cells) - 1.0, on_device(cells, device)
        weights = _lagrange(volume_nodes(degree), local)
        self._weights = on_device(weights, device)
        shape = [grid.num_cells, *(m if j == k else 1 for j in range(dimensions))]
        self._shape, self._whole = shape, [grid.num_cells, *sizes]
        self._rows = on_device(np.ascontiguousarray(grid.cells[:, k]), device)

    def __call__(self, values: Values) -> Values:
        """Return the values (points,) from those (cells, q) at the Gauss points."""
        along = (values[self._cells] * self._weights).sum(axis=-1)  # (1-D cells, m)
        own = along[self._rows].reshape(self._shape)
        whole = array_module(values).broadcast_to(own, self._whole)
        return whole.reshape(-1)  # type: ignore[no-any-return]


def _lagrange(count: int, places: Values) -> Values:
    """Return the Lagrange polynomials of Gauss points at places in [-1, 1], (*places, count)."""
    nodes, _ = gauss_rule(count)
    found = np.ones((*places.shape, count))
    for j in range(count):
        for other in np.delete(nodes, j):
            found[..., j] *= (places - other) / (nodes[j] - other)
    return found
