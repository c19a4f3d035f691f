"""Texts that describe a problem: four lines for its repr, a table for `Problem.describe`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from batchkron.attributes import attribute

from ..discretization.fields.derivatives import FieldDerivative
from ..discretization.fields.modes import FieldMode
from ..discretization.matrices.mode_operator import ModeOperator
from ..discretization.parts import AdaptSettings
from ..grids.degrees import degree_text
from ..grids.sparse_grid import grid_text
from ..statement.text import axes_text, count, named_values, size_of_state
from .value import ProblemValue

__all__ = ["problem_rows", "problem_text"]

_TERMS_SHOWN = 12  # number of terms that a description lists; it counts the others


def problem_text(problem: ProblemValue) -> str:
    """Return a problem's size and settings in four lines."""
    stepper = problem.stepper
    at_points = len(problem.pointwise)
    functions = f" and {count(at_points, 'function')} of the state" if at_points else ""
    if problem.electric:
        forces = sum(len(own.terms) for own in problem.electric)
        functions += f" and {forces} with an electric field"
    terms = f"{count(len(problem.terms), 'term')}{functions}, {_steadiness(problem.is_constant)}"
    exact = "not known" if problem.exact is None else "known"
    return "\n".join(
        [
            f"Problem {problem.name!r}: {count(problem.unknowns, 'unknown')}, degree "
            f"{_degree_text(problem)}, grid {grid_text(problem.grid)}",
            f"  {axes_text(problem.axes)}",
            f"  {terms}; sources: {_sources_text(problem)}; exact solution: {exact}",
            f"  {stepper.method}, dt = {stepper.dt:.4g}, from {problem.t0:.6g} to "
            f"{stepper.until:.6g}; operators: {problem.form} on {problem.device}",
        ]
    )


def problem_rows(problem: ProblemValue) -> Iterator[tuple[str, str]]:
    """Yield the rows of a table that describes a problem: a name, and a text of some lines."""
    yield "name", problem.name
    yield (
        "axes",
        "\n".join(
            f"{axis.name} from {axis.lower:.6g} to {axis.upper:.6g}{_unit(problem, axis.name)}"
            for axis in problem.axes
        ),
    )
    yield "grid", grid_text(problem.grid)
    yield "degree", _degree_text(problem)
    yield "unknowns", str(problem.unknowns)
    yield "terms", _terms_text(problem)
    yield "sources", _sources_text(problem)
    yield "initial state", size_of_state(problem.initial)
    yield "exact solution", _exact_text(problem)
    stepper = problem.stepper
    yield "time", f"from {problem.t0:.6g} to {stepper.until:.6g}{_unit(problem, 't')}"
    yield "stepper", f"{stepper.method}, dt = {stepper.dt:.4g}"
    if problem.adapt is not None:
        yield "grid follows", _adapt_text(problem.adapt)
    if problem.provenance:
        yield "provenance", named_values(problem.provenance)


def _degree_text(problem: ProblemValue) -> str:
    return degree_text(problem.degree, [axis.name for axis in problem.axes])


def _adapt_text(adapt: AdaptSettings) -> str:
    """Return the rule by which the grid follows the solution."""
    parts = [f"tolerance {adapt.tol:.4g}{' of the norm' if adapt.relative else ''}"]
    parts.append(f"every {count(adapt.every, 'step')}")
    parts.append(f"finest levels {', '.join(map(str, adapt.max_level))}")
    if adapt.horizon is not None:
        parts.append(f"horizon {adapt.horizon:.4g}")
    if adapt.keep:
        parts.append(f"keeps {', '.join(adapt.keep)}")
    if adapt.weight is not None:
        parts.append(f"weight {adapt.weight}")
    return "; ".join(parts)


def _unit(problem: ProblemValue, quantity: str) -> str:
    unit = problem.units.get(quantity)
    return f" {unit}" if unit else ""


def _steadiness(is_constant: bool) -> str:
    return "constant in time" if is_constant else "varying in time"


def _terms_text(problem: ProblemValue) -> str:
    """Return the number of terms, and a line for each with the axes that it acts on."""
    lines = [f"{len(problem.terms)}, {_steadiness(problem.is_constant)}"]
    for term in problem.terms[:_TERMS_SHOWN]:
        steady = "" if term.time.is_constant else ", varying in time"
        lines.append(f"{_modes_text(problem, term.modes)}{steady}")
    for operator in problem.pointwise:
        text = operator.function.text or "a Python function"
        lines.append(f"{count(len(operator.terms), 'term')} of the state at points: {text}")
    for own in problem.electric:
        lines += [f"{_modes_text(problem, term.modes)}, times {own.text()}" for term in own.terms]
    if len(problem.terms) > _TERMS_SHOWN:
        lines.append(f"… and {len(problem.terms) - _TERMS_SHOWN} more")
    return "\n".join(lines)


def _modes_text(problem: ProblemValue, modes: Sequence[ModeOperator | FieldMode | None]) -> str:
    acting = [
        f"{axis.name} ({_mode_text(mode)})"
        for axis, mode in zip(problem.axes, modes, strict=True)
        if mode is not None
    ]
    return f"acts on {', '.join(acting)}" if acting else "the identity"


def _mode_text(mode: ModeOperator | FieldMode) -> str:
    if isinstance(mode, FieldDerivative):
        return mode.text()
    if isinstance(mode, FieldMode):
        part = {1: "positive part of ", -1: "negative part of ", 0: ""}[mode.part]
        return part + mode.field.text()
    return count(mode.rows.size, "block")


def _sources_text(problem: ProblemValue) -> str:
    functions = *problem.source_functions, *(edge.function for edge in problem.edge_functions)
    number = len(problem.sources) + len(functions)
    if not number:
        return "none"
    steady = all(source.time.is_constant for source in problem.sources)
    steady = steady and not any(function.in_time for function in functions)
    return f"{number}, {_steadiness(steady)}"


def _exact_text(problem: ProblemValue) -> str:
    if problem.exact is None:
        return "not known"
    parts = attribute(problem.exact, "parts")
    return "known, a function" if parts is None else f"known, {count(len(parts), 'separable part')}"
