"""What a run shows besides its last state: recorded quantities, and pictures on the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from batchkron.cli.arguments.output_paths import check_outputs
from batchkron.cli.failure import CommandError, usage_errors
from batchkron.cli.running.files import RunFiles
from batchkron.cli.running.pictures import PicturesDuringRun, numbered, plan_pictures
from batchkron.problems import LinearProblem, Problem
from batchkron.problems.semidiscrete.output.cut import Cut, make_cut
from batchkron.solvers import EvolveState, Quantity
from batchkron.solvers.evolution.start.integration import Integration

__all__ = ["Shown", "ShownOptions", "check_pictures", "plan_shown"]


class ShownOptions(Protocol):
    """The options of a run that this module reads."""

    @property
    def record(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def plot(self) -> Path | None: ...  # noqa: D102
    @property
    def plot_every(self) -> float | None: ...  # noqa: D102
    @property
    def movie(self) -> Path | None: ...  # noqa: D102
    @property
    def slices(self) -> Mapping[str, float]: ...  # noqa: D102
    @property
    def marginal(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def force(self) -> bool: ...  # noqa: D102


@dataclass(frozen=True, eq=False)
class Shown:
    """What a run shows besides its last state.

    Attributes
    ----------
    cut : Cut or mapping
        What is done to axes that are not drawn; where indices of a batch list are fixed.
    watch : dict
        The quantities that are recorded, for `evolve`.
    pictures : PicturesDuringRun or None
        A movie or numbered pictures.
    """

    cut: Cut | Mapping[str, float]
    watch: dict[str, Any]
    pictures: PicturesDuringRun | None

    @property
    def may_skip(self) -> bool:
        """Whether not every step has to be seen."""
        return self.pictures is None

    def after_step(self, state: EvolveState) -> None:
        """Show a state, if it is time."""
        if self.pictures is not None:
            self.pictures.after_step(state)

    def finish(self) -> None:
        """Write what is written at the end of a run."""
        if self.pictures is not None:
            self.pictures.finish()


def check_pictures(options: ShownOptions) -> None:
    """Check that the options of pictures belong to pictures.

    Raises
    ------
    CommandError
        If there are no pictures.
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


def plan_shown(
    problem: Problem | LinearProblem,
    integration: Integration,
    files: RunFiles,
    options: ShownOptions,
) -> Shown:
    """Return what a run shows, after checking all of it.

    Parameters
    ----------
    problem : Problem or LinearProblem
        The problem.
    integration : Integration
        The run.
    files : RunFiles
        Its files.
    options : ShownOptions
        Its options.

    Returns
    -------
    Shown

    Raises
    ------
    CommandError
        If a quantity or an axis is unknown, there are too many pictures, or a file exists.
    """
    if isinstance(problem, LinearProblem):
        return _shown_of_list(problem, options)
    with usage_errors():
        named = [name for name in options.record if name != "outflow"]
        watch: dict[str, Any] = dict(problem.quantities(*named)) if named else {}
        if "outflow" in options.record:
            watch["outflow"] = Quantity.outflow(problem)
        cut = make_cut(problem.axes, options.slices, options.marginal or None)
    plot = files.plot if options.plot_every is not None else None
    if files.movie is None and plot is None:
        return Shown(cut, watch, None)
    plan = plan_pictures(integration.begin, integration.until, options.plot_every)
    if plot is not None:
        names = {f"picture {k}": numbered(plot, k) for k in range(plan.count)}
        check_outputs(names, {}, force=options.force)
    pictures = PicturesDuringRun(plan, problem, cut, files.movie, plot, force=options.force)
    pictures.begin(problem, integration.u, integration.begin)
    return Shown(cut, {name: watch[name] for name in watch}, pictures)


def _shown_of_list(problem: LinearProblem, options: ShownOptions) -> Shown:
    """Return what a run of a batch list shows: quantities, and a picture along one index.

    Raises
    ------
    CommandError
        If a quantity or an index is unknown, or an option belongs to grids.
    """
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
    return Shown(options.slices, watch, None)
