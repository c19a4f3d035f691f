"""Shapes drawn at random: ours next to the best peer, and two threads next to one in each mood.

``alone``: nothing else runs. ``blas``: a matrix multiply by NumPy before each call, outside of the
time, whose threads then wait for more work and spin. ``busy``: another process computes.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

import batchkron as bk
from benchmarks.core.checks import Data
from benchmarks.core.tables import count_of, duration, groups, table
from benchmarks.core.timing import (
    OUR_FUNCTION,
    OURS,
    Contender,
    Failure,
    Lane,
    Result,
    Times,
    best_medians,
    nothing,
    settle,
    verified,
)
from benchmarks.cpu.cells import Conditions, offers_of, results_of
from benchmarks.cpu.contenders import Batchkron, OurFunction, make_data
from benchmarks.cpu.peers.python import BOUND
from benchmarks.cpu.report import result_records
from benchmarks.random_shapes import (
    WORST,
    Draw,
    Standing,
    standing,
    standing_records,
    summary,
    worst_tables,
)

MOODS = ("alone", "blas", "busy")
BLAS_SIZE = 256  # rows of the matrix multiply between calls: about 0.4 ms on two threads
TURN_SECONDS = 0.15  # of one contender in one mood, all numbers of threads together
WARM_SECONDS = 0.02  # before, not counted
AGAIN_SECONDS = 0.6  # of another turn, where threads seem to make the calls slower
MIN_SAMPLES = 5  # of each number of threads
MAX_SLOWER = 1.1  # largest median time on several threads over that on one
# Says that it runs, then computes until it is ended or the process that started it is gone.
BUSY_PROGRAM = """
import os
parent = os.getppid()
print(flush=True)
while os.getppid() == parent:
    sum(range(100_000))
"""

Between = Callable[[], object]
OUR_CALLS = {OURS: "operator", OUR_FUNCTION: "function"}
# Of the data up to which a call is tiny, all of it in a first-level cache: what the function costs
# is stated there, and chains of NumPy with everything prepared for one x and one output, which is
# half of such a call, are not compared.
TINY_BYTES = 32 << 10
SHARE_AHEAD = 0.99  # of the shapes of d ≥ 2 and P < 64 that shall not be behind any peer
Gain = dict[str, Any]  # seconds of one of our calls on one thread and on more, in one mood
MEDIAN_RATIO = 3.0  # to the best peer, of all shapes


@contextmanager
def mood(name: str) -> Iterator[Between]:
    """Bring the machine into a mood; give what is to be done before each call."""
    if name == "blas":
        a, b = np.random.default_rng(0).standard_normal((2, BLAS_SIZE, BLAS_SIZE))
        yield partial(np.matmul, a, b, out=np.empty_like(a))
    elif name == "busy":
        command = [sys.executable, "-ISc", BUSY_PROGRAM]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield nothing
        finally:
            process.kill()
            process.communicate()
    else:
        settle()
        yield nothing


def in_turn(
    contenders: Sequence[Contender], data: Data, threads: Sequence[int], between: Between
) -> list[Times | Failure]:
    """Time each contender call by call, on one number of threads after the other."""

    def prepare(count: int) -> None:
        bk.set_num_threads(count)
        between()

    lanes, failures = verified(contenders, data, threads, prepare)
    for contender in contenders:
        own = [lane for lane in lanes if lane.contender is contender]
        take_turns(own, prepare, WARM_SECONDS, 1)
        for lane in own:
            lane.samples.clear()
        take_turns(own, prepare, TURN_SECONDS, MIN_SAMPLES)
        if any(lane.times().median > MAX_SLOWER * own[0].times().median for lane in own[1:]):
            take_turns(own, prepare, AGAIN_SECONDS, MIN_SAMPLES)
    return [*(lane.times() for lane in lanes), *failures]


def take_turns(
    lanes: Sequence[Lane], prepare: Callable[[int], None], seconds: float, samples: int
) -> None:
    """Take one sample of a call of each lane in turn, for so long, and so many at least."""
    end = time.perf_counter() + seconds
    taken = 0
    while lanes and (taken < samples or time.perf_counter() < end):
        for lane in lanes:
            prepare(lane.threads)
            lane.samples.append(lane.sample())
        taken += 1


@dataclass
class Measured:
    """A shape's times: of all contenders, and of ours in each mood, one thread and more in turn."""

    draw: Draw
    results: list[Result] = field(default_factory=list)
    moods: dict[str, list[Result]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.draw.name

    @property
    def wrong(self) -> list[str]:
        return [
            f"{self.draw.name}: {one.name}, {count_of(one.threads)}: {one.reason}"
            for results in (self.results, *self.moods.values())
            for one in results
            if isinstance(one, Failure) and one.name in OUR_CALLS
        ]

    def record(self) -> dict[str, Any]:
        draw, record = self.draw, result_records
        found = {"shape": draw.shape.name, "dtype": draw.dtype, "data_bytes": draw.bytes}
        moods = {name: record(results) for name, results in self.moods.items()}
        return {**found, "flops": draw.shape.flops, "results": record(self.results), "moods": moods}


def measure_draw(
    draw: Draw, conditions: Conditions, threads: Sequence[int], moods: Sequence[str]
) -> Measured:
    """Time one shape: next to the peers while alone, then ours in each mood."""
    measured = Measured(draw)
    conditions.set_threads(max(threads))
    data = make_data(draw.shape, np.dtype(draw.dtype), 1, conditions.rng)
    ours = offers_of([Batchkron(), OurFunction()], data, conditions)
    if "alone" in moods:
        offers = [*ours, *offers_of(conditions.peers, data, conditions)]
        measured.results = results_of(offers, data, threads, conditions)
    if len(threads) > 1:
        conditions.set_threads(max(threads))
        contenders = [offer for offer in ours if isinstance(offer, Contender)]
        for name in moods:
            with mood(name) as between:
                times = in_turn(contenders, data, (min(threads), max(threads)), between)
            measured.moods[name] = list(times)
    return measured


def standings_of(measured: Sequence[Measured], threads: Sequence[int]) -> list[Standing]:
    found = []
    for count in threads:
        for name, call in OUR_CALLS.items():
            for one in measured:
                times = best_medians(one.results, count)
                ours = times.get(name)
                peers = {peer: time for peer, time in times.items() if peer not in OUR_CALLS}
                if one.draw.bytes <= TINY_BYTES:
                    peers.pop(BOUND, None)
                found.append(standing(one.draw, f"{call}, {count_of(count)}", ours, peers))
    return [one for one in found if one is not None]


def gains_of(measured: Sequence[Measured], threads: Sequence[int]) -> list[Gain]:
    """The times on one thread and on most of them, of each call in each mood."""
    few, many, found = min(threads), max(threads), []
    for one in measured:
        for name, results in one.moods.items():
            alone, together = (best_medians(results, count) for count in (few, many))
            what = {"shape": one.draw.shape.name, "dtype": one.draw.dtype, "mood": name}
            for ours, call in OUR_CALLS.items():
                if ours in alone and ours in together:
                    times = {"seconds_on_one": alone[ours], "seconds": together[ours]}
                    own = {**what, "call": call, "threads": many, **times}
                    found.append({**own, "over_one": together[ours] / alone[ours]})
    return found


def function_costs(measured: Sequence[Measured]) -> list[tuple[Draw, float]]:
    """Seconds that the function takes longer than the operator, on tiny data and one thread."""
    found = []
    for one in measured:
        times = best_medians(one.results, 1)
        if one.draw.bytes <= TINY_BYTES and set(OUR_CALLS) <= set(times):
            found.append((one.draw, times[OUR_FUNCTION] - times[OURS]))
    return found


def cost_lines(costs: Sequence[tuple[Draw, float]]) -> str:
    ordered = sorted(costs, key=lambda pair: -pair[1])
    middle = statistics.median(cost for _, cost in ordered)
    rows = [[draw.name, f"{1e6 * cost:.2f} µs"] for draw, cost in ordered[:WORST]]
    title = f"Of {len(costs)} tiny shapes on one thread: median {1e6 * middle:.2f} µs."
    return f"{title}\n\n{table(['shape', 'function over operator'], rows)}"


def by_mood(gains: Sequence[Gain]) -> dict[tuple[str, str], list[Gain]]:
    return groups(gains, lambda gain: (gain["mood"], gain["call"]))


def gains_table(gains: Sequence[Gain]) -> str:
    rows = []
    for key, own in by_mood(gains).items():
        slower = [gain["over_one"] for gain in own]
        within = sum(one <= MAX_SLOWER for one in slower)
        texts = [*key, f"{within} of {len(own)}", f"{within / len(own):.1%}"]
        texts += [f"{statistics.median(slower):.2f}", f"{max(slower):.2f}"]
        rows.append([*texts, "yes" if within == len(own) else "NO"])
    header = ["mood", "call", f"≤ {MAX_SLOWER:g} × one thread", "share", "median", "most", "met"]
    return table(header, rows)


def worst_gains(gains: Sequence[Gain]) -> str:
    parts = []
    for key, own in by_mood(gains).items():
        rows = []
        for gain in sorted(own, key=lambda gain: -gain["over_one"])[:WORST]:
            times = [duration(gain[name]) for name in ("seconds_on_one", "seconds")]
            missed = " MISSED" if gain["over_one"] > MAX_SLOWER else ""
            shape = f"{gain['shape']} {gain['dtype']}"
            rows.append([shape, *times, f"{gain['over_one']:.2f}{missed}"])
        header = ["shape", "1 thread", count_of(own[0]["threads"]), "over one"]
        parts.append(f"### The worst {len(rows)}: {', '.join(key)}\n\n{table(header, rows)}")
    return "\n\n".join(parts)


def print_tables(measured: Sequence[Measured], threads: Sequence[int]) -> dict[str, Any]:
    standings, gains = standings_of(measured, threads), gains_of(measured, threads)
    costs = function_costs(measured)
    if standings:
        print(f"\n## Next to the best peer, alone\n\n{worst_tables(standings)}")
    if gains:
        print(f"\n## {count_of(max(threads))} next to one, in turn\n\n{worst_gains(gains)}")
    if costs:
        print(f"\n## What the function costs\n\n{cost_lines(costs)}")
    print("\n## Summary")
    if standings:
        print(f"\n{summary(standings, SHARE_AHEAD, MEDIAN_RATIO)}")
    if gains:
        print(f"\n{gains_table(gains)}")
    wrong = [line for one in measured for line in one.wrong]
    print("\n## Wrong results of ours\n\n" + ("\n".join(f"- {line}" for line in wrong) or "none"))
    return {
        "standings": standing_records(standings),
        "gains": gains,
        "function_costs": {draw.name: cost for draw, cost in costs},
        "wrong": wrong,
    }
