"""What a coefficient of a term may be, and from which side its derivative takes traces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["FLUX_SIGNS", "Flux", "Function"]

Function: TypeAlias = Callable[[NDArray[np.float64]], Any] | float
"""A function of one coordinate, called once with an array of points, or a constant."""

Flux: TypeAlias = Literal["upwind", "central", "downwind"]
"""Which trace a derivative takes at the edges between cells."""

FLUX_SIGNS: dict[str, float] = {"upwind": -1.0, "central": 0.0, "downwind": 1.0}
"""What |coefficient| / 2 is multiplied by, to weigh the two sides of an edge; 0 is their mean."""
