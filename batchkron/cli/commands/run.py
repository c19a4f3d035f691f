"""`batchkron run`: from a problem to its solution."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from batchkron.cli.arguments.adapt import adapt_options, adapt_request
from batchkron.cli.arguments.parameters import checkpoint_interval, finite_number, positive_number
from batchkron.cli.arguments.problem import chosen_problem, gallery_options, operator_option
from batchkron.cli.arguments.shown import name_list, places
from batchkron.cli.exit_codes import ExitCode
from batchkron.cli.output.printing import print_line
from batchkron.cli.output.text import table
from batchkron.cli.running.execute import execute
from batchkron.cli.running.options import RunOptions
from batchkron.cli.running.ranks import ranks_of_run
from batchkron.solvers import preconditioners, steppers
from batchkron.solvers.steppers.linear_solver import solver_names

__all__ = ["run"]

_PATH = click.Path(path_type=Path)


class RunCommand(click.Command):
    """A command that keeps its arguments as given, for the text that says how to resume it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the arguments before they are parsed."""
        ctx.meta["batchkron.words"] = list(args)
        return super().parse_args(ctx, args)


@click.command(cls=RunCommand)
@click.argument("problem", metavar="FILE-or-NAME")
@gallery_options
@click.option(
    "--until",
    type=float,
    callback=finite_number,
    help="The last time; by default the problem's, or that of the checkpoint.",
)
@click.option(
    "--dt",
    type=float,
    callback=positive_number,
    help="The longest time step; shortened so that whole steps reach the last time.",
)
@click.option(
    "--stepper",
    type=click.Choice(steppers.names()),
    metavar="METHOD",
    help="The time stepper, such as ssp-rk3 or esdirk3; for any other word all names are listed.",
)
@click.option(
    "--rtol",
    type=float,
    callback=positive_number,
    help="Choose the steps so that the error of each is at most RTOL times the state's norm; --dt "
    "is the first one to try.",
)
@click.option("--atol", type=float, callback=positive_number, help="The same, plus ATOL.")
@adapt_options
@click.option(
    "--no-adapt",
    is_flag=True,
    help="Keep the grid as it is, though the file has a rule by which it follows the solution.",
)
@click.option(
    "--solver",
    type=click.Choice((*solver_names(), "krylov", "kronecker", "auto")),
    help="How implicit steppers solve their systems; gmres by default. krylov, kronecker and auto "
    "are for exponential steppers.",
)
@click.option(
    "--preconditioner",
    type=click.Choice(preconditioners.names()),
    metavar="NAME",
    help="For implicit steppers: auto takes the one that fits, none none; by default it is auto "
    "where steps are stiff and it helps.",
)
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    default="cpu",
    help="Where the run has its vectors; cuda is the current CUDA device and needs CuPy.",
)
@operator_option
@click.option("--threads", type=click.IntRange(1, 4096), help="Threads of the CPU's kernels.")
@click.option(
    "--record",
    metavar="NAMES",
    callback=name_list,
    help="Record quantities over time, such as mass,energy,field, in the result; see the guide for "
    "all names.",
)
@click.option("--plot", type=_PATH, metavar="PNG", help="Draw the solution; needs Matplotlib.")
@click.option(
    "--plot-every",
    type=float,
    metavar="TIME",
    callback=positive_number,
    help="The time between the pictures of --movie; with --plot, between numbered pictures.",
)
@click.option(
    "--movie",
    type=_PATH,
    metavar="GIF|MP4",
    help="Write a movie of the solution; needs Matplotlib, and ffmpeg unless it is a .gif.",
)
@click.option(
    "--slice",
    "slices",
    metavar="AXIS=PLACE,…",
    callback=places,
    help="In pictures, fix axes at these places.",
)
@click.option(
    "--marginal",
    metavar="AXIS,…",
    callback=name_list,
    help="In pictures, integrate over all other axes than these.",
)
@click.option(
    "-o",
    "--output",
    type=_PATH,
    metavar="RESULT",
    help="The result file; by default FILE's stem, or NAME, and .result.h5.",
)
@click.option("--force", is_flag=True, help="Replace existing files.")
@click.option(
    "--checkpoint",
    type=_PATH,
    metavar="PATH",
    help="Where checkpoints go, one at the end of the run included; the one before is kept as "
    "PATH.previous. By default RESULT's stem and .checkpoint.h5, or what --resume names.",
)
@click.option(
    "--checkpoint-every",
    metavar="STEPS|TIME",
    callback=checkpoint_interval,
    help="Write a checkpoint every so many steps (500), or so often (30s, 10min, 1h).",
)
@click.option("--resume", type=_PATH, metavar="PATH", help="Go on from a checkpoint.")
@click.option(
    "--allow-unstable",
    is_flag=True,
    help="Run with a step that the stepper is not stable with, which is refused else.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one JSON object.")
@click.option("--quiet", is_flag=True, help="Show no progress and no table.")
def run(
    problem: str,
    degree: int | None,
    level: int | tuple[int, ...] | None,
    grid: str | None,
    as_json: bool,
    **options: Any,
) -> ExitCode:
    """Solve a problem in time: a file, or a name of the gallery with make's flags.

    At the end it prints the L2 error where the exact solution is known, and writes the state to
    a result file. Ctrl-C, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 end the run after the step at hand
    and leave a checkpoint.

    "mpiexec -n 4 batchkron run ..." spreads the state over four processes, or GPUs with
    --device cuda; the first one prints, and writes the same files.
    """
    settings, ranks = RunOptions(adapt_request=adapt_request(options), **options), ranks_of_run()
    words = click.get_current_context().meta["batchkron.words"]
    with ranks.together():
        chosen = ranks.on_each(lambda: chosen_problem(problem, degree, level, grid))
        report, exit_code = execute(chosen, settings, words, ranks)
    if report is None:  # not the first one of many ranks
        return exit_code
    if as_json:
        print_line(json.dumps(report.to_json(), allow_nan=False))
    elif not settings.quiet:
        print_line(table(report.rows()))
    return exit_code
