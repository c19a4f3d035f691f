"""`batchkron info` and `batchkron check`: the content of a file, and whether it is valid."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchkron.cli.arguments.name_types import GALLERY_NAME, PROBLEM
from batchkron.cli.arguments.problem import chosen_problem
from batchkron.cli.arguments.similar_names import did_you_mean
from batchkron.cli.exit_codes import ExitCode
from batchkron.cli.failure import CommandError, usage_errors
from batchkron.cli.output.text import one_line, printable, table
from batchkron.errors import ProblemFileError

if TYPE_CHECKING:
    from batchkron.problems import LinearProblem, Problem
    from batchkron.problems.gallery import GalleryEntry
    from batchkron.storage import Checkpoint, ResultFile

__all__ = ["check", "info"]

_KINDS = {
    "Problem": "problem",
    "LinearProblem": "problem",
    "ResultFile": "result",
    "Checkpoint": "checkpoint",
}


@click.command()
@click.argument("file", metavar="FILE-or-NAME", type=PROBLEM)
@click.option("--json", "as_json", is_flag=True, help="Print the rows as one JSON object.")
def info(file: str, as_json: bool) -> None:
    """Describe a problem, result or checkpoint file, or a problem of the gallery.

    Of a problem of the gallery it shows the parameters, which this command, "run", "make" and
    others take as NAME:parameter=value.
    """
    # what computes is loaded here, so that help and completion need not wait for it
    from batchkron.backends import warn_of_missing_kernels
    from batchkron.cli.output.describe_file import describe_file
    from batchkron.problems import gallery

    names = GALLERY_NAME.names()
    if file.partition(":")[0] in names:
        chosen = chosen_problem(file, None, None, None)
        with usage_errors():
            entry = gallery.get(chosen.word)
            if chosen.settings:
                entry.pde_with(chosen.settings)  # raises for values out of range
        rows: Iterable[tuple[str, Any]] = _entry_rows(entry, chosen.settings)
    else:
        _check_there(Path(file), names)
        rows = describe_file(Path(file), _load(Path(file)))
    if as_json:
        click.echo(json.dumps(_values(rows), allow_nan=False))
    else:
        click.echo(table((name, _text(value)) for name, value in rows))
    warn_of_missing_kernels()


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as one JSON object.")
def check(file: Path, as_json: bool) -> ExitCode:
    """Verify a file from an untrusted source.

    The whole file is read and compared with its checksums and its hash. The exit status is 0 if the
    file is sound, and 1 otherwise.
    """
    _check_there(file)
    kind, fault = None, None
    try:
        kind = _KINDS[type(_load(file)).__name__]
    except (ProblemFileError, OSError) as error:
        fault = one_line(str(error))
    if as_json:
        verdict = {"file": str(file), "sound": fault is None, "kind": kind, "fault": fault}
        click.echo(json.dumps(verdict))
    elif fault is None:
        click.echo(printable(f"sound: {file} is a {kind} file"))
    else:
        click.echo(f"not sound: {fault}")
    return ExitCode.DONE if fault is None else ExitCode.FAILED_CHECK


def _check_there(file: Path, names: Iterable[str] = ()) -> None:
    if not file.exists():
        what = "a file of batchkron, or a name of the gallery" if names else "a file of batchkron"
        raise CommandError(
            f"{file} does not exist; expected {what}.{did_you_mean(str(file), names)}"
        )


def _load(file: Path) -> Problem | LinearProblem | ResultFile | Checkpoint:
    """Load a file of any kind with all checks, and no other file in place of a damaged one."""
    from batchkron.problems import load_problem
    from batchkron.storage import identify, load_checkpoint, load_result

    kind = identify(file)
    if kind == "batchkron-problem":
        problem: Problem | LinearProblem = load_problem(file)
        return problem
    if kind == "batchkron-result":
        return load_result(file)
    return load_checkpoint(file, previous=False)


def _entry_rows(entry: GalleryEntry, given: dict[str, float]) -> Iterator[tuple[str, Any]]:
    """Yield the rows of a problem of the gallery, with given parameters; numbers are numbers."""
    yield "name", entry.name
    yield "equation", entry.equation
    yield "exact solution", entry.solution
    yield "parameters", {**entry.parameters, **given}
    yield "ranges", {name: list(bounds) for name, bounds in entry.ranges.items()}
    yield "level", entry.level
    yield "degree", entry.degree
    yield "stepper", entry.method
    yield "until", entry.until


def _text(value: Any) -> str:
    """Return a value of a row as a text."""
    if isinstance(value, dict):
        shown = (
            f"{name} from {one[0]:g} to {one[1]:g}" if isinstance(one, list) else f"{name}={one:g}"
            for name, one in value.items()
        )
        return ", ".join(shown) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _values(rows: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return rows as JSON has them: a row that occurs twice has a list of its texts."""
    found: dict[str, Any] = {}
    for name, value in rows:
        key = name.replace(" ", "_")
        if key in found:
            before = found[key] if isinstance(found[key], list) else [found[key]]
            found[key] = [*before, value]
        else:
            found[key] = value
    return found
