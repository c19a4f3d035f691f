"""`batchkron info` and `batchkron check`: the content of a file, and whether it is valid."""

from __future__ import annotations

from pathlib import Path

import click

from batchkron.backends import warn_of_missing_kernels
from batchkron.cli.exit_codes import ExitCode
from batchkron.cli.failure import CommandError
from batchkron.cli.output.describe_file import describe_file
from batchkron.cli.output.text import one_line, printable, table
from batchkron.errors import ProblemFileError
from batchkron.problems import LinearProblem, Problem, load_problem
from batchkron.storage import Checkpoint, ResultFile, identify, load_checkpoint, load_result

__all__ = ["check", "info"]


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
def info(file: Path) -> None:
    """Describe a problem, result or checkpoint file."""
    _check_there(file)
    click.echo(table(describe_file(file, _load(file))))
    warn_of_missing_kernels()


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
def check(file: Path) -> ExitCode:
    """Verify a file from an untrusted source.

    The whole file is read and compared with its checksums and its hash. The exit status is 0 if the
    file is sound, and 1 otherwise.
    """
    _check_there(file)
    try:
        loaded = _load(file)
    except (ProblemFileError, OSError) as error:
        click.echo(f"not sound: {one_line(str(error))}")
        return ExitCode.FAILED_CHECK
    kind = {
        Problem: "problem",
        LinearProblem: "problem",
        ResultFile: "result",
        Checkpoint: "checkpoint",
    }[type(loaded)]
    click.echo(printable(f"sound: {file} is a {kind} file"))
    return ExitCode.DONE


def _check_there(file: Path) -> None:
    if not file.exists():
        raise CommandError(f"{file} does not exist; expected a file of batchkron.")


def _load(file: Path) -> Problem | LinearProblem | ResultFile | Checkpoint:
    """Load a file of any kind with all checks, and no other file in place of a damaged one."""
    kind = identify(file)
    if kind == "batchkron-problem":
        problem: Problem | LinearProblem = load_problem(file)
        return problem
    if kind == "batchkron-result":
        return load_result(file)
    return load_checkpoint(file, previous=False)
