"""How a run ends: signals, for which the step is finished first, and exit statuses."""

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

_URGENT = (signal.SIGINT, signal.SIGTERM)
_REPEATED = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""What terminals that close and batch systems send, at times twice, or before a SIGTERM."""


class StopOnSignal:
    """A callback of `evolve` that stops the run once a signal has come.

    The signals are SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2. A context manager: they are
    caught inside it. A second SIGINT or SIGTERM acts as if it was never caught, so that a step
    that does not end can be left. The others, once any signal has come, are ignored from the end
    on where they would kill the process: a second one may come while it shuts down.

    Attributes
    ----------
    received : signal.Signals or None
        The signal that has come first.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopOnSignal:
        # a signal that is ignored stays so: a shell in the background ignores Ctrl-C on purpose,
        # and nohup ignores SIGHUP; so does one whose handler, None, is not Python's and could not
        # be put back
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
        """Return whether the run is to stop."""
        return self.received is not None

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number in _URGENT:
            self._restore(*_URGENT)
        if self.received is not None:
            return
        self.received = signal.Signals(number)
        # print() may be interrupted in the middle of a line of its own, which it does not allow
        line = f"\n{self.received.name}: stopping at the end of this step\n"
        if sys.stderr is not None:  # else 2 may be any file
            with contextlib.suppress(OSError):  # its reader has gone
                os.write(2, line.encode())

    def _restore(self, *numbers: signal.Signals) -> None:
        for number in numbers:
            with contextlib.suppress(KeyError):  # one that came in the middle of this was first
                signal.signal(number, self._before.pop(number))


def exit_code_of(status: EvolveStatus, stop: StopOnSignal) -> ExitCode:
    """Return the exit status of a command whose run has ended.

    Parameters
    ----------
    status : EvolveStatus
        How it ended.
    stop : StopOnSignal
        What has stopped it, if its status is STOPPED.

    Returns
    -------
    ExitCode
    """
    if status is EvolveStatus.STOPPED:
        assert stop.received is not None
        return ExitCode(128 + stop.received)
    return {
        EvolveStatus.COMPLETED: ExitCode.DONE,
        EvolveStatus.NOT_FINITE: ExitCode.NOT_FINITE,
        EvolveStatus.SOLVER_FAILED: ExitCode.SOLVER_FAILED,
        EvolveStatus.STEP_TOO_SMALL: ExitCode.STEP_TOO_SMALL,
        EvolveStatus.UNSTABLE: ExitCode.UNSTABLE,
    }[status]
