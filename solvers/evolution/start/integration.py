"""The integration in time: problem, method, initial state and steps, checked before the run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module
from batchkron.attributes import attribute
from batchkron.errors import PointValueError
from batchkron.storage import Checkpoint

from ...preconditioners import NamedPreconditioner
from ...products import Ranks, ranks_of_problem, sum_over
from ...protocols import TimeProblem
from ...steppers.default_preconditioner import DefaultPreconditioner
from ...steppers.registry import get, names
from ...steppers.stepper import Stepper, refuse_limiter
from .arguments import (
    Tolerances,
    as_tolerances,
    check_interval,
    fewest_steps,
    finite_number,
    found_step_text,
    initial_state,
    is_step_of,
    last_step_of,
    positive_step,
    refuse_unsuited_step,
    setting,
    step_suits,
    suggests_step,
    time_grid,
    with_size_of_rise,
)
from .resume import read_checkpoint, refuse_mismatch

__all__ = [
    "Integration",
    "moved_integration",
    "plan_integration",
    "stepper_factory",
]

# Share of the interval that is assumed for a first step that is not chosen yet; chosen by hand.
_SHORT = 1e-3


@dataclass(frozen=True, eq=False)
class Integration:
    """The integration of u' = f(t, u) from the state ``u`` to the time ``until``.

    ``method``: the stepper's class.
    ``t0``, ``until``, ``dt``: the first time, the last one and the step, in the problem's unit of
      time. With ``tolerances``, dt is the first step to try, or 0 if the run should choose it.
    ``last_step``: number of steps from t0 to until; 0 with ``tolerances``.
    ``u`` (ndarray, shape (N,)): the state at ``first_step``; a new array. With a grid in
      ``resumed`` it is on that grid.
    ``first_step``: 0, or the step of the checkpoint from which the run continues.
    ``tolerances``: tolerances of adaptive steps; None for equal steps.
    ``resumed``: the checkpoint; None if the run does not continue one.
    ``origin``: the step and the time from which equal steps are counted, if the step was changed
      there; None stands for step 0 at t0.
    ``ranks``: the ranks that share the state, of which u is this one's block; None if u is all of
      it.
    ``note``: what the result has to say about a step that nobody has given.
    """

    problem: TimeProblem
    method: type[Stepper]
    t0: float
    until: float
    dt: float
    last_step: int
    u: NDArray[Any] = field(repr=False)
    first_step: int = 0
    tolerances: Tolerances | None = None
    resumed: Checkpoint | None = None
    origin: tuple[int, float] | None = None
    ranks: Ranks | None = None
    note: str = ""

    @property
    def unknowns(self) -> int:
        """The number of unknowns, on all ranks, which ask for it at the same time."""
        own: int = self.u.size
        return own if self.ranks is None else int(sum_over(self.ranks, np.array([own]))[0])

    def time(self, step: int) -> float:
        """Return t0 + step · dt, and exactly ``until`` for the last step."""
        if step == self.last_step:
            return self.until
        if self.origin is None:
            return self.t0 + step * self.dt
        first, begin = self.origin
        return begin + (step - first) * self.dt

    def with_longest_step(self, dt: float, step: int, t: float) -> Integration:
        """Return the integration with equal steps of at most dt from ``step`` at time t on."""
        steps, dt = fewest_steps(t, self.until, dt)
        return replace(self, dt=dt, last_step=step + steps, origin=(step, t))

    @property
    def begin(self) -> float:
        """The time of ``u``."""
        if self.tolerances is None:
            return self.time(self.first_step)
        time = None if self.resumed is None else self.resumed.time
        return self.t0 if time is None else time

    @property
    def trial_dt(self) -> float:
        """The step; for adaptive steps a guess of the first one. Never 0."""
        return self.dt or _SHORT * (self.until - self.t0) or 1.0

    @property
    def first_end(self) -> float:
        """The end of the first step; for adaptive steps a guess, not beyond ``until``."""
        if self.tolerances is None:
            return self.time(min(self.first_step + 1, self.last_step))
        length = self.until - self.begin
        return self.begin + min(self.dt or _SHORT * length, length)

    @property
    def memory(self) -> tuple[list[NDArray[Any]], list[float]] | None:
        """What a method needs of steps before a checkpoint: vectors as ``u``, and numbers."""
        if self.resumed is None or self.resumed.memory is None:
            return None
        given = self.resumed.memory.vectors
        problem: Any = self.problem
        blocks = given if self.ranks is None else [problem.scatter(vector) for vector in given]
        module = array_module(self.u)
        vectors = [module.array(vector, dtype=self.u.dtype) for vector in blocks]
        return vectors, self.resumed.memory.numbers.tolist()

    @property
    def is_done(self) -> bool:
        """Whether there is no step left to take."""
        if self.tolerances is None:
            return self.first_step >= self.last_step
        return self.begin >= self.until


def plan_integration(
    problem: Any,
    *,
    until: Any,
    method: Any = None,
    dt: Any = None,
    resume: str | os.PathLike[str] | Checkpoint | None = None,
    rtol: Any = None,
    atol: Any = None,
    adapts: bool = False,
    find_step: Callable[[Any, float, type[Stepper]], float | None] | None = None,
) -> Integration:
    """Check the arguments of an integration and compute its steps.

    ``problem``: with ``initial`` and ``rhs``.
    ``until``: the last time; by default the checkpoint's, else ``problem.stepper.until``.
    ``method``: the stepper's name; by default the checkpoint's, else ``problem.stepper.method``.
    ``dt``: the longest step; by default the checkpoint's, else ``problem.stepper.dt``. The latter
      is not used for an explicit method if the problem's default method is implicit, see
      ``find_step``.
    ``resume``: the checkpoint from which the run continues.
    ``rtol``, ``atol``: if one of them is given, steps are adaptive, and ``dt`` is the first one to
      try.
    ``adapts``: whether the grid of the run follows the solution.
    ``find_step``: ``find_step(problem, until, stepper)`` returns a step for an explicit method, or
      None, where the problem's default one is for an implicit method. Only it evaluates f.

    Returns the checked integration. Raises `ValueError` if a value is wrong, or the checkpoint
    belongs to another run. `TypeError` if an object has the wrong type, or an array the wrong
    dtype.
    """
    ranks = ranks_of_problem(problem)
    initial = initial_state(problem, ranks)
    t0 = finite_number("problem.t0", attribute(problem, "t0", 0.0))
    checkpoint = None if resume is None else read_checkpoint(resume)
    if until is None:
        until = setting(problem, None, "until") if checkpoint is None else checkpoint.until
    until = finite_number("until", until)
    if until < t0:
        raise ValueError(f"until is {until}; expected at least the problem's first time t0 = {t0}.")
    if dt is not None:
        dt = positive_step(dt)
    tolerances = as_tolerances(rtol, atol)
    if tolerances is not None and not isinstance(tolerances.atol, float):
        given = tolerances.atol
        if given.shape == attribute(problem, "state_shape"):
            given = given.reshape(-1)
        _refuse_tolerances_of_elements(problem, method, resume, given, initial)
        given = array_module(initial).asarray(given, dtype=initial.real.dtype)
        tolerances = replace(tolerances, atol=given)
    if checkpoint is not None:
        _refuse_other_grids(checkpoint, adapts)
        if tolerances is not None:
            tolerances = with_size_of_rise(tolerances, problem, initial, t0, until, ranks)
        return _resumed(problem, initial, ranks, checkpoint, t0, until, method, dt, tolerances)
    stepper = get(setting(problem, method, "method"))
    refuse_limiter(stepper, problem)
    if tolerances is not None:
        _refuse_without_estimate(stepper)
        check_interval(problem, t0, until)
        return Integration(
            problem,
            stepper,
            t0,
            until,
            dt or 0.0,
            0,
            initial,
            tolerances=with_size_of_rise(tolerances, problem, initial, t0, until, ranks),
            ranks=ranks,
        )
    if stepper.chooses_order:
        raise ValueError(
            f"method {stepper.name!r} chooses its order and its steps by their errors: give rtol "
            "or atol."
        )
    note = ""
    if dt is None and not (suggests_step(problem) and step_suits(problem, method)):
        dt = None if find_step is None else find_step(problem, until, stepper)
        if dt is None:
            refuse_unsuited_step(problem, method)
        else:
            note = found_step_text(problem, stepper.name)
    steps, dt = time_grid(t0, until, positive_step(setting(problem, dt, "dt")))
    check_interval(problem, t0, until)
    return Integration(problem, stepper, t0, until, dt, steps, initial, ranks=ranks, note=note)


def moved_integration(
    integration: Integration, problem: Any, *, own_step: bool, step: int = 0, t: float | None = None
) -> Integration:
    """Return an integration that continues with a problem on another grid.

    ``integration``: the integration so far.
    ``problem``: the problem on the new grid; its ``initial`` is the state.
    ``own_step``: whether equal steps are to be the problem's default ones. They are then counted
      from the last time at which their length changed.
    ``step``, ``t``: number of steps so far, and the time, by default t0.
    """
    u = initial_state(problem, integration.ranks)
    moved = replace(integration, problem=problem, u=u, first_step=step)
    if not own_step or integration.tolerances is not None:
        return moved
    default = positive_step(setting(problem, None, "dt"))
    if default == positive_step(setting(integration.problem, None, "dt")):
        return moved
    if t is None or step == 0:
        steps, dt = time_grid(integration.t0, integration.until, default)
        return replace(moved, dt=dt, last_step=steps)
    return moved.with_longest_step(default, step, t)


def stepper_factory(
    integration: Integration, solver: Any, preconditioner: Any
) -> Callable[[float], Stepper]:
    """Return a function ``make(dt)`` that returns a new stepper of the run's method."""
    problem, method = integration.problem, integration.method
    if method.implicit:
        make: Callable[..., Stepper] = method
        given, like, deal = preconditioner, integration.u, None
        if integration.ranks is not None:
            deal = attribute(problem, "distribute_preconditioner")
        adapts = integration.tolerances is not None
        chooses = given is None and method.preconditions and _takes_any(solver)
        if given is False:
            given = None
        elif integration.ranks is not None and isinstance(given, str):
            given = NamedPreconditioner(given, like.dtype, deal)
        elif integration.ranks is not None and deal is None:
            chooses = False

        def made(dt: float) -> Stepper:
            chosen = DefaultPreconditioner(like, deal, adapts) if chooses else given
            try:
                return make(problem, dt, t0=integration.t0, solver=solver, preconditioner=chosen)
            except PointValueError as error:
                raise PointValueError(
                    f"method {method.name!r} cannot begin: {error}. Newton's method needs the "
                    "derivative at the initial state; begin with another one, or take an explicit "
                    "or IMEX method"
                ) from error

        return made
    return partial(method, problem)


def _takes_any(solver: Any) -> bool:
    """Whether a solver takes a preconditioner of any kind; CG and MINRES want definite ones."""
    name = solver.get("name", "gmres") if isinstance(solver, Mapping) else solver
    return name is None or (isinstance(name, str) and name in ("gmres", "fgmres", "bicgstab"))


def _resumed(
    problem: Any,
    initial: NDArray[Any],
    ranks: Ranks | None,
    checkpoint: Checkpoint,
    t0: float,
    until: float,
    method: str | None,
    dt: float | None,
    tolerances: Tolerances | None,
) -> Integration:
    """Return the integration that continues a checkpoint; raise if that belongs to another run."""
    stepper = get(checkpoint.method if method is None else method)
    refuse_limiter(stepper, problem)
    unknowns = int(sum_over(ranks, np.array([initial.size]))[0])
    if checkpoint.grid is not None:
        unknowns = checkpoint.u.size
    refuse_mismatch(checkpoint, problem, initial, t0, stepper.name, unknowns)
    if (tolerances is None) != (checkpoint.time is None):
        kind = "chosen by their errors" if tolerances is None else "all equal"
        advice = "give its rtol or atol" if tolerances is None else "leave rtol and atol out"
        raise ValueError(
            f"The checkpoint was written by a run whose steps are {kind}; {advice} to go on "
            "with that, or start anew without resume."
        )
    if tolerances is None:
        first, begin = checkpoint.origin
        if dt is not None and not is_step_of(checkpoint.dt, begin, checkpoint.until, dt):
            raise ValueError(
                f"dt is {dt}, but the checkpoint was written by a run with dt = {checkpoint.dt}. "
                "Leave dt out to go on with that, or start anew without resume."
            )
        last_step = first + last_step_of(checkpoint.dt, begin, until, checkpoint.step - first)
    else:
        last_step = 0
        if until < checkpoint.t:
            raise ValueError(
                f"until is {until}, before the checkpoint's time {checkpoint.t}; expected that or "
                "a later one."
            )
    check_interval(problem, min(checkpoint.t, until), until)
    return Integration(
        problem=problem,
        method=stepper,
        t0=t0,
        until=until,
        dt=checkpoint.dt,
        last_step=last_step,
        u=array_module(initial).array(
            # ranks divide the state of a stored grid when the problem is on that grid
            checkpoint.u
            if ranks is None or checkpoint.grid is not None
            else problem.scatter(checkpoint.u),
            dtype=initial.dtype,
        ),
        first_step=checkpoint.step,
        origin=None if checkpoint.origin_step is None else checkpoint.origin,
        tolerances=tolerances,
        resumed=checkpoint,
        ranks=ranks,
    )


def _refuse_other_grids(checkpoint: Checkpoint, adapts: bool) -> None:
    """Raise if one of a checkpoint and its continuation has a grid that follows the solution."""
    if checkpoint.grid is not None and not adapts:
        raise ValueError(
            "The checkpoint was written by a run whose grid follows the solution; give its adapt "
            "to go on with that, or start anew without resume."
        )
    if checkpoint.grid is None and adapts:
        raise ValueError(
            "The checkpoint was written by a run whose grid does not change; leave adapt out to go "
            "on with that (or give adapt=False, where the problem has a rule), or start anew "
            "without resume."
        )


def _refuse_without_estimate(stepper: type[Stepper]) -> None:
    """Raise if tolerances are given for a method without an error estimate."""
    if stepper.error_order == 0:
        able = [name for name in names() if get(name).error_order]
        raise ValueError(
            f"method {stepper.name!r} does not estimate its error: give dt alone, without rtol and "
            "atol, or take 'dormand-prince', for stiff problems 'esdirk3' or 'bdf', or another one "
            f"of {', '.join(able)}."
        )


def _refuse_tolerances_of_elements(
    problem: Any, method: Any, resume: Any, atol: NDArray[Any], initial: NDArray[Any]
) -> None:
    """Raise ValueError if an array atol does not fit the state, or the method does not take it."""
    if atol.shape != initial.shape:
        raise ValueError(f"atol has shape {atol.shape}; expected a number or {initial.shape}.")
    if resume is None and not get(setting(problem, method, "method")).chooses_order:
        able = [name for name in names() if get(name).chooses_order]
        raise ValueError(
            f"atol is an array, which only {', '.join(able)} takes; give a number to other methods."
        )
