"""The implicit Euler method."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..krylov.systems.result import KrylovResult
from .stepper import ImplicitStepper


class BackwardEuler(ImplicitStepper):
    """u_next = u + dt f(t_next, u_next); order 1, for f(t, u) = A(t) u + s(t).

    Solved as (I - dt A(t_next)) δ = dt f(t_next, u), u_next = u + δ.

    Parameters
    ----------
    problem : TimeProblem
        With ``initial``, ``rhs`` and ``operator`` or ``operator_at(t)``.
    dt : float
        The step.
    t0 : float
        The time at which the run begins.
    solver, preconditioner : object
        See `ImplicitStepper`; M ≈ (I - dt A)⁻¹.

    Notes
    -----
    Storage: 2 vectors besides u and those of the solver. L-stable: any dt damps every decaying
    component. One evaluation of f and one solve per step.
    """

    name = "backward-euler"
    order = 1
    stages = 1
    weight = 1.0
    real_limit = np.inf
    imaginary_limit = np.inf

    def step(self, u: NDArray[Any], t: float, t_next: float) -> KrylovResult | None:
        """Advance ``u`` in place from t to t_next; return the linear solve if it failed."""
        self._derivative(t_next, u, self._right_side)
        np.multiply(self._right_side, self.dt, out=self._right_side)
        return self._add_increment(u, t_next)
