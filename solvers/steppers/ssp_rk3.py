"""The strong-stability-preserving Runge-Kutta method of order 3."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.solvers.protocols import TimeProblem
from batchkron.solvers.steppers.stepper import Stepper


class SspRk3(Stepper):
    """Three forward Euler steps in a convex combination; order 3.

    v = u + dt f(t, u),
    w = ¾ u + ¼ (v + dt f(t + dt, v)),
    u_next = ⅓ u + ⅔ (w + dt f(t + dt/2, w)).

    Parameters
    ----------
    problem : TimeProblem
        With ``initial`` and ``rhs``.
    dt : float
        The step.

    Notes
    -----
    Storage: 2 vectors beside u. Stable for real dt λ in [-2.5127, 0] and imaginary |dt λ| ≤ √3.
    Source: C.-W. Shu, S. Osher, Efficient implementation of essentially non-oscillatory
    shock-capturing schemes, J. Comput. Phys. 77 (1988), eq. (2.18).
    """

    name = "ssp-rk3"
    order = 3
    stages = 3
    real_limit = 2.5127453266183286
    imaginary_limit = 1.7320508075688772

    def __init__(self, problem: TimeProblem, dt: float) -> None:
        super().__init__(problem, dt)
        self._slope, self._stage = self._vector(), self._vector()

    def step(self, u: NDArray[Any], t: float, t_next: float) -> None:
        """Advance ``u`` in place from t to t_next."""
        slope, stage = self._slope, self._stage
        self.problem.rhs(t, u, slope)
        self._euler(u, slope, stage)
        self.problem.rhs(t_next, stage, slope)
        self._euler(stage, slope, stage)
        np.multiply(stage, 0.25, out=stage)
        np.multiply(u, 0.75, out=slope)
        np.add(stage, slope, out=stage)
        self.problem.rhs(t + 0.5 * self.dt, stage, slope)
        self._euler(stage, slope, stage)
        np.multiply(stage, 2.0 / 3.0, out=stage)
        np.multiply(u, 1.0 / 3.0, out=u)
        np.add(u, stage, out=u)

    def _euler(self, v: NDArray[Any], slope: NDArray[Any], out: NDArray[Any]) -> None:
        """Set out to v + dt slope; the slope is overwritten."""
        np.multiply(slope, self.dt, out=slope)
        np.add(v, slope, out=out)
