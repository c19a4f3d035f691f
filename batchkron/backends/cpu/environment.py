"""Instruction set and number of threads from the environment, checked before the first kernel."""

from __future__ import annotations

import math
import warnings
from functools import cache
from pathlib import Path

from batchkron.backends.cpu import native as _native
from batchkron.errors import BackendUnavailableError

__all__ = [
    "check_environment",
    "checked_instruction_set",
    "checked_num_threads",
    "choose_num_threads",
    "warn_of_missing_kernels",
]

# If the environment asks for more threads per processor than this, one per processor is taken
# instead: so many threads only wait for each other. Chosen by hand.
MAX_THREADS_PER_PROCESSOR = 8
_threads_are_checked = False


def check_environment() -> None:
    """Check the instruction set and the number of threads; called before the first kernel.

    Raises `BackendUnavailableError` if ``BATCHKRON_ISA`` names an instruction set that this
    processor does not have.
    """
    checked_instruction_set()
    _limit_threads()


@cache
def checked_instruction_set() -> str:
    """Return the kernels' instruction set: ``BATCHKRON_ISA`` if set, else the processor's best.

    Raises `BackendUnavailableError` if this processor does not have the one that is named.
    """
    try:
        return _native.instruction_set()
    except RuntimeError as error:
        raise BackendUnavailableError(str(error)) from None


def warn_of_missing_kernels() -> None:
    """Warn if the processor's best instruction set was left out when batchkron was compiled."""
    missing = _native.missing_instruction_set()
    if missing:
        warnings.warn(
            f"this installation has no kernels for {missing}, the best that this processor has, "
            "and is slower than it could be; install batchkron on a machine like this one, or with "
            "--config-settings=cmake.define.BATCHKRON_ISAS=all",
            RuntimeWarning,
            stacklevel=2,
        )


def checked_num_threads() -> int:
    """Return how many threads the kernels may use, after checking the environment."""
    _limit_threads()
    return _native.get_num_threads()


def choose_num_threads(count: int) -> None:
    """Set how many threads the kernels may use; this overrides the environment."""
    global _threads_are_checked
    _threads_are_checked = True
    _native.set_num_threads(count)


def _limit_threads() -> None:
    """Limit the number by the control group, and if far too large, with a warning, once.

    The limit of the control group holds where OMP_NUM_THREADS does not say how many threads.
    """
    global _threads_are_checked
    if _threads_are_checked:
        return
    _threads_are_checked = True
    quota = _processor_quota()
    if quota is not None:
        _native.set_thread_limit(max(1, math.ceil(quota)))
    asked, processors = _native.get_num_threads(), _native.num_processors()
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


def _processor_quota(root: Path = Path("/")) -> float | None:
    """Return the processors' time that the control groups of this process get, None for all.

    0.5 is half a processor. Containers are limited so, which the mask of processors does not show.
    See cgroups(7): version 2 has ``cpu.max``, version 1 ``cpu.cfs_quota_us`` and
    ``cpu.cfs_period_us``.
    """
    quotas = []
    for folder in _control_groups(root):
        try:
            if (folder / "cpu.max").exists():
                quota, period = (folder / "cpu.max").read_text().split()
            else:
                names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
                quota, period = ((folder / name).read_text() for name in names)
            if quota != "max" and int(quota) > 0:  # -1: no limit
                quotas.append(int(quota) / int(period))
        except (OSError, ValueError):  # no such file here
            continue
    return min(quotas, default=None)


def _control_groups(root: Path) -> list[Path]:
    """Return the folders of the control groups of this process that may limit its processors."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    folders = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        mounts = [""] if not controllers else ["cpu", "cpu,cpuacct"]
        if controllers and "cpu" not in controllers.split(","):
            continue
        for mount in mounts:
            top = root / "sys/fs/cgroup" / mount
            own = top / path.lstrip("/")
            folders += [own, *(one for one in own.parents if one.is_relative_to(top))]
    return folders
