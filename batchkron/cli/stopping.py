"""Ctrl-C and SIGTERM during a run: the step is finished first."""

from __future__ import annotations

import os
import signal
from types import FrameType, TracebackType
from typing import Any

__all__ = ["StopOnSignal"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopOnSignal:
    """A callback of `evolve` that stops the run once SIGINT or SIGTERM has come.

    A context manager: signals are caught inside it. A second signal acts as if it was never
    caught, so that a step that does not end can be left.

    Attributes
    ----------
    received : signal.Signals or None
        The signal that has come.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopOnSignal:
        # a signal that is ignored stays so: a shell in the background ignores Ctrl-C on purpose
        heard = [number for number in _SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
        self._before = {number: signal.signal(number, self._note) for number in heard}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._restore()

    def __call__(self, state: object) -> bool:
        """Return whether the run is to stop."""
        return self.received is not None

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number)
        self._restore()
        # print() may be interrupted in the middle of a line of its own, which it does not allow
        os.write(2, f"\n{self.received.name}: stopping at the end of this step\n".encode())

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}
