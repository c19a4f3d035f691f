"""Checks and choices before a run: its linear solver, its steppers, its first grid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from batchkron.arrays import to_host
from batchkron.errors import NotPhysicalError

from ..preconditioners import NamedPreconditioner
from ..steppers.default_preconditioner import DefaultPreconditioner
from ..steppers.stepper import Stepper
from .adapt.adapt import adaptive_problem
from .adapt.follower import GridFollower
from .observation.observers import Observer
from .start.arguments import initial_state
from .start.integration import Integration, moved_integration
from .start.provenance import problem_hash

__all__ = ["first_grid", "refuse_of_one_grid", "refuse_solver", "stepper_factory"]


def first_grid(
    integration: Integration, adapt: Any, *, follows_grid: bool
) -> tuple[GridFollower, Integration]:
    """Return what decides about the grid, and the integration on the grid of the first state.

    Parameters
    ----------
    integration : Integration
        The integration on the problem's own grid.
    adapt : Adapt
        The rule.
    follows_grid : bool
        Whether equal steps are the problem's default ones, which follow its finest cells.
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


def refuse_of_one_grid(observer: Observer, preconditioner: Any) -> None:
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


def refuse_solver(method: type[Stepper], solver: Any, preconditioner: Any) -> None:
    """Raise ValueError for a solver that a method does not use, or a name that is not known."""
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
