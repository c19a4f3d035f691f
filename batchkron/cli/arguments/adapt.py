"""The options of grids that follow the solution."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click

from batchkron.cli.arguments.parameters import levels, positive_number
from batchkron.cli.failure import CommandError, usage_errors

if TYPE_CHECKING:
    from batchkron.problems import LinearProblem, Problem
    from batchkron.solvers import Adapt

__all__ = ["AdaptRule", "adapt_options", "adapt_rule"]

AdaptRule: TypeAlias = Callable[[Any], "Adapt | None"]
"""Returns the rule by which the grid of a problem follows the solution; None for none."""

_Command = TypeVar("_Command", bound=Callable[..., Any])

# The other options by their names in `Adapt`, each with the word of the command line.
_OTHERS = {
    "every": "--adapt-every",
    "horizon": "--adapt-horizon",
    "max_level": "--max-level",
    "keep": "--adapt-keep",
    "weight": "--adapt-weight",
    "relative": "--adapt-relative",
}


def adapt_options(command: _Command) -> _Command:
    """Add the options of a grid that follows the solution to a command."""
    for decorator in reversed(
        [
            click.option(
                "--adapt-tol",
                "--adapt",
                "adapt_tol",
                type=float,
                callback=positive_number,
                metavar="TOL",
                help="Adapt the grid to the solution: refine cells whose part of the solution, or "
                "of its change, is larger than TOL.",
            ),
            click.option(
                "--adapt-every",
                "adapt_every",
                type=click.IntRange(min=1),
                metavar="STEPS",
                help="Number of steps between adaptations (default: 10).",
            ),
            click.option(
                "--adapt-horizon",
                "adapt_horizon",
                type=float,
                callback=positive_number,
                metavar="TIME",
                help="How far ahead in time changes count (default: a tenth of the run).",
            ),
            click.option(
                "--max-level",
                "adapt_max_level",
                callback=levels,
                metavar="LEVEL",
                help="Finest level of cells, one for all axes or l1,l2,… (default: three more than "
                "that of the problem).",
            ),
            click.option(
                "--adapt-keep",
                "adapt_keep",
                metavar="AXES",
                help="Axes, such as v or v1,v2. Cells with index 0 along all of them are never "
                "removed, so that adaptation does not change moments over these axes.",
            ),
            click.option(
                "--adapt-weight",
                "adapt_weight",
                metavar="POWERS",
                help="Multiply each cell's part by powers of axes and of the field of Poisson's "
                "equation, such as v^2 or field^2*v^2.",
            ),
            click.option(
                "--adapt-relative",
                "adapt_relative",
                is_flag=True,
                default=None,
                help="Make TOL relative to the norm of all cells' parts.",
            ),
        ]
    ):
        command = decorator(command)
    return command


def _rule(given: dict[str, Any], fixed: bool, problem: Problem | LinearProblem) -> Adapt | None:
    """Return the rule for a problem: its own, changed by given arguments; None for none.

    ``fixed`` says that the grid shall not change, whatever the problem's file says.

    Raises `CommandError` if options are given without a tolerance, or have a wrong value, or the
    problem is a batch list.
    """
    from batchkron.problems import LinearProblem
    from batchkron.solvers import Adapt
    from batchkron.solvers.evolution.adapt.adapt import as_rule

    if fixed:
        return None
    if given and isinstance(problem, LinearProblem):
        raise CommandError(
            f"{problem.name} is a batch list without a grid that could follow the solution; "
            f"leave {_word(given)} out."
        )
    own = as_rule(getattr(problem, "adapt", None))
    with usage_errors():
        if own is not None:
            return replace(own, **given)
        if not given:
            return None
        if "tol" in given:
            return Adapt(**given)
    raise CommandError(
        f"{_word(given)} is for grids that follow the solution; give their tolerance with "
        "--adapt-tol, too."
    )


def _word(given: dict[str, Any]) -> str:
    """Return the word of the command line for the first option that is given."""
    return {"tol": "--adapt-tol", **_OTHERS}[next(iter(given))]


def adapt_rule(options: dict[str, Any]) -> AdaptRule:
    """Return what gives a problem its rule as options say, and take them out of ``options``.

    Raises `CommandError` if --no-adapt is given with other options.
    """
    fixed = bool(options.pop("no_adapt", False))
    given = {name: options.pop(f"adapt_{name}") for name in ("tol", *_OTHERS)}
    given = {name: value for name, value in given.items() if value is not None}
    if fixed and given:
        raise CommandError(
            f"--no-adapt means that the grid does not change; leave {_word(given)} out."
        )
    if "keep" in given:
        given["keep"] = [name.strip() for name in given["keep"].split(",")]
    return partial(_rule, given, fixed)
