"""Progress displays of a run: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import datetime
import sys
import time
from bisect import bisect_right
from collections.abc import Callable
from typing import Any

_LINES = 10  # number of lines printed during a run if standard error is not a terminal
# Number of steps whose times are kept, to compute the speed of the second half of the steps so far.
_MAX_MARKS = 256


class RemainingTime:
    """Estimates a run's remaining time from the speed of the second half of its steps so far.

    The first half is not used because it may contain work that is done only once, such as filling
    caches. Half of the steps are enough to average over occasional work such as checkpoints.

    ``first``, ``steps``: the step at which the run begins, and the last step.
    ``clock``: returns the time in seconds.
    """

    def __init__(self, first: int, steps: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._steps, self._clock = steps, clock
        self._began = self._now = clock()
        self._step = first
        # Up to some hundred steps with the times at their ends, at about equal distances.
        self._marked, self._times = [first], [self._began]
        self._spacing = 1

    def update(self, step: int) -> None:
        """Record the time at the end of ``step``."""
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
        """Seconds from the beginning of the run to the end of the last step."""
        return self._now - self._began

    @property
    def seconds_per_step(self) -> float | None:
        """Seconds per step, None before the end of the first one."""
        half = (self._marked[0] + self._step) / 2
        mark = bisect_right(self._marked, half) - 1
        done = self._step - self._marked[mark]
        return (self._now - self._times[mark]) / done if done else None

    @property
    def left(self) -> float | None:
        """Estimated seconds of the remaining steps, None before the end of the first one."""
        speed = self.seconds_per_step
        return None if speed is None else speed * (self._steps - self._step)


class _Stream:
    """Standard error; after the first failure to write, all output is discarded.

    So a run does not end because the reader of its progress is gone.
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
    """A bar on a terminal, with the remaining time.

    ``first``, ``steps``: the step at which the run begins, and the last step.
    ``stays``: whether the bar remains visible after the run.
    ``clock``: returns the time in seconds.
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
            """A bar of tqdm with speed and remaining time from `RemainingTime`."""

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
    """Ten lines during a run, for a log file.

    ``first``, ``steps``: the step at which the run begins, and the last step.
    ``clock``: returns the time in seconds.
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
        """Print a line whenever another tenth of the run is done."""
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


def make_progress(first: int, steps: int) -> ProgressBar | ProgressLines | None:
    """Return the progress display for standard error, of steps from ``first`` to ``steps``.

    It is a bar if standard error is a terminal, and lines otherwise; None if there is no standard
    error. Output that cannot be written is discarded.
    """
    if sys.stderr is None or getattr(sys.stderr, "closed", False):
        return None
    return ProgressBar(first, steps) if sys.stderr.isatty() else ProgressLines(first, steps)
