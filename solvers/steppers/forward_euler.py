"""The explicit Euler method."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from batchkron import linear_combination

from ..protocols import TimeProblem
from .stepper import FixedStepper


class ForwardEuler(FixedStepper):
    """u_next = u + dt f(t, u); order 1.

    Parameters
    ----------
    problem : TimeProblem
        With ``initial`` and ``rhs``.
    dt : float
        The step.

    Notes
    -----
    Storage: 1 vector besides u. Stable for real dt λ in [-2, 0], but not on the imaginary axis.
    """

    name = "forward-euler"
    order = 1
    works_on_ranks = True
    stages = 1
    real_limit = 2.0
    imaginary_limit = 0.0
    stability_polynomial = (1.0, 1.0)

    def __init__(self, problem: TimeProblem, dt: float) -> None:
        super().__init__(problem, dt)
        self._slope = self._vector()

    def _advance_state(self, u: NDArray[Any], t: float, t_next: float) -> None:
        slope = self._slope
        self.problem.rhs(t, u, slope)
        linear_combination([1.0, self.dt], [u, slope], u, scratch=slope)
