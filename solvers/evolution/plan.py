"""Checks and choices before a run: what ranks refuse, its solver, its steppers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ..preconditioners import NamedPreconditioner
from ..steppers.default_preconditioner import DefaultPreconditioner
from ..steppers.registry import get, names
from ..steppers.stepper import Stepper
from .observation.observers import Quantity
from .start.integration import Integration

__all__ = ["refuse_for_ranks", "refuse_solver", "stepper_factory"]


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
    return partial(method, problem)


def _takes_any(solver: Any) -> bool:
    """Whether a solver takes a preconditioner of any kind; CG and MINRES want definite ones."""
    name = solver.get("name", "gmres") if isinstance(solver, Mapping) else solver
    return name is None or (isinstance(name, str) and name in ("gmres", "fgmres", "bicgstab"))
