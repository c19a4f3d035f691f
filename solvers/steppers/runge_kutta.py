"""Explicit Runge-Kutta methods, for any tableau."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from batchkron.functions.vector_sum import linear_combination

from ..krylov.systems.result import KrylovResult
from ..protocols import TimeProblem
from .embedded import EmbeddedStepper
from .tableau import Tableau


class RungeKutta(EmbeddedStepper):
    """u_next = u + dt Σ_i b_i k_i, k_i = f(t + c_i dt, u + dt Σ_{j<i} a_ij k_j).

    Parameters
    ----------
    problem : TimeProblem
        With ``initial`` and ``rhs``.
    dt : float
        The step.

    Notes
    -----
    Storage: a vector for each stage and 2 (3 with an error estimate) besides u. If the last stage
    is the first one of the next step (FSAL), an accepted step saves one evaluation of f. After a
    rejected step, f is not evaluated again at the beginning of the step.
    """

    works_on_ranks = True
    tableau: ClassVar[Tableau]

    def __init__(self, problem: TimeProblem, dt: float) -> None:
        super().__init__(problem, dt)
        self._slopes = [self._vector() for _ in range(self.stages)]
        self._work = self._vector()
        self.error = None if self.tableau.embedded is None else self._vector()
        self._dt = self.dt
        self._known: float | None = None

    def step(self, u: NDArray[Any], t: float, t_next: float) -> KrylovResult | None:
        """Advance ``u`` in place from t to t_next; return None."""
        self._known = None  # u may differ from the end of the last step
        return super().step(u, t, t_next)

    def attempt(
        self, u: NDArray[Any], t: float, t_next: float, dt: float, out: NDArray[Any]
    ) -> None:
        """Compute the state at t_next from ``u`` (N,) into another array ``out``; set `error`."""
        tableau, slopes, rhs = self.tableau, self._slopes, self.problem.rhs
        nodes = tableau.nodes
        self._dt = dt
        if self._known != t:
            rhs(t, u, slopes[0])
            self._known = t
        for i in range(1, self.stages):
            combine(u, dt * tableau.explicit[i, :i], slopes, out, self._work)
            rhs(t_next if nodes[i] == 1.0 else t + float(nodes[i]) * dt, out, slopes[i])
        if not tableau.first_is_last:
            combine(u, dt * tableau.weights, slopes, out, self._work)
        if self.error is not None and self.estimates:
            difference = dt * (tableau.weights - tableau.embedded)
            combine(None, difference, slopes, self.error, self._work)
        self._end = t_next

    def accept(self) -> None:
        """Accept the last attempt; its last slope may be the first one of the next step."""
        if self.tableau.first_is_last:
            self._slopes[0], self._slopes[-1] = self._slopes[-1], self._slopes[0]
            self._known = self._end
        else:
            self._known = None

    @property
    def dense_degree(self) -> int:
        """The degree in θ of the tableau's continuous weights, or of cubic interpolation."""
        return 3 if self.tableau.dense is None else int(self.tableau.dense.shape[1])

    def interpolate(self, u: NDArray[Any], theta: float, out: NDArray[Any]) -> bool:
        """Write the state at t + θ dt with the tableau's continuous weights, if it has them."""
        if self.tableau.dense is None:
            return False
        powers = theta ** np.arange(1, self.tableau.dense.shape[1] + 1)
        combine(u, self._dt * (self.tableau.dense @ powers), self._slopes, out, self._work)
        return True

    def end_slope(self) -> NDArray[Any] | None:
        """Return the last stage's slope if that is f at the end of the step, else None."""
        return self._slopes[-1] if self.tableau.first_is_last else None


def combine(
    u: NDArray[Any] | None,
    weights: Sequence[float] | NDArray[Any],
    vectors: Sequence[NDArray[Any]],
    out: NDArray[Any],
    work: NDArray[Any],
) -> None:
    """Write u + Σ_i weights[i] vectors[i] into ``out``; on the CPU in one pass over memory.

    Parameters
    ----------
    u : ndarray, shape (N,), or None
        The first summand, which must not be ``out``; None stands for zero.
    weights : sequence of float
        The factors; vectors with factor 0 are not read.
    vectors : sequence of ndarray, shape (N,)
        At least as many vectors as factors.
    out, work : ndarray, shape (N,)
        Overwritten with the result, and with intermediate values.
    """
    used = [(float(w), vector) for w, vector in zip(weights, vectors, strict=False) if w != 0.0]
    if u is not None:
        used.insert(0, (1.0, u))
    if used:
        linear_combination([w for w, _ in used], [v for _, v in used], out, scratch=work)
    else:
        out[...] = 0.0
