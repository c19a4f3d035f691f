"""What a run says of its grid at the end: whether the largest level kept cells from refinement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from batchkron.attributes import attribute

__all__ = ["AdaptOutcome"]


@dataclass(frozen=True)
class AdaptOutcome:
    """Whether the grid of a run could follow the solution within the tolerance of its rule.

    It is of one call of `evolve`: a run that is resumed begins anew.

    Attributes
    ----------
    limited : int
        Number of cells whose indicator was beyond the tolerance and which ``max_level`` kept from
        being refined, at the time ``t`` when there were most; 0 if there never were any. An axis
        whose ``max_level`` is 0 does not count: it has nothing but its coarsest cell.
    excess : float
        The largest indicator of such a cell at that time, relative to the tolerance; 0 without any.
    t : float or None
        The time.

    Examples
    --------
    >>> from batchkron.problems import make
    >>> from batchkron.solvers import Adapt, evolve
    >>> problem = make("continuity-2d", level=3, degree=2)
    >>> adapt = Adapt(1e-4, max_level=4)
    >>> result = evolve(problem, until=0.02, dt=1e-3, adapt=adapt)
    >>> result.adapt.tolerance_met, result.adapt.limited > 0
    (False, True)
    """

    limited: int = 0
    excess: float = 0.0
    t: float | None = None

    @property
    def tolerance_met(self) -> bool:
        """Whether no cell was kept from being refined."""
        return self.limited == 0

    @property
    def text(self) -> str:
        """A sentence about it; empty if the tolerance was met."""
        if self.tolerance_met:
            return ""
        cells = "1 cell" if self.limited == 1 else f"{self.limited} cells"
        return (
            f"max_level kept {cells} of the grid from being refined at t = {self.t:.6g}, with "
            f"indicators up to {self.excess:.3g} times the tolerance, which is not met: raise "
            "max_level, or tol."
        )

    def with_grid(self, grid: Any, t: float) -> AdaptOutcome:
        """Return the outcome with another grid of the run, an AdaptiveProblem at a time."""
        limited = int(attribute(grid, "limited", 0))
        if limited <= self.limited:
            return self
        return AdaptOutcome(limited, float(grid.excess), t)
