"""What the estimated times of all kernels have in common: resources that work at the same time.

A family of kernels counts what a kernel does (its ``Work``) and turns these counts into a time with
constants of a device (its ``Costs``). The formulas use arithmetic only, so that a count may be a
number, or an array of one number for each of many kernels: ``benchmarks.gpu.fit`` needs that.
"""

from __future__ import annotations

from typing import Any

from batchkron.backends.cuda.runtime.hardware import WARP

NANOSECOND = 1e-9  # seconds
LINE = 128  # bytes of a cache line, which a warp reads or writes at once
SECTOR = 32  # bytes, the least that moves between the second-level cache and memory

Count = Any  # a number, or an array of one number for each kernel


def slowest(sharpness: float, *times: Count) -> Count:
    """Return the time of parts that go on at once, (sum of t^sharpness)^(1/sharpness).

    With a large ``sharpness`` it is the longest part alone, with 1 the sum of all.
    """
    return sum(time**sharpness for time in times) ** (1 / sharpness)


def share_of_memory(moved: Count, cache: float) -> Count:
    """Return which part of ``moved`` bytes is in memory, not in a cache of ``cache`` bytes."""
    return 1 / (1 + (cache / moved) ** 4)


def moving(moved: Count, share: Count, memory_rate: float, cache_rate: float) -> Count:
    """Return the time in which bytes move, ``share`` of them from memory, others from the cache."""
    return moved * (share / memory_rate + (1 - share) / cache_rate)


def ceil_div(count: int, size: int) -> int:
    """Return how many pieces of ``size`` hold ``count``."""
    return -(-count // size)


def warps_of(threads: int) -> int:
    """Return the warps of so many threads."""
    return ceil_div(threads, WARP)
