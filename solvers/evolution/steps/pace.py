"""How many steps are taken before their ends are looked at."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from ...steppers.step_runner import MAX_STEPS

__all__ = ["Pace"]

_SECONDS = 0.05  # of steps that nobody looks at, so that a run can be interrupted
_MAX_GROWTH = 4  # of the number of steps from one time to the next; chosen by hand


class Pace:
    """Learns how many steps take a twentieth of a second, and which are to be taken singly."""

    def __init__(self) -> None:
        self._count, self._singly = 1, 0  # a step of a large problem may take seconds

    def steps(self) -> int:
        """Return how many steps to take at once; 0 for a single one, which is counted."""
        if self._singly > 0:
            self._singly -= 1
            return 0
        return self._count

    @contextmanager
    def of(self, count: int) -> Iterator[None]:
        """Learn from the seconds of so many steps."""
        begin = time.perf_counter()
        yield
        seconds = (time.perf_counter() - begin) / count
        wanted = int(min(_SECONDS / max(seconds, 1e-9), _MAX_GROWTH * count))
        self._count = max(1, min(MAX_STEPS, wanted))

    def take_singly(self, count: int) -> None:
        """Ask for single steps next, so many."""
        self._singly = count
