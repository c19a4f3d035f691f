"""What a run shows besides its last state: recorded quantities, and pictures on the way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from batchkron.cli.arguments.output_paths import check_outputs
from batchkron.cli.failure import CommandError, usage_errors
from batchkron.cli.running.files import RunFiles
from batchkron.cli.running.options import RunOptions
from batchkron.cli.running.pictures import PicturePlan, PicturesDuringRun, numbered
from batchkron.problems import LinearProblem, Problem
from batchkron.problems.semidiscrete.output.cut import Cut, make_cut
from batchkron.solvers import Quantity, Run

__all__ = ["Shown", "begin_pictures", "check_pictures", "plan_shown"]


# What is done to axes that are not drawn (where indices of a batch list are fixed), and the
# quantities that are recorded, for `Run`.
Shown = tuple[Cut | Mapping[str, float], dict[str, Any]]


def check_pictures(options: RunOptions) -> None:
    """Check that the options of pictures belong to pictures.

    Raises `CommandError` if there are no pictures.
    """
    if options.plot is None and options.movie is None:
        for name, given in {
            "--plot-every": options.plot_every,
            "--slice": options.slices,
            "--marginal": options.marginal,
        }.items():
            if given:
                raise CommandError(
                    f"{name} is for pictures; name a file by --plot or --movie, too."
                )


def plan_shown(problem: Problem | LinearProblem, options: RunOptions) -> Shown:
    """Return what a run shows, after checking it.

    Raises `CommandError` if a quantity or an axis is unknown, or an option of grids is given for a
    batch list.
    """
    if isinstance(problem, LinearProblem):
        return _shown_of_list(problem, options)
    with usage_errors():
        named = [name for name in options.record if name != "outflow"]
        watch: dict[str, Any] = dict(problem.quantities(*named)) if named else {}
        if "outflow" in options.record:
            watch["outflow"] = Quantity.outflow(problem)
        return make_cut(problem.axes, options.slices, options.marginal or None), watch


def begin_pictures(
    problem: Problem | LinearProblem, run: Run, cut: Any, files: RunFiles, options: RunOptions
) -> PicturesDuringRun | None:
    """Make the first picture of a run, if there are some on the way; return what makes the others.

    Raises `CommandError` if there are too many pictures, or a file exists.
    """
    plot = files.plot if options.plot_every is not None else None
    if isinstance(problem, LinearProblem) or (files.movie is None and plot is None):
        return None
    assert isinstance(cut, Cut)
    plan = PicturePlan(run.t, run.integration.until, options.plot_every)
    if plot is not None:
        names = {f"picture {k}": numbered(plot, k) for k in range(plan.count)}
        check_outputs(names, {}, force=options.force)
    pictures = PicturesDuringRun(plan, problem, cut, files.movie, plot, force=options.force)
    now: Any = run.integration.problem  # on the first grid of the run
    pictures.begin(now, run.u, run.t)
    return pictures


def _shown_of_list(problem: LinearProblem, options: RunOptions) -> Shown:
    """Return what a run of a batch list shows: quantities, and a picture along one index."""
    for name, given in {
        "--movie": options.movie,
        "--plot-every": options.plot_every,
        "--marginal": options.marginal,
    }.items():
        if given:
            raise CommandError(
                f"{name} is for functions on a grid, and {problem.name} is a batch list; --plot "
                "draws its last state along one index, and --slice fixes others, such as "
                "--slice i1=0."
            )
    with usage_errors():
        watch = dict(problem.quantities(*options.record)) if options.record else {}
        if options.plot is not None:
            problem.output.picture(
                problem.initial, None, slice=options.slices
            )  # checks the indices
    return options.slices, watch
