"""The classical Runge-Kutta method of order 4."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron import linear_combination

from ..protocols import TimeProblem
from .stepper import FixedStepper


class Rk4(FixedStepper):
    """u_next = u + dt (k₁ + 2 k₂ + 2 k₃ + k₄) / 6; order 4.

    k₁ = f(t, u), k₂ = f(t + dt/2, u + dt/2 k₁), k₃ = f(t + dt/2, u + dt/2 k₂),
    k₄ = f(t + dt, u + dt k₃).

    Parameters
    ----------
    problem : TimeProblem
        With ``initial`` and ``rhs``.
    dt : float
        The step.

    Notes
    -----
    Storage: 3 vectors besides u. Stable for real dt λ in [-2.7853, 0] and imaginary |dt λ| ≤ √8.
    Source: E. Hairer, S. P. Nørsett, G. Wanner, Solving Ordinary Differential Equations I,
    2nd ed., section II.1, table 1.2.
    """

    name = "rk4"
    order = 4
    works_on_ranks = True
    stages = 4
    real_limit = 2.785293563405282
    imaginary_limit = 2.8284271247461903
    stability_polynomial = (1.0, 1.0, 1.0 / 2.0, 1.0 / 6.0, 1.0 / 24.0)

    def __init__(self, problem: TimeProblem, dt: float) -> None:
        super().__init__(problem, dt)
        self._slope, self._stage, self._total = self._vector(), self._vector(), self._vector()

    def _advance_state(self, u: NDArray[Any], t: float, t_next: float) -> None:
        middle = t + 0.5 * self.dt
        np.copyto(self._total, u)
        self.problem.rhs(t, u, self._slope)
        self._advance(u, 1.0 / 6.0, 0.5)
        self.problem.rhs(middle, self._stage, self._slope)
        self._advance(u, 1.0 / 3.0, 0.5)
        self.problem.rhs(middle, self._stage, self._slope)
        self._advance(u, 1.0 / 3.0, 1.0)
        self.problem.rhs(t_next, self._stage, self._slope)
        vectors = [self._total, self._slope]
        linear_combination([1.0, self.dt / 6.0], vectors, u, scratch=self._slope)

    def _advance(self, u: NDArray[Any], weight: float, node: float) -> None:
        """Add weight dt slope to the total; set the stage to u + node dt slope."""
        slope, stage, total = self._slope, self._stage, self._total
        linear_combination([1.0, weight * self.dt], [total, slope], total, scratch=stage)
        linear_combination([1.0, node * self.dt], [u, slope], stage, scratch=slope)
