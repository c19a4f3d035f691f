"""What every time stepper shares: its name and order, its workspace, and one step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module
from batchkron.solvers.krylov_result import KrylovResult
from batchkron.solvers.linear_solver import LinearSolver, ShiftedOperator
from batchkron.solvers.products import as_product
from batchkron.solvers.protocols import TimeProblem, operator_of


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
        Whether a step solves a linear system.
    real_limit : float
        The largest z with a stable step for u' = λ u at dt λ = -z.
    imaginary_limit : float
        The largest z with a stable step at dt λ = ± i z.
    last_solve : KrylovResult or None
        The latest linear solve of an implicit method.
    """

    name: ClassVar[str]
    order: ClassVar[int]
    stages: ClassVar[int]
    implicit: ClassVar[bool] = False
    real_limit: ClassVar[float]
    imaginary_limit: ClassVar[float]

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
    solver : str, mapping, callable or None
        See `LinearSolver`.
    preconditioner : object or callable, optional
        M ≈ (I - c A)⁻¹ with c = ``weight`` · dt, as `gmres` takes it; or a function
        ``(A, c) -> M``, called once with A(t0 + dt).

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
        self._solver = LinearSolver(solver, self._increment)
        operator = operator_of(problem, t0 + self.dt)
        self._shifted = self._shift(operator)
        if callable(preconditioner) and not hasattr(preconditioner, "shape"):
            preconditioner = preconditioner(operator, self._scale)
        if preconditioner is not None:
            as_product(preconditioner, "preconditioner", self._increment)
        self._preconditioner = preconditioner

    def _shift(self, operator: Any) -> ShiftedOperator:
        return ShiftedOperator(operator, self._scale, self._increment)

    def _add_increment(self, u: NDArray[Any], t_next: float) -> KrylovResult | None:
        """Solve (I - c A(t_next)) δ = right side and add δ to u, unless the solve fails."""
        operator = operator_of(self.problem, t_next)
        if operator is not self._shifted.operator:
            self._shifted = self._shift(operator)
        solve = self._solver.solve(
            self._shifted, self._right_side, self._preconditioner, self._increment
        )
        self.last_solve = solve
        if not solve.converged:
            return solve
        u += self._increment
        return None
