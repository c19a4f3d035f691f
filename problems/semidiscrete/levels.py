"""One-dimensional operators and vectors of a problem at other finest levels than its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..discretization.parts import StepperSettings
from ..grids.sparse_grid import SparseGrid

__all__ = ["LevelParts", "OtherLevels"]


LevelParts: TypeAlias = Mapping[str, Any]
"""The fields of a `Problem` that depend on the finest level of each axis, by their names: terms,
sources, edge_functions, pointwise, electric, exact, masses and stepper."""


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
