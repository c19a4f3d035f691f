"""`batchkron converge`: the error of a problem of the gallery on several levels."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchkron.cli.arguments.name_types import GALLERY_NAME, stepper_option
from batchkron.cli.arguments.output_paths import check_outputs
from batchkron.cli.arguments.parameters import finite_number, level_list, positive_number
from batchkron.cli.arguments.problem import chosen_problem, operator_option
from batchkron.cli.exit_codes import ExitCode
from batchkron.cli.failure import CommandError, usage_errors
from batchkron.cli.output.printing import print_line
from batchkron.cli.output.text import one_line, printable

if TYPE_CHECKING:
    from batchkron.cli.running.convergence import Convergence
    from batchkron.cli.running.signals import StopOnSignal
    from batchkron.problems import Problem

__all__ = ["converge"]

_DEFAULT_LEVELS = 4  # number of levels by default, up to the problem's own one


@click.command()
@click.argument("name", type=GALLERY_NAME)
@click.option(
    "--levels",
    metavar="LEVELS",
    callback=level_list,
    help="Finest levels in ascending order: 3:7 for 3 to 7, or a list such as 2,4,6. Default: four "
    "levels, up to that of the gallery.",
)
@click.option("--degree", type=click.IntRange(min=0), help="Polynomial degree.")
@click.option(
    "--grid",
    type=click.Choice(["sparse", "full"]),
    default="sparse",
    help="Kind of grid (default: sparse).",
)
@click.option("--until", type=float, callback=finite_number, help="End time.")
@click.option(
    "--dt",
    type=float,
    callback=positive_number,
    help="Largest time step, the same on all levels (default: it falls with the cell width).",
)
@stepper_option("Time stepper, such as ssp-rk3 or esdirk3. An unknown name lists all of them.")
@operator_option
@click.option("--threads", type=click.IntRange(1, 4096), help="Number of CPU threads.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    metavar="PNG",
    help="Draw the errors with the expected slope; needs Matplotlib.",
)
@click.option("--force", is_flag=True, help="Overwrite an existing picture.")
@click.option(
    "--allow-unstable",
    is_flag=True,
    help="Allow a step for which the explicit stepper is unstable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the table as one JSON object.")
@click.option("--quiet", is_flag=True, help="Print neither progress nor the table.")
def converge(
    name: str,
    levels: tuple[int, ...] | None,
    threads: int | None,
    plot: Path | None,
    force: bool,
    allow_unstable: bool,
    as_json: bool,
    quiet: bool,
    **settings: Any,
) -> ExitCode:
    """Show how the error of a problem of the gallery falls with the level.

    The problem is solved on each level. The table has a line for each level, with the L2 error,
    the relative error, the observed order, and the error of the exact solution's projection on the
    grid.
    """
    # what computes is loaded here, so that help and completion need not wait for it
    import batchkron
    from batchkron.cli.output.figures import require_plotting, save_figure
    from batchkron.cli.running.convergence import Convergence
    from batchkron.cli.running.convergence_plot import draw_convergence
    from batchkron.cli.running.signals import StopOnSignal, exit_code_of
    from batchkron.solvers import EvolveStatus

    if plot is not None:
        check_outputs({"the plot": plot}, {}, force=force)
        require_plotting(plot)
    if threads is not None:
        batchkron.set_num_threads(threads)
    problems = _make(name, levels, settings)
    convergence = Convergence(problems[-1])
    with StopOnSignal() as stop:
        _march(
            convergence,
            problems,
            stop,
            table=not as_json and not quiet,
            quiet=quiet,
            allow_unstable=allow_unstable,
        )
    last = convergence.runs[-1]
    if last.status is not EvolveStatus.COMPLETED:
        print_line(f"batchkron: on level {last.level}: {one_line(last.message)}", err=True)
    elif plot is not None:
        save_figure(plot, draw_convergence(convergence), overwrite=force)
    if as_json:
        drawn = str(plot) if plot and last.status is EvolveStatus.COMPLETED else None
        print_line(json.dumps({**convergence.to_json(), "plot": drawn}, allow_nan=False))
    return exit_code_of(last.status, stop)


def _make(name: str, levels: tuple[int, ...] | None, settings: dict[str, Any]) -> list[Problem]:
    """Return the problem on each level, after checking that it can be run and has an error."""
    from batchkron.problems import gallery
    from batchkron.solvers.evolution.start.integration import plan_integration

    if name not in GALLERY_NAME.names() and os.path.lexists(name):
        raise CommandError(
            f"{name} is a file, whose level is fixed; expected a name of the gallery, see "
            f"'batchkron list'."
        )
    chosen = chosen_problem(name, None, None, None, files=False)
    name, settings = chosen.word, settings | chosen.settings
    if levels is None:
        finest = gallery.get(name).level
        levels = tuple(range(max(finest - _DEFAULT_LEVELS + 1, 0), finest + 1))
    settings["method"] = settings.pop("stepper")
    form = settings.pop("operator") or "auto"
    with usage_errors():
        problems = [gallery.make(name, level, **settings).with_form(form) for level in levels]
        for problem in problems:
            plan_integration(problem, until=problem.stepper.until)
    if problems[0].exact is None:
        raise CommandError(
            f"{name} has no exact solution that an error could be taken against; see "
            f"'batchkron list' for others."
        )
    return problems


def _march(
    convergence: Convergence,
    problems: list[Problem],
    stop: StopOnSignal,
    *,
    table: bool,
    quiet: bool,
    allow_unstable: bool,
) -> None:
    """Run the levels one after another, until one does not complete."""
    from batchkron.cli.running.convergence import run_level
    from batchkron.solvers import EvolveStatus

    if table:
        print_line(printable(convergence.heading()))
    while problems:
        problem = problems.pop(0)  # frees each operator after its run
        show = not quiet and sys.stderr.isatty()
        run = run_level(problem, convergence.runs, stop, show=show, allow_unstable=allow_unstable)
        convergence.runs.append(run)
        if table:
            print_line(run.row())
        if run.status is not EvolveStatus.COMPLETED:
            return
