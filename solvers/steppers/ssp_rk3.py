"""The strong-stability-preserving Runge-Kutta method of order 3."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from batchkron import linear_combination

from ..protocols import TimeProblem
from .stepper import FixedStepper


class SspRk3(FixedStepper):
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
    Storage: 2 vectors besides u. Stable for real dt λ in [-2.5127, 0] and imaginary |dt λ| ≤ √3.
    Source: C.-W. Shu, S. Osher, Efficient implementation of essentially non-oscillatory
    shock-capturing schemes, J. Comput. Phys. 77 (1988), eq. (2.18).
    """

    name = "ssp-rk3"
    order = 3
    works_on_ranks = True
    stages = 3
    real_limit = 2.5127453266183286
    imaginary_limit = 1.7320508075688772
    stability_polynomial = (1.0, 1.0, 1.0 / 2.0, 1.0 / 6.0)

    def __init__(self, problem: TimeProblem, dt: float) -> None:
        super().__init__(problem, dt)
        self._slope, self._stage = self._vector(), self._vector()

    def _advance_state(self, u: NDArray[Any], t: float, t_next: float) -> None:
        slope, stage, dt = self._slope, self._stage, self.dt
        self.problem.rhs(t, u, slope)
        linear_combination([1.0, dt], [u, slope], stage, scratch=slope)
        self.problem.rhs(t_next, stage, slope)
        vectors = [stage, u, slope]
        linear_combination([0.25, 0.75, 0.25 * dt], vectors, stage, scratch=slope)
        self.problem.rhs(t + 0.5 * dt, stage, slope)
        thirds = [2.0 / 3.0, 1.0 / 3.0, 2.0 / 3.0 * dt]
        linear_combination(thirds, vectors, u, scratch=slope)
