"""The content of a problem file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..discretization.parts import (
    AdaptSettings,
    EdgeFunction,
    ElectricOperator,
    Masses,
    OperatorTerm,
    PointwiseOperator,
    SeparableVector,
    StepperSettings,
)
from ..grids.degrees import Degree
from ..grids.sparse_grid import SparseGrid
from ..statement.axis import Axis
from ..statement.functions import FunctionOfAxes
from ..statement.gains import MaxwellianGain

__all__ = ["ProblemContent"]


@dataclass(frozen=True, eq=False, repr=False)
class ProblemContent:
    """The parts of a problem that a file stores, named as the arguments of `Problem`.

    `batchkron.problems.Problem` documents them and checks that they fit together.
    """

    name: str
    axes: tuple[Axis, ...]
    degree: Degree
    grid: SparseGrid
    terms: tuple[OperatorTerm, ...]
    sources: tuple[SeparableVector, ...]
    initial: NDArray[np.float64]
    _: KW_ONLY
    exact: Any = None  # an ExactSolution, if it is known; of a problem also a function
    t0: float = 0.0
    stepper: StepperSettings
    units: Mapping[str, str] = field(default_factory=dict)
    masses: Masses = ()
    gains: tuple[MaxwellianGain, ...] = ()
    source_functions: tuple[FunctionOfAxes, ...] = ()
    edge_functions: tuple[EdgeFunction, ...] = ()
    pointwise: tuple[PointwiseOperator, ...] = ()
    electric: tuple[ElectricOperator, ...] = ()
    adapt: AdaptSettings | None = None
    limiter: str | None = None
    well_posed_until: float | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
