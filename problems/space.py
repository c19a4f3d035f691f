"""What the assembly of a PDE needs to know about space."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from batchkron.problems.axis import Axis
from batchkron.problems.boundary import Condition
from batchkron.problems.separable import Separable

__all__ = ["Space"]


@dataclass(frozen=True, eq=False)
class Space:
    """Axes with their finest levels, the degree, and the conditions at the ends.

    Attributes
    ----------
    axes : tuple of Axis
    levels : tuple of int
        Finest level of each axis.
    degree : int
        Polynomial degree.
    boundary : mapping of Axis to (condition, condition)
        At the left and right end.
    exact : tuple of Separable
        Parts of the exact solution; empty if it is not known.
    boundary_penalty : float
        τ of the terms that tie second-order chains to their Dirichlet data.
    """

    axes: tuple[Axis, ...]
    levels: tuple[int, ...]
    degree: int
    boundary: Mapping[Axis, tuple[Condition, Condition]]
    exact: tuple[Separable, ...]
    boundary_penalty: float

    def level(self, axis: Axis) -> int:
        """Return the finest level of an axis."""
        return self.levels[self.axes.index(axis)]
