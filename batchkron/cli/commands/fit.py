"""`batchkron fit`: the rate and frequency of a quantity that a run has recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from batchkron.cli.arguments.output_paths import check_name, check_outputs
from batchkron.cli.arguments.shown import time_interval
from batchkron.cli.exit_codes import ExitCode
from batchkron.cli.failure import CommandError, usage_errors
from batchkron.cli.output.printing import print_line
from batchkron.cli.output.text import finite, number, table

if TYPE_CHECKING:
    from batchkron.analysis.recorded import Recorded
    from batchkron.solvers import GrowthFit

__all__ = ["fit"]

_PATH = click.Path(path_type=Path)


@click.command()
@click.argument("file", type=_PATH)
@click.option(
    "--quantity", metavar="NAME", help="Quantity to fit; needed if several were recorded."
)
@click.option(
    "--between",
    type=(float, float),
    metavar="T1 T2",
    callback=time_interval,
    help="First and last time to use (default: all times).",
)
@click.option(
    "--model",
    type=click.Choice(["auto", "exponential", "maxima", "mode"]),
    default="auto",
    help="exponential: fit a line to all logarithms. maxima: fit a line to those at the maxima. "
    "mode: fit a wave plus an exponential. auto: maxima if there are three; else mode if values "
    "have both signs or an exponential does not fit; else exponential.",
)
@click.option(
    "--plot", type=_PATH, metavar="PNG", help="Write a picture of the quantity and the fit."
)
@click.option("--force", is_flag=True, help="Overwrite an existing picture.")
@click.option("--json", "as_json", is_flag=True, help="Print the fit as one JSON object.")
def fit(
    file: Path,
    quantity: str | None,
    between: tuple[float, float] | None,
    model: str,
    plot: Path | None,
    force: bool,
    as_json: bool,
) -> ExitCode:
    """Fit the rate and the frequency with which a recorded quantity grows or decays.

    FILE is the result or a checkpoint of "batchkron run ... --record NAMES".
    """
    # what computes is loaded here, so that help and completion need not wait for it
    from batchkron.analysis.series_plot import plot_recorded
    from batchkron.cli.output.figures import require_plotting, save_figure
    from batchkron.solvers import fit_growth

    if plot is not None:
        check_name("the plot", plot)
    if not file.exists():
        raise CommandError(f"{file} does not exist; expected a result of 'batchkron run'.")
    if plot is not None:
        check_outputs({"the plot": plot}, {"the result": file}, force=force)
        require_plotting(plot)
    recorded, title = _read(file)
    name = _chosen(file, recorded, quantity)
    with usage_errors():
        found = fit_growth(recorded.t, recorded[name], between=between, model=model)
    if plot is not None:
        figure = plot_recorded(recorded, name, fit=found, title=title)
        save_figure(plot, figure, overwrite=force)  # type: ignore[arg-type]
    if as_json:
        print_line(json.dumps(_values(name, found, plot), allow_nan=False))
    else:
        print_line(table(_rows(name, found, plot)))
    return ExitCode.DONE


def _read(file: Path) -> tuple[Recorded, str]:
    """Return what a run has recorded, and the problem's name if the file has it."""
    from batchkron.analysis.recorded import recorded_in
    from batchkron.storage import ResultFile, identify, load_checkpoint, load_result

    kind = identify(file)
    if kind == "batchkron-problem":
        raise CommandError(
            f"{file} is a problem, which has no quantities over time; expected a result of "
            f"'batchkron run {file} --record NAMES'."
        )
    content = load_result(file) if kind == "batchkron-result" else load_checkpoint(file)
    with usage_errors():
        recorded = recorded_in(content.history)
    return recorded, content.problem_name if isinstance(content, ResultFile) else ""


def _chosen(file: Path, recorded: Recorded, quantity: str | None) -> str:
    """Return the quantity to fit."""
    names = recorded.names
    if not names:
        raise CommandError(
            f"{file} has no quantities over time; run again with --record NAMES, such as "
            f"--record field."
        )
    if quantity is None and len(names) == 1:
        return names[0]
    if quantity not in names:
        came = "--quantity is missing" if quantity is None else f"{quantity!r} was not recorded"
        raise CommandError(f"{came}; {file} has {', '.join(names)}.")
    return quantity


def _values(name: str, found: GrowthFit, plot: Path | None) -> dict[str, object]:
    return {
        "quantity": name,
        "model": found.model,
        "points": found.points,
        "between": list(found.between),
        "rate": finite(found.rate),
        "rate_scatter": finite(found.rate_scatter),
        "frequency": finite(found.frequency),
        "frequency_scatter": finite(found.frequency_scatter),
        "residual": finite(found.residual),
        "plot": str(plot) if plot else None,
    }


def _rows(name: str, found: GrowthFit, plot: Path | None) -> list[tuple[str, str]]:
    points = {"maxima": "maxima", "mode": "values"}.get(found.model, "values")
    first, last = found.between
    rows = [
        ("quantity", name),
        ("fit", f"{found.model}, {found.points} {points} from t = {first:.6g} to {last:.6g}"),
        ("rate", f"{number(found.rate, 6)} ± {number(found.rate_scatter, 2)}"),
    ]
    if found.frequency:
        scatter = number(found.frequency_scatter, 2)
        rows.append(("frequency", f"{number(found.frequency, 6)} ± {scatter}"))
    rows.append(("residual", number(found.residual, 2)))
    if plot is not None:
        rows.append(("plot", str(plot)))
    return rows
