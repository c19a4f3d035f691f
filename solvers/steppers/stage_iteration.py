"""Stages of implicit methods whose operator depends on the state, by iteration."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module, to_host

from ..krylov.systems.result import KrylovResult, Status
from ..products import norm_over
from ..protocols import ImplicitPart
from .stage_solver import StageSolver

__all__ = ["StageIteration"]

_MAX_ITERATIONS = 50
# Iterations before rounding errors are estimated, and the multiple of them that is small enough.
# Chosen by hand: residuals near an equilibrium end at 0.3 to 1 of the estimate.
_PATIENCE, _ROUNDINGS = 6, 4.0
# Tolerance of corrections, relative to what would meet the stage's own at once, and the largest
# one relative to the residual (S. C. Eisenstat, H. F. Walker, SIAM J. Sci. Comput. 17 (1996)).
_SAFETY, _MAX_RTOL = 0.1, 1e-2
# Tolerance of the residual relative to the first right-hand side, by the state's dtype character:
# that of the linear solves by default.
_TOLERANCE = {"f": 1e-5, "F": 1e-5, "d": 1e-9, "D": 1e-9}
_DEPTH = 5  # moves that an iteration looks back on; chosen by hand
_NEGLIGIBLE = {"f": 1e-6, "F": 1e-6, "d": 1e-14, "D": 1e-14}  # of squares of moves, to the largest


class Acceleration:
    """Anderson's acceleration of the iteration δ += d(δ), from the last changes of δ and of d.

    ``vector``: returns a new vector.
    """

    def __init__(self, vector: Callable[[], NDArray[Any]]) -> None:
        like = vector()
        module = array_module(like)
        self._place, self._found = like.reshape(-1), vector().reshape(-1)
        self._work = vector().reshape(-1)
        self._moves, self._changes = (
            module.empty((_DEPTH, like.size), like.dtype) for _ in range(2)
        )
        self._count = 0

    def begin(self, found: NDArray[Any]) -> None:
        """Take ``found`` as d(0), from which the first move went to δ = ``found``."""
        self._place[...], self._found[...] = 0.0, found.reshape(-1)
        self._count = 0

    def move(self, place: NDArray[Any], found: NDArray[Any]) -> None:
        """Move δ, ``place``, by d(δ), ``found``, and the correction; ``found`` is overwritten."""
        delta, d = place.reshape(-1), found.reshape(-1)
        k, self._count = self._count % _DEPTH, self._count + 1
        np.subtract(delta, self._place, out=self._moves[k])
        np.subtract(d, self._found, out=self._changes[k])
        self._place[...], self._found[...] = delta, d
        known = min(self._count, _DEPTH)
        changes, moves = self._changes[:known], self._moves[:known]
        conjugate = changes.conj()
        products = to_host(conjugate @ changes.T, "products")
        right = to_host(conjugate @ d, "products")
        weights = np.linalg.lstsq(products, right, rcond=_NEGLIGIBLE[d.dtype.char])[0]
        for weight, change, moved in zip(weights, changes, moves, strict=True):
            np.add(change, moved, out=self._work)
            np.multiply(self._work, weight, out=self._work)
            np.subtract(d, self._work, out=d)
        np.add(delta, d, out=delta)


class StageIteration:
    """Solves δ = k + c f(t, w + δ) for f(t, u) = A(t, u) u + s(t), from linear solves.

    With U = w + δ and the residual r = k + c f(t, U) - δ, each iteration solves
    (I - c A(t, U)) d = r: Newton's method without the derivative of A. That is done to the
    tolerance that the stage needs, which is looser than that of the first solve. Then δ moves by
    d, corrected by the last moves (Anderson's acceleration): the combination of them is subtracted
    that leaves the least of d. It ends when ‖r‖ ≤ τ ‖r_0‖, where r_0 = k + c f(t, w) and τ is 1e-9
    (1e-5 in single precision). Near an equilibrium, where r_0 is small, r cannot fall below the
    rounding errors of c A U: after 6 iterations, 4 ε (1 + c ‖A g‖ / ‖g‖) ‖U‖ is small enough, too,
    with a vector g of cosines that stands for any other. Without the correction the error would
    shrink by a factor of about c ‖∂A/∂u U‖ in an iteration. Steps have to resolve the time in which
    A changes.

    ``part``: f.
    ``solver``: solves the linear systems with the part's operator.
    ``vector``: returns a new vector.

    Storage: 3 vectors, and 14 if there are several iterations. Source: D. G. Anderson, J. ACM 12
    (1965); H. F. Walker, P. Ni, SIAM J. Numer. Anal. 49 (2011), eq. (2.1).
    """

    def __init__(
        self, part: ImplicitPart, solver: StageSolver, vector: Callable[[], NDArray[Any]]
    ) -> None:
        self._part, self._solver = part, solver
        self._vector = vector
        self._state, self._residual, self._change = vector(), vector(), vector()
        self._acceleration: Acceleration | None = None

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

        ``first``: the solve from which δ comes, with A(t, w).
        ``t``, ``scale``: t and c.
        ``base`` (ndarray, shape (N,)): w.
        ``right`` (ndarray, shape (N,)): r_0.
        ``delta`` (ndarray, shape (N,)): δ; it is overwritten.
        ``known`` (ndarray, shape (N,)): k, by default 0.

        Returns the last linear solve, with the iterations of all. If it converged, the stage did.
        """
        solve, iterations = first, first.iterations
        bound = _TOLERANCE[delta.dtype.char] * norm_over(None, right)
        accelerated: Acceleration | None = None
        for number in range(_MAX_ITERATIONS):
            if not solve.converged:
                break
            np.add(base, delta, out=self._state)
            self._part.follow(t, self._state)
            if number == _PATIENCE:
                bound = max(bound, _ROUNDINGS * self._rounding(t, scale))
            self._solver.multiply(t, self._state, self._residual)
            self._part.source(t, self._change)
            np.add(self._residual, self._change, out=self._residual)
            np.multiply(self._residual, scale, out=self._residual)
            if known is not None:
                np.add(self._residual, known, out=self._residual)
            np.subtract(self._residual, delta, out=self._residual)
            left = norm_over(None, self._residual)
            if left <= bound:
                return replace(solve, iterations=iterations)
            if not math.isfinite(left):
                solve = replace(solve, status=Status.NOT_FINITE)
                break
            if accelerated is None:
                if self._acceleration is None:
                    self._acceleration = Acceleration(self._vector)
                accelerated = self._acceleration
                accelerated.begin(delta)
            rtol = min(_SAFETY * bound / left, _MAX_RTOL)
            solve = self._solver.solve(t, scale, self._residual, self._change, rtol=rtol)
            iterations = iterations + solve.iterations
            if solve.converged:
                accelerated.move(delta, self._change)
        else:
            solve = replace(solve, status=Status.MAX_ITERATIONS)
        return replace(solve, iterations=iterations)

    def _rounding(self, t: float, scale: float) -> float:
        """Return about the size of the rounding errors of U + c A U, by a product with A."""
        g = self._change
        module = array_module(g)
        g[...] = module.cos(module.arange(g.size)).reshape(g.shape)
        self._solver.multiply(t, g, self._residual)
        factor = 1.0 + abs(scale) * norm_over(None, self._residual) / norm_over(None, g)
        return float(np.finfo(g.dtype).eps * factor * norm_over(None, self._state))
