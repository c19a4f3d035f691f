"""Pictures of recorded quantities over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from batchkron.analysis.growth_fit import GrowthFit
from batchkron.analysis.recorded import Recorded
from batchkron.datasets import require_xarray
from batchkron.figures import new_figure, plain, require_matplotlib, with_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_recorded", "recorded_dataset"]

# Quantities that are positive and vary by more than this factor are drawn on a logarithmic axis.
_MANY_TIMES = 100.0

Texts = Mapping[str, str]


def plot_recorded(
    recorded: Recorded,
    names: str | Sequence[str] | None = None,
    *,
    labels: Texts | None = None,
    units: Texts | None = None,
    log: bool | None = None,
    fit: GrowthFit | None = None,
    title: str = "",
    ax: Axes | None = None,
) -> Figure | Axes:
    """Draw quantities over time, with one vertical axis each, or all on one that is given.

    ``recorded``: the quantities.
    ``names``: which are drawn; by default all.
    ``labels``, ``units`` (mapping of str to str): what a quantity is, as a formula, and its unit;
      the unit of time is that of "t".
    ``log``: whether the vertical axes are logarithmic, for the sizes of the values; by default for
      quantities that are positive and vary by more than a factor of 100, and with ``fit``.
    ``fit``: a fit, of which the envelope is drawn on a logarithmic axis, else the curve; for one
      quantity.
    ``title``: the title of a new figure.
    ``ax``: where to draw; by default a new figure is made, with a panel for each quantity.

    Returns the new figure, or ``ax``. Raises `BackendUnavailableError` if Matplotlib is not
    installed. `ValueError` if nothing was recorded, a quantity was not, or ``fit`` is given for
    several.
    """
    require_matplotlib("plot")
    chosen = _chosen(recorded, names)
    if fit is not None and len(chosen) > 1:
        raise ValueError(f"fit belongs to one quantity, and {len(chosen)} are drawn; name one")
    labels, units = labels or {}, units or {}
    if ax is not None:
        for name in chosen:
            _draw(ax, recorded, name, labels, units, log, fit)
        if len(chosen) > 1 or fit is not None:
            if len(chosen) > 1:
                ax.set_ylabel("")
            _legend(ax)
        ax.set_xlabel(with_unit("t", units.get("t")))
        return ax
    figure = new_figure(7.0, 1.4 + (2.8 if len(chosen) == 1 else 1.7 * len(chosen)), plain(title))
    panels = figure.subplots(len(chosen), 1, sharex=True, squeeze=False)[:, 0]
    for panel, name in zip(panels, chosen, strict=True):
        _draw(panel, recorded, name, labels, units, log, fit)
        if fit is not None:
            _legend(panel)
    panels[-1].set_xlabel(with_unit("t", units.get("t")))
    return figure


def _draw(
    axes: Axes,
    recorded: Recorded,
    name: str,
    labels: Texts,
    units: Texts,
    log: bool | None,
    fit: GrowthFit | None,
) -> None:
    """Draw one quantity."""
    values = recorded[name]
    is_log = log if log is not None else fit is not None or _varies_much(values)
    drawn = np.abs(values) if is_log else values
    axes.plot(recorded.t, drawn, linewidth=1.2, label=plain(name))
    if is_log:
        axes.set_yscale("log")
    if fit is not None:
        times = np.linspace(*fit.between, 200)
        drawn = fit.envelope(times) if is_log else fit.curve(times)
        words = f"exp({fit.rate:.5g} t)"
        if fit.frequency:
            words += f", ω = {fit.frequency:.5g}"
        axes.plot(times, drawn, "--", color="0.2", linewidth=1.2, label=words)
    formula = labels.get(name)
    text = f"{name}  {formula}" if formula and formula != name else name
    axes.set_ylabel(with_unit(text, units.get(name)))
    axes.margins(x=0.0)
    if not is_log:
        axes.ticklabel_format(axis="y", useOffset=True, scilimits=(-3, 4))


def _legend(axes: Axes) -> None:
    """Put the legend above the axes, where it hides no curve, and no power of ten at the left."""
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=4, frameon=False)


def _varies_much(values: NDArray[np.float64]) -> bool:
    known = values[np.isfinite(values)]
    return bool(len(known) and known.min() > 0.0 and known.max() > _MANY_TIMES * known.min())


def _chosen(recorded: Recorded, names: str | Sequence[str] | None) -> list[str]:
    """Return the quantities that are asked for."""
    if not recorded.names:
        raise ValueError(
            "no quantities were recorded; name them in evolve(problem, watch=…), such as "
            "watch=problem.quantities('mass'), or with --record"
        )
    if names is None:
        return list(recorded.names)
    chosen = [names] if isinstance(names, str) else list(names)
    for name in chosen:
        if name not in recorded.names:
            raise ValueError(f"{name!r} was not recorded; recorded: {', '.join(recorded.names)}")
    return chosen


def recorded_dataset(recorded: Recorded, labels: Texts, units: Texts, attributes: Texts) -> Any:
    """Return recorded quantities as an xarray.Dataset over the time t.

    Raises `BackendUnavailableError` if xarray is not installed. `ValueError` if nothing was
    recorded.
    """
    xarray = require_xarray("to_xarray")
    names = _chosen(recorded, None)

    def about(name: str, text: str) -> dict[str, str]:
        unit = units.get(name)
        return {"long_name": text, **({"units": unit} if unit else {})}

    variables = {
        name: ("t", recorded[name], about(name, labels.get(name) or name)) for name in names
    }
    return xarray.Dataset(variables, {"t": ("t", recorded.t, about("t", "time"))}, attributes)
