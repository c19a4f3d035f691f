"""Diagonally implicit Runge-Kutta methods and IMEX methods, for any tableau."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from batchkron.attributes import attribute

from ..krylov.systems.result import KrylovResult
from ..protocols import (
    TimeProblem,
    implicit_operator_of,
    implicit_part_of,
    implicit_source_of,
    operator_of,
    whole_part_of,
)
from .embedded import EmbeddedStepper
from .runge_kutta import combine
from .stage_iteration import StageIteration
from .stage_solver import StageSolver, at_beginning
from .tableau import Tableau


class DiagonallyImplicit(EmbeddedStepper):
    """Stages U_i = u + dt Σ_{j≤i} a_ij k_j, k_i = f(t + c_i dt, U_i), for f = A(t) u + s(t).

    Each stage is solved for its increment δ: with w = u + dt Σ_{j<i} a_ij k_j and c = a_ii dt,
    (I - c A(t_i)) δ = c f(t_i, w), k_i = δ / c. An IMEX method does this with f_I = A_I u + s_I(t)
    in place of f, and treats the rest, f - f_I, explicitly. Where A depends on the state, and all
    of f is implicit, the stage is solved by iteration, see `StageIteration`.

    Parameters
    ----------
    problem : TimeProblem
        With ``operator`` or ``operator_at(t)``. For IMEX methods A_I is ``implicit_operator`` or
        ``implicit_operator_at(t)``, or all of A if there is none, and s_I is written by
        ``implicit_source(t, out)``; or both are those of ``implicit_part()``, an `ImplicitPart`.
    dt : float
        The step.
    t0 : float
        The time at which the run begins, for which a preconditioner is built.
    solver, preconditioner : object
        See `StageSolver`.

    Notes
    -----
    Storage: a vector for each stage (two with IMEX), 5 besides u (6 with an error estimate), and
    those of the solver.

    Without ``implicit_source`` an IMEX method uses s_I(t) = f(t, u) - A_I(t) u, where u is the
    state at the beginning of the step. Then the explicit dependence of f on time is treated
    implicitly, as is necessary for stiff data, and the explicit part is
    f(t, U) - f(t, u) - A_I (U - u). This needs one more evaluation of f in each stage but the
    first.
    """

    implicit = True
    works_on_ranks = True
    iterates = True
    preconditions = True
    tableau: ClassVar[Tableau]

    def __init__(
        self,
        problem: TimeProblem,
        dt: float,
        *,
        t0: float = 0.0,
        solver: Any = None,
        preconditioner: Any = None,
    ) -> None:
        super().__init__(problem, dt)
        count = self.stages
        self._slopes = [self._vector() for _ in range(count)]
        self._others = [self._vector() for _ in range(count)] if self.tableau.is_imex else []
        self._work, self._right, self._increment = (self._vector() for _ in range(3))
        self.error = None if self.tableau.embedded is None else self._vector()
        find = implicit_operator_of if self.tableau.is_imex else operator_of
        self._source = implicit_source_of(problem)
        self._part = (implicit_part_of if self.tableau.is_imex else whole_part_of)(problem)
        self._is_whole = bool(attribute(self._part, "is_whole", False))
        if self._part is not None:
            part = self._part
            preconditioner = at_beginning(preconditioner, part, t0, problem.initial)
            self._source, find = part.source, lambda problem, t: part.operator
        self._solver = StageSolver(
            lambda t: find(problem, t),
            self._increment,
            self.tableau.diagonal * self.dt,
            t0,
            self.dt,
            solver=solver,
            preconditioner=preconditioner,
            changes=self._part is not None,
            products=self.products,
        )
        self._iteration: StageIteration | None = None
        if self._part is not None and not self.tableau.is_imex:
            self._iteration = StageIteration(self._part, self._solver, self._vector)

    def attempt(
        self, u: NDArray[Any], t: float, t_next: float, dt: float, out: NDArray[Any]
    ) -> KrylovResult | None:
        """Compute the state at t_next from ``u`` (N,) into ``out`` (N,), and set `error`.

        ``out`` must not be ``u``.

        Returns
        -------
        KrylovResult or None
            The failed linear solve, if there was one.
        """
        tableau = self.tableau
        nodes = tableau.nodes
        explicit = tableau.explicit if tableau.is_imex else np.zeros_like(tableau.implicit)
        for i in range(self.stages):
            self._sum(u, dt * tableau.implicit[i, :i], dt * explicit[i, :i], out)
            now = t_next if abs(nodes[i] - 1.0) < 1e-14 else t + float(nodes[i]) * dt
            failed = self._stage(i, now, dt * float(tableau.implicit[i, i]), u, out)
            if failed is not None:
                return failed
        weights = dt * tableau.weights
        self._sum(u, weights, weights, out)
        if self.error is not None and self.estimates:
            weights = dt * (tableau.weights - tableau.embedded)
            self._sum(None, weights, weights, self.error)
        return None

    def _stage(
        self, i: int, t: float, scale: float, u: NDArray[Any], stage: NDArray[Any]
    ) -> KrylovResult | None:
        """Overwrite w in ``stage`` with stage i, and compute its slopes; u begins the step."""
        slope = self._slopes[i]
        if self._part is not None:
            self._part.follow(t, stage)
        self._slope(i, t, u, stage, slope)
        if scale != 0.0:
            np.multiply(slope, scale, out=self._right)
            solve = self._solver.solve(t, scale, self._right, self._increment)
            if self._iteration is not None:
                solve = self._iteration.correct(
                    solve, t, scale, stage, self._right, self._increment
                )
            self.last_solve = solve
            if not solve.converged:
                return solve
            np.add(stage, self._increment, out=stage)
            np.multiply(self._increment, 1.0 / scale, out=slope)
        if not self._others:
            return None
        other = self._others[i]
        if (self._source is None or self._is_whole) and i == 0 and scale == 0.0:
            other[...] = 0.0  # the stage is u itself, and all of f is implicit there
            return None
        if self._is_whole:
            assert self._part is not None
            self._part.follow(t, stage)
            self._slope(i, t, u, stage, other)
        else:
            self._evaluate(t, stage, other)
        np.subtract(other, slope, out=other)
        return None

    def _slope(
        self, i: int, t: float, u: NDArray[Any], stage: NDArray[Any], out: NDArray[Any]
    ) -> None:
        """Write the implicit part of f at (t, ``stage``) into ``out``."""
        if not self._others and self._part is None:
            self._evaluate(t, stage, out)
        elif self._source is not None:
            self._solver.multiply(t, stage, out)
            self._source(t, self._right)
            np.add(out, self._right, out=out)
        else:
            self._evaluate(t, u, out)
            if i > 0:  # in the first stage, ``stage`` is u itself
                np.subtract(stage, u, out=self._right)
                self._solver.multiply(t, self._right, self._increment)
                np.add(out, self._increment, out=out)

    def _sum(
        self,
        u: NDArray[Any] | None,
        implicit: NDArray[Any],
        explicit: NDArray[Any],
        out: NDArray[Any],
    ) -> None:
        """Write u + Σ_i implicit[i] k_i into ``out``, and with IMEX the same of explicit parts."""
        weights, vectors = implicit, self._slopes[: len(implicit)]
        if self._others:
            weights = np.concatenate([implicit, explicit])
            vectors = vectors + self._others[: len(explicit)]
        combine(u, weights, vectors, out, self._work)
