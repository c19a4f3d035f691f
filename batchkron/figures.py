"""Matplotlib without a display: figures, and texts in them. It is imported when it is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchkron.errors import BackendUnavailableError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["new_figure", "plain", "require_matplotlib", "with_unit"]

_DOTS_PER_INCH = 150  # resolution of pixel formats; chosen by hand


def require_matplotlib(what: str) -> None:
    """Check that Matplotlib can be imported.

    Parameters
    ----------
    what : str
        What needs it, for the error text.

    Raises
    ------
    BackendUnavailableError
        If it is not installed.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise BackendUnavailableError(
            f"{what} needs Matplotlib, which is not installed: pip install 'batchkron[plot]'"
        ) from error


def new_figure(width: float, height: float, title: str = "") -> Figure:
    """Return an empty figure that needs no display.

    Parameters
    ----------
    width, height : float
        Size in inches.
    title : str
        The title, as returned by `plain`; none if empty.

    Returns
    -------
    matplotlib.figure.Figure
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(
        figsize=(width, height), dpi=_DOTS_PER_INCH, layout=ConstrainedLayoutEngine(wspace=0.05)
    )
    FigureCanvasAgg(figure)
    if title:
        figure.suptitle(title, fontsize="medium")
    return figure


def plain(text: str) -> str:
    r"""Return a text with dollar signs escaped, which Matplotlib reads as mathematics otherwise.

    Examples
    --------
    >>> print(plain("a $ sign"))
    a \$ sign
    """
    return text.replace("$", r"\$")


def with_unit(text: str, unit: str | None) -> str:
    """Return a label with its unit, if there is one.

    Examples
    --------
    >>> print(with_unit("x", "m"), with_unit("y", None))
    x [m] y
    """
    return plain(f"{text} [{unit}]" if unit else text)
