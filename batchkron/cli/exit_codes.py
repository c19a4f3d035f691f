"""The exit statuses of the command."""

from __future__ import annotations

import signal
from enum import IntEnum

__all__ = ["ExitCode"]


class ExitCode(IntEnum):
    """Exit statuses, with a text for each in `meaning`; 128 + n stands for signal n."""

    DONE = 0
    FAILED_CHECK = 1
    USAGE = 2
    BAD_FILE = 3
    NOT_FINITE = 4
    SOLVER_FAILED = 5
    DEVICE_FAILED = 6
    STEP_TOO_SMALL = 7
    UNSTABLE = 8
    NOT_PHYSICAL = 9
    HUNG_UP = 128 + signal.SIGHUP
    INTERRUPTED = 128 + signal.SIGINT
    USER_SIGNAL_1 = 128 + signal.SIGUSR1
    USER_SIGNAL_2 = 128 + signal.SIGUSR2
    TERMINATED = 128 + signal.SIGTERM

    @property
    def meaning(self) -> str:
        """A text that explains the status."""
        return _MEANINGS[self]


_MEANINGS = {
    ExitCode.DONE: "done",
    ExitCode.FAILED_CHECK: "check or validate found a fault, or the output has no reader",
    ExitCode.USAGE: "the command line is wrong; nothing was done",
    ExitCode.BAD_FILE: "a file is damaged, or cannot be read or written",
    ExitCode.NOT_FINITE: "the state of a run became NaN or infinite",
    ExitCode.SOLVER_FAILED: "a linear solve of a run did not converge",
    ExitCode.DEVICE_FAILED: "the device failed during a run; earlier checkpoints are valid",
    ExitCode.STEP_TOO_SMALL: "the smallest step that times can resolve did not meet the tolerance",
    ExitCode.UNSTABLE: "a run was unstable: its state grew faster than any solution",
    ExitCode.NOT_PHYSICAL: "a density or another divisor in a run was not positive",
    ExitCode.HUNG_UP: "stopped by SIGHUP; a run leaves a checkpoint",
    ExitCode.INTERRUPTED: "stopped by Ctrl-C; a run leaves a checkpoint",
    ExitCode.USER_SIGNAL_1: "stopped by SIGUSR1; a run leaves a checkpoint",
    ExitCode.USER_SIGNAL_2: "stopped by SIGUSR2; a run leaves a checkpoint",
    ExitCode.TERMINATED: "stopped by SIGTERM; a run leaves a checkpoint",
}
