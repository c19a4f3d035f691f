"""`batchkron list` and `batchkron make`: the gallery, and problem files made from it."""

from __future__ import annotations

from pathlib import Path

import click

from batchkron.cli.arguments.output_paths import check_outputs
from batchkron.cli.arguments.problem import chosen_problem, gallery_options
from batchkron.cli.output.text import plural, table
from batchkron.problems import Problem, gallery, save_problem

__all__ = ["added_cells", "describe_size", "list_gallery", "make"]


@click.command("list")
def list_gallery() -> None:
    """List the problems of the gallery, a line each."""
    entries = [gallery.get(name) for name in gallery.names()]
    click.echo(table((entry.name, entry.equation) for entry in entries))


@click.command()
@click.argument("name")
@gallery_options
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    help="The problem file to write.",
)
@click.option("--force", is_flag=True, help="Replace an existing file.")
def make(
    name: str,
    degree: int | None,
    level: int | tuple[int, ...] | None,
    grid: str | None,
    output: Path,
    force: bool,
) -> None:
    """Write a problem of the gallery as a file.

    NAME is one of "batchkron list". What is left out takes the gallery's defaults.
    """
    chosen = chosen_problem(name, degree, level, grid, files=False)
    check_outputs({"the problem": output}, {}, force=force)
    problem = chosen.read()
    save_problem(output, problem, overwrite=force)
    click.echo(f"wrote {output}: {problem.name}, {describe_size(problem)}")


def added_cells(problem: Problem) -> list[tuple[str, str]]:
    """Return a row about the cells beside the grid that sweeps pass through, if there are any.

    Parameters
    ----------
    problem : Problem

    Returns
    -------
    list of tuple of (str, str)
    """
    try:
        count = problem.num_added_cells
    except ValueError as error:
        return [("added cells", str(error))]
    return [("added cells", f"{count}, which sweeps pass through beside the grid's")] * (count > 0)


def describe_size(problem: Problem) -> str:
    """Return unknowns, grid and degree of a problem, in a line.

    Parameters
    ----------
    problem : Problem

    Returns
    -------
    str

    Examples
    --------
    >>> from batchkron.problems import gallery
    >>> print(describe_size(gallery.make("continuity-2d", level=6, degree=2)))
    2304 unknowns in 256 cells of a sparse grid, level 6, degree 2
    """
    levels = problem.grid.levels
    level = (
        f"level {levels[0]}" if len(set(levels)) == 1 else f"levels {', '.join(map(str, levels))}"
    )
    return (
        f"{plural(problem.unknowns, 'unknown')} in {plural(problem.grid.num_cells, 'cell')} of a "
        f"{problem.grid.kind} grid, {level}, degree {problem.degree}"
    )
