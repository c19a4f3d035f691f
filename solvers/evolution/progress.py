"""Progress displays of a run: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import datetime
import sys
import time
from bisect import bisect_right
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol

_LINES = 10  # number of lines printed during a run if standard error is not a terminal
# Number of steps whose times are kept, to compute the speed of the second half of the steps so far.
_MAX_MARKS = 256


class Progress(Protocol):
    """Displays the progress of a run; a context manager."""

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


class RemainingTime:
    """The time that a run has left, at the speed of the latter half of its steps so far.

    The first half does not count: it may hold what happens once, such as filling caches. Half of
    the steps are enough to average over what happens now and then, such as checkpoints.

    Parameters
    ----------
    first, steps : int
        The step that the run begins at, and the last one.
    clock : callable
        Returns seconds.
    """

    def __init__(self, first: int, steps: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._steps, self._clock = steps, clock
        self._began = self._now = clock()
        self._step = first
        # some hundred steps with the times of their ends, as evenly spaced as they have come
        self._marked, self._times = [first], [self._began]
        self._spacing = 1

    def update(self, step: int) -> None:
        """Note that ``step`` has just been done."""
        self._step, self._now = step, self._clock()
        if step - self._marked[-1] < self._spacing:
            return
        self._marked.append(step)
        self._times.append(self._now)
        if len(self._marked) > _MAX_MARKS:
            del self._marked[1::2], self._times[1::2]
            self._spacing *= 2

    @property
    def elapsed(self) -> float:
        """Seconds from the beginning to the end of the last step."""
        return self._now - self._began

    @property
    def seconds_per_step(self) -> float | None:
        """Seconds of a step, or None before the first one."""
        half = (self._marked[0] + self._step) / 2
        mark = bisect_right(self._marked, half) - 1
        done = self._step - self._marked[mark]
        return (self._now - self._times[mark]) / done if done else None

    @property
    def left(self) -> float | None:
        """Seconds that the steps to come will take, or None before the first one."""
        speed = self.seconds_per_step
        return None if speed is None else speed * (self._steps - self._step)


class _Stream:
    """Standard error as long as it can be written; from its first failure on, nothing at all.

    A run is not to end because the reader of its progress has gone.
    """

    def __init__(self) -> None:
        self._stream: Any = sys.stderr
        self._lost = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        return self._unless_lost(self._stream.write, text) or 0

    def flush(self) -> None:
        self._unless_lost(self._stream.flush)

    def _unless_lost(self, action: Callable[..., Any], *arguments: str) -> Any:
        if self._lost:
            return None
        try:
            return action(*arguments)
        except (OSError, ValueError):  # ValueError: the stream is closed
            self._lost = True
        return None


class ProgressBar:
    """A bar on a terminal, with the time left.

    Parameters
    ----------
    first, steps : int
        The step that the run begins at, and the last one.
    stays : bool
        Whether the bar is still to be seen after the run.
    clock : callable
        Returns seconds.
    """

    def __init__(
        self,
        first: int,
        steps: int,
        *,
        stays: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        from tqdm import tqdm  # only where a bar is shown

        remaining = self._time = RemainingTime(first, steps, clock)

        class Bar(tqdm):  # type: ignore[misc]
            """A bar whose speed, and so the time left, is that of `RemainingTime`."""

            @property
            def format_dict(self) -> dict[str, Any]:
                seconds = remaining.seconds_per_step
                return {**super().format_dict, "rate": 1.0 / seconds if seconds else None}

        self._step = first
        self._bar: Any = Bar(total=steps, initial=first, unit="step", file=_Stream(), leave=stays)

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def update(self, step: int, t: float) -> None:
        """Show that ``step`` is done, at time t."""
        self._time.update(step)
        self._bar.set_postfix_str(f"t = {t:.6g}", refresh=False)
        self._bar.update(step - self._step)
        self._step = step


class ProgressLines:
    """Ten lines over a run, for a log.

    Parameters
    ----------
    first, steps : int
        The step that the run begins at, and the last one.
    clock : callable
        Returns seconds.
    """

    def __init__(
        self, first: int, steps: int, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._first, self._steps = first, steps
        self._shown = 0
        self._stream: Any = _Stream()
        self._time = RemainingTime(first, steps, clock)

    def __enter__(self) -> ProgressLines:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def update(self, step: int, t: float) -> None:
        """Show a line whenever another tenth of the run is done."""
        self._time.update(step)
        tenth = _LINES * (step - self._first) // max(self._steps - self._first, 1)
        if tenth == self._shown:
            return
        self._shown = tenth
        print(
            f"step {step}/{self._steps}  t = {t:.6g}  {100 * step // self._steps} %  "
            f"elapsed {_clock(self._time.elapsed)}  left {_clock(self._time.left or 0.0)}",
            file=self._stream,
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
        A bar on a terminal, lines elsewhere, nothing if not ``shown`` or if there is no standard
        error. What can no longer be written is left out.
    """
    if not shown or sys.stderr is None or getattr(sys.stderr, "closed", False):
        return NoProgress()
    return ProgressBar(first, steps) if sys.stderr.isatty() else ProgressLines(first, steps)
