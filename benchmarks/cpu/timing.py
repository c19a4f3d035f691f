"""Times of several contenders on the same data, in turn, so that a disturbance hits them all."""

from __future__ import annotations

import gc
import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.cpu.contenders import OUR_FUNCTION, OURS, Contender
from benchmarks.cpu.data import Data

SAMPLE_SECONDS = 100e-6  # short calls are repeated until the clock's own cost does not count
HOPELESS = 5.0  # a peer so many times slower than the fastest has one round only
SLOW_SECONDS = 0.1  # such a peer has no round at all if its first call, the check, takes so long
MAX_SETTLING_SECONDS = 0.5  # longest wait for the threads of the contender before
SETTLING_SECONDS = 0.012  # Linux counts the time of threads that run by ticks, of up to 10 ms

SetThreads = Callable[[int], None]


@dataclass(frozen=True)
class Effort:
    """How often to measure: rounds over all contenders, and the seconds of each one's turn."""

    rounds: int
    turn_seconds: float


@dataclass(frozen=True)
class Times:
    """Seconds per call of one contender on one number of threads."""

    name: str
    variant: str
    threads: int
    median: float
    quartiles: tuple[float, float]
    least: float
    samples: int


@dataclass(frozen=True)
class Failure:
    """A contender that gave an exception or a wrong result."""

    name: str
    variant: str
    threads: int
    reason: str


class Lane:
    """One contender on one number of threads."""

    def __init__(self, contender: Contender, threads: int) -> None:
        self.contender = contender
        self.threads = threads
        self.calls: Iterator[Callable[[], Any]] = itertools.cycle(contender.calls)
        self.loops = 1
        self.samples: list[float] = []
        self.hopeless = False

    def sample(self) -> float:
        """Seconds per call over ``loops`` calls."""
        calls = list(itertools.islice(self.calls, self.loops))
        start = time.perf_counter()
        for call in calls:
            call()
        return (time.perf_counter() - start) / self.loops

    def warm_up(self) -> None:
        """Call until caches and threads are warm, and find out how many calls make a sample."""
        seconds = self.sample()
        if not self.samples:
            while seconds * self.loops < SAMPLE_SECONDS:
                grown = math.ceil(1.2 * SAMPLE_SECONDS / max(seconds, 1e-9))
                self.loops = min(max(2 * self.loops, grown), 100_000)
                seconds = self.sample()

    def turn(self, seconds: float) -> None:
        """Take samples for so long, at least one."""
        if not self.samples or statistics.median(self.samples) < seconds:
            self.warm_up()
        end = time.perf_counter() + seconds
        while True:
            self.samples.append(self.sample())
            if time.perf_counter() >= end:
                return

    def give_up(self, seconds: float, fastest: float) -> None:
        """Stop if this cannot be the best peer; without samples, ``seconds`` is the only one."""
        if self.contender.name not in (OURS, OUR_FUNCTION) and seconds > HOPELESS * fastest:
            self.hopeless = True
            self.samples = self.samples or [seconds]

    def times(self) -> Times:
        """The summary of all samples."""
        ordered = sorted(self.samples)
        quarter = len(ordered) // 4
        return Times(
            self.contender.name,
            self.contender.variant,
            self.threads,
            statistics.median(ordered),
            (ordered[quarter], ordered[-1 - quarter]),
            ordered[0],
            len(ordered),
        )


def settle() -> None:
    """Wait until the threads of the library that ran last have stopped spinning for more work."""
    end = time.perf_counter() + MAX_SETTLING_SECONDS
    while time.perf_counter() < end:
        before = time.process_time()
        time.sleep(SETTLING_SECONDS)
        if time.process_time() - before < 0.1 * SETTLING_SECONDS:
            return


def verified(
    contenders: Sequence[Contender], data: Data, threads: Sequence[int], set_threads: SetThreads
) -> tuple[list[Lane], list[Failure]]:
    """Call every contender once on every number of threads; keep those whose result is right."""
    lanes, failures = [], []
    for count in threads:
        set_threads(count)
        fastest = math.inf
        for contender in contenders:
            data.poison()
            start = time.perf_counter()
            try:
                result = contender.result(data)
            except (RuntimeError, ValueError, MemoryError) as error:
                wrong: str | None = f"{type(error).__name__}: {error}"
            else:
                seconds = time.perf_counter() - start
                wrong = data.wrong(result)
            if wrong:
                failures.append(Failure(contender.name, contender.variant, count, wrong))
                continue
            lane = Lane(contender, count)
            fastest = min(fastest, seconds)
            if seconds > SLOW_SECONDS:  # a first call may be twice as slow as others
                lane.give_up(seconds, 2 * fastest)
            lanes.append(lane)
    return lanes, failures


def measure(
    contenders: Sequence[Contender],
    data: Data,
    threads: Sequence[int],
    set_threads: SetThreads,
    effort: Effort,
) -> list[Times | Failure]:
    """Time all contenders on all numbers of threads, round by round."""
    lanes, failures = verified(contenders, data, threads, set_threads)
    gc.collect()
    gc.disable()
    try:
        for turn in range(effort.rounds):
            for count in threads:
                set_threads(count)
                race([lane for lane in lanes if lane.threads == count], turn, effort.turn_seconds)
    finally:
        gc.enable()
    return [*(lane.times() for lane in lanes), *failures]


def race(lanes: Sequence[Lane], turn: int, seconds: float) -> None:
    """One round of the lanes of one number of threads."""
    racing = [lane for lane in lanes if not lane.hopeless]
    # each round begins with another contender, so that none always runs in the same place
    first = turn % max(1, len(racing))
    for lane in racing[first:] + racing[:first]:
        if lane.threads > 1:
            settle()
        lane.turn(seconds)
    fastest = min((min(lane.samples) for lane in racing), default=math.inf)
    for lane in racing:
        lane.give_up(min(lane.samples), fastest)
