"""What grids, terms, PDEs and problems say of themselves."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .axis import Axis
from .number_checks import is_number
from .time_functions import TimeFunction

if TYPE_CHECKING:
    from ..discretization.mode_operator import ModeOperator
    from ..grids.sparse_grid import SparseGrid
    from ..pde import PDE
    from ..semidiscrete.problem import Problem
    from .terms import Term, TermFactor

__all__ = [
    "axes_text",
    "count",
    "grid_text",
    "named_values",
    "pde_text",
    "problem_rows",
    "problem_text",
    "rows_text",
    "size_of_state",
    "term_text",
    "time_text",
]

_TERMS_SHOWN = 12  # of a description
_TERMS_OF_REPR = 4
_MAX_LENGTH = 60  # characters of what may be a table


def count(number: int, noun: str) -> str:
    """Return "1 cell", "2 cells"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def axes_text(axes: Sequence[Axis]) -> str:
    """Return the axes with their intervals, in a line."""
    return ", ".join(f"{axis.name} in [{axis.lower:.6g}, {axis.upper:.6g}]" for axis in axes)


def time_text(function: TimeFunction) -> str:
    """Return a function of time in a line."""
    return _shortened(function)


def _shortened(value: object) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= _MAX_LENGTH else f"{text[:_MAX_LENGTH]}…"


def term_text(term: Term) -> str:
    """Return a term as one would write it, in a line."""
    front = [] if term.scale == 1.0 else [f"{term.scale:.6g}"]
    if not term.time.is_constant:
        front.append(time_text(term.time))
    elif (value := term.time(0.0)) != 1.0:
        front.append(f"{value:.6g}")
    return " * ".join([*front, " @ ".join(_factor_text(factor) for factor in term.factors)])


def _factor_text(factor: TermFactor) -> str:
    words = [factor.axis.name]
    g = factor.coefficient
    if is_number(g):
        words += [f"{g:.6g}"] * (g != 1.0)
    else:
        words.append(getattr(g, "__name__", type(g).__name__))
    if factor.flux not in (None, "upwind"):
        words.append(f"flux={factor.flux!r}")
    if factor.boundary is not None:
        words.append(f"boundary={_ends_text(factor.boundary)!r}")
    return f"{factor.kind}({', '.join(words)})"


def _ends_text(ends: Sequence[object]) -> str:
    """Return the kinds of condition at the two ends of an axis."""
    return " and ".join(dict.fromkeys(type(condition).__name__ for condition in ends))


def pde_text(pde: PDE) -> str:
    """Return what a PDE states, up to eight lines."""
    ends = ", ".join(f"{axis.name} {_ends_text(both)}" for axis, both in pde.boundary.items())
    terms = [term_text(term) for term in pde.terms[:_TERMS_OF_REPR]]
    if len(pde.terms) > _TERMS_OF_REPR:
        terms.append(f"… {count(len(pde.terms) - _TERMS_OF_REPR, 'more term')}")
    sources = pde.sources if isinstance(pde.sources, str) else str(len(pde.sources))
    known = "known" if pde.exact or pde.exact_function is not None else "not known"
    return "\n".join(
        [
            f"PDE {pde.name!r}: {axes_text(pde.axes)}",
            f"  boundary: {ends}",
            "  f_t = " + "\n        + ".join(terms or ["0"]),
            f"  sources: {sources}; exact solution: {known}; t0 = {pde.t0:.6g}",
        ]
    )


def grid_text(grid: SparseGrid) -> str:
    """Return kind, finest levels and number of cells of a grid, in a line."""
    levels = ", ".join(map(str, grid.levels))
    return f"{grid.kind}, finest levels {levels}, {count(grid.num_cells, 'cell')}"


def problem_text(problem: Problem) -> str:
    """Return a problem's size and settings in four lines."""
    stepper = problem.stepper
    terms = f"{count(len(problem.terms), 'term')}, {_steadiness(problem.is_constant)}"
    exact = "not known" if problem.exact is None else "known"
    return "\n".join(
        [
            f"Problem {problem.name!r}: {count(problem.unknowns, 'unknown')}, degree "
            f"{problem.degree}, grid {grid_text(problem.grid)}",
            f"  {axes_text(problem.axes)}",
            f"  {terms}; sources: {_sources_text(problem)}; exact solution: {exact}",
            f"  {stepper.method}, dt = {stepper.dt:.4g}, from {problem.t0:.6g} to "
            f"{stepper.until:.6g}; operators: {problem.form} on {problem.device}",
        ]
    )


def problem_rows(problem: Problem) -> Iterator[tuple[str, str]]:
    """Describe a problem in rows of a name and a text of one or more lines.

    Parameters
    ----------
    problem : Problem

    Yields
    ------
    tuple of (str, str)
    """
    yield "name", problem.name
    yield (
        "axes",
        "\n".join(
            f"{axis.name} from {axis.lower:.6g} to {axis.upper:.6g}{_unit(problem, axis.name)}"
            for axis in problem.axes
        ),
    )
    yield "grid", grid_text(problem.grid)
    yield "degree", str(problem.degree)
    yield "unknowns", str(problem.unknowns)
    yield "terms", _terms_text(problem)
    yield "sources", _sources_text(problem)
    yield "initial state", size_of_state(problem.initial)
    yield "exact solution", _exact_text(problem)
    stepper = problem.stepper
    yield "time", f"from {problem.t0:.6g} to {stepper.until:.6g}{_unit(problem, 't')}"
    yield "stepper", f"{stepper.method}, dt = {stepper.dt:.4g}"
    if problem.provenance:
        yield "provenance", named_values(problem.provenance)


def rows_text(rows: Sequence[tuple[str, str]]) -> str:
    """Lay out rows of a name and a text, the texts beginning in one column."""
    width = max(len(name) for name, _ in rows) + 2
    return "\n".join(
        f"{name:<{width}}" + text.replace("\n", "\n" + " " * width) for name, text in rows
    )


def named_values(values: Mapping[str, Any]) -> str:
    """Return names and values, one in a line."""
    return "\n".join(f"{name}: {_value_text(value)}" for name, value in values.items())


def _value_text(value: object) -> str:
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value)
    except (TypeError, ValueError):  # anything may be given; only saving it asks for JSON data
        return _shortened(value)


def size_of_state(u: NDArray[np.float64]) -> str:
    """Return the norm of a state's coefficients."""
    return f"‖u‖₂ = {float(np.linalg.norm(u)):.4g}"


def _unit(problem: Problem, quantity: str) -> str:
    unit = problem.units.get(quantity)
    return f" {unit}" if unit else ""


def _steadiness(is_constant: bool) -> str:
    return "constant in time" if is_constant else "varying in time"


def _terms_text(problem: Problem) -> str:
    """Say how many terms there are, and which axes each acts on."""
    lines = [f"{len(problem.terms)}, {_steadiness(problem.is_constant)}"]
    for term in problem.terms[:_TERMS_SHOWN]:
        steady = "" if term.time.is_constant else ", varying in time"
        lines.append(f"{_modes_text(problem, term.modes)}{steady}")
    if len(problem.terms) > _TERMS_SHOWN:
        lines.append(f"… and {len(problem.terms) - _TERMS_SHOWN} more")
    return "\n".join(lines)


def _modes_text(problem: Problem, modes: Sequence[ModeOperator | None]) -> str:
    acting = [
        f"{axis.name} ({count(mode.rows.size, 'block')})"
        for axis, mode in zip(problem.axes, modes, strict=True)
        if mode is not None
    ]
    return f"acts on {', '.join(acting)}" if acting else "the identity"


def _sources_text(problem: Problem) -> str:
    if not problem.sources:
        return "none"
    steady = all(source.time.is_constant for source in problem.sources)
    return f"{len(problem.sources)}, {_steadiness(steady)}"


def _exact_text(problem: Problem) -> str:
    if problem.exact is None:
        return "not known"
    parts = getattr(problem.exact, "parts", None)
    return "known, a function" if parts is None else f"known, {count(len(parts), 'separable part')}"
