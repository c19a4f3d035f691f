"""From the fields of a PDE's terms to modes of its discretized terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from ...statement.axis import Axis
from ...statement.coefficients import Flux
from ...statement.fields import FieldExpression
from ..fields.derivatives import DerivativeEnd, FieldDerivative
from ..fields.modes import FieldMode
from ..fields.points import CellPoints
from ..fields.sampling import sampled
from ..fields.signs import SignedField
from ..parts import OperatorTerm
from ..space import DGSpace
from .resolve_term import ResolvedFactor, ResolvedTerm

__all__ = ["SampledFields"]


class SampledFields:
    """The fields of a PDE with their functions sampled, each field once.

    ``space``: axes, levels, degree, volume elements.
    """

    def __init__(self, space: DGSpace) -> None:
        self._space = space
        self._fields: dict[tuple[Axis, FieldExpression], FieldExpression] = {}
        self._modes: dict[tuple[FieldExpression, int, Axis, object], FieldMode] = {}

    def field(self, field: FieldExpression, axis: Axis) -> FieldExpression:
        """Return a field with samples in place of functions; the same object for the same field."""
        key = axis, field
        if key not in self._fields:
            self._fields[key] = sampled(
                field, axis, self._space.level(axis), self._space.degree(axis)
            )
        return self._fields[key]

    def into(
        self, term: OperatorTerm, resolved: ResolvedTerm, fields: Mapping[Axis, SignedField]
    ) -> OperatorTerm:
        """Return a term with the modes of fields along their axes.

        ``resolved`` is what the term was assembled from. Along the axis of a field it has nothing,
        or one derivative, whose coefficient the field multiplies.
        """
        if not fields:
            return term
        modes = list(term.modes)
        for k, axis in enumerate(self._space.axes):
            if axis in fields:
                along = resolved.along(axis)
                modes[k] = self._mode(axis, fields[axis], along[0] if along else None)
        return replace(term, modes=tuple(modes))

    def _mode(self, axis: Axis, signed: SignedField, factor: ResolvedFactor | None) -> FieldMode:
        space, (expression, part) = self._space, signed
        field, level = self.field(expression, axis), space.level(axis)
        degree = space.degree(axis)
        detail = None if factor is None else _derivative(factor)
        key = field, part, axis, detail
        if key not in self._modes:
            volume = None
            if axis in space.volume:
                points = CellPoints(axis, level, degree)
                volume = points.sample(space.volume[axis].function, "volume element")
            if detail is None:
                made = FieldMode(axis, level, degree, field, part, volume)
            else:
                made = FieldDerivative(axis, level, degree, field, 0, volume, *detail)
            self._modes[key] = made
        return self._modes[key]


def _derivative(
    factor: ResolvedFactor,
) -> tuple[Literal["div", "grad"], Flux, tuple[DerivativeEnd, DerivativeEnd], float]:
    """Return kind, flux, ends and scale of a `FieldDerivative`."""
    ends: list[DerivativeEnd] = [
        "inflow" if datum is not None and datum.at_inflow else edge
        for edge, datum in zip(factor.edges, factor.data, strict=True)
    ]
    kind: Literal["div", "grad"] = "grad" if factor.kind == "grad" else "div"
    assert factor.flux != "left"
    assert factor.flux != "right"
    assert not callable(factor.coefficient)
    return kind, factor.flux, (ends[0], ends[1]), float(factor.coefficient)
