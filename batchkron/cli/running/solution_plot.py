"""The plot of `batchkron run --plot`: the final state, and the cells of the grid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import to_host
from batchkron.cli.output.sampling import plane_cells
from batchkron.cli.output.text import number
from batchkron.figures import new_figure, plain
from batchkron.problems import LinearProblem, Problem
from batchkron.problems.linear.indices import figure_of as draw_list
from batchkron.problems.semidiscrete.output.cut import Cut
from batchkron.problems.semidiscrete.output.draw import draw_on, drawn_state, make_view

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


def draw(report: RunReport, cut: Cut | Mapping[str, float] | None = None) -> Figure:
    """Draw the final state of a run.

    ``report``: the report, with the problem and its final state.
    ``cut``: what is done to axes that are not drawn; where indices of a batch list are fixed.

    Result: along one axis the solution as a curve, and its difference from the exact solution if
    that is known. Along two the solution as an image, the exact solution and the difference if they
    are known, and the cells of the grid by level. Of a batch list the state along one index.
    """
    problem, u = report.problem, report.result.u
    if isinstance(problem, LinearProblem):
        places = {} if cut is None or isinstance(cut, Cut) else cut
        return draw_list(problem.output.picture(u, report.result.t, slice=places), _title(report))
    assert cut is None or isinstance(cut, Cut)
    view = make_view(problem.output, u, report.result.t, cut or Cut(), None)
    if len(view.axes) == 1:
        figure = drawn_state(view, None)
        figure.suptitle(_title(report), fontsize="medium")
        return figure
    rows = 1 if view.exact is None else 2
    figure = new_figure(11.0, 0.6 + 4.2 * rows, _title(report))
    panels = list(figure.subplots(rows, 2, squeeze=False).flat)
    for axes, shown in zip(panels, view.subplots, strict=False):
        draw_on(axes, view, shown)
    first, second = (problem.axes.index(axis) for axis in view.axes)
    _draw_cells(panels[-1], problem, to_host(u, "u"), (first, second))
    return figure


def _title(report: RunReport) -> str:
    problem = report.problem
    t_unit = None if isinstance(problem, LinearProblem) else problem.units.get("t")
    parts = [problem.name, f"t = {number(report.result.t, 6)}" + (f" {t_unit}" if t_unit else "")]
    l2_error, relative_error = report.content.l2_error, report.content.relative_error
    if l2_error is not None:
        parts.append(f"L2 error {number(l2_error, 3)} (relative {number(relative_error, 3)})")
    return ",  ".join(plain(part) for part in parts)


def _draw_cells(
    axes: Axes, problem: Problem, u: NDArray[np.float64], drawn: tuple[int, int]
) -> None:
    """Draw each cell in the square of its pair of levels, coloured by the norm of its block."""
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import LogNorm

    all_levels, all_positions, all_norms = plane_cells(problem, u, drawn)
    shown = np.all(all_levels <= _FINEST_LEVEL, axis=1)
    levels, positions, norms = all_levels[shown], all_positions[shown], all_norms[shown]
    corners = _corners(levels, positions)
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
    for k, name, limit in zip(drawn, "xy", levels.max(axis=0), strict=True):
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
