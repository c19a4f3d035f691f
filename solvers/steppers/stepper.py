"""What every time stepper shares: its name and order, its workspace, and one step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module

from ..krylov.result import KrylovResult
from ..protocols import TimeProblem, operator_of
from .stage_solver import StageSolver


class Stepper(ABC):
    """One method for u' = f(t, u), with the workspace for one problem and one step size.

    Parameters
    ----------
    problem : TimeProblem
        With ``initial`` (shape (N,), read for its shape and dtype only) and ``rhs(t, u, out)``.
    dt : float
        The step, in the problem's unit of time.

    Attributes
    ----------
    name : str
        What `evolve` calls the method.
    order : int
        The order of the error in dt.
    stages : int
        Evaluations of f in a step.
    implicit : bool
        Whether a step needs the operator A, to solve a linear system or for exp(dt A).
    nonlinear : bool
        Whether an implicit method is for f(t, u) that is nonlinear, as those are that iterate with
        Jacobians. False by default: `evolve` then refuses a problem whose f is not A(t) u + s(t).
    error_order : int
        Where a step estimates its error, the estimate is O(dt^(error_order + 1)); 0 elsewhere.
    real_limit : float
        The largest z with a stable step for u' = λ u at dt λ = -z.
    imaginary_limit : float
        The largest z with a stable step at dt λ = ± i z.
    stability_polynomial : tuple of float
        Of explicit methods: the coefficients of 1, z, z², … in R(z), by which a step multiplies u
        for u' = λ u, z = dt λ. Empty where it is not known; such a method's step is not checked
        before a run.
    last_solve : KrylovResult or None
        The latest linear solve of an implicit method.
    """

    name: ClassVar[str]
    order: ClassVar[int]
    stages: ClassVar[int]
    implicit: ClassVar[bool] = False
    nonlinear: ClassVar[bool] = False
    error_order: ClassVar[int] = 0
    real_limit: ClassVar[float]
    imaginary_limit: ClassVar[float]
    stability_polynomial: ClassVar[tuple[float, ...]] = ()

    def __init__(self, problem: TimeProblem, dt: float) -> None:
        self.problem = problem
        self.dt = float(dt)
        self.last_solve: KrylovResult | None = None

    @abstractmethod
    def step(self, u: NDArray[Any], t: float, t_next: float) -> KrylovResult | None:
        """Advance ``u`` in place from t to t_next = t + dt.

        Parameters
        ----------
        u : ndarray, shape (N,)
            The state at t; the state at t_next afterwards.
        t, t_next : float
            The times; t_next is passed so that no stage lies beyond it by rounding.

        Returns
        -------
        KrylovResult or None
            None after a step that was taken. The failed solve where there was one: then ``u`` is
            still the state at t.
        """

    def _vector(self) -> NDArray[Any]:
        """Return a vector of NaN, so that what a right-hand side does not write is seen."""
        module = array_module(self.problem.initial)
        initial = module.asarray(self.problem.initial)
        return module.full(initial.shape, np.nan, initial.dtype.newbyteorder("="))  # type: ignore[no-any-return]


class ImplicitStepper(Stepper):
    """A method whose step solves (I - c A) δ = r for the increment δ = u_next - u.

    Parameters
    ----------
    problem : TimeProblem
        With ``operator`` or ``operator_at(t)`` as well.
    dt : float
        The step.
    t0 : float
        Where the run begins: what a preconditioner is built for.
    solver, preconditioner : object
        See `StageSolver`; c = ``weight`` · dt.

    Notes
    -----
    Solving for the increment, from δ = 0, keeps the error of the solve in proportion to the step:
    its tolerance is rtol ‖r‖ with r = O(dt). And the step is a function of (u, t) alone, so that
    a resumed run repeats an undisturbed one bit for bit.
    """

    implicit = True
    weight: ClassVar[float]

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
        self._scale = self.weight * self.dt
        self._right_side, self._increment = self._vector(), self._vector()
        self._solver = StageSolver(
            lambda t: operator_of(problem, t),
            self._increment,
            self._scale,
            t0 + self.dt,
            solver=solver,
            preconditioner=preconditioner,
        )

    def _add_increment(self, u: NDArray[Any], t_next: float) -> KrylovResult | None:
        """Solve (I - c A(t_next)) δ = right side and add δ to u, unless the solve fails."""
        solve = self._solver.solve(t_next, self._scale, self._right_side, self._increment)
        self.last_solve = solve
        if not solve.converged:
            return solve
        u += self._increment
        return None
