"""`batchkron list` and `batchkron make`: the gallery, and problem files made from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from batchkron.cli.arguments.adapt import adapt_options, adapt_request
from batchkron.cli.arguments.output_paths import check_outputs
from batchkron.cli.arguments.problem import chosen_problem, gallery_options
from batchkron.cli.failure import usage_errors
from batchkron.cli.output.problem_size import describe_size
from batchkron.cli.output.text import table
from batchkron.problems import gallery, save_problem

__all__ = ["list_gallery", "make"]


@click.command("list")
def list_gallery() -> None:
    """List the problems of the gallery, one per line."""
    entries = [gallery.get(name) for name in gallery.names()]
    click.echo(table((entry.name, entry.equation) for entry in entries))


@click.command()
@click.argument("name")
@gallery_options
@adapt_options
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    help="Problem file to write.",
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def make(
    name: str,
    degree: int | None,
    level: int | tuple[int, ...] | None,
    grid: str | None,
    output: Path,
    force: bool,
    **options: Any,
) -> None:
    """Write a problem of the gallery to a file.

    "batchkron list" shows the names. Options that are left out have the defaults of the gallery.
    With --adapt-tol, the file contains the rule by which "batchkron run" adapts the grid.
    """
    request = adapt_request(options)
    chosen = chosen_problem(name, degree, level, grid, files=False)
    check_outputs({"the problem": output}, {}, force=force)
    problem = chosen.read()
    rule = request.rule(problem)
    if rule is not None:
        with usage_errors():
            problem = problem.with_adapt(rule)
    save_problem(output, problem, overwrite=force)
    click.echo(f"wrote {output}: {problem.name}, {describe_size(problem)}")
