"""Stages of implicit methods whose operator depends on the state, by iteration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..krylov.systems.result import KrylovResult, Status
from ..krylov.vectors.ranks import norm_over
from ..protocols import ImplicitPart
from .stage_solver import StageSolver

__all__ = ["StageIteration"]

_MAX_ITERATIONS = 50
# Tolerance of the residual relative to the first right-hand side, by the state's dtype character:
# that of the linear solves by default.
_TOLERANCE = {"f": 1e-5, "F": 1e-5, "d": 1e-9, "D": 1e-9}


class StageIteration:
    """Solves δ = k + c f(t, w + δ) for f(t, u) = A(t, u) u + s(t), from linear solves.

    With U = w + δ and the residual r = k + c f(t, U) - δ, each iteration solves
    (I - c A(t, U)) d = r and adds d to δ: Newton's method without the derivative of A. It ends when
    ‖r‖ ≤ τ ‖r_0‖, where r_0 = k + c f(t, w) and τ is 1e-9 (1e-5 in single precision). The error
    shrinks by a factor of about c ‖∂A/∂u U‖ in an iteration, so that steps have to resolve the time
    in which A changes, and nothing faster.

    Parameters
    ----------
    part : ImplicitPart
        f.
    solver : StageSolver
        Solves the linear systems with the part's operator.
    vector : callable
        Returns a new vector.

    Notes
    -----
    Storage: 3 vectors.
    """

    def __init__(
        self, part: ImplicitPart, solver: StageSolver, vector: Callable[[], NDArray[Any]]
    ) -> None:
        self._part, self._solver = part, solver
        self._state, self._residual, self._change = vector(), vector(), vector()

    def correct(
        self,
        first: KrylovResult,
        t: float,
        scale: float,
        base: NDArray[Any],
        right: NDArray[Any],
        delta: NDArray[Any],
        known: NDArray[Any] | None = None,
    ) -> KrylovResult:
        """Improve δ until it solves the stage.

        Parameters
        ----------
        first : KrylovResult
            The solve from which δ comes, with A(t, w).
        t, scale : float
            t and c.
        base : ndarray, shape (N,)
            w.
        right : ndarray, shape (N,)
            r_0.
        delta : ndarray, shape (N,)
            δ; it is overwritten.
        known : ndarray, shape (N,), optional
            k, by default 0.

        Returns
        -------
        KrylovResult
            The last linear solve, with the iterations of all. If it converged, the stage did.
        """
        solve, iterations = first, first.iterations
        bound = _TOLERANCE[delta.dtype.char] * norm_over(None, right)
        for _ in range(_MAX_ITERATIONS):
            if not solve.converged:
                break
            np.add(base, delta, out=self._state)
            self._part.follow(t, self._state)
            self._solver.multiply(t, self._state, self._residual)
            self._part.source(t, self._change)
            np.add(self._residual, self._change, out=self._residual)
            np.multiply(self._residual, scale, out=self._residual)
            if known is not None:
                np.add(self._residual, known, out=self._residual)
            np.subtract(self._residual, delta, out=self._residual)
            if norm_over(None, self._residual) <= bound:
                return replace(solve, iterations=iterations)
            solve = self._solver.solve(t, scale, self._residual, self._change)
            iterations = iterations + solve.iterations
            np.add(delta, self._change, out=delta)
        else:
            solve = replace(solve, status=Status.MAX_ITERATIONS)
        return replace(solve, iterations=iterations)
