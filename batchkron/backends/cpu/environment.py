"""What the environment asks of the compiled kernels, checked when they are first needed."""

from __future__ import annotations

import os
import warnings
from functools import cache

from batchkron.backends.cpu import native as _native
from batchkron.errors import BackendUnavailableError

__all__ = [
    "check_environment",
    "checked_instruction_set",
    "checked_num_threads",
    "choose_num_threads",
]

MAX_THREADS_PER_PROCESSOR = 8  # of OpenMP's default; so many already only wait for each other
_threads_are_checked = False


def check_environment() -> None:
    """Check the instruction set and the number of threads, before the first kernel is made.

    Raises
    ------
    BackendUnavailableError
        If this processor has no such instruction set.
    """
    checked_instruction_set()
    _limit_threads()


@cache
def checked_instruction_set() -> str:
    """Return the instruction set of the kernels, which ``BATCHKRON_ISA`` may name.

    Raises
    ------
    BackendUnavailableError
        If this processor has none of that name.
    """
    try:
        return _native.instruction_set()
    except RuntimeError as error:
        raise BackendUnavailableError(str(error)) from None


def checked_num_threads() -> int:
    """Return how many threads the kernels may use."""
    _limit_threads()
    return _native.get_num_threads()


def choose_num_threads(count: int) -> None:
    """Set how many threads the kernels may use, whatever the environment says."""
    global _threads_are_checked
    _threads_are_checked = True
    _native.set_num_threads(count)


def _limit_threads() -> None:
    """Take one thread per processor where OpenMP's default is far too many, and warn once.

    Where the system refuses a thread, OpenMP ends the process.
    """
    global _threads_are_checked
    if _threads_are_checked:
        return
    _threads_are_checked = True
    asked, processors = _native.get_num_threads(), _num_processors()
    if asked <= MAX_THREADS_PER_PROCESSOR * processors:
        return
    _native.set_num_threads(processors)
    warnings.warn(
        f"OMP_NUM_THREADS asks for {asked} threads, but this process may use {processors} "
        f"processor{'s' * (processors > 1)}; the kernels take {processors}. To have more, use "
        f"batchkron.set_num_threads, or --threads of the command",
        RuntimeWarning,
        stacklevel=2,
    )


def _num_processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
