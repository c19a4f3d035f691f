"""Base class of steppers whose steps can be rejected, with an estimate of their error."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..krylov.systems.result import KrylovResult
from ..protocols import TimeProblem
from .stepper import Stepper


class EmbeddedStepper(Stepper):
    """A stepper whose step is computed, with an error estimate, before it is accepted or not.

    Parameters
    ----------
    problem : TimeProblem
        With ``initial`` and ``rhs``.
    dt : float
        The step of `step`; `attempt` takes its own.

    Attributes
    ----------
    estimates : bool
        Whether attempts should estimate their error; True by default, False in runs with equal
        steps.
    error : ndarray, shape (N,), or None
        The estimated error of the last attempt: u_next minus the embedded method's result. None if
        the method has no estimate; also if ``measures`` on a device, where `squares` has its norm.
    second_error : ndarray, shape (N,), or None
        The same by a second embedded method, if there is one.
    """

    def __init__(self, problem: TimeProblem, dt: float) -> None:
        super().__init__(problem, dt)
        self._proposal: NDArray[Any] | None = None
        self.estimates = True
        self.error: NDArray[Any] | None = None
        self.second_error: NDArray[Any] | None = None

    @abstractmethod
    def attempt(
        self, u: NDArray[Any], t: float, t_next: float, dt: float, out: NDArray[Any]
    ) -> KrylovResult | None:
        """Compute the state at t_next into ``out``, and set `error`.

        Parameters
        ----------
        u : ndarray, shape (N,)
            The state at t; it is not modified.
        t, t_next, dt : float
            The times, and the step between them.
        out : ndarray, shape (N,)
            Overwritten with the state at t_next.

        Returns
        -------
        KrylovResult or None
            The failed linear solve, if there was one.
        """

    def accept(self) -> None:
        """Accept the last attempt: the next one begins at its end, and may reuse its last slope."""

    @property
    def dense_degree(self) -> int:
        """The degree in θ of the solution inside a step; 3, of cubic Hermite interpolation."""
        return 3

    def interpolate(self, u: NDArray[Any], theta: float, out: NDArray[Any]) -> bool:
        """Write the state at t + θ dt inside the last attempt, if the method has dense output.

        Parameters
        ----------
        u : ndarray, (N,)
            The state at the beginning of the attempt.
        theta : float
            θ, from 0 to 1.
        out : ndarray, (N,)
            Overwritten with the state; it must not be ``u``.

        Returns
        -------
        bool
            Whether it was written.
        """
        return False

    def end_slope(self) -> NDArray[Any] | None:
        """Return f(t_next, u_next) of the last attempt if it is known, else None."""
        return None

    def step(self, u: NDArray[Any], t: float, t_next: float) -> KrylovResult | None:
        """Advance ``u`` in place from t to t_next; return the linear solve if it failed."""
        end = self._stage_vector()
        failed = self.attempt(u, t, t_next, self.dt, end)
        if failed is None:
            np.copyto(u, end)
        return failed

    def _stage_vector(self) -> NDArray[Any]:
        """Return a vector that steps which overwrite u need."""
        if self._proposal is None:
            self._proposal = self._vector()
        return self._proposal
