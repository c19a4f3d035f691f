"""From the fields of a PDE's terms to modes of its discretized terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...statement.axis import Axis
from ...statement.fields import FieldExpression
from ..fields.modes import FieldMode
from ..fields.points import CellPoints
from ..fields.sampling import sampled
from ..fields.signs import SignedField
from ..parts import OperatorTerm
from ..space import Space

__all__ = ["SampledFields"]


class SampledFields:
    """The fields of a PDE with their functions sampled, each field once.

    Parameters
    ----------
    space : Space
        Axes, levels, degree, volume elements.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self._fields: dict[tuple[Axis, FieldExpression], FieldExpression] = {}
        self._modes: dict[tuple[FieldExpression, int, Axis], FieldMode] = {}

    def field(self, field: FieldExpression, axis: Axis) -> FieldExpression:
        """Return a field with samples in place of functions; the same object for the same field."""
        key = axis, field
        if key not in self._fields:
            self._fields[key] = sampled(field, axis, self._space.level(axis), self._space.degree)
        return self._fields[key]

    def into(self, term: OperatorTerm, fields: Mapping[Axis, SignedField]) -> OperatorTerm:
        """Return a term, of which the modes along the axes of fields are identities, with these."""
        if not fields:
            return term
        modes = [
            self._mode(axis, fields[axis]) if axis in fields else mode
            for axis, mode in zip(self._space.axes, term.modes, strict=True)
        ]
        return replace(term, modes=tuple(modes))

    def _mode(self, axis: Axis, signed: SignedField) -> FieldMode:
        space = self._space
        field = self.field(signed.field, axis)
        key = field, signed.part, axis
        if key not in self._modes:
            level, volume = space.level(axis), None
            if axis in space.volume:
                points = CellPoints(axis, level, space.degree)
                volume = points.sample(space.volume[axis].function, "volume element")
            self._modes[key] = FieldMode(axis, level, space.degree, field, signed.part, volume)
        return self._modes[key]
