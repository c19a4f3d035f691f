"""The trapezoidal rule, known as the method of Crank and Nicolson."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..krylov.systems.result import KrylovResult
from .stepper import ImplicitStepper


class CrankNicolson(ImplicitStepper):
    """u_next = u + dt/2 (f(t, u) + f(t_next, u_next)); order 2, for f(t, u) = A(t) u + s(t).

    Solved as (I - dt/2 A(t_next)) δ = dt/2 (f(t, u) + f(t_next, u)), u_next = u + δ.

    Parameters
    ----------
    problem : TimeProblem
        With ``initial``, ``rhs`` and ``operator`` or ``operator_at(t)``.
    dt : float
        The step.
    t0 : float
        The time at which the run begins.
    solver, preconditioner : object
        See `ImplicitStepper`; M ≈ (I - dt/2 A)⁻¹.

    Notes
    -----
    Storage: 2 vectors besides u and those of the solver. A-stable, but not L-stable: components
    with dt |λ| ≫ 1 decay slowly, with alternating sign. If the initial data do not satisfy the
    boundary conditions, begin with a few steps of backward Euler. Two evaluations of f and one
    solve per step. Source: J. Crank, P. Nicolson, Proc. Camb. Phil. Soc. 43 (1947).
    """

    name = "crank-nicolson"
    order = 2
    stages = 2
    weight = 0.5
    real_limit = np.inf
    imaginary_limit = np.inf

    def step(self, u: NDArray[Any], t: float, t_next: float) -> KrylovResult | None:
        """Advance ``u`` in place from t to t_next; return the linear solve if it failed."""
        self.problem.rhs(t, u, self._right_side)
        self._derivative(t_next, u, self._increment)
        known = None
        if self._part is not None:
            known = 0.5 * self.dt * self._right_side
        np.add(self._right_side, self._increment, out=self._right_side)
        np.multiply(self._right_side, 0.5 * self.dt, out=self._right_side)
        return self._add_increment(u, t_next, known)
