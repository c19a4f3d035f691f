"""Pictures of a state: curves and images of it, of the exact solution, and of their difference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from batchkron.figures import new_figure, plain, require_matplotlib, with_unit

from ...statement.axis import Axis
from ...statement.number_checks import finite_number
from ..value import ProblemValue
from .cut import Cut
from .observables import Observables
from .sampling import choose_plane, sample

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

__all__ = ["SHOWN", "View", "draw_on", "draw_values", "drawn_state", "make_view"]

SHOWN = ("solution", "exact", "error")
"""What a subplot shows: the state, the exact solution's projection, or their difference."""

# A colour map with white at zero is used if both signs occur, and the smaller extreme is at least
# this share of the larger one. Below it, it is an undershoot of a positive function.
_SIGNED = 0.25


@dataclass(frozen=True, eq=False)
class View:
    """One state with all that its pictures need.

    ``output``: the output of the problem.
    ``u`` (ndarray, shape (N,), float64): the state.
    ``cut``: what is done to the axes that are not shown; one axis or two are left.
    ``exact`` (ndarray, shape (N,), float64, or None): the exact solution's projection on the grid,
      if it is known at this time.
    ``limits``: the range of values, of colours or of the vertical axis.
    """

    output: Observables
    u: NDArray[np.float64]
    t: float | None
    cut: Cut
    exact: NDArray[np.float64] | None
    limits: tuple[float, float] | None

    @property
    def problem(self) -> ProblemValue:
        """The problem's parts."""
        return self.output.problem

    @property
    def axes(self) -> list[Axis]:
        """The axes along which it is drawn."""
        hidden = [*self.cut.summed, *(axis for axis, _ in self.cut.places)]
        return [axis for axis in self.problem.axes if axis not in hidden]

    @property
    def subplots(self) -> tuple[str, ...]:
        """All that can be shown."""
        return SHOWN[:1] if self.exact is None else SHOWN

    def sampled(self, shown: str) -> tuple[list[NDArray[np.float64]], NDArray[np.float64]]:
        """Return points of each axis, and the values of what is shown there."""
        if shown == "solution":
            return sample(self.cut.of(self.output, self.u))
        if self.exact is None:
            raise ValueError(
                f"show is {shown!r}, and the exact solution is not known; give PDE(..., exact=...) "
                "one, and plot the time t"
            )
        u = self.exact if shown == "exact" else self.u - self.exact
        return sample(self.cut.of(self.output, u))

    def value_label(self, shown: str) -> str:
        """Return the label of an axis or colour bar with the values."""
        quantity = {"solution": "", "exact": "exact ", "error": "error of "}[shown]
        return with_unit(quantity + self.cut.quantity, self.cut.unit(self.problem.units))

    def axis_label(self, k: int) -> str:
        """Return the label of the coordinate along the k-th axis."""
        name = self.axes[k].name
        return with_unit(name, self.problem.units.get(name))

    def title(self) -> str:
        """Return the problem's name, the time, and the error of a whole state."""
        parts = [self.problem.name]
        if self.t is not None:
            unit = self.problem.units.get("t")
            parts.append(f"t = {self.t:.6g}" + (f" {unit}" if unit else ""))
        if self.exact is not None and self.t is not None:
            parts.append(f"L2 error {self.output.l2_error(self.u, self.t):.3g}")
        return ",  ".join(plain(part) for part in parts)


def make_view(
    output: Observables,
    u: NDArray[np.float64],
    t: float | None,
    cut: Cut,
    limits: Sequence[float] | None,
) -> View:
    """Return a view; axes beyond two are fixed where the state is large.

    Raises BackendUnavailableError if Matplotlib is not installed.
    """
    require_matplotlib("plot")
    output.problem._on_host(u)  # checks it
    exact = None
    if t is not None:
        t = finite_number("t", t)
        exact = output.exact_coefficients(t)
    pair: tuple[float, float] | None = None
    if limits is not None:
        low, high = (finite_number("limits", limit) for limit in limits)
        if not low < high:
            raise ValueError(f"limits is ({low}, {high}); expected two ascending numbers")
        pair = low, high
    view = View(output, u, t, cut, exact, pair)
    rest = view.axes[2:]
    if rest:
        if cut.summed:
            places = tuple((axis, (axis.lower + axis.upper) / 2.0) for axis in rest)
        else:
            places = choose_plane(output.problem, u, rest).places
        view = replace(view, cut=replace(cut, places=cut.places + places))
    return view


def drawn_state(view: View, shown: str | None) -> Figure:
    """Return a figure with all subplots, or with one of them."""
    subplots = view.subplots if shown is None else (shown,)
    if len(view.axes) == 1:
        figure = new_figure(7.0, 5.0 if len(subplots) > 1 else 4.2, view.title())
        if len(subplots) == 1:
            draw_on(figure.subplots(), view, subplots[0])
            return figure
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3.0, 1.0))
        draw_on(upper, view, "solution")
        draw_on(lower, replace(view, limits=None), "error")
        upper.set_xlabel("")
        return figure
    figure = new_figure(0.6 + 4.6 * len(subplots), 4.2, view.title())
    drawn = figure.subplots(1, len(subplots), squeeze=False)[0]
    for axes, subplot in zip(drawn, subplots, strict=True):
        of_errors = subplot == "error" and len(subplots) > 1
        draw_on(axes, replace(view, limits=None) if of_errors else view, subplot)
    return figure


def draw_on(axes: Axes, view: View, shown: str) -> None:
    """Draw one subplot, one of `SHOWN`, on Matplotlib's axes."""
    if shown not in SHOWN:
        raise ValueError(f"show is {shown!r}; expected one of {', '.join(map(repr, SHOWN))}")
    if len(view.axes) == 1:
        _draw_line(axes, view, shown)
    else:
        _draw_image(axes, view, shown)


def _draw_line(axes: Axes, view: View, shown: str) -> None:
    """Draw a curve; with the solution also the exact one, if it is known."""
    (points,), values = view.sampled(shown)
    if shown == "error":
        axes.plot(points, values, color="C3", linewidth=0.8, label="computed - exact")
        axes.axhline(0.0, color="0.65", linewidth=0.6, zorder=0)
    elif shown == "exact":
        axes.plot(points, values, color="0.65", linewidth=4.0, label="exact, projected")
    else:
        if view.exact is not None:
            _, expected = view.sampled("exact")
            axes.plot(points, expected, color="0.65", linewidth=4.0, label="exact, projected")
        axes.plot(points, values, color="C0", linewidth=1.2, label="computed")
        if view.exact is not None:
            axes.legend(loc="best", frameon=False)
    axes.set_xlabel(view.axis_label(0))
    axes.set_ylabel(view.value_label(shown))
    axes.set_xlim(view.axes[0].lower, view.axes[0].upper)
    if view.limits is not None:
        axes.set_ylim(*view.limits)
    if view.cut.where:
        axes.set_title(plain(view.cut.where.strip()), fontsize="small")


def _draw_image(axes: Axes, view: View, shown: str) -> None:
    """Draw the values in a plane as colours, with a colour bar."""
    _, values = view.sampled(shown)
    coloured = [values]
    if shown != "error" and view.exact is not None:  # the same colours for both
        coloured.append(view.sampled("exact" if shown == "solution" else "solution")[1])
    limits = view.limits or _colour_limits(np.stack(coloured), signed=shown == "error")
    _image(axes, view, values, limits, shown)


def _image(
    axes: Axes, view: View, values: NDArray[Any], limits: tuple[float, float], shown: str
) -> AxesImage:
    (low, high), (first, second) = limits, view.axes
    image = axes.imshow(
        values.T,
        origin="lower",
        extent=(first.lower, first.upper, second.lower, second.upper),
        aspect="auto",
        interpolation="nearest",
        cmap="RdBu_r" if low == -high else "viridis",
        vmin=low,
        vmax=high,
    )
    axes.figure.colorbar(image, ax=axes)
    axes.set_xlabel(view.axis_label(0))
    axes.set_ylabel(view.axis_label(1))
    axes.locator_params(nbins=5)
    axes.set_title(view.value_label(shown) + plain(view.cut.where), fontsize="small")
    return image


def draw_values(
    axes: Axes, view: View, points: Sequence[NDArray[np.float64]], values: NDArray[Any]
) -> Callable[[int], None]:
    """Draw several states one after another, as in a movie, with the limits of all of them.

    The view is one of the states, and ``values`` (states, m_1, …) are those of all at uniform
    points (m_k,) of each drawn axis. Returns a function that takes the number of a state and shows
    it in place of the one before.
    """
    limits = view.limits or _colour_limits(values, signed=False)
    if len(view.axes) == 2:
        image = _image(axes, view, values[0], limits, "solution")
        return lambda number: image.set_data(values[number].T)
    (line,) = axes.plot(points[0], values[0], color="C0", linewidth=1.2)
    low, high = limits
    margin = 0.0 if view.limits is not None else 0.05 * (high - low)
    axes.set_ylim(low - margin, high + margin)
    axes.set_xlim(view.axes[0].lower, view.axes[0].upper)
    axes.set_xlabel(view.axis_label(0))
    axes.set_ylabel(view.value_label("solution"))
    axes.set_title(plain(view.cut.where.strip()), fontsize="small")
    return lambda number: line.set_ydata(values[number])


def _colour_limits(values: NDArray[np.float64], *, signed: bool) -> tuple[float, float]:
    """Return the values of the first and the last colour, with zero in the middle if both occur."""
    low, high = float(values.min()), float(values.max())
    largest = max(-low, high)
    if signed or (low < 0.0 < high and min(-low, high) >= _SIGNED * largest):
        return -(largest or 1.0), largest or 1.0
    return (low, high) if low < high else (low - 0.5, high + 0.5)
