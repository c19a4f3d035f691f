"""What a run asks of each step: whether its end is a state that the solution can have."""

from __future__ import annotations

from typing import Protocol

from ..products import Vector
from .step_control import Step

__all__ = ["Guard"]


class Guard(Protocol):
    """Looks for instability in the steps of a run; `GrowthBound` and `StepDoubling` do."""

    def before_step(self, number: int, u: Vector) -> None:
        """Look at the state (N,) before step ``number``, counted from 1; it is not kept."""
        ...

    def objection(self, step: Step, u: Vector, size: float) -> str:
        """Return what is wrong with the state at the end of a step, "" if nothing is.

        Parameters
        ----------
        step : Step
            The step that has been taken.
        u : ndarray, shape (N,)
            The state at its end.
        size : float
            ‖u‖₂.
        """
        ...
