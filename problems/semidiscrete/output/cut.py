"""A state along some of its axes: the others are fixed or integrated over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...statement.axis import Axis
from ...statement.number_checks import finite_number
from ..checks import check_vector
from ..fields.contraction import point_weights
from ..fields.field import Field
from .observables import Observables

__all__ = ["AxisOrName", "Counts", "Cut", "Places", "find_axis", "make_cut"]

AxisOrName: TypeAlias = Axis | str
Places: TypeAlias = Mapping[Axis, float] | Mapping[str, float] | Mapping[AxisOrName, float]
"""A coordinate of each axis that is named."""

Counts: TypeAlias = Mapping[Axis, int] | Mapping[str, int] | Mapping[AxisOrName, int]
"""A number for each axis that is named."""


@dataclass(frozen=True)
class Cut:
    """What is done to the axes of a state that are not shown.

    ``places``: the axes that are fixed, and where.
    ``summed``: the axes that are integrated over.
    """

    places: tuple[tuple[Axis, float], ...] = ()
    summed: tuple[Axis, ...] = ()

    def of(self, output: Observables, u: NDArray[np.float64]) -> Field:
        """Return a state of a problem with this output as a function of the other axes."""
        problem, weights = output.problem, {}
        for axis, at in self.places:
            k = output.place(axis)
            weights[k] = point_weights(axis, problem.grid.levels[k], problem.degrees[k], at)
        for axis in self.summed:
            weights[output.place(axis)] = output.power(axis, 0)
        if not weights:
            check_vector("u", u, problem.initial)
            return Field(problem.axes, problem.grid, problem.degree, u, problem.masses)
        return output.contracted(u, weights, self)

    @property
    def quantity(self) -> str:
        """What is shown, such as "∫ f dw"."""
        return " ".join(["∫ f", *(f"d{axis.name}" for axis in self.summed)]) if self.summed else "f"

    @property
    def where(self) -> str:
        """Where it is shown, such as " at v = 0.5", or nothing."""
        places = [f"{axis.name} = {at:.4g}" for axis, at in self.places]
        return f" at {', '.join(places)}" if places else ""

    def unit(self, units: Mapping[str, str]) -> str | None:
        """Return the unit of what is shown; None if one of f or of an axis is not known."""
        parts = [units.get(name) for name in ("f", *(axis.name for axis in self.summed))]
        return " ".join(part for part in parts if part) if all(parts) else None


def make_cut(
    axes: Sequence[Axis],
    places: Places | None,
    kept: AxisOrName | Sequence[AxisOrName] | None,
) -> Cut:
    """Return the cut of a user's arguments ``slice`` and ``marginal``, ``places`` and ``kept``.

    Raises TypeError or ValueError if an axis is unknown, is both fixed and kept, or is fixed
    outside of its interval; if no axis is left.
    """
    if places is not None and not isinstance(places, Mapping):
        raise TypeError(
            f"slice is a {type(places).__name__}; expected a mapping of axes to coordinates, such "
            "as {v: 0.0}"
        )
    fixed: dict[Axis, float] = {}
    given: object
    for given, at in (places or {}).items():
        axis = find_axis("slice", given, axes)
        at = finite_number(f"slice[{axis.name!r}]", at)
        if not axis.lower <= at <= axis.upper:
            raise ValueError(
                f"slice[{axis.name!r}] is {at}; expected a place in [{axis.lower:g}, "
                f"{axis.upper:g}]"
            )
        fixed[axis] = at
    others = [axis for axis in axes if axis not in fixed]
    if kept is None:
        left = others
    else:
        listed = [kept] if isinstance(kept, Axis | str) else list(kept)
        left = [find_axis("marginal", given, axes) for given in listed]
        for axis in left:
            if axis in fixed:
                raise ValueError(f"{axis.name!r} is fixed by slice and kept by marginal")
    if not left:
        raise ValueError("no axis is left; fix or integrate over fewer of them")
    summed = tuple(axis for axis in others if axis not in left)
    return Cut(tuple((axis, fixed[axis]) for axis in axes if axis in fixed), summed)


def find_axis(argument: str, given: object, axes: Sequence[Axis]) -> Axis:
    """Return an axis that is given as an object or by its name."""
    if not isinstance(given, Axis | str):
        raise TypeError(f"{argument} names {given!r}; expected an axis or its name")
    name = given if isinstance(given, str) else given.name
    for axis in axes:
        if axis == given or axis.name == given:
            return axis
    names = ", ".join(axis.name for axis in axes)
    raise ValueError(f"{argument} names the axis {name!r}; the problem has {names}")
