"""Stopping a run by signals, after the present step, and the exit status of a run."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from types import FrameType, TracebackType
from typing import Any

from batchkron.cli.exit_codes import ExitCode
from batchkron.solvers import EvolveStatus

__all__ = ["StopOnSignal", "exit_code_of"]

_URGENT = (signal.SIGINT, signal.SIGTERM)  # a second one of these ends the process at once
_REPEATED = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Signals of terminals that are closed, and of batch systems; these may send them repeatedly."""


class StopOnSignal:
    """A hook of a `Run` that stops it after a signal.

    It is a context manager that catches SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2. A second
    SIGINT or SIGTERM has its usual effect, so that a step that does not end can be aborted. If a
    signal was received, the other three are ignored after the ``with`` block, unless they had
    handlers before: a second one may arrive while the process shuts down.

    ``received``: the signal that was received first.
    """

    may_skip = True  # it need not be called after every step

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopOnSignal:
        # Ignored signals stay ignored: background shells ignore Ctrl-C on purpose, and nohup
        # ignores SIGHUP. A handler that was not installed from Python is None; it is not replaced,
        # because it could not be restored.
        unheard = (signal.SIG_IGN, None)
        heard = [n for n in (*_URGENT, *_REPEATED) if signal.getsignal(n) not in unheard]
        self._before = {number: signal.signal(number, self._note) for number in heard}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.received is not None:
            for number in _REPEATED:
                if self._before.get(number) == signal.SIG_DFL:
                    self._before[number] = signal.SIG_IGN
        self._restore(*_URGENT, *_REPEATED)

    def __call__(self, state: object) -> bool:
        """Return whether the run should stop."""
        return self.received is not None

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number in _URGENT:
            self._restore(*_URGENT)
        if self.received is not None:
            return
        self.received = signal.Signals(number)
        # Not print(): the signal may interrupt another print(), which is not reentrant.
        line = f"\n{self.received.name}: stopping at the end of this step\n"
        if sys.stderr is not None:  # otherwise descriptor 2 may be any file
            with contextlib.suppress(OSError):  # the reader may be gone
                os.write(2, line.encode())

    def _restore(self, *numbers: signal.Signals) -> None:
        for number in numbers:
            with contextlib.suppress(KeyError):  # a signal in the middle of this has restored it
                signal.signal(number, self._before.pop(number))


def exit_code_of(status: EvolveStatus, stop: StopOnSignal) -> ExitCode:
    """Return the exit status of a command whose run has ended; ``stop`` may have stopped it."""
    if status is EvolveStatus.STOPPED:
        assert stop.received is not None
        return ExitCode(128 + stop.received)
    return {
        EvolveStatus.COMPLETED: ExitCode.DONE,
        EvolveStatus.NOT_FINITE: ExitCode.NOT_FINITE,
        EvolveStatus.SOLVER_FAILED: ExitCode.SOLVER_FAILED,
        EvolveStatus.STEP_TOO_SMALL: ExitCode.STEP_TOO_SMALL,
        EvolveStatus.UNSTABLE: ExitCode.UNSTABLE,
        EvolveStatus.NOT_PHYSICAL: ExitCode.NOT_PHYSICAL,
    }[status]
