"""The state of a run, and trial steps from it, which are computed before they are accepted."""

from __future__ import annotations

import math
import sys

import numpy as np

from batchkron.errors import NotPhysicalError
from batchkron.functions.vector_sum import linear_combination

from ...krylov.systems.result import KrylovResult
from ...krylov.vectors.ranks import Ranks, any_over, dot_over, norm_over
from ...products import Vector
from ...steppers.embedded import EmbeddedStepper
from ...steppers.stepper import Stepper
from .step_control import Step

__all__ = ["TrialSteps"]


class TrialSteps:
    """A state, and a method that computes the end of a step from it.

    An `EmbeddedStepper` writes the end of a step to a second vector, which becomes the state by
    `accept`. Other methods overwrite the state, so that all their steps are accepted.

    Parameters
    ----------
    stepper : Stepper
        The method.
    u : ndarray, shape (N,)
        The first state, overwritten by the steps.
    estimates : bool
        Whether the error of each step is to be estimated, if the method can.
    ranks : Ranks, optional
        The ranks that share the state.

    Attributes
    ----------
    u : ndarray, shape (N,)
        The state at the beginning of a trial step.
    end : ndarray, shape (N,)
        The state at its end; ``u`` itself if the method works in place.
    in_place : bool
        Whether the method overwrites the state.
    not_physical : NotPhysicalError or None
        The error by which the right-hand side ended the last trial step.
    """

    def __init__(
        self, stepper: Stepper, u: Vector, *, estimates: bool, ranks: Ranks | None = None
    ) -> None:
        self._stepper, self._ranks = stepper, ranks
        self._embedded = stepper if isinstance(stepper, EmbeddedStepper) else None
        self.in_place = self._embedded is None
        self.u, self.end = u, u
        self.not_physical: NotPhysicalError | None = None
        if self._embedded is not None:
            self._embedded.estimates = estimates
            self.end = np.empty_like(u)

    def attempt(self, step: Step) -> tuple[float, KrylovResult | None]:
        """Compute the end of a step.

        Parameters
        ----------
        step : Step
            The step to try.

        Returns
        -------
        size : float
            ‖end‖₂; NaN if the state is not finite or not physical, or a solve failed.
        failed : KrylovResult or None
            The failed linear solve, if there was one.
        """
        self.not_physical = None
        with np.errstate(over="ignore", invalid="ignore"):
            try:
                if self._embedded is None:
                    failed = self._stepper.step(self.u, step.t, step.t_next)
                else:
                    failed = self._embedded.attempt(self.u, step.t, step.t_next, step.dt, self.end)
            except NotPhysicalError as error:
                self.not_physical = error
                return math.nan, None
            return (_finite_norm(self.end, self._ranks) if failed is None else math.nan), failed

    @property
    def error(self) -> Vector | None:
        """The estimated error of the last trial step, None if the method has no estimate."""
        return None if self._embedded is None else self._embedded.error

    def accept(self) -> None:
        """Make the end of the last trial step the state."""
        if self._embedded is not None:
            linear_combination([1.0], [self.end], self.u)
            self._embedded.accept()


def _finite_norm(u: Vector, ranks: Ranks | None) -> float:
    """Return ‖u‖₂, NaN if u is not finite; a single pass unless the squares overflow."""
    square = dot_over(ranks, u, u).real
    if math.isfinite(square):
        return math.sqrt(square)
    if any_over(ranks, not np.isfinite(u).all()):
        return math.nan
    return min(norm_over(ranks, u), sys.float_info.max)
