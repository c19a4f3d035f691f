"""The plot of `batchkron converge --plot`: the error over the level and over the unknowns."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from batchkron.cli.output.text import number
from batchkron.cli.running.convergence import Convergence
from batchkron.figures import new_figure, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_convergence"]


def draw_convergence(convergence: Convergence) -> Figure:
    """Draw the L2 error, the projection's error and the expected slope.

    ``convergence``: runs with at least one known error.

    Result: left: over the level; right: over the unknowns. The slope passes through the error on
    the finest level.
    """
    runs = convergence.runs
    levels = np.array([run.level for run in runs])
    unknowns = np.array([run.unknowns for run in runs])
    errors = _values([run.l2_error for run in runs])
    projection = _values([run.projection_error for run in runs])
    order = convergence.expected_order
    slope = errors[-1] * np.ldexp(1.0, -order * (levels - levels[-1]))
    t_unit = convergence.problem.units.get("t")
    end = f"t = {number(convergence.problem.stepper.until, 6)}" + (f" {t_unit}" if t_unit else "")
    figure = new_figure(11.0, 4.8, plain(f"{convergence.describe()},  {end}"))
    left, right = figure.subplots(1, 2, sharey=True)
    for axes, places in ((left, levels), (right, unknowns)):
        axes.plot(places, slope, "--", color="0.65", label=f"order {order} = degree + 1")
        axes.plot(
            places,
            projection,
            "s-",
            color="C2",
            markersize=9,
            fillstyle="none",
            label="exact, projected",
        )
        axes.plot(places, errors, "o-", color="C0", label="computed")
        axes.set_yscale("log")
        axes.grid(which="major", color="0.9", linewidth=0.6)
        axes.set_axisbelow(True)
    left.set_ylim(*_limits(np.concatenate([errors, projection])))
    _write_orders(left, convergence)
    left.set_xticks(levels)
    left.set_xlabel("finest level")
    left.set_ylabel("L2 error")
    right.set_xscale("log")
    right.set_xticks(unknowns, [str(count) for count in unknowns], fontsize="small")
    right.set_xticks([], minor=True)
    right.set_xlabel("unknowns")
    right.legend(loc="best", frameon=False)
    return figure


def _values(errors: list[float | None]) -> NDArray[np.float64]:
    """Return errors as an array, NaN if unknown, which Matplotlib does not draw."""
    return np.array([np.nan if error is None else error for error in errors])


def _limits(values: NDArray[np.float64]) -> tuple[float | None, float | None]:
    """Return the limits of a logarithmic axis for the values, None if there are none to draw."""
    drawn = values[values > 0.0]
    return (drawn.min() / 2.0, drawn.max() * 2.0) if drawn.size else (None, None)


def _write_orders(axes: Axes, convergence: Convergence) -> None:
    """Write each observed order above the middle of its part of the curve."""
    runs = convergence.runs
    for before, run in pairwise(runs):
        if run.order is None or not before.l2_error or not run.l2_error:
            continue
        middle = ((before.level + run.level) / 2.0, (before.l2_error * run.l2_error) ** 0.5)
        axes.annotate(
            f"{run.order:.2f}",
            middle,
            xytext=(4.0, 3.0),
            textcoords="offset points",
            fontsize="small",
            color="C0",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
        )
