"""A problem with a rule of its own by which its grid follows the solution."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ..discretization.parts import AdaptSettings
from ..grids.sparse_grid import SparseGrid
from ..statement.axis import Axis

__all__ = ["with_rule"]


def with_rule(problem: Any, rule: Any) -> Any:
    """Return a problem with a rule, on the grid of its initial state; see `Problem.with_adapt`."""
    if not hasattr(rule, "tol"):
        raise TypeError(f"rule is a {type(rule).__name__}; expected an Adapt, as in Adapt(1e-4)")
    if rule.fields != () or not (rule.weight is None or isinstance(rule.weight, str)):
        raise ValueError(
            "the rule's weight is a function or a field, which a problem's file cannot hold; "
            "expected a text such as 'v^2' or 'field^2*v^2', or give the rule to each run, as in "
            "evolve(problem, adapt=rule)"
        )
    adaptive = problem.adaptive(
        tol=float(rule.tol),
        relative=bool(rule.relative),
        max_level=rule.max_level,
        keep=rule.keep,
        weight=rule.weight,
    )
    # Cells for the state alone, which only a problem that knows its PDE can project on them. A run
    # adds those for its rate of change, which begin at 0, itself.
    started = adaptive.started(0.0).problem
    limits = adaptive.rule.limits
    if limits != started.grid.levels:
        started = started.on_grid(SparseGrid.custom(started.grid.cells, limits))
    settings = AdaptSettings(
        tol=float(rule.tol),
        every=int(rule.every),
        horizon=rule.horizon,
        max_level=limits,
        keep=_names(rule.keep),
        weight=rule.weight,
        relative=bool(rule.relative),
    )
    return replace(started, adapt=settings)


def _names(keep: Iterable[Axis | str] | Axis | str) -> tuple[str, ...]:
    given = (keep,) if isinstance(keep, (Axis, str)) else tuple(keep)
    return tuple(axis if isinstance(axis, str) else axis.name for axis in given)
