"""The plan of a run: all arguments of `evolve`, checked before the run starts."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from batchkron.arrays import to_host
from batchkron.errors import NotPhysicalError
from batchkron.storage import Checkpoint

from ..krylov.vectors.ranks import ranks_of_problem
from ..preconditioners import NamedPreconditioner
from ..steppers.default_preconditioner import DefaultPreconditioner
from ..steppers.stepper import Stepper
from .adapt.adapt import adaptive_problem
from .adapt.follower import GridFollower
from .checkpoints import CheckpointFile, as_checkpoint_file
from .guards.step_doubling import StepDoubling, watched
from .observation.observers import Observer
from .on_ranks import refuse_method, refuse_options
from .operator_checks.linearity import refuse_nonlinear
from .operator_checks.stability import check_stability
from .operator_checks.suited_step import suited_step
from .result import EvolveState
from .start.arguments import initial_state
from .start.integration import Integration, moved_integration, plan_integration
from .start.provenance import problem_hash
from .start.resume import ResumeWarning

__all__ = ["GridPlan", "Plan", "plan_run"]


@dataclass(frozen=True, eq=False)
class Plan:
    """A checked run that can start.

    Parameters
    ----------
    integration : Integration
        The problem, the method, the initial state and the steps.
    stepper : Stepper
        The method with its workspace; for adaptive steps, built for a guess of the first one.
    observer : Observer
        The samples, events and conserved quantities to record.
    checkpoint_file : CheckpointFile
        The file of checkpoints, and how often they are written.
    callback : callable or None
        Called after each step.
    doubling : StepDoubling or None
        The guard that compares steps with half steps; None if the steps are known to be stable.
    grids : GridPlan or None
        How the grid follows the solution; None if it does not change.
    """

    integration: Integration
    stepper: Stepper
    observer: Observer
    checkpoint_file: CheckpointFile
    callback: Callable[[EvolveState], object] | None
    doubling: StepDoubling | None
    grids: GridPlan | None = None


@dataclass(frozen=True, eq=False)
class GridPlan:
    """How the grid of a run follows the solution.

    Parameters
    ----------
    follower : GridFollower
        Decides when the grid changes.
    make_stepper : callable
        ``make_stepper(integration)`` returns a function of dt that returns a stepper.
    own_step : bool
        Whether equal steps are the problem's default ones, which follow its grid.
    allow_unstable : bool
        Do not check the step of an explicit method after a change.
    problem_hash : str
        The identification of the problem on its own grid, for checkpoints.
    """

    follower: GridFollower
    make_stepper: Callable[[Integration], Callable[[float], Stepper]]
    own_step: bool
    allow_unstable: bool
    problem_hash: str


def plan_run(
    problem: Any,
    *,
    until: Any,
    method: Any,
    dt: Any,
    resume: str | os.PathLike[str] | Checkpoint | None,
    rtol: Any,
    atol: Any,
    solver: Any,
    preconditioner: Any,
    at: Sequence[float] | None,
    events: Sequence[Any] | Any,
    watch: Mapping[str, Any] | None,
    callback: Callable[[EvolveState], object] | None,
    checkpoint: str | os.PathLike[str] | None,
    checkpoint_every: Any,
    allow_unstable: bool,
    adapt: Any = None,
) -> Plan:
    """Check all arguments of a run, then f and A by a few products; return the plan.

    Parameters
    ----------
    problem : TimeProblem
        The problem.
    until, method, dt, resume, rtol, atol : object
        The integration; these and the following arguments are those of `evolve`.
    solver, preconditioner : object
        The linear solver of implicit methods.
    at, events, watch, callback : object
        Observations during the run.
    checkpoint, checkpoint_every : object
        The file of checkpoints, and how often they are written.
    allow_unstable : bool
        Do not check the step of an explicit method for stability.
    adapt : Adapt or None
        The rule by which the grid follows the solution.

    Returns
    -------
    Plan
        The checked run.

    Raises
    ------
    ValueError, TypeError, ProblemFileError
        As for `evolve`.

    Warns
    -----
    ResumeWarning
        If the checkpoint was written with another version, thread count or instruction set.
    """
    if ranks_of_problem(problem) is not None:
        refuse_options(
            problem,
            solver=solver,
            preconditioner=preconditioner,
            events=events,
            watch=watch,
            saves=checkpoint is not None or resume is not None,
        )
    integration = plan_integration(
        problem,
        until=until,
        method=method,
        dt=dt,
        resume=resume,
        rtol=rtol,
        atol=atol,
        adapts=adapt is not None,
        find_step=suited_step,
    )
    ranks = integration.ranks
    if ranks is not None:
        refuse_method(integration.method)
    _refuse_solver(integration.method, solver, preconditioner)
    observer = Observer(at, events, watch, (integration.t0, integration.until), ranks)
    resumed = integration.resumed
    on_other_grid = resumed is not None and resumed.grid is not None  # then u is the whole state
    unknowns = integration.u.size if on_other_grid else integration.unknowns
    checkpoint_file = as_checkpoint_file(
        checkpoint, checkpoint_every, integration.u, unknowns, ranks
    )
    if callback is not None and not callable(callback):
        raise TypeError(
            f"callback is a {type(callback).__name__}; expected a function callback(state)."
        )

    def factory(moved: Integration) -> Callable[[float], Stepper]:
        return _stepper_factory(moved, solver, preconditioner)

    grids = None
    if adapt is not None:
        _refuse_of_one_grid(observer, preconditioner)
        own_step = dt is None and not integration.note
        if integration.resumed is not None:
            own_step = integration.origin is not None
        identity = problem_hash(problem, initial_state(problem))
        follower, integration = _on_first_grid(integration, adapt, own_step=own_step)

        grids = GridPlan(follower, factory, own_step, allow_unstable, identity)
    refuse_nonlinear(integration)
    make_stepper = factory(integration)
    stepper = make_stepper(integration.trial_dt)
    needed = check_stability(integration, allow_unstable, factory)
    doubling = None if needed is None else watched(integration, make_stepper, needed.is_linear)
    if integration.resumed is not None:
        for text in integration.resumed.warnings:
            warnings.warn(text, ResumeWarning, stacklevel=3)
    return Plan(integration, stepper, observer, checkpoint_file, callback, doubling, grids)


def _on_first_grid(
    integration: Integration, adapt: Any, *, own_step: bool
) -> tuple[GridFollower, Integration]:
    """Return what decides about the grid, and the integration on the initial state's grid."""
    grid = adaptive_problem(integration.problem, adapt)
    length = integration.until - integration.t0
    resumed = integration.resumed
    if resumed is not None and resumed.grid is not None:
        grid = grid.restored(resumed.grid, to_host(integration.u, "u"), integration.begin)
        u = initial_state(grid.problem)
        moved = replace(integration, problem=grid.problem, u=u)
        return GridFollower(adapt, grid, length), moved
    interval = adapt.every * integration.trial_dt
    first, undefined = grid, None
    try:
        first = grid.started(adapt.horizon_of(length, min(interval, length)))
    except NotPhysicalError as error:
        undefined = error
    if own_step and integration.tolerances is None:
        integration = replace(integration, origin=(0, integration.t0))
    if first.problem is not integration.problem:
        integration = moved_integration(integration, first.problem, own_step=own_step)
    return GridFollower(adapt, first, length, undefined), integration


def _refuse_of_one_grid(observer: Observer, preconditioner: Any) -> None:
    """Raise if an argument belongs to one grid, in a run whose grid changes."""
    for name, quantity in observer.quantities.items():
        if not callable(quantity.measure) and not hasattr(quantity.measure, "for_problem"):
            raise TypeError(
                f"watch[{name!r}] has weights, which belong to one grid, and adapt changes the "
                "grid. Give Quantity.moment(problem, powers), a function measure(t, u), or an "
                "object with for_problem(problem), which returns the measure for another grid."
            )
    if hasattr(preconditioner, "shape"):
        raise TypeError(
            "preconditioner is an operator, which belongs to one grid, and adapt changes the grid. "
            "Give a name, or a function (A, c) -> M."
        )


def _refuse_solver(method: type[Stepper], solver: Any, preconditioner: Any) -> None:
    """Raise ValueError for a solver that a method does not use, or a name that is not known."""
    if not method.implicit and (solver is not None or preconditioner is not None):
        raise ValueError(
            f"method {method.name!r} is explicit and solves no system: leave solver and "
            "preconditioner out, or take an implicit method."
        )
    if isinstance(preconditioner, str):
        NamedPreconditioner(preconditioner)


def _stepper_factory(
    integration: Integration, solver: Any, preconditioner: Any
) -> Callable[[float], Stepper]:
    """Return a function ``make(dt)`` that returns a new stepper of the run's method."""
    problem, method = integration.problem, integration.method
    if method.implicit:
        make: Callable[..., Stepper] = method
        given, like, deal = preconditioner, integration.u, None
        if integration.ranks is not None:
            deal = getattr(problem, "distribute_preconditioner", None)
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
            return make(problem, dt, t0=integration.t0, solver=solver, preconditioner=chosen)

        return made
    return lambda dt: method(problem, dt)


def _takes_any(solver: Any) -> bool:
    """Whether a solver takes a preconditioner of any kind; CG and MINRES want definite ones."""
    name = solver.get("name", "gmres") if isinstance(solver, Mapping) else solver
    return name is None or (isinstance(name, str) and name in ("gmres", "fgmres", "bicgstab"))
