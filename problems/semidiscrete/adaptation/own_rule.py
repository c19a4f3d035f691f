"""A problem with a rule of its own by which its grid follows the solution."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from batchkron.attributes import attribute, has_attribute

from ...discretization.parts import AdaptSettings
from ...grids.refinement import finest_levels
from ...grids.sparse_grid import SparseGrid
from ...statement.axis import Axis

__all__ = ["with_rule"]


def with_rule(problem: Any, rule: Any) -> Any:
    """Return a problem with a rule, on the grid of its initial state; see `Problem.with_adapt`."""
    if not has_attribute(rule, "tol"):
        raise TypeError(f"rule is a {type(rule).__name__}; expected an Adapt, as in Adapt(1e-4)")
    fields = attribute(rule, "fields", ())
    has_fields = not isinstance(fields, (tuple, list)) or bool(fields)
    if has_fields or not (rule.weight is None or isinstance(rule.weight, str)):
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
    limits = adaptive.limits
    steps = _steps(problem, limits)
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
        steps=steps,
    )
    step = settings.step(finest_levels(started.grid.cells))
    stepper = started.stepper if step is None else replace(started.stepper, dt=step)
    return replace(started, adapt=settings, stepper=stepper)


def _steps(problem: Any, limits: tuple[int, ...]) -> tuple[float, ...]:
    """Return the default steps for cells up to the largest levels, and up to each coarser ones."""
    if not problem.knows_other_levels:
        own = problem.adapt
        return () if own is None or own.max_level != limits else tuple(own.steps)
    found = []
    for coarser in range(max(limits) + 1):
        levels = [max(0, level - coarser) for level in limits]
        found.append(problem.other_levels.stepper(levels).dt)
    return tuple(found) if len(set(found)) > 1 else ()


def _names(keep: Iterable[Axis | str] | Axis | str) -> tuple[str, ...]:
    given = (keep,) if isinstance(keep, (Axis, str)) else tuple(keep)
    return tuple(axis if isinstance(axis, str) else axis.name for axis in given)
