"""The rows that `batchkron info` prints for each kind of file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import singledispatch
from pathlib import Path
from typing import Any

from batchkron.analysis.recorded import recorded_in
from batchkron.cli.output.problem_size import added_cells, describe_size
from batchkron.cli.output.text import number, plural
from batchkron.problems import LinearProblem, Problem
from batchkron.problems.semidiscrete.description import problem_rows
from batchkron.problems.statement.text import named_values, size_of_state
from batchkron.storage import Checkpoint, ResultFile, StoredGrid, read_file
from batchkron.storage.schema import json_of

__all__ = ["describe_file"]

Rows = Iterator[tuple[str, str]]


def describe_file(path: Path, content: Problem | LinearProblem | ResultFile | Checkpoint) -> Rows:
    """Describe a file in rows of a name and a text.

    ``path``: the file; it is read again for the record of how it was written.
    ``content``: the loaded content of the file.
    """
    document = read_file(path, None)
    yield "file", f"{path}, a {str(document.attributes['format']).removeprefix('batchkron-')}"
    yield from _rows(content)
    if "provenance/file" in document.datasets:  # other programs need not write it
        yield "written", named_values(json_of(document, "provenance/file", dict))
    if isinstance(content, (Problem, LinearProblem)):
        yield (
            "content hash",
            str(content.content_hash),
        )  # the hash by which results refer to problems
    else:
        yield "content hash", str(document.attributes["content_hash"])


@singledispatch
def _rows(content: Any) -> Rows:
    raise TypeError(f"no description of a {type(content).__name__}")


@_rows.register
def _(content: Problem) -> Rows:
    for name, text in problem_rows(content):
        yield name, text
        if name == "grid":
            yield from added_cells(content)


@_rows.register
def _(content: LinearProblem) -> Rows:
    yield "size", describe_size(content)
    yield from content.rows()
    yield "state", size_of_state(content.initial)


@_rows.register
def _(content: ResultFile) -> Rows:
    yield "problem", content.problem_name
    yield "problem hash", content.problem_hash
    yield "unknowns", str(content.u.size)
    yield from _grid(content.grid)
    yield "status", content.status
    yield "time", number(content.t, 10)
    yield "steps", f"{content.steps} of dt = {number(content.dt)}"
    yield "stepper", content.method
    yield "L2 error", number(content.l2_error)
    yield "relative error", number(content.relative_error)
    yield "state", size_of_state(content.u)
    yield "history", plural(len(content.history), "record")
    yield from _recorded(content.history)


@_rows.register
def _(content: Checkpoint) -> Rows:
    yield "problem hash", content.problem_hash
    yield "unknowns", str(content.u.size)
    yield from _grid(content.grid)
    yield "time", f"{number(content.t, 10)}, the run is to end at {number(content.until, 10)}"
    yield "steps", f"{content.step} of dt = {number(content.dt)}"
    yield "stepper", content.method
    yield (
        "surroundings",
        f"batchkron {content.version}, {plural(content.threads, 'thread')}, "
        f"{content.instruction_set}, {content.dtype}",
    )
    yield "state", size_of_state(content.u)
    yield "history", plural(len(content.history), "record")
    yield from _recorded(content.history)


def _recorded(history: list[Any]) -> Rows:
    """Yield the names of the quantities that a run has recorded, if there are any."""
    with contextlib.suppress(ValueError):  # of a history that no run has written
        recorded = recorded_in(history)
        if recorded.names:
            yield "recorded", f"{', '.join(recorded.names)} at {len(recorded.t)} times"


def _grid(grid: StoredGrid | None) -> Rows:
    """Yield the row of a grid that has followed the solution."""
    if grid is not None:
        levels = ", ".join(map(str, grid.levels.tolist()))
        yield (
            "grid",
            f"{plural(len(grid.cells), 'cell')} that followed the solution, levels {levels}",
        )
