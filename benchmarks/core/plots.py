"""Pictures, drawn by matplotlib."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

WHISKERS = (5, 95)  # percentiles, as in the paper
MAX_BOXES = 16


def figures() -> Any:
    """matplotlib without a display, and without dates in its files."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "batchkron", "font.size": 9})
    from matplotlib import pyplot

    return pyplot


def save_figure(figure: Any, path: Path) -> None:
    """Write a picture; the same data give the same file."""
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def grouped(values: Mapping[float, Sequence[float]], most: int = MAX_BOXES) -> list[Any]:
    """Pairs of a label and all values of it; close keys are joined until there are few boxes."""
    keys = sorted(values)
    groups = [keys[k * len(keys) // most : (k + 1) * len(keys) // most] for k in range(most)]
    if len(keys) <= most:
        groups = [[key] for key in keys]
    found = []
    for own in groups:
        if own:
            label = f"{own[0]:.3g}" if len(own) == 1 else f"{own[0]:.2g}-{own[-1]:.2g}"
            found.append((label, [one for key in own for one in values[key]]))
    return found


def draw_boxes(
    axis: Any, found: Sequence[Any], level: float | None = None, rotation: float = 70
) -> None:
    """Draw a box for each pair of a label and its values; ``level``: a dashed line."""
    axis.boxplot(
        [own for _, own in found],
        tick_labels=[f"{label}\n{len(own)}" for label, own in found],
        whis=WHISKERS,
        showfliers=False,
    )
    axis.tick_params(axis="x", labelrotation=rotation, labelsize=7)
    if level is not None:
        axis.axhline(level, linestyle="--", linewidth=0.8, color="0.4")
    axis.grid(axis="y", linewidth=0.4)


def logarithmic(axis: Any) -> None:
    """Let the vertical axis be logarithmic, with the labels 1, 2, 5, 10, … as plain numbers."""
    from matplotlib import ticker

    axis.set_yscale("log")
    axis.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_formatter(ticker.NullFormatter())


def boxes(
    path: Path,
    panels: Mapping[str, Mapping[float, Sequence[float]]],
    across: str,
    down: str,
    level: float | None = None,
) -> None:
    """Draw a box plot in each panel: median, quartiles, 5th and 95th percentile.

    Parameters
    ----------
    path : Path
    panels : dict of dict
        By its title the values of each number on the horizontal axis.
    across, down : str
        What the axes are.
    level : float, optional
        A dashed line.
    """
    pyplot = figures()
    columns = min(2, len(panels))
    rows = math.ceil(len(panels) / columns)
    size = (7.4 * columns, 3.6 * rows)
    figure, axes = pyplot.subplots(rows, columns, figsize=size, sharey=True, squeeze=False)
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    for axis, (title, values) in zip(axes.flat, panels.items(), strict=False):
        draw_boxes(axis, grouped(values), level)
        axis.set_title(title)
        axis.set_xlabel(f"{across}, and how many patterns")
    for row in axes:
        row[0].set_ylabel(down)
    save_figure(figure, path)
    pyplot.close(figure)
