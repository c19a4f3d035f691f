"""`batchkron run`: from a problem to its solution."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from batchkron.cli.arguments.adapt import adapt_options, adapt_rule
from batchkron.cli.arguments.known_names import SOLVERS
from batchkron.cli.arguments.name_types import PRECONDITIONER, PROBLEM, stepper_option
from batchkron.cli.arguments.output_paths import check_name
from batchkron.cli.arguments.parameters import checkpoint_interval, finite_number, positive_number
from batchkron.cli.arguments.problem import chosen_problem, gallery_options, operator_option
from batchkron.cli.arguments.shown import name_list, places
from batchkron.cli.exit_codes import ExitCode
from batchkron.cli.output.printing import print_line
from batchkron.cli.output.text import table
from batchkron.cli.running.options import RunOptions

__all__ = ["run"]

_PATH = click.Path(path_type=Path)


class RunCommand(click.Command):
    """A command that keeps its arguments as given, for the text that says how to resume it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the arguments before they are parsed."""
        ctx.meta["batchkron.words"] = list(args)
        return super().parse_args(ctx, args)


@click.command(cls=RunCommand)
@click.argument("problem", metavar="FILE-or-NAME", type=PROBLEM)
@gallery_options
@click.option(
    "--until",
    type=float,
    callback=finite_number,
    help="End time (default: that of the problem, or of the checkpoint).",
)
@click.option(
    "--dt",
    type=float,
    callback=positive_number,
    help="Largest time step. It is shortened so that a whole number of steps reaches the end time.",
)
@stepper_option("Time stepper, such as ssp-rk3 or esdirk3. An unknown name lists all of them.")
@click.option(
    "--rtol",
    type=float,
    callback=positive_number,
    help="Choose each step so that its error is at most RTOL times the norm of the state. --dt is "
    "then the first step to try.",
)
@click.option(
    "--atol",
    type=float,
    callback=positive_number,
    help="Absolute tolerance, added to that of --rtol.",
)
@adapt_options
@click.option(
    "--no-adapt",
    is_flag=True,
    help="Keep the grid fixed, even if the problem file has a rule to adapt it.",
)
@click.option(
    "--solver",
    type=click.Choice(SOLVERS),
    help="Linear solver of implicit steppers (default: gmres). Exponential steppers take krylov, "
    "kronecker or auto.",
)
@click.option(
    "--preconditioner",
    type=PRECONDITIONER,
    metavar="NAME",
    help="Preconditioner of implicit steppers. auto chooses one that fits the operator, none uses "
    "none. Default: auto if the steps are stiff and it helps.",
)
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    default="cpu",
    help="Where to run: cuda is the current CUDA device and needs CuPy.",
)
@operator_option
@click.option("--threads", type=click.IntRange(1, 4096), help="Number of CPU threads.")
@click.option(
    "--record",
    metavar="NAMES",
    multiple=True,
    callback=name_list,
    help="Record these quantities over time in the result, such as mass,energy,field. The guide "
    "lists all names.",
)
@click.option(
    "--plot", type=_PATH, metavar="PNG", help="Write a picture of the solution; needs Matplotlib."
)
@click.option(
    "--plot-every",
    type=float,
    metavar="TIME",
    callback=positive_number,
    help="Time between the frames of --movie. With --plot, write numbered pictures at these times.",
)
@click.option(
    "--movie",
    type=_PATH,
    metavar="GIF|MP4",
    help="Write a movie of the solution; needs Matplotlib, and ffmpeg unless the file is a .gif.",
)
@click.option(
    "--slice",
    "slices",
    metavar="AXIS=PLACE,…",
    multiple=True,
    callback=places,
    help="In pictures, fix these axes at these places.",
)
@click.option(
    "--marginal",
    metavar="AXIS,…",
    multiple=True,
    callback=name_list,
    help="In pictures, integrate over all axes except these.",
)
@click.option(
    "-o",
    "--output",
    type=_PATH,
    metavar="RESULT",
    help="Result file (default: FILE without its suffix, or NAME, with .result.h5).",
)
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@click.option(
    "--checkpoint",
    type=_PATH,
    metavar="PATH",
    help="Checkpoint file, written at the end of the run, too. The checkpoint before is kept as "
    "PATH.previous. Default: RESULT with .checkpoint.h5 in place of .result.h5, or the file of "
    "--resume.",
)
@click.option(
    "--checkpoint-every",
    metavar="STEPS|TIME",
    callback=checkpoint_interval,
    help="Write a checkpoint after this many steps (500), or this much time (30s, 10min, 1h).",
)
@click.option("--resume", type=_PATH, metavar="PATH", help="Continue from this checkpoint.")
@click.option(
    "--allow-unstable",
    is_flag=True,
    help="Allow a step for which the explicit stepper is unstable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one JSON object.")
@click.option("--quiet", is_flag=True, help="Print neither progress nor the table.")
def run(
    problem: str,
    degree: int | None,
    level: int | tuple[int, ...] | None,
    grid: str | None,
    as_json: bool,
    **options: Any,
) -> ExitCode:
    """Solve a problem in time: a file, or a name of the gallery with make's flags.

    At the end, the command prints the L2 error if the exact solution is known, and writes the
    state to a result file. Ctrl-C, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 end the run after the
    present step, or some short ones, and leave a checkpoint.

    "mpiexec -n 4 batchkron run ..." spreads the state over four processes, or over four GPUs with
    --device cuda. The first process prints, and writes the same files.
    """
    # what computes is loaded here, so that help and completion need not wait for it
    from batchkron.cli.running.execute import execute
    from batchkron.cli.running.ranks import ranks_of_run

    settings, ranks = RunOptions(adapt_rule=adapt_rule(options), **options), ranks_of_run()
    words = click.get_current_context().meta["batchkron.words"]
    with ranks.together():
        _check_alone(settings)
        chosen = ranks.on_each(lambda: chosen_problem(problem, degree, level, grid))
        report, exit_code = execute(chosen, settings, words, ranks)
    if report is None:  # not the first one of many ranks
        return exit_code
    if as_json:
        print_line(json.dumps(report.to_json(), allow_nan=False))
    elif not settings.quiet:
        print_line(table(report.rows()))
    return exit_code


def _check_alone(options: RunOptions) -> None:
    """Check what the options say by themselves, before any file is looked at."""
    from batchkron.cli.running.shown import check_pictures

    check_pictures(options)
    outputs = {
        "the result": options.output,
        "the checkpoint": options.checkpoint,
        "the plot": options.plot,
        "the movie": options.movie,
    }
    for what, path in outputs.items():
        if path is not None:
            check_name(what, path)
