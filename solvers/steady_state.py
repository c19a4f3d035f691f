"""Steady states f(t, u) = 0 by pseudo-transient continuation."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import device_errors
from batchkron.attributes import attribute
from batchkron.errors import NotPhysicalError

from .evolution.start.arguments import finite_number, initial_state
from .krylov.systems.limits import check_count, check_tolerances
from .preconditioners import NamedPreconditioner
from .products import Products, norm_over, ranks_of_problem
from .protocols import as_time_problem, refuse_unwritten
from .steppers.error_scale import ErrorScale
from .steppers.implicit_equation import equation_of

__all__ = ["SteadyState", "SteadyStatus", "steady_state"]

# The pseudo time step grows with the residual's fall, at least and at most by these factors.
_MIN_GROWTH, _MAX_GROWTH = 2.0, 100.0
_SHORTER = 0.1  # factor after a step that fails, or after which the residual is much larger
_MAX_RISE = 2.0  # of the residual in a step that is taken; transients may let it rise
_LONGEST = 1e14  # pseudo time step, relative to the first one, beyond which it is infinite enough
_SHORTEST = 1e-14
_ROUNDINGS = 100.0  # that the least relative residual has
_NEAR = 1e-6  # of the state: tolerance with which difference quotients are taken


class SteadyStatus(StrEnum):
    """Why the search for a steady state ended."""

    CONVERGED = "converged"
    MAX_STEPS = "max-steps"
    SOLVER_FAILED = "solver-failed"
    """No step, however short, gave a state with a finite residual that is not much larger."""


@dataclass(frozen=True)
class SteadyState:
    """What `steady_state` has found.

    Attributes
    ----------
    u : ndarray, shape (N,)
        The state with the last residual.
    status : SteadyStatus
        Why the search ended.
    steps : int
        How many steps were taken.
    residual_norm : float
        ‖f(t, u)‖₂.
    residual_norms : ndarray, shape (steps + 1,)
        The same after each step, and at first.
    products : int
        Evaluations of f, and products with A or a Jacobian.
    """

    u: NDArray[Any] = field(repr=False)
    status: SteadyStatus
    steps: int
    residual_norm: float
    residual_norms: NDArray[np.float64] = field(repr=False)
    products: int

    @property
    def converged(self) -> bool:
        """Whether ‖f(t, u)‖ is within the tolerance."""
        return self.status is SteadyStatus.CONVERGED


@device_errors()
def steady_state(
    problem: Any,
    *,
    u0: Any = None,
    source: Any = None,
    jac: Any = None,
    t: float | None = None,
    rtol: float = 1e-8,
    atol: float = 0.0,
    dt: float | None = None,
    max_steps: int = 100,
    solver: Any = None,
    preconditioner: Any = None,
    raise_on_failure: bool = False,
) -> SteadyState:
    """Find u with f(t, u) = 0 for one t, from a state near it, by steps of backward Euler.

    (I - dt J) δ = dt f(t, u), u + δ, with J the Jacobian at u; dt grows as ‖f‖ falls, so that the
    last steps are those of Newton's method.

    Parameters
    ----------
    problem, u0, source, jac, solver, preconditioner : object
        As for `evolve` with the method "bdf": an operator with ``u0`` and ``source``, a function
        f(t, u) with ``u0``, or an object with ``initial`` and ``rhs``.
    t : float, optional
        The time in f; that at which the problem begins by default.
    rtol, atol : float
        The state is taken if ‖f(t, u)‖₂ ≤ max(rtol ‖f(t, u0)‖₂, atol), with an rtol of at least 100
        roundings, or if that is as small as what rounding of u changes f by and does not fall.
    dt : float, optional
        The first step; by default the time in which f would change u, or f itself, by a tenth.
    max_steps : int
        The largest number of steps.
    raise_on_failure : bool
        Raise RuntimeError if the state is not within the tolerance.

    Returns
    -------
    SteadyState
        ``u``, ``status``, ``residual_norms`` and more.

    Raises
    ------
    TypeError, ValueError
        As for `evolve`.
    RuntimeError
        If ``raise_on_failure`` and the search failed.

    Notes
    -----
    What f conserves keeps its value, to the precision of the solves, where J is singular for it:
    of the many steady states it is the one that the solution in time would reach, if dt is small
    at first. Storage: 5 vectors, and those of the solver. Source: C. T. Kelley, D. E. Keyes,
    Convergence analysis of pseudo-transient continuation, SIAM J. Numer. Anal. 35 (1998).

    Examples
    --------
    >>> import numpy as np
    >>> from batchkron.solvers import steady_state
    >>> found = steady_state(lambda t, u: 2.0 - u - u**3, u0=np.array([0.3, 4.0]))
    >>> print(found.status, found.u.round(6))
    converged [1. 1.]
    """
    check_tolerances(rtol, atol)
    check_count("max_steps", max_steps)
    problem = as_time_problem(problem, u0, source, jac)
    u = initial_state(problem, ranks_of_problem(problem))
    t = finite_number("t", attribute(problem, "t0", 0.0) if t is None else t)
    search = _Search(problem, u, t)
    if dt is not None and not finite_number("dt", dt) > 0.0:
        raise ValueError(f"dt is {dt}; expected a number > 0.")
    first = search.first_step() if dt is None else float(dt)
    if isinstance(preconditioner, str) and ranks_of_problem(problem) is not None:
        deal = attribute(problem, "distribute_preconditioner")
        preconditioner = NamedPreconditioner(preconditioner, u.dtype, deal)
    options = {"solver": solver, "preconditioner": preconditioner}
    search.equation = equation_of(problem, u, search.products, t, first, **options)
    bound = max(max(rtol, _ROUNDINGS * float(np.finfo(u.dtype).eps)) * search.size, atol)
    status = search.run(first, bound, max_steps)
    found = SteadyState(
        search.u,
        status,
        len(search.sizes) - 1,
        search.size,
        np.array(search.sizes),
        search.products.count,
    )
    if raise_on_failure and not found.converged:
        raise RuntimeError(
            f"the search for a steady state ended as '{status}' after {found.steps} steps with "
            f"‖f‖ = {found.residual_norm:.3g}, which was {search.sizes[0]:.3g}; expected at most "
            f"{bound:.3g}, by rtol and atol. Begin with a state that is closer, or "
            "with a shorter dt."
        )
    return found


class _Search:
    """The state of a search, and its steps."""

    equation: Any

    def __init__(self, problem: Any, u: NDArray[Any], t: float) -> None:
        self._problem, self._t, self.u = problem, t, u
        self._ranks = ranks_of_problem(problem)
        self.products = Products()
        self._slope = np.full_like(u, np.nan)
        self._next_slope, self._step, self._next = (np.empty_like(u) for _ in range(3))
        self.size = self._evaluate(u, self._slope)
        if not math.isfinite(self.size):
            with contextlib.suppress(NotPhysicalError):
                refuse_unwritten(problem, t, u)
        self.sizes = [self.size]

    def _evaluate(self, u: NDArray[Any], out: NDArray[Any]) -> float:
        """Write f(t, u) into ``out`` and return its norm, NaN for a state that is not physical."""
        self.products.count += 1
        try:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                self._problem.rhs(self._t, u, out)
        except NotPhysicalError:
            return math.nan
        return self._norm(out)

    def _norm(self, vector: NDArray[Any]) -> float:
        return norm_over(self._ranks, vector)

    def first_step(self) -> float:
        """Return a tenth of the time in which f changes u, or itself where u is small."""
        if not (math.isfinite(self.size) and self.size > 0.0):
            return 1.0
        length = self._norm(self.u) / self.size
        move = 1e-6 * (length or 1.0)
        np.add(self.u, move * self._slope, out=self._next)
        self._evaluate(self._next, self._next_slope)
        change = self._norm(self._next_slope - self._slope) / move
        found = self.size / change if change > 0.0 and math.isfinite(change) else length
        return 0.1 * (max(found, length) or 1.0)

    def run(self, dt: float, bound: float, max_steps: int) -> SteadyStatus:
        """Take steps until ‖f‖ is at most ``bound``."""
        shortest, longest = _SHORTEST * dt, _LONGEST * dt
        fall = 1.0
        while not self.size <= bound:
            ended = len(self.sizes) > max_steps
            if (fall <= 1.0 or ended) and self.size <= self._rounding():
                break
            if ended:
                return SteadyStatus.MAX_STEPS
            size = self._try(dt)
            while not size <= max(_MAX_RISE * self.size, bound):
                dt *= _SHORTER
                if dt < shortest or not math.isfinite(self.size):
                    small = self.size <= self._rounding()
                    return SteadyStatus.CONVERGED if small else SteadyStatus.SOLVER_FAILED
                size = self._try(dt)
            fall = self.size / size if size > 0.0 else math.inf
            dt = min(longest, dt * min(_MAX_GROWTH, max(_MIN_GROWTH if fall > 1.0 else 1.0, fall)))
            self._take(size)
        return SteadyStatus.CONVERGED

    def _rounding(self) -> float:
        """Return by how much f changes with rounding of every other element of u."""
        if self._norm(self.u) == 0.0:
            return 0.0
        np.copyto(self._next, self.u)
        self._next[::2] *= 1.0 + 2.0 * float(np.finfo(self.u.dtype).eps)
        self._evaluate(self._next, self._next_slope)
        np.subtract(self._next_slope, self._slope, out=self._next_slope)
        return self._norm(self._next_slope)

    def _try(self, dt: float) -> float:
        """Compute the state after a step; return its ‖f‖, NaN if the solve failed."""
        u = self.u
        scale = ErrorScale(_NEAR, 0.0, self._ranks)
        scale.set(u, self._slope * dt)
        try:
            failed = self.equation.increment(self._t, dt, u, self._slope, scale, self._step)
        except NotPhysicalError:
            return math.nan
        if failed is not None:
            return math.nan
        np.add(u, self._step, out=self._next)
        return self._evaluate(self._next, self._next_slope)

    def _take(self, size: float) -> None:
        """Take the step that was tried."""
        self.u, self._next = self._next, self.u
        self._slope, self._next_slope = self._next_slope, self._slope
        self.size = size
        self.sizes.append(size)
