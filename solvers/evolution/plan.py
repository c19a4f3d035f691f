"""Checks and choices before a run: what ranks refuse, its solver, its steppers, its first grid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from batchkron.arrays import to_host
from batchkron.errors import NotPhysicalError

from ..preconditioners import NamedPreconditioner
from ..steppers.default_preconditioner import DefaultPreconditioner
from ..steppers.registry import get, names
from ..steppers.stepper import Stepper
from .adapt.adapt import adaptive_problem
from .adapt.follower import GridFollower
from .observation.observers import Observer, Quantity
from .start.arguments import initial_state
from .start.integration import Integration, moved_integration
from .start.provenance import problem_hash

__all__ = [
    "first_grid",
    "refuse_for_ranks",
    "refuse_of_one_grid",
    "refuse_solver",
    "stepper_factory",
]


def first_grid(
    integration: Integration, adapt: Any, *, follows_grid: bool
) -> tuple[GridFollower, Integration]:
    """Return what decides about the grid, and the integration on the grid of the first state.

    ``integration``: the integration on the problem's own grid.
    ``adapt``: the rule.
    ``follows_grid``: whether equal steps are the problem's default ones, which follow its finest
      cells.
    """
    problem, resumed = integration.problem, integration.resumed
    identity = problem_hash(problem, initial_state(problem))
    grid = adaptive_problem(problem, adapt)
    length = integration.until - integration.t0
    if resumed is not None:
        follows_grid = integration.origin is not None
    if resumed is not None and resumed.grid is not None:
        grid = grid.restored(resumed.grid, to_host(integration.u, "u"), integration.begin)
        integration = replace(integration, problem=grid.problem, u=initial_state(grid.problem))
        return GridFollower(adapt, grid, length, follows_grid, identity), integration
    interval = adapt.every * integration.trial_dt
    first, undefined = grid, None
    try:
        first = grid.started(adapt.horizon_of(length, min(interval, length)))
    except NotPhysicalError as error:
        undefined = error
    if follows_grid and integration.tolerances is None:
        integration = replace(integration, origin=(0, integration.t0))
    if first.problem is not problem:
        integration = moved_integration(integration, first.problem, own_step=follows_grid)
    return GridFollower(adapt, first, length, follows_grid, identity, undefined), integration


def refuse_of_one_grid(integration: Integration, observer: Observer, preconditioner: Any) -> None:
    """Raise if an argument belongs to one grid, in a run whose grid changes."""
    if integration.method.chooses_order:
        raise TypeError(
            f"method {integration.method.name!r} keeps differences of states, which belong to one "
            "grid, and adapt changes the grid. Give adapt=False, or take another method."
        )
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


def refuse_for_ranks(
    problem: Any, solver: Any, preconditioner: Any, events: Any, watch: Any, *, saves: bool
) -> None:
    """Raise TypeError for arguments that need the whole state, which ranks share.

    ``saves`` says whether checkpoints are read or written.
    """
    needed = ("gather", "scatter", "content_hash")
    missing = [name for name in needed if getattr(problem, name, None) is None]
    if saves and missing:
        raise TypeError(
            "checkpoints are files of whole states, and the problem, whose state is spread over "
            f"ranks, has no {missing[0]}; give it {', '.join(needed)}, or leave checkpoint and "
            "resume out."
        )
    if callable(solver):
        raise TypeError(
            "solver is a function, which would solve for each rank's block alone, and the problem "
            "is distributed; name one, such as 'gmres'."
        )
    if isinstance(preconditioner, str) and not hasattr(problem, "distribute_preconditioner"):
        raise TypeError(
            f"preconditioner is {preconditioner!r}, which is built from the whole operator, and "
            "the problem, whose state is spread over ranks, has no distribute_preconditioner(M, A) "
            "for it; leave it out, or give a distributed operator, one of this rank's block, or a "
            "function (A, c) -> M."
        )
    if callable(events) or len(events):
        raise TypeError(
            "events are functions of the whole state, and the problem is distributed: leave them "
            "out; a callback may gather the state and stop the run."
        )
    for name, given in dict(watch or {}).items():
        measure = given.measure if isinstance(given, Quantity) else given
        if callable(measure):
            raise TypeError(
                f"watch[{name!r}] is a function of the whole state, and the problem is "
                "distributed; give this rank's block of weights."
            )


def refuse_solver(integration: Integration, solver: Any, preconditioner: Any) -> None:
    """Raise for a solver that a method does not use or does not know, or a method not for ranks.

    Raises `ValueError` if the method solves no system, or the preconditioner's name is unknown.
    `TypeError` if steps of the method need the whole state, which ranks share.
    """
    method = integration.method
    if integration.ranks is not None and not method.works_on_ranks:
        able = [name for name in names() if get(name).works_on_ranks]
        raise TypeError(
            f"method {method.name!r} takes no steps of a state that is spread over ranks; take one "
            f"of {', '.join(able)}."
        )
    if not method.implicit and (solver is not None or preconditioner is not None):
        raise ValueError(
            f"method {method.name!r} is explicit and solves no system: leave solver and "
            "preconditioner out, or take an implicit method."
        )
    if isinstance(preconditioner, str):
        NamedPreconditioner(preconditioner)


def stepper_factory(
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
