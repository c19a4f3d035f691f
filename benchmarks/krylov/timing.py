"""Times of solves, contenders in turn."""

from __future__ import annotations

import inspect
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

ROUNDS = 5
MIN_SECONDS = 0.05  # of a turn
SETTLING = 0.15  # seconds until the threads of the contender before have stopped spinning


def tolerance_name(solve: Callable[..., Any]) -> str:
    """What a solver calls its relative tolerance: CuPy's functions have the old name, or had it."""
    return "rtol" if "rtol" in inspect.signature(solve).parameters else "tol"


def in_turn(
    contenders: Mapping[str, Callable[[], Any]], wait: Callable[[], None]
) -> dict[str, float]:
    """Seconds of each, the median over rounds; ``wait`` waits for a device."""
    repeats = {}
    for name, solve in contenders.items():
        solve()
        solve()
        wait()
        began = time.perf_counter()
        solve()
        wait()
        repeats[name] = max(1, int(MIN_SECONDS / max(time.perf_counter() - began, 1e-7)))
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        for name, solve in contenders.items():
            time.sleep(SETTLING)
            solve()
            wait()
            began = time.perf_counter()
            for _ in range(repeats[name]):
                solve()
            wait()
            times[name].append((time.perf_counter() - began) / repeats[name])
    return {name: statistics.median(each) for name, each in times.items()}
