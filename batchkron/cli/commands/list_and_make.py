"""`batchkron list` and `batchkron make`: the gallery, and problem files made from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from batchkron.cli.arguments.adapt import adapt_options, adapt_rule
from batchkron.cli.arguments.known_names import GALLERY
from batchkron.cli.arguments.name_types import GALLERY_NAME
from batchkron.cli.arguments.output_paths import check_name, check_outputs
from batchkron.cli.arguments.problem import chosen_problem, gallery_options
from batchkron.cli.failure import usage_errors
from batchkron.cli.output.text import table
from batchkron.plugins import plugin_names

__all__ = ["list_gallery", "make"]


@click.command("list")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print the problems, with their parameters and defaults, as one JSON object.",
)
def list_gallery(as_json: bool) -> None:
    """List the problems of the gallery, one per line.

    "batchkron info NAME" shows the parameters and the defaults of one of them.
    """
    if not as_json and not plugin_names("batchkron.problems"):
        click.echo(table(GALLERY.items()))  # without the libraries that problems need
        return
    from batchkron.problems import gallery

    entries = [gallery.get(name) for name in gallery.names()]
    if not as_json:
        click.echo(table((entry.name, entry.equation) for entry in entries))
        return
    found = [
        {
            "name": entry.name,
            "equation": entry.equation,
            "exact_solution": entry.solution,
            "is_known": entry.is_known,
            "parameters": dict(entry.parameters),
            "level": entry.level,
            "degree": entry.degree,
            "stepper": entry.method,
            "until": entry.until,
        }
        for entry in entries
    ]
    click.echo(json.dumps({"problems": found}, allow_nan=False))


@click.command()
@click.argument("name", type=GALLERY_NAME)
@gallery_options
@adapt_options
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, help="Problem file to write."
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@click.option("--json", "as_json", is_flag=True, help="Print what was written as one JSON object.")
def make(
    name: str,
    degree: int | None,
    level: int | tuple[int, ...] | None,
    grid: str | None,
    output: Path,
    force: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Write a problem of the gallery to a file.

    "batchkron list" shows the names. Options that are left out have the defaults of the gallery.
    With --adapt-tol, the file contains the rule by which "batchkron run" adapts the grid.
    """
    # what computes is loaded here, so that help and completion need not wait for it
    from batchkron.cli.output.problem_size import describe_size
    from batchkron.problems import save_problem

    rule_of = adapt_rule(options)
    check_name("the problem", output)
    chosen = chosen_problem(name, degree, level, grid, files=False)
    check_outputs({"the problem": output}, {}, force=force)
    problem = chosen.read()
    rule = rule_of(problem)
    if rule is not None:
        with usage_errors():
            problem = problem.with_adapt(rule)
    save_problem(output, problem, overwrite=force)
    if as_json:
        written = {
            "file": str(output),
            "problem": problem.name,
            "unknowns": problem.unknowns,
            "cells": problem.grid.num_cells,
            "degree": problem.degree,
            "content_hash": problem.content_hash,
        }
        click.echo(json.dumps(written))
        return
    click.echo(f"wrote {output}: {problem.name}, {describe_size(problem)}")
