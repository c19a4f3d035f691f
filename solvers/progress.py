"""How a run shows that it moves: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import datetime
import sys
import time
from types import TracebackType
from typing import Any, Protocol

_LINES = 10


class Progress(Protocol):
    """Shows the steps of a run; a context manager."""

    def __enter__(self) -> Progress:
        """Begin."""
        ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End."""
        ...

    def update(self, step: int, t: float) -> None:
        """Show that ``step`` is done, at time t."""
        ...


class NoProgress:
    """Shows nothing."""

    def __enter__(self) -> NoProgress:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def update(self, step: int, t: float) -> None:
        """Show nothing."""


class ProgressBar:
    """A bar on a terminal, with the time left at the mean speed so far.

    Parameters
    ----------
    first, steps : int
        The step that the run begins at, and the last one.
    """

    def __init__(self, first: int, steps: int) -> None:
        from tqdm import tqdm  # only where a bar is shown

        self._step = first
        self._bar: Any = tqdm(
            total=steps, initial=first, unit="step", smoothing=0.0, file=sys.stderr
        )

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def update(self, step: int, t: float) -> None:
        """Show that ``step`` is done, at time t."""
        self._bar.set_postfix_str(f"t = {t:.6g}", refresh=False)
        self._bar.update(step - self._step)
        self._step = step


class ProgressLines:
    """Ten lines over a run, for a log.

    Parameters
    ----------
    first, steps : int
        The step that the run begins at, and the last one.
    """

    def __init__(self, first: int, steps: int) -> None:
        self._first, self._steps = first, steps
        self._shown = 0
        self._began = time.monotonic()

    def __enter__(self) -> ProgressLines:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def update(self, step: int, t: float) -> None:
        """Show a line whenever another tenth of the run is done."""
        done, total = step - self._first, max(self._steps - self._first, 1)
        tenth = _LINES * done // total
        if tenth == self._shown:
            return
        self._shown = tenth
        elapsed = time.monotonic() - self._began
        left = elapsed * (total - done) / done
        print(
            f"step {step}/{self._steps}  t = {t:.6g}  {100 * step // self._steps} %  "
            f"elapsed {_clock(elapsed)}  left {_clock(left)}",
            file=sys.stderr,
            flush=True,
        )


def _clock(seconds: float) -> str:
    return str(datetime.timedelta(seconds=round(seconds)))


def make_progress(shown: bool, first: int, steps: int) -> Progress:
    """Return the display that fits standard error.

    Parameters
    ----------
    shown : bool
        Whether there is to be one.
    first, steps : int
        The step that the run begins at, and the last one.

    Returns
    -------
    Progress
        A bar on a terminal, lines elsewhere, nothing if not ``shown``.
    """
    if not shown:
        return NoProgress()
    return ProgressBar(first, steps) if sys.stderr.isatty() else ProgressLines(first, steps)
