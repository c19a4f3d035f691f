"""What steppers that estimate their error share: attempts that may be rejected."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..krylov.result import KrylovResult
from ..protocols import TimeProblem
from .stepper import Stepper


class EmbeddedStepper(Stepper):
    """A stepper whose step is first attempted, with an estimate of its error, and then accepted.

    Parameters
    ----------
    problem : TimeProblem
        With ``initial`` and ``rhs``.
    dt : float
        The step of `step`; `attempt` brings its own.

    Attributes
    ----------
    estimates : bool
        Whether attempts are to estimate their error; True until a run of equal steps unsets it.
    error : ndarray, shape (N,), or None
        The estimate of the last attempt, u_next minus that of the embedded method; None where the
        method has none.
    """

    def __init__(self, problem: TimeProblem, dt: float) -> None:
        super().__init__(problem, dt)
        self._proposal = self._vector()
        self.estimates = True
        self.error: NDArray[Any] | None = None

    @abstractmethod
    def attempt(
        self, u: NDArray[Any], t: float, t_next: float, dt: float, out: NDArray[Any]
    ) -> KrylovResult | None:
        """Compute the state at t_next into ``out``, and `error`.

        Parameters
        ----------
        u : ndarray, shape (N,)
            The state at t, left as it is.
        t, t_next, dt : float
            The times, and the step between them.
        out : ndarray, shape (N,)
            Overwritten.

        Returns
        -------
        KrylovResult or None
            The failed solve where there was one.
        """

    def accept(self) -> None:
        """Take the last attempt: the next one begins at its end, and may use its last slope."""

    def interpolate(self, u: NDArray[Any], theta: float, out: NDArray[Any]) -> bool:
        """Write the state at t + θ dt of the last attempt from ``u``, if the method can tell it.

        Parameters
        ----------
        u : ndarray, (N,)
            The state that the attempt began with.
        theta : float
            From 0 to 1.
        out : ndarray, (N,)
            Overwritten; not ``u``.

        Returns
        -------
        bool
            Whether it was written.
        """
        return False

    def end_slope(self) -> NDArray[Any] | None:
        """Return f(t_next, u_next) of the last attempt where it is known."""
        return None

    def step(self, u: NDArray[Any], t: float, t_next: float) -> KrylovResult | None:
        """Advance ``u`` in place from t to t_next; return the solve if it failed."""
        failed = self.attempt(u, t, t_next, self.dt, self._proposal)
        if failed is None:
            np.copyto(u, self._proposal)
        return failed
