"""Times of contenders that take turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.sparse_grid.contenders import Contender

TURN = 0.02  # seconds that a turn should take


@dataclass(frozen=True)
class Times:
    """Seconds of one call.

    Attributes
    ----------
    least, median : float
        Over all turns; a turn's time is the mean of its calls.
    turns : int
    """

    least: float
    median: float
    turns: int


def seconds_of(contender: Contender, calls: int) -> float:
    """Return the mean time of some calls in a row."""
    start = time.perf_counter()
    for _ in range(calls):
        contender.call()
    return (time.perf_counter() - start) / calls


def measure(contenders: Sequence[Contender], rounds: int) -> list[Times]:
    """Time contenders round by round, each time another one first."""
    calls = []
    for contender in contenders:
        contender.call()  # assembles, allocates
        calls.append(max(1, round(TURN / max(seconds_of(contender, 1), 1e-9))))
    turns: list[list[float]] = [[] for _ in contenders]
    for number in range(rounds):
        for place in range(len(contenders)):
            which = (place + number) % len(contenders)
            contenders[which].call()  # its data are in the cache, its threads awake
            turns[which].append(seconds_of(contenders[which], calls[which]))
    return [Times(min(own), statistics.median(own), len(own)) for own in turns]
