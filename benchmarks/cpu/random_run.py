"""Shapes drawn at random: ours next to the best peer, and two threads next to one in each mood."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.core.tables import count_of, duration, groups, table
from benchmarks.core.timing import OUR_FUNCTION, OURS, Contender, Failure, Result, best_medians
from benchmarks.cpu.cells import Conditions, offers_of, results_of
from benchmarks.cpu.contenders import Batchkron, OurFunction
from benchmarks.cpu.data import make_data
from benchmarks.cpu.moods import MAX_SLOWER, in_turn, mood
from benchmarks.cpu.peers.python import BOUND
from benchmarks.cpu.report import result_records
from benchmarks.random_shapes import Draw
from benchmarks.standings import WORST, Standing, standing, standing_records, summary, worst_tables

OUR_CALLS = {OURS: "operator", OUR_FUNCTION: "function"}
# Of the data up to which a call is tiny, all of it in a first-level cache: what the function costs
# is stated there, and chains of NumPy with everything prepared for one x and one output, which is
# half of such a call, are not compared.
TINY_BYTES = 32 << 10
SHARE_AHEAD = 0.99  # of the shapes of d ≥ 2 and P < 64 that shall not be behind any peer
Gain = dict[str, Any]  # seconds of one of our calls on one thread and on more, in one mood
MEDIAN_RATIO = 3.0  # to the best peer, of all shapes


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
