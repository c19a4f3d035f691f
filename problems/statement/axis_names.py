"""Axes of terms that are given by their names, until the PDE says which axes these are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from .axis import Axis
from .pointwise import PointwiseTerm
from .terms import AxisName, Term

__all__ = ["with_named_axes"]

_Kind = TypeVar("_Kind")


def with_named_axes(terms: Sequence[_Kind], axes: tuple[Axis, ...]) -> tuple[_Kind, ...]:
    """Return terms with the PDE's axes in the place of names; anything else as it is.

    Raises `ValueError` if the PDE has no axis with such a name.
    """
    return tuple(_named(term, k, axes) for k, term in enumerate(terms))


def _named(term: Any, number: int, axes: tuple[Axis, ...]) -> Any:
    if isinstance(term, PointwiseTerm):
        outer, inner = (_named(part, number, axes) for part in (term.outer, term.inner))
        return replace(term, outer=outer, inner=inner)
    if not isinstance(term, Term):
        return term
    known = {axis.name: axis for axis in axes}

    def found(axis: Axis) -> Axis:
        if not isinstance(axis, AxisName):
            return axis
        if axis.name not in known:
            raise ValueError(
                f"terms[{number}] acts along {axis.name!r}, which is not among the PDE's axes; "
                f"these are {', '.join(known)}"
            )
        return known[axis.name]

    return replace(
        term,
        factors=tuple(replace(factor, axis=found(factor.axis)) for factor in term.factors),
        fields=tuple((found(axis), field) for axis, field in term.fields),
    )
