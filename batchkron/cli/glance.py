"""What `batchkron info` shows of each kind of file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import singledispatch
from pathlib import Path
from typing import Any

import numpy as np

from batchkron.cli.gallery import added_cells
from batchkron.cli.text import number, plural
from batchkron.problems import ExactSolution, ModeOperator, Problem, SparseGrid
from batchkron.storage import Checkpoint, ResultFile, read_file
from batchkron.storage.schema import json_of

__all__ = ["glance"]

_TERMS_SHOWN = 12
Rows = Iterator[tuple[str, str]]


def glance(path: Path, content: Problem | ResultFile | Checkpoint) -> Rows:
    """Describe a file in rows of a name and a text.

    Parameters
    ----------
    path : Path
        The file, read once more for what it says about its own writing.
    content : Problem, ResultFile or Checkpoint
        What it holds.

    Yields
    ------
    tuple of (str, str)
    """
    document = read_file(path, None)
    yield "file", f"{path}, a {str(document.attributes['format']).removeprefix('batchkron-')}"
    yield from _rows(content)
    yield "written", _join(json_of(document, "provenance/file", dict))
    yield "content hash", str(document.attributes["content_hash"])


@singledispatch
def _rows(content: Any) -> Rows:
    raise TypeError(f"no description of a {type(content).__name__}")


@_rows.register
def _(content: Problem) -> Rows:
    problem = content
    yield "name", problem.name
    yield (
        "axes",
        "\n".join(
            f"{axis.name} from {axis.lower:.6g} to {axis.upper:.6g}{_unit(problem, axis.name)}"
            for axis in problem.axes
        ),
    )
    yield "grid", _describe_grid(problem.grid)
    yield from added_cells(problem)
    yield "degree", str(problem.degree)
    yield "unknowns", str(problem.unknowns)
    yield "terms", _describe_terms(problem)
    yield "sources", _describe_sources(problem)
    yield "initial state", _describe_state(problem.initial)
    yield "exact solution", _describe_exact(problem)
    stepper = problem.stepper
    yield "time", f"from {problem.t0:.6g} to {stepper.until:.6g}{_unit(problem, 't')}"
    yield "stepper", f"{stepper.method}, dt = {number(stepper.dt)}"
    if problem.provenance:
        yield "provenance", _join(problem.provenance)


@_rows.register
def _(content: ResultFile) -> Rows:
    yield "problem", content.problem_name
    yield "problem hash", content.problem_hash
    yield "unknowns", str(content.u.size)
    yield "status", content.status
    yield "time", number(content.t, 10)
    yield "steps", f"{content.steps} of dt = {number(content.dt)}"
    yield "stepper", content.method
    yield "L2 error", number(content.l2_error)
    yield "relative error", number(content.relative_error)
    yield "state", _describe_state(content.u)
    yield "history", plural(len(content.history), "record")


@_rows.register
def _(content: Checkpoint) -> Rows:
    yield "problem hash", content.problem_hash
    yield "unknowns", str(content.u.size)
    yield "time", f"{number(content.t, 10)}, the run is to end at {number(content.until, 10)}"
    yield "steps", f"{content.step} of dt = {number(content.dt)}"
    yield "stepper", content.method
    yield (
        "surroundings",
        f"batchkron {content.version}, {plural(content.threads, 'thread')}, "
        f"{content.instruction_set}, {content.dtype}",
    )
    yield "state", _describe_state(content.u)
    yield "history", plural(len(content.history), "record")


def _unit(problem: Problem, quantity: str) -> str:
    unit = problem.units.get(quantity)
    return f" {unit}" if unit else ""


def _join(values: Mapping[str, Any]) -> str:
    return "\n".join(
        f"{name}: {value if isinstance(value, str) else json.dumps(value)}"
        for name, value in values.items()
    )


def _describe_grid(grid: SparseGrid) -> str:
    levels = ", ".join(map(str, grid.levels))
    return f"{grid.kind}, finest levels {levels}, {plural(grid.num_cells, 'cell')}"


def _describe_terms(problem: Problem) -> str:
    """Say how many terms there are, and which axes each acts on."""
    lines = [f"{len(problem.terms)}, {'constant' if problem.is_constant else 'varying'} in time"]
    for term in problem.terms[:_TERMS_SHOWN]:
        steady = "" if term.time.is_constant else ", varying in time"
        lines.append(f"{_describe_modes(problem, term.modes)}{steady}")
    if len(problem.terms) > _TERMS_SHOWN:
        lines.append(f"… and {len(problem.terms) - _TERMS_SHOWN} more")
    return "\n".join(lines)


def _describe_modes(problem: Problem, modes: Sequence[ModeOperator | None]) -> str:
    acting = [
        f"{axis.name} ({plural(mode.rows.size, 'block')})"
        for axis, mode in zip(problem.axes, modes, strict=True)
        if mode is not None
    ]
    return f"acts on {', '.join(acting)}" if acting else "the identity"


def _describe_sources(problem: Problem) -> str:
    if not problem.sources:
        return "none"
    steady = all(source.time.is_constant for source in problem.sources)
    return f"{len(problem.sources)}, {'constant' if steady else 'varying'} in time"


def _describe_exact(problem: Problem) -> str:
    if not isinstance(problem.exact, ExactSolution):
        return "not known"
    return f"known, {plural(len(problem.exact.parts), 'separable part')}"


def _describe_state(u: np.ndarray[Any, np.dtype[np.float64]]) -> str:
    return f"‖u‖₂ = {number(float(np.linalg.norm(u)))}"
