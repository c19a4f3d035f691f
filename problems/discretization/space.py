"""The space of a discretization: axes, levels, degrees, boundary conditions, volume elements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..statement.axis import Axis
from ..statement.boundary import Condition
from ..statement.coefficients import Function
from ..statement.separable import Separable
from .basis.projection import project
from .matrices.volume_element import VolumeElement

__all__ = ["DGSpace"]


@dataclass(frozen=True, eq=False)
class DGSpace:
    """Axes with their finest levels, their degrees, and the conditions at the ends.

    Attributes
    ----------
    axes : tuple of Axis
    levels : tuple of int
        Finest level of each axis.
    degrees : tuple of int
        Polynomial degree along each axis.
    boundary : mapping of Axis to (condition, condition)
        The conditions at the left and the right end.
    exact : tuple of Separable
        The separable parts of the exact solution; empty if it is not known.
    boundary_penalty : float
        τ of the boundary penalties that tie second derivatives to their Dirichlet data.
    volume : mapping of Axis to VolumeElement
        The volume elements that are not 1.
    """

    axes: tuple[Axis, ...]
    levels: tuple[int, ...]
    degrees: tuple[int, ...]
    boundary: Mapping[Axis, tuple[Condition, Condition]]
    exact: tuple[Separable, ...]
    boundary_penalty: float
    volume: Mapping[Axis, VolumeElement] = field(default_factory=dict)

    def level(self, axis: Axis) -> int:
        """Return the finest level of an axis."""
        return self.levels[self.axes.index(axis)]

    def degree(self, axis: Axis) -> int:
        """Return the polynomial degree along an axis."""
        return self.degrees[self.axes.index(axis)]

    @property
    def masses(self) -> tuple[NDArray[np.float64] | None, ...]:
        """The mass blocks of each axis, None where the volume element is 1."""
        return tuple(
            self.volume[axis].mass_blocks if axis in self.volume else None for axis in self.axes
        )

    def project(self, function: Function, axis: Axis) -> NDArray[np.float64]:
        """Return the coefficients of a function's projection, weighted by the volume element."""
        if axis in self.volume:
            return self.volume[axis].project(function)
        return project(function, axis, self.level(axis), self.degree(axis))

    def coefficient(self, function: Function, axis: Axis) -> Function:
        """Return a coefficient along an axis times the axis's volume element."""
        return self.volume[axis].times(function) if axis in self.volume else function
