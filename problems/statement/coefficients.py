"""Types of a term's coefficient and of its numerical flux."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["BY_DEGREE", "FLUX_SIGNS", "ByDegree", "Flux", "Function"]

Function: TypeAlias = Callable[[NDArray[np.float64]], Any] | float
"""A function of one coordinate, called once with an array of points, or a constant."""

Flux: TypeAlias = Literal["upwind", "central", "downwind"]
"""From which side of an edge between cells a derivative takes the value of f (its trace)."""

ByDegree: TypeAlias = Literal["by degree"]

BY_DEGREE: ByDegree = "by degree"
"""The flux of chains div @ grad that is central for even degrees; for odd ones it is the default.

Users do not give it: `lenard_bernstein` does.
"""

FLUX_SIGNS: dict[str, float] = {"upwind": -1.0, "central": 0.0, "downwind": 1.0}
"""The number s in the numerical flux g (f⁻ + f⁺)/2 + s |g|/2 (f⁻ - f⁺) of ∂(g f)/∂x.

f⁻ and f⁺ are the traces from the left and the right of an edge. On the right-hand side of f_t = …
the term carries f with the velocity -g, so that s = -1 takes f from the upwind side.
"""
