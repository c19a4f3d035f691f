"""The polynomial degree along each axis, from what a user gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from ..statement.axis import Axis
from .basis.multiwavelets import check_degree

__all__ = ["DegreeChoice", "degrees_of_axes"]

DegreeChoice: TypeAlias = int | Sequence[int] | Mapping[Axis, int] | Mapping[str, int]
"""One degree for all axes, one for each in their order, or a mapping of axes or names."""


def degrees_of_axes(degree: DegreeChoice, axes: Sequence[Axis]) -> tuple[int, ...]:
    """Return the degree along each axis; raise TypeError or ValueError if one is not given."""
    names = ", ".join(axis.name for axis in axes)
    if isinstance(degree, Mapping):
        given = {getattr(key, "name", key): value for key, value in degree.items()}
        if set(given) != {axis.name for axis in axes} or len(given) < len(degree):
            known = ", ".join(map(str, given))
            raise ValueError(
                f"degree has the axes {known}; expected a degree for each of {names}, or one "
                "number for all"
            )
        return tuple(check_degree(given[axis.name]) for axis in axes)
    if isinstance(degree, Sequence) and not isinstance(degree, str):
        if len(degree) != len(axes):
            raise ValueError(
                f"degree has {len(degree)} numbers; expected one for each of {names}, or one "
                "number for all"
            )
        return tuple(check_degree(own) for own in degree)
    return (check_degree(degree),) * len(axes)
