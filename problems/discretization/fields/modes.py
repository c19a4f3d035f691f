"""The multiplication by a field along one axis: a mode of a term whose blocks depend on the state.

A `FieldMode` stands in a term where others have a `ModeOperator`. It knows which pairs of cells it
couples, and how its blocks follow from values of the field; the values come from elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...statement.axis import Axis
from ...statement.fields import FieldExpression
from ..matrices.mode_operator import ModeOperator
from .local_blocks import LocalBlocks
from .points import CellPoints

__all__ = ["FieldMode", "FieldPart"]

FieldPart: TypeAlias = Literal[-1, 0, 1]
"""1 is the positive part max(E, 0), -1 the negative part max(-E, 0), and 0 the field E itself."""


@dataclass(frozen=True, eq=False)
class FieldMode:
    """The multiplication by a part of a field along one axis, in the hierarchical basis.

    ``level``, ``degree``: finest level and degree.
    ``field``: without functions: they are replaced by `Samples`, see `sampling`.
    ``part`` ({1, -1, 0}): as of `FieldPart`.
    ``volume`` (ndarray, shape (cells, q), float64, or None): the axis's volume element at the Gauss
      points; None if it is 1.
    """

    axis: Axis
    level: int
    degree: int
    field: FieldExpression
    part: FieldPart
    volume: NDArray[np.float64] | None = None

    def __repr__(self) -> str:
        part = {1: "positive part of ", -1: "negative part of ", 0: ""}[self.part]
        return f"<FieldMode: {part}{self.field.text()} along {self.axis.name}>"

    def __getstate__(self) -> dict[str, object]:
        """Return the fields only: what is cached is computed again."""
        return {entry.name: getattr(self, entry.name) for entry in fields(self)}

    @property
    def cells(self) -> int:
        """Number of cells of the axis."""
        return 1 << self.level

    @property
    def n(self) -> int:
        """Functions per cell."""
        return self.degree + 1

    @property
    def rows(self) -> NDArray[np.int64]:
        """1-D index of the output cell of each block."""
        return self._local.rows

    @cached_property
    def _local(self) -> LocalBlocks:
        return LocalBlocks(self.level, self.degree, symmetric=self.volume is None)

    def operator(
        self, values: NDArray[np.float64], mass: NDArray[np.float64] | None
    ) -> ModeOperator:
        """Return the operator for values of the field (cells, q), on the CPU.

        ``mass`` are the mass blocks of the volume element, None if there is none.
        """
        points = CellPoints(self.axis, self.level, self.degree)
        if self.part:
            values = (self.part * values).clip(0.0)
        if self.volume is None or mass is None:
            nodal = points.mass_blocks(values)
        else:
            nodal = np.linalg.inv(mass) @ points.mass_blocks(values * self.volume)
        blocks = self._local(nodal)
        return ModeOperator(self.cells, self.n, self.rows, self._local.columns, blocks)
