"""Common parts of the estimated times of kernels.

A kernel family counts what a kernel does (`TimedFamily.work`) and computes a time from the counts
and the constants of a device (`TimedFamily.seconds`). The formulas use arithmetic only, so that a
count may be a number, or an array with one number for each of many kernels, as in
``benchmarks.gpu.fit``.
"""

from __future__ import annotations

from typing import Any

from batchkron.backends.cuda.runtime.hardware import WARP

NANOSECOND = 1e-9  # seconds

Count = Any  # a number, or an array of one number for each kernel


def slowest(sharpness: float, *times: Count) -> Count:
    """Return the time of parts that run at the same time, (sum of t^sharpness)^(1/sharpness).

    With a large ``sharpness`` it is the time of the longest part, with 1 the sum of all times.
    """
    return sum(time**sharpness for time in times) ** (1 / sharpness)


def share_of_memory(moved: Count, cache: float) -> Count:
    """Return the share of bytes from memory, not from cache; half if ``moved`` is ``cache``."""
    return 1 / (1 + (cache / moved) ** 4)


def moving(moved: Count, share: Count, memory_rate: float, cache_rate: float) -> Count:
    """Return the time to move bytes, a share of them from memory, by rates in bytes per unit."""
    return moved * (share / memory_rate + (1 - share) / cache_rate)


def ceil_div(count: int, size: int) -> int:
    """Return ``count / size``, rounded up."""
    return -(-count // size)


def warps_of(threads: int) -> int:
    """Return the number of warps of ``threads`` threads."""
    return ceil_div(threads, WARP)
