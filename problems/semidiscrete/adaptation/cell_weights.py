"""By what the indicators of cells are multiplied: functions of the axes, of fields, or of both."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.errors import NotPhysicalError

from ...discretization.basis.quadrature import gauss_rule
from ...grids.sparse_grid import SparseGrid
from ...statement.axis import Axis
from ...statement.field_axes import check_field
from ...statement.fields import FieldExpression
from ..output.observables import Observables
from ..output.quantities import poisson_fields_of, product_powers

__all__ = ["CellWeight", "cell_weight"]

Values = NDArray[np.float64]

# Gauss points of a cell's support at which a field is looked at, along its axis. Unlike ends and
# centre they see a wave that has a zero at each of these, as the field of a plasma wave has.
_POINTS = 8
_FIELD = "field"  # its word for the field of Poisson's equation


@dataclass(frozen=True, eq=False)
class CellWeight:
    """A function of a problem's axes and of fields.

    ``function``: it has one array for each axis, then one for each field.
    ``places``: the number of each field's axis.
    """

    function: Callable[..., Any]
    fields: tuple[FieldExpression, ...] = ()
    places: tuple[int, ...] = ()

    def for_state(self, output: Observables, u: Values, t: float) -> Callable[[SparseGrid], Values]:
        """Return `of_cells` with the values of the fields for a state at time t."""
        values = [output.field(u, own, t).evaluate for own in self.fields]
        return partial(self.of_cells, output.problem.axes, values, t)

    def of_cells(
        self,
        axes: Sequence[Axis],
        fields: Sequence[Callable[[Values], Values]],
        t: float,
        grid: SparseGrid,
    ) -> Values:
        """Return the largest |weight| (num_cells,) among points of every cell's support.

        ``fields``: they return the values of each field at points of its axis, at time t.

        The points are eight along the axes of fields, and along the others the centre and the
        corners. The grid may have other finest levels than the state's. Raises NotPhysicalError if
        a field is not finite, as one is on a device where it is not defined; TypeError or
        ValueError if the function's values are no numbers, not finite, or not one for each point.
        """
        supports = [_supports(axis, grid, k) for k, axis in enumerate(axes)]
        along = sorted(set(self.places))
        rest = [k for k in range(len(axes)) if k not in along]
        inner = (gauss_rule(_POINTS)[0] + 1.0) / 2.0
        seen = []
        for field, values_at, k in zip(self.fields, fields, self.places, strict=True):
            at, places = _at_shares(*supports[k], inner)
            found = values_at(at.ravel()).reshape(at.shape)
            _check_finite(field, axes[k], t, at, found)
            seen.append(found[places])
        largest = np.zeros(grid.num_cells)
        ends = [(0.5,) * len(rest), *itertools.product((0.0, 1.0), repeat=len(rest))]
        for picks in itertools.product(range(_POINTS), repeat=len(along)):
            number = dict(zip(along, picks, strict=True))
            own = [table[:, number[k]] for k, table in zip(self.places, seen, strict=True)]
            for shares in ends:
                share = dict(zip(rest, shares, strict=True))
                share |= {k: float(inner[pick]) for k, pick in number.items()}
                points = [low + share[k] * size for k, (low, size) in enumerate(supports)]
                copies = [values.copy() for values in own]  # the function may overwrite them
                largest = np.maximum(largest, self._at_points(points, copies))
        return largest

    def _at_points(self, points: Sequence[Values], fields: Sequence[Values]) -> Values:
        """Return |weight| at a point of each cell."""
        values = np.asarray(self.function(*points, *fields))
        if values.dtype.kind not in "biufc":
            raise TypeError(
                f"weight returned values of the dtype {values.dtype}; expected a number "
                "for each point"
            )
        values = np.abs(values).astype(np.float64)
        if values.shape not in ((), points[0].shape):
            raise ValueError(
                f"weight returned the shape {values.shape} for arrays of the shape "
                f"{points[0].shape}; expected one value for each point"
            )
        if not np.isfinite(values).all():
            raise ValueError("weight is not finite at a point of a cell")
        return values  # type: ignore[no-any-return]


def cell_weight(output: Observables, weight: object, fields: object) -> CellWeight | None:
    """Return the weight that the arguments of `Problem.adaptive` ask for; None without one.

    Raises `TypeError` if ``weight`` is of another kind, is a function of other arguments, or
    ``fields`` are no fields. `ValueError` if a field is not a function of one of the problem's
    axes, fields are given without a function of them, or a text is not understood.
    """
    axes = output.problem.axes
    given = (fields,) if isinstance(fields, FieldExpression) else fields
    if not isinstance(given, Iterable) or isinstance(given, str):
        raise TypeError(f"fields is {type(fields).__name__}; expected fields, as in fields=[E]")
    known = tuple(given)
    if known and (not callable(weight) or isinstance(weight, FieldExpression)):
        raise ValueError(
            "fields are the last arguments of a function weight, and "
            + ("weight is not given" if weight is None else f"weight is a {type(weight).__name__}")
            + "; expected one such as weight=lambda x, v, E: E**2 * v**2"
        )
    if weight is None:
        return None
    if isinstance(weight, str):
        return _product(output, weight)
    if isinstance(weight, FieldExpression):
        return CellWeight(_last, (weight,), (_place(axes, weight, "weight"),))
    if not callable(weight):
        raise TypeError(
            f"weight is a {type(weight).__name__}; expected a function of the axes, with one array "
            "for each of them, then one for each of fields=; a field; or a text such as 'v^2'"
        )
    places = tuple(_place(axes, own, f"fields[{i}]") for i, own in enumerate(known))
    _check_arguments(weight, axes, len(known))
    return CellWeight(weight, known, places)


def _place(axes: Sequence[Axis], field: Any, what: str) -> int:
    return list(axes).index(check_field(field, axes, what=what))


def _check_arguments(weight: Callable[..., Any], axes: Sequence[Axis], fields: int) -> None:
    """Raise TypeError if a function cannot be called with the axes and fields, by its signature."""
    try:
        signature = inspect.signature(weight, follow_wrapped=False)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*axes, *range(fields))
    except TypeError:
        named = ", ".join(axis.name for axis in axes)
        more = f", then {fields} for the fields" if fields else ""
        raise TypeError(
            f"weight is a function of {signature}; expected one of an array for each axis "
            f"({named}){more}"
        ) from None


def _last(*values: Values) -> Values:
    """Return the field of a weight that is a field alone."""
    return values[-1]


def _product_at(of_axes: tuple[int, ...], of_field: int, *values: Values) -> Values:
    """Return Π x_i^k_i E^k at points; fields follow the axes, E is the norm of all of them."""
    count, found = len(of_axes), np.ones_like(values[0])
    for points, power in zip(values[:count], of_axes, strict=True):
        found = found * points**power
    if of_field:
        squares = sum(own**2 for own in values[count:])
        found = found * np.sqrt(squares) ** of_field
    return found


def _product(output: Observables, text: str) -> CellWeight:
    """Return the weight of a text such as "v^2" or "field^2*v^2"."""
    problem = output.problem
    names = [axis.name for axis in problem.axes]
    powers = product_powers(text, [*names, _FIELD])
    if powers is None:
        raise ValueError(
            f"weight is {text!r}; expected a product of powers of {', '.join(names)} and of "
            f"{_FIELD}, the field of Poisson's equation, such as '{names[-1]}^2'"
        )
    of_axes = tuple(powers.pop(name, 0) for name in names)
    of_field = powers.get(_FIELD, 0)
    product = partial(_product_at, of_axes, of_field)
    if not of_field:
        return CellWeight(product)
    fields = tuple(poisson_fields_of(output))
    if not fields:
        raise ValueError(
            f"weight is {text!r}, and the terms of {problem.name} have no field of a Poisson "
            "equation in one position"
        )
    return CellWeight(product, fields, tuple(_place(problem.axes, own, "weight") for own in fields))


def _supports(axis: Axis, grid: SparseGrid, k: int) -> tuple[Values, Values]:
    """Return the lower end and the width of every cell's support along axis k."""
    level = grid.cell_levels[:, k]
    count = 1 << np.maximum(level - 1, 0)  # supports of this level
    width = axis.length / count
    first = np.where(level > 0, count, 0)
    return axis.lower + (grid.cells[:, k] - first) * width, width


def _at_shares(lower: Values, width: Values, shares: Values) -> tuple[Values, NDArray[np.intp]]:
    """Return points at shares of all distinct supports, (count, shares), and the cells' own."""
    both, places = np.unique(np.stack([lower, width], axis=1), axis=0, return_inverse=True)
    return both[:, :1] + shares * both[:, 1:], places.ravel()


def _check_finite(
    field: FieldExpression, axis: Axis, t: float, points: Values, values: Values
) -> None:
    wrong = np.flatnonzero(~np.isfinite(values))
    if wrong.size:
        at, found = float(points.flat[wrong[0]]), float(values.flat[wrong[0]])
        raise NotPhysicalError(field.text(), axis.name, at, t, found)
