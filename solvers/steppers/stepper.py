"""Base classes of time steppers: name and order of a method, its workspace, and one step."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module, native_dtype

from ..krylov.systems.result import KrylovResult
from ..products import Products
from ..protocols import TimeProblem, known_beside_rhs, operator_of, whole_part_of
from .passes import StepPasses
from .stage_iteration import StageIteration
from .stage_solver import StageSolver, at_beginning
from .step_runner import StepRunner, StepTimes


class Stepper(ABC):
    """One method for u' = f(t, u), with the workspace for one problem and one step size.

    Parameters
    ----------
    problem : TimeProblem
        With ``initial`` (shape (N,), read for its shape and dtype only) and ``rhs(t, u, out)``.
    dt : float
        The step, in the problem's unit of time. ValueError if it is not positive and finite.

    Attributes
    ----------
    name : str
        The method's name for `evolve`.
    order : int
        The order of convergence in dt.
    stages : int
        Number of evaluations of f in a step.
    implicit : bool
        Whether a step needs the operator A, to solve a linear system or for exp(dt A).
    nonlinear : bool
        Whether an implicit method can treat a nonlinear f(t, u), as methods that iterate with
        Jacobians can. If False, the default, `evolve` refuses a problem whose f is not
        A(t) u + s(t).
    error_order : int
        The error estimate of a step is O(dt^(error_order + 1)); 0 if the method has no estimate.
    real_limit : float
        The largest z for which a step with dt λ = -z is stable for u' = λ u.
    imaginary_limit : float
        The largest z for which a step with dt λ = ± i z is stable.
    works_on_ranks : bool
        Whether a step of a vector that is spread over ranks is right if each rank takes it with its
        block: so it is if all that ranks have in common are products and linear solves.
    iterates : bool
        Whether an implicit method iterates where a problem's ``whole_part()`` gives it an operator
        that follows the state.
    linear_by_operator : bool
        Whether a method with ``nonlinear`` takes f for A(t) u + s(t) where the problem has an
        operator, no ``jacobian`` and no ``whole_part()``; `evolve` then tests that.
    chooses_order : bool
        Whether a method chooses its order with its steps, by errors: it needs tolerances.
    preconditions : bool
        Whether linear solves of an implicit method take a preconditioner, so that `evolve` may
        choose one where none is given.
    euler_steps : tuple of (float, float)
        For methods whose stages are (1 - b) u + b (v + dt f(t + c dt, v)) of the stage v before,
        the pairs (b, c); else empty. They take a problem's ``limit_state(t, u)``, which changes
        each stage.
    stability_polynomial : tuple of float
        For explicit methods the coefficients of 1, z, z², … in R(z), the factor of a step for
        u' = λ u with z = dt λ. If it is empty, the step is not checked for stability before a run.
    last_solve : KrylovResult or None
        The last linear solve of an implicit method.
    measures : bool
        Whether steps find the norms that `squares` returns; False by default.
    products : Products
        How many products with A, or evaluations of f, steps have done, and a hook around them.
    """

    name: ClassVar[str]
    order: ClassVar[int]
    stages: ClassVar[int]
    implicit: ClassVar[bool] = False
    nonlinear: ClassVar[bool] = False
    works_on_ranks: ClassVar[bool] = False
    iterates: ClassVar[bool] = False
    preconditions: ClassVar[bool] = False
    linear_by_operator: ClassVar[bool] = False
    chooses_order: ClassVar[bool] = False
    error_order: ClassVar[int] = 0
    real_limit: ClassVar[float]
    imaginary_limit: ClassVar[float]
    euler_steps: ClassVar[tuple[tuple[float, float], ...]] = ()
    stability_polynomial: ClassVar[tuple[float, ...]] = ()

    def __init__(self, problem: TimeProblem, dt: float) -> None:
        self.problem = problem
        refuse_limiter(type(self), problem)
        self._limit = known_beside_rhs(problem, "limit_state")
        self.dt = float(dt)
        if not 0.0 < self.dt < math.inf:
            raise ValueError(f"dt is {dt}; expected a finite number > 0")
        self.last_solve: KrylovResult | None = None
        self.measures = False
        self.products = Products()

    @abstractmethod
    def step(self, u: NDArray[Any], t: float, t_next: float) -> KrylovResult | None:
        """Advance ``u`` in place from t to t_next = t + dt.

        Parameters
        ----------
        u : ndarray, shape (N,)
            The state at t; it is overwritten with the state at t_next.
        t, t_next : float
            The times; t_next is passed so that no stage lies beyond it due to rounding.

        Returns
        -------
        KrylovResult or None
            None after a successful step. Otherwise the linear solve that failed; ``u`` is then
            still the state at t.
        """

    def take(
        self, u: NDArray[Any], steps: Sequence[StepTimes], work: NDArray[Any] | None = None
    ) -> None:
        """Advance ``u`` in place by steps that begin where the last one ended.

        Parameters
        ----------
        u : ndarray, shape (N,)
            The state; it is overwritten with the one at the end of the last step.
        steps : sequence of StepTimes
            The times, of at most `MAX_STEPS`. A device is not waited for.
        work : ndarray, shape (N,), optional
            A vector that may be overwritten.

        Raises
        ------
        TypeError
            If the method has no such steps, see `takes_any_dt`.
        """
        raise TypeError(f"{self.name} takes single steps only; call step instead")

    def restart(self) -> None:  # noqa: B027 - most methods have nothing to forget
        """Forget f at the end of the last step: the next one begins with another state."""

    def memory(self) -> tuple[list[NDArray[Any]], list[float]]:
        """Return vectors (N,) and numbers by which the next step depends on earlier ones.

        They are those of the last accepted step; checkpoints hold them. Both are empty for most
        methods, whose step is a function of the state.
        """
        return [], []

    def remember(self, t: float, vectors: list[NDArray[Any]], numbers: list[float]) -> None:
        """Continue from time t with what `memory` has returned in another run."""
        raise ValueError(
            f"the checkpoint holds {len(vectors)} vectors besides the state, and {self.name} none"
        )

    @property
    def first_order(self) -> int:
        """The order of the first step."""
        return self.order

    @property
    def takes_any_dt(self) -> bool:
        """Whether there is `take`, with steps of any length."""
        return type(self).take is not Stepper.take

    @property
    def is_faster_ahead(self) -> bool:
        """Whether several steps of `take` are faster than single ones, between which one looks."""
        return False

    def squares(self) -> NDArray[np.float64] | None:
        """Return squares of norms at the ends of the last steps, and of their errors.

        They are those of the steps since the last call that takes steps, shape (steps, 2); on a
        device, this waits for them. None if the method does not find them.
        """
        return None

    def square(self, u: NDArray[Any]) -> float | None:
        """Return ‖u‖² with the bits that `squares` gives at the end of a step; None without it.

        It forgets the last step.
        """
        return None

    def _evaluate(self, t: float, u: NDArray[Any], out: NDArray[Any]) -> None:
        """Write f(t, u) into ``out``, which counts as a product."""
        self.products.count += 1
        self.products.do(self.problem.rhs, t, u, out)

    def _vector(self) -> NDArray[Any]:
        """Return a vector of NaN, so that elements that ``rhs`` does not write are noticed."""
        module = array_module(self.problem.initial)
        initial = module.asarray(self.problem.initial)
        return module.full(initial.shape, np.nan, native_dtype(initial.dtype))  # type: ignore[no-any-return]


class FixedStepper(Stepper):
    """Base class of explicit methods whose steps overwrite u by the same passes always."""

    passes: ClassVar[StepPasses]

    def __init__(self, problem: TimeProblem, dt: float) -> None:
        super().__init__(problem, dt)
        self._vectors = [self._vector()]
        while len(self._vectors) < self.passes.vectors - 1:
            self._vectors.append(self._vectors[0].copy())
        self._runner = StepRunner(problem, self._vectors[0], self.products)

    def step(self, u: NDArray[Any], t: float, t_next: float) -> None:
        """Advance ``u`` in place from t to t_next."""
        self.take(u, [StepTimes(t, t_next, self.dt)])

    def take(
        self, u: NDArray[Any], steps: Sequence[StepTimes], work: NDArray[Any] | None = None
    ) -> None:
        """Advance ``u`` in place by steps, without waiting for a device."""
        if self._limit is not None:
            for times in steps:
                self._take_limited(u, times)
            return
        vectors = [u, *self._vectors]
        self._runner.run([(self.passes, vectors, times) for times in steps], self.measures)

    @property
    def is_faster_ahead(self) -> bool:
        """Whether several steps of `take` are faster than single ones."""
        return self._limit is None and self._runner.is_faster_ahead

    def square(self, u: NDArray[Any]) -> float | None:
        """Return ‖u‖² as `squares` gives it, if `measures`."""
        return self._runner.square(u) if self.measures and self._limit is None else None

    def squares(self) -> NDArray[np.float64] | None:
        """Return (‖u‖², -) at the ends of the last steps, if `measures`."""
        return self._runner.squares() if self.measures and self._limit is None else None

    def _take_limited(self, u: NDArray[Any], times: StepTimes) -> None:
        """Advance ``u`` by a step of Euler steps, each followed by the problem's limiter."""
        limit, stage, slope = self._limit, u.copy(), np.empty_like(u)
        assert limit is not None
        limit(times.t, stage)
        begin = stage.copy()
        for share, node in self.euler_steps:
            self._evaluate(times.t + node * times.dt, stage, slope)
            stage += times.dt * slope
            stage *= share
            stage += (1.0 - share) * begin
            limit(times.t_next, stage)
        u[...] = stage


class ImplicitStepper(Stepper):
    """Base class of methods whose step solves (I - c A) δ = r for the increment δ = u_next - u.

    Parameters
    ----------
    problem : TimeProblem
        With ``operator`` or ``operator_at(t)`` in addition.
    dt : float
        The step.
    t0 : float
        The time at which the run begins, for which a preconditioner is built.
    solver, preconditioner : object
        See `StageSolver`; c = ``weight`` · dt.

    Notes
    -----
    Solving for the increment, from δ = 0, makes the error of the solve proportional to the step:
    the tolerance is rtol ‖r‖ with r = O(dt). Also, the step is then a function of (u, t) alone, so
    that a resumed run ends bitwise equal to an uninterrupted one.
    """

    implicit = True
    works_on_ranks = True
    iterates = True
    preconditions = True
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
        self._part = whole_part_of(problem)
        preconditioner = at_beginning(preconditioner, self._part, t0, problem.initial)
        self._solver = StageSolver(
            self._operator_at,
            self._increment,
            self._scale,
            t0,
            self.dt,
            solver=solver,
            preconditioner=preconditioner,
            changes=self._part is not None,
            products=self.products,
        )

        self._iteration: StageIteration | None = None
        if self._part is not None:
            self._iteration = StageIteration(self._part, self._solver, self._vector)
            self._source = self._vector()

    def _operator_at(self, t: float) -> Any:
        return operator_of(self.problem, t) if self._part is None else self._part.operator

    def _derivative(self, t: float, u: NDArray[Any], out: NDArray[Any]) -> None:
        """Write f(t, u) into ``out``; an A that depends on the state is then A(t, u)."""
        if self._part is None:
            self._evaluate(t, u, out)
            return
        self._part.follow(t, u)
        self._solver.multiply(t, u, out)
        self._part.source(t, self._source)
        np.add(out, self._source, out=out)

    def _add_increment(
        self, u: NDArray[Any], t_next: float, known: NDArray[Any] | None = None
    ) -> KrylovResult | None:
        """Solve (I - c A(t_next)) δ = r and add δ to u, unless the solve fails.

        If A depends on the state, it has to be A(t_next, u) already (`_derivative`), and
        δ = known + c f(t_next, u + δ) is solved by iteration; without ``known`` that is 0.
        """
        solve = self._solver.solve(t_next, self._scale, self._right_side, self._increment)
        if self._iteration is not None:
            solve = self._iteration.correct(
                solve, t_next, self._scale, u, self._right_side, self._increment, known
            )
        self.last_solve = solve
        if not solve.converged:
            return solve
        u += self._increment
        return None


def refuse_limiter(method: type[Stepper], problem: Any) -> None:
    """Raise ValueError if a problem has a limiter and the method is no sum of Euler steps."""
    if not method.euler_steps and known_beside_rhs(problem, "limit_state") is not None:
        raise ValueError(
            "the problem has a limiter, which is for combinations of Euler steps; take "
            f"method='ssp-rk3' or 'forward-euler', not {method.name!r}"
        )
