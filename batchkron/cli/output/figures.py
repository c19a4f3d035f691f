"""Common parts of all plots: Matplotlib without a display, and files that are never partial."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from batchkron.cli.failure import CommandError
from batchkron.errors import BackendUnavailableError
from batchkron.storage.atomic_write import write_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["new_figure", "plain", "require_plotting", "save_figure"]

_DOTS_PER_INCH = 150  # resolution of pixel formats; chosen by hand


def require_plotting(path: Path) -> None:
    """Check that a plot can be written to a file of this name.

    Parameters
    ----------
    path : Path
        The file; its suffix determines the format.

    Raises
    ------
    BackendUnavailableError
        If Matplotlib is not installed.
    CommandError
        If Matplotlib does not support the format.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
    except ImportError as error:
        raise BackendUnavailableError(
            "--plot needs Matplotlib, which is not installed: pip install 'batchkron[plot]'"
        ) from error
    known = FigureCanvasAgg.get_supported_filetypes()
    if path.suffix.removeprefix(".").lower() not in known:
        raise CommandError(
            f"the plot is to go to {path}; expected a name that ends in .png, or in one of "
            f"{', '.join(sorted(f'.{suffix}' for suffix in known if suffix != 'png'))}."
        )


def new_figure(width: float, height: float, title: str) -> Figure:
    """Return an empty figure that needs no display.

    Parameters
    ----------
    width, height : float
        Size in inches.
    title : str
        The title, as returned by `plain`.

    Returns
    -------
    matplotlib.figure.Figure
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(
        figsize=(width, height),
        dpi=_DOTS_PER_INCH,
        layout=ConstrainedLayoutEngine(wspace=0.05),
    )
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize="medium")
    return figure


def save_figure(path: Path, figure: Figure, *, overwrite: bool) -> None:
    """Write a figure to a file, completely or not at all.

    Parameters
    ----------
    path : Path
        The file; its suffix determines the format.
    figure : matplotlib.figure.Figure
        The figure.
    overwrite : bool
        Whether an existing file is replaced.

    Raises
    ------
    OSError
        If it cannot be written.
    """
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix.removeprefix(".").lower())
    write_file(path, content.getvalue(), overwrite=overwrite)


def plain(text: str) -> str:
    r"""Return a text with dollar signs escaped, which Matplotlib reads as mathematics otherwise.

    Examples
    --------
    >>> print(plain("a $ sign"))
    a \$ sign
    """
    return text.replace("$", r"\$")
