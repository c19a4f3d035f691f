"""One-dimensional operators and vectors of a problem at other finest levels than its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..discretization.parts import (
    EdgeFunction,
    ElectricOperator,
    ExactSolution,
    Masses,
    OperatorTerm,
    PointwiseOperator,
    SeparableVector,
    StepperSettings,
)
from ..grids.sparse_grid import SparseGrid
from .exact.function import ExactFunction

__all__ = ["LevelParts", "OtherLevels"]


@dataclass(frozen=True, eq=False)
class LevelParts:
    """The parts of a problem that depend on the finest level of each axis.

    Attributes
    ----------
    terms : tuple of OperatorTerm
    sources : tuple of SeparableVector
    edge_functions : tuple of EdgeFunction
    pointwise : tuple of PointwiseOperator
    electric : tuple of ElectricOperator
    exact : ExactSolution, ExactFunction or None
    masses : tuple of (ndarray or None)
    stepper : StepperSettings
        As of `Problem`.
    """

    terms: tuple[OperatorTerm, ...]
    sources: tuple[SeparableVector, ...]
    edge_functions: tuple[EdgeFunction, ...]
    pointwise: tuple[PointwiseOperator, ...]
    electric: tuple[ElectricOperator, ...]
    exact: ExactSolution | ExactFunction | None
    masses: Masses
    stepper: StepperSettings


class OtherLevels(Protocol):
    """Makes the parts of one problem at any finest levels; `PDE.discretize` gives it to a problem.

    Along every axis the functions of a coarse level are among those of a finer one, and keep their
    hierarchical coefficients. So states move between levels without a change.
    """

    def parts(self, levels: Sequence[int]) -> LevelParts:
        """Return the parts for the finest level of each axis; for the same levels the same ones."""
        ...

    def stepper(self, levels: Sequence[int]) -> StepperSettings:
        """Return the default stepper for the finest level of each axis."""
        ...

    def initial(self, grid: SparseGrid) -> NDArray[np.float64]:
        """Return the initial state's projection on a grid, shape (N,), on the CPU."""
        ...

    @property
    def well_posed_until(self) -> float | None:
        """Until when the PDE is known to be well-posed; None where that does not depend on time."""
        ...

    def check_interval(self, t0: float, until: float) -> None:
        """Raise ValueError if the PDE is ill-posed at some time from t0 to ``until``."""
        ...
