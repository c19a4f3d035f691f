"""Pictures during a run: a movie, or numbered files of pictures."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from batchkron.cli.failure import CommandError
from batchkron.cli.output.figures import save_figure
from batchkron.figures import new_figure, plain, require_matplotlib
from batchkron.problems import Problem
from batchkron.problems.semidiscrete.output.cut import Cut
from batchkron.problems.semidiscrete.output.draw import View, draw_values, drawn_state, make_view
from batchkron.solvers import EvolveState
from batchkron.storage.atomic_write import write_file

if TYPE_CHECKING:
    from matplotlib.animation import AbstractMovieWriter

__all__ = ["PicturePlan", "PicturesDuringRun", "numbered", "require_movie_writer"]

_FRAMES = 100  # pictures of a movie if their interval is not chosen
_MAX_PICTURES = 2000  # pictures of a run; a movie keeps all of them in memory
_FRAMES_PER_SECOND = 15
_MOVIE_POINTS = 256  # points along each axis of a movie's images
_DOTS_PER_INCH = 100  # resolution of a movie
_WRITERS = {  # Matplotlib's writer by the end of a file's name
    ".gif": "pillow",
    ".webp": "pillow",
    ".mp4": "ffmpeg",
    ".mkv": "ffmpeg",
    ".mov": "ffmpeg",
    ".webm": "ffmpeg",
}


def require_movie_writer(path: Path) -> None:
    """Check that a movie can be written to a file of this name.

    Raises `BackendUnavailableError` if Matplotlib is not installed. `CommandError` if the format is
    unknown, or the program that writes it is missing.
    """
    require_matplotlib("--movie")
    _writer(path)


def _writer(path: Path) -> AbstractMovieWriter:
    from matplotlib.animation import writers

    name = _WRITERS.get(path.suffix.lower())
    if name is None:
        raise CommandError(
            f"the movie is to go to {path}; expected a name that ends in .gif, or in one of "
            f"{', '.join(sorted(set(_WRITERS) - {'.gif'}))}."
        )
    if not writers.is_available(name):
        raise CommandError(
            f"the movie is to go to {path}, and the program {name}, which writes such files, is "
            f"not found; install it, or give a name that ends in .gif."
        )
    return writers[name](fps=_FRAMES_PER_SECOND)


class PicturePlan:
    """When pictures are made during a run: by default 101, at equal intervals.

    ``begin``, ``until``, ``interval``: the times of the first picture and of the last one, and that
      between two of them.
    ``count``: their number.

    Raises `CommandError` if there would be more than 2000.
    """

    def __init__(self, begin: float, until: float, interval: float | None) -> None:
        length = until - begin
        if interval is None:
            interval = length / _FRAMES or 1.0
        self.begin, self.until, self.interval, self.count = begin, until, interval, 1
        if length > 0.0:
            count = math.ceil(length / interval - 1e-9) + 1
            if count > _MAX_PICTURES:
                raise CommandError(
                    f"--plot-every {interval:g} makes {count:.6g} pictures until t = {until:g}; at "
                    f"most {_MAX_PICTURES} are possible. Take a longer interval."
                )
            self.count = count

    def number(self, t: float) -> int:
        """Return the number of the picture whose time is nearest, from 0."""
        if t >= self.until:
            return self.count - 1
        return min(round((t - self.begin) / self.interval), max(self.count - 2, 0))

    def is_due(self, t: float, dt: float) -> bool:
        """Return whether a state after a step of dt is the nearest one to a picture's time."""
        place = self.begin + self.number(t) * self.interval
        return t >= self.until or abs(place - t) <= 0.5 * dt * (1.0 + 1e-9)


def numbered(path: Path, number: int) -> Path:
    """Return the name of a numbered picture.

    Examples
    --------
    >>> print(numbered(Path("c2.png"), 7))
    c2-0007.png
    """
    return path.with_name(f"{path.stem}-{number:04d}{path.suffix}")


class PicturesDuringRun:
    """Makes the pictures of a run.

    ``plan``: when.
    ``cut``: what is done to axes that are not drawn.
    ``movie``: the file of a movie, which is written at the end, with the same colours in all
      pictures.
    ``plot``: the name of numbered pictures, which are written at once.
    ``force``: whether existing files are replaced.
    """

    def __init__(
        self,
        plan: PicturePlan,
        problem: Problem,
        cut: Cut,
        movie: Path | None,
        plot: Path | None,
        *,
        force: bool,
    ) -> None:
        self._plan, self._movie, self._plot, self._force = plan, movie, plot, force
        self._view = make_view(problem.output, problem.initial, problem.t0, cut, None)
        self._mesh = [
            axis.lower + axis.length * (np.arange(_MOVIE_POINTS) + 0.5) / _MOVIE_POINTS
            for axis in self._view.axes
        ]
        self._frames: dict[int, tuple[float, NDArray[np.float32]]] = {}
        self._before: float | None = None

    def begin(self, problem: Problem, u: Any, t: float) -> None:
        """Show the state at which the run begins."""
        self._before = t
        self._show(problem, u, t)

    def after_step(self, state: EvolveState) -> None:
        """Show a state if its time is that of a picture, or the last one."""
        before = self._before
        step = state.dt if before is None or state.t <= before else state.t - before
        self._before = state.t
        if self._plan.is_due(state.t, step):
            self._show(state.problem, state.u, state.t)

    def _show(self, problem: Problem, u: Any, t: float) -> None:
        number = self._plan.number(t)
        cut = self._view.cut
        if self._movie is not None:
            mesh = np.meshgrid(*self._mesh, indexing="ij", sparse=True)
            self._frames[number] = t, cut.of(problem.output, u).evaluate(*mesh).astype(np.float32)
        if self._plot is not None:
            view = make_view(problem.output, u, t, cut, None)
            save_figure(numbered(self._plot, number), drawn_state(view, None), overwrite=True)

    def finish(self) -> None:
        """Write the movie, completely or not at all."""
        if self._movie is None:
            return
        writer = _writer(self._movie)
        frames = [self._frames[number] for number in sorted(self._frames)]
        with tempfile.TemporaryDirectory() as folder:
            partial = Path(folder) / f"movie{self._movie.suffix.lower()}"
            _write_movie(writer, partial, self._view, self._mesh, frames)
            write_file(self._movie, partial.read_bytes(), overwrite=self._force)


def _write_movie(
    writer: AbstractMovieWriter,
    path: Path,
    view: View,
    mesh: list[NDArray[np.float64]],
    frames: list[tuple[float, NDArray[np.float32]]],
) -> None:
    """Draw the frames one after another in one figure, with the same limits."""
    figure = new_figure(6.4, 4.8)
    everything = np.stack([values for _, values in frames])
    axes = figure.subplots()
    update = draw_values(axes, view, mesh, everything)
    unit = view.problem.units.get("t")
    with writer.saving(figure, str(path), _DOTS_PER_INCH):
        for number, (t, _) in enumerate(frames):
            update(number)
            when = f"t = {t:.4g}" + (f" {unit}" if unit else "")
            figure.suptitle(plain(f"{view.problem.name},  {when}"), fontsize="medium")
            writer.grab_frame()
