"""The interface of guards: checks after each step whether the run has become unstable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ...products import Vector
from ..steps.step_control import Step

__all__ = ["Guard"]


class Guard(Protocol):
    """Detects instability in the steps of a run; implemented by `GrowthBound`, `StepDoubling`."""

    def before_step(self, number: int, u: Vector) -> None:
        """Inspect the state (N,) before step ``number``, counted from 1; keep no reference."""
        ...

    def unwatched(self, number: int) -> int:
        """Return of how many steps from ``number`` on the norms at their ends are enough."""
        ...

    def allows(self, sizes: Sequence[float]) -> bool:
        """Return whether the norms at the ends of such steps show that nothing is wrong.

        If all guards agree, `note` gets the last one.
        """
        ...

    def note(self, size: float) -> None:
        """Take ‖u‖₂ at the end of such steps."""
        ...

    def objection(self, step: Step, u: Vector, size: float) -> str:
        """Return why the state at the end of a step shows instability, "" if it does not.

        Parameters
        ----------
        step : Step
            The step that was computed.
        u : ndarray, shape (N,)
            The state at its end.
        size : float
            ‖u‖₂.
        """
        ...
