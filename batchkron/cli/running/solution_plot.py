"""The plot of `batchkron run --plot`: the final state, and the cells of the grid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import to_host
from batchkron.cli.output.figures import new_figure, plain
from batchkron.cli.output.sampling import choose_plane, plane_cells, sample_line, sample_plane
from batchkron.cli.output.text import number
from batchkron.problems import Problem

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from batchkron.cli.running.report import RunReport

__all__ = ["draw"]

_FINEST_LEVEL = 9  # largest level whose cells are drawn; finer ones would be too small
_SQUARE = 0.88  # side of the square of a pair of levels, whose distance is 1; chosen by hand
_EDGE = 1.0  # line width of the edges of the coarsest cells, in points; chosen by hand
# Blocks with a smaller norm, relative to the largest, are grey: they are rounding errors.
_MIN_VISIBLE_NORM = 1e-12


def draw(report: RunReport) -> Figure:
    """Draw the final state of a run.

    Parameters
    ----------
    report : RunReport
        The report, with the problem and its final state.

    Returns
    -------
    matplotlib.figure.Figure
        For problems with one axis the solution as a curve, and its difference from the exact
        solution if that is known. For others the solution in a plane of the first two axes, and the
        cells of the grid by level.
    """
    problem, u = report.problem, to_host(report.result.u, "u")
    one = len(problem.axes) == 1
    figure = new_figure(*((7.0, 5.0) if one else (11.0, 4.8)), _title(report))
    if one:
        _draw_line(figure, problem, u, problem.exact_coefficients(report.result.t))
    else:
        left, right = figure.subplots(1, 2, width_ratios=(1.0, 1.0))
        _draw_plane(left, problem, u)
        _draw_cells(right, problem, u)
    return figure


def _title(report: RunReport) -> str:
    t_unit = report.problem.units.get("t")
    parts = [
        report.problem.name,
        f"t = {number(report.result.t, 6)}" + (f" {t_unit}" if t_unit else ""),
    ]
    if report.l2_error is not None:
        relative = number(report.relative_error, 3)
        parts.append(f"L2 error {number(report.l2_error, 3)} (relative {relative})")
    return ",  ".join(plain(part) for part in parts)


def _label(problem: Problem, quantity: str) -> str:
    unit = problem.units.get(quantity)
    return plain(f"{quantity} [{unit}]" if unit else quantity)


def _draw_line(
    figure: Figure, problem: Problem, u: NDArray[np.float64], exact: NDArray[np.float64] | None
) -> None:
    """Draw a state and the exact solution as curves, and their difference below."""
    points, values = sample_line(problem, u)
    label = _label(problem, problem.axes[0].name)
    if exact is None:
        upper = lower = figure.subplots()
    else:
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3.0, 1.0))
        _, expected = sample_line(problem, exact)
        upper.plot(points, expected, color="0.65", linewidth=4.0, label="exact, projected")
        lower.plot(points, values - expected, color="C3", linewidth=0.8)
        lower.axhline(0.0, color="0.65", linewidth=0.6, zorder=0)
        lower.set_ylabel("difference")
    upper.plot(points, values, color="C0", linewidth=1.2, label="computed")
    upper.set_ylabel(_label(problem, "f"))
    upper.legend(loc="best", frameon=False)
    lower.set_xlabel(label)
    upper.set_xlim(problem.axes[0].lower, problem.axes[0].upper)


def _draw_plane(axes: Axes, problem: Problem, u: NDArray[np.float64]) -> None:
    """Draw the values of a state in a plane of the first two axes."""
    plane = choose_plane(problem, u)
    values = sample_plane(problem, u, plane)
    largest = float(np.abs(values).max())
    signed = values.min() < 0.0 < values.max()
    limits: dict[str, Any] = {"vmin": -largest, "vmax": largest} if signed else {}
    first, second = problem.axes[:2]
    image = axes.imshow(
        values,
        origin="lower",
        extent=(first.lower, first.upper, second.lower, second.upper),
        aspect="auto",
        interpolation="nearest",
        cmap="RdBu_r" if signed else "viridis",
        **limits,
    )
    axes.figure.colorbar(image, ax=axes)
    axes.set_xlabel(_label(problem, first.name))
    axes.set_ylabel(_label(problem, second.name))
    axes.locator_params(nbins=5)
    places = [f"{name} = {value:.4g}" for name, value in plane.fixed.items()]
    where = f" at {', '.join(places)}" if places else ""
    axes.set_title(_label(problem, "f") + plain(where), fontsize="small")


def _draw_cells(axes: Axes, problem: Problem, u: NDArray[np.float64]) -> None:
    """Draw each cell in the square of its pair of levels, coloured by the norm of its block."""
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import LogNorm

    cells = plane_cells(problem, u)
    shown = np.all(cells.levels <= _FINEST_LEVEL, axis=1)
    levels, norms = cells.levels[shown], cells.norms[shown]
    corners = _corners(levels, cells.positions[shown])
    largest = float(norms.max()) or 1.0
    visible = norms > largest * _MIN_VISIBLE_NORM
    axes.add_collection(PolyCollection(list(corners[~visible]), facecolor="0.9"))
    if visible.any():
        blocks = PolyCollection(
            list(corners[visible]),
            array=norms[visible],
            norm=LogNorm(),
            cmap="viridis",
            edgecolor="white",
            linewidth=_EDGE * 0.7 ** levels[visible].max(axis=1),
        )
        axes.add_collection(blocks)
        axes.figure.colorbar(blocks, ax=axes, label="norm of a cell's coefficients")
    for k, (name, limit) in enumerate(zip("xy", levels.max(axis=0), strict=True)):
        axis_name = plain(problem.axes[k].name)
        axes.set(
            **{
                f"{name}lim": (-0.6, limit + 0.6),
                f"{name}ticks": np.arange(limit + 1),
                f"{name}label": f"level in {axis_name}",
            }
        )
    axes.set_aspect("equal")
    rest = "" if shown.all() else f", up to {_FINEST_LEVEL}"
    axes.set_title(
        f"{problem.grid.num_cells} cells of the {problem.grid.kind} grid by level{rest}",
        fontsize="small",
    )


def _corners(levels: NDArray[np.int64], positions: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the corners of the cells' rectangles, (m, 4, 2), in squares of pairs of levels."""
    width = _SQUARE * np.ldexp(1.0, -np.maximum(levels - 1, 0))
    lower = levels - _SQUARE / 2.0 + positions * width
    turn = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    return np.asarray(lower[:, None, :] + turn * width[:, None, :])
