"""The indices of a vector in blocks: their names, and pictures along one of them."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from batchkron.figures import new_figure, require_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["MAX_INDICES", "IndexPlot", "check_blocks", "draw_on", "figure_of", "index_names"]

MAX_INDICES = 32
"""Indices of a vector in blocks; NumPy's arrays have at most 64."""

SHOWN = ("solution", "exact", "error")


def check_blocks(blocks: Sequence[int], unknowns: int) -> tuple[int, ...]:
    """Return the shape of vectors in blocks: 1 to 32 numbers >= 1 with the product N."""
    shape = tuple(operator.index(size) for size in blocks)
    right = 1 <= len(shape) <= MAX_INDICES and all(size >= 1 for size in shape)
    if not right or math.prod(shape) != unknowns:
        raise ValueError(
            f"blocks is {shape}; expected 1 to {MAX_INDICES} numbers >= 1 with the product "
            f"{unknowns}, the number of unknowns"
        )
    return shape


def index_names(blocks: Sequence[int]) -> tuple[str, ...]:
    """Return the names of the indices: "block", then "i1", "i2", … of the modes."""
    return ("block", *(f"i{k}" for k in range(1, len(blocks))))


class IndexPlot:
    """A line of a state in blocks along one index; see `LinearProblem.plot`.

    ``along``: the index.
    ``fixed`` (dict of str to int): where the others are.
    ``values`` (ndarray, (n,)): of the state.
    ``exact`` (ndarray, (n,), or None): of the exact solution.
    """

    def __init__(
        self,
        state: NDArray[Any],
        exact: NDArray[Any] | None,
        along: str | None,
        places: Mapping[str, int],
    ) -> None:
        names = index_names(state.shape)
        for name in (*places, *([] if along is None else [along])):
            if name not in names:
                raise ValueError(f"{name!r} is no index; expected one of {', '.join(names)}")
        free = [name for name in names if name not in places]
        if not free or along in places:
            raise ValueError("all indices are fixed; expected one that is left to draw along")
        self.along = free[0] if along is None else along
        largest = np.unravel_index(int(np.argmax(np.abs(state))), state.shape)
        self.fixed: dict[str, int] = {}
        for name, size, place in zip(names, state.shape, largest, strict=True):
            if name != self.along:
                self.fixed[name] = _place(name, places.get(name, int(place)), size)
        line = tuple(self.fixed.get(name, slice(None)) for name in names)
        self.values, self.exact = state[line], None if exact is None else exact[line]


def _place(name: str, given: Any, size: int) -> int:
    """Return a place along an index; floats of the command line must be whole."""
    if isinstance(given, float) and given.is_integer():
        given = int(given)
    place = operator.index(given)
    if not 0 <= place < size:
        raise ValueError(f"slice has {name} = {place}; expected 0 to {size - 1}")
    return place


def figure_of(picture: IndexPlot, title: str, show: str | None = None) -> Figure:
    """Return a figure of a line; its arguments are those of `draw_on`."""
    require_matplotlib("plot")
    figure = new_figure(7.0, 4.2, title)
    draw_on(figure.subplots(), picture, show)
    return figure


def draw_on(axes: Axes, picture: IndexPlot, show: str | None = None) -> None:
    """Draw a line; of a complex state its real and imaginary part.

    ``show`` is "solution", "exact" or "error"; by default the solution, and the exact one if it is
    known.
    """
    if show is not None and show not in (SHOWN if picture.exact is not None else SHOWN[:1]):
        known = "the exact solution is not known" if show in SHOWN else f"expected one of {SHOWN}"
        raise ValueError(f"show is {show!r}; {known}")
    for label, values, color, width in _curves(picture, show):
        if values.dtype.kind == "c":
            axes.plot(values.real, color=color, linewidth=width, label=f"{label}, real part")
            axes.plot(values.imag, color=color, linewidth=width, linestyle=":", label="imaginary")
        else:
            axes.plot(values, color=color, linewidth=width, label=label)
    axes.set_xlabel(picture.along)
    axes.set_ylabel("error of u" if show == "error" else "u")
    axes.set_title(", ".join(f"{k} = {v}" for k, v in picture.fixed.items()), fontsize="small")
    if len(axes.get_lines()) > 1:
        axes.legend(loc="best", frameon=False)


def _curves(picture: IndexPlot, show: str | None) -> list[tuple[str, NDArray[Any], str, float]]:
    """Return what is drawn: label, values, colour and line width of each curve."""
    exact, values = picture.exact, picture.values
    found: list[tuple[str, NDArray[Any], str, float]] = []
    if exact is not None and show in (None, "exact", "solution"):
        found.append(("exact", exact, "0.65", 4.0))
    if show in (None, "solution"):
        found.append(("computed", values, "C0", 1.2))
    if exact is not None and show == "error":
        found.append(("computed - exact", values - exact, "C3", 0.8))
    return found
