"""Files of pictures, which are checked before the work starts, and are never partial."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from batchkron.cli.failure import CommandError
from batchkron.figures import require_matplotlib
from batchkron.storage.atomic_write import write_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["require_plotting", "save_figure"]


def require_plotting(path: Path) -> None:
    """Check that a plot can be written to a file of this name, whose suffix says the format.

    Raises `BackendUnavailableError` if Matplotlib is not installed. `CommandError` if Matplotlib
    does not support the format.
    """
    require_matplotlib("--plot")
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    known = FigureCanvasAgg.get_supported_filetypes()
    if path.suffix.removeprefix(".").lower() not in known:
        raise CommandError(
            f"the plot is to go to {path}; expected a name that ends in .png, or in one of "
            f"{', '.join(sorted(f'.{suffix}' for suffix in known if suffix != 'png'))}."
        )


def save_figure(path: Path, figure: Figure, *, overwrite: bool) -> None:
    """Write a figure to a file, completely or not at all; the file's suffix says the format.

    Raises `OSError` if it cannot be written.
    """
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix.removeprefix(".").lower())
    write_file(path, content.getvalue(), overwrite=overwrite)
