"""Shapes drawn at random: ours next to the best peer, and two threads next to one in each mood.

``alone``: nothing else runs. ``blas``: a matrix multiply by NumPy before each call, outside of the
time, whose threads then wait for more work and spin. ``busy``: another process computes.
"""

import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import partial

import numpy as np

import batchkron as bk
from benchmarks.core.tables import count_of, duration, groups, words
from benchmarks.core.timing import (
    OUR_FUNCTION,
    OURS,
    Contender,
    best_medians,
    nothing,
    settle,
    verified,
)
from benchmarks.cpu.contenders import Batchkron, OurFunction, make_data, offers_of, results_of
from benchmarks.cpu.peers.python import BOUND
from benchmarks.random_shapes import WORST, standing, summary, worst, worst_standings

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

OUR_CALLS = {OURS: "operator", OUR_FUNCTION: "function"}
# Of the data up to which a call is tiny, all of it in a first-level cache: what the function costs
# is stated there, and chains of NumPy with everything prepared for one x and one output, which is
# half of such a call, are not compared.
TINY_BYTES = 32 << 10
SHARE_AHEAD = 0.99  # of the shapes of d ≥ 2 and P < 64 that shall not be behind any peer
MEDIAN_RATIO = 3.0  # to the best peer, of all shapes


@contextmanager
def mood(name):
    """Bring the machine into a mood; give what is to be done before each call."""
    if name == "blas":
        a, b = np.random.default_rng(0).standard_normal((2, BLAS_SIZE, BLAS_SIZE))
        yield partial(np.matmul, a, b, out=np.empty_like(a))
    elif name == "busy":
        command = [sys.executable, "-ISc", BUSY_PROGRAM]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        try:
            process.stdout.readline()
            yield nothing
        finally:
            process.kill()
            process.communicate()
    else:
        settle()
        yield nothing


def in_turn(contenders, data, threads, between):
    """Time each contender call by call, on one number of threads after the other."""

    def prepare(count):
        bk.set_num_threads(count)
        between()

    lanes, failures = verified(contenders, data, threads, prepare)
    for contender in contenders:
        own = [lane for lane in lanes if lane.contender is contender]
        take_turns(own, prepare, WARM_SECONDS, 1)
        for lane in own:
            lane.samples.clear()
        take_turns(own, prepare, TURN_SECONDS, MIN_SAMPLES)
        medians = [statistics.median(lane.samples) for lane in own]
        if any(median > MAX_SLOWER * medians[0] for median in medians[1:]):
            take_turns(own, prepare, AGAIN_SECONDS, MIN_SAMPLES)
    return [*(lane.times() for lane in lanes), *failures]


def take_turns(lanes, prepare, seconds, samples):
    """Take one sample of a call of each lane in turn, for so long, and so many at least."""
    end = time.perf_counter() + seconds
    taken = 0
    while lanes and (taken < samples or time.perf_counter() < end):
        for lane in lanes:
            prepare(lane.threads)
            lane.samples.append(lane.sample())
        taken += 1


def measure_draw(draw, conditions, threads, moods):
    """Time one shape: next to the peers while alone, then ours in each mood."""
    found = {"shape": draw.shape.name, "dtype": draw.dtype, "data_bytes": draw.bytes}
    found |= {"flops": draw.shape.flops, "results": [], "moods": {}}
    conditions.set_threads(max(threads))
    data = make_data(draw.shape, np.dtype(draw.dtype), 1, conditions.rng)
    ours = offers_of([Batchkron(), OurFunction()], data, conditions)
    if "alone" in moods:
        offers = [*ours, *offers_of(conditions.peers, data, conditions)]
        found["results"] = results_of(offers, data, threads, conditions)
    if len(threads) > 1:
        conditions.set_threads(max(threads))
        contenders = [offer for offer in ours if isinstance(offer, Contender)]
        ends = min(threads), max(threads)
        for name in moods:
            with mood(name) as between:
                found["moods"][name] = in_turn(contenders, data, ends, between)
    return found


def standings_of(draws, measured, threads):
    found = []
    for count in threads:
        for name, call in OUR_CALLS.items():
            for draw, one in zip(draws, measured, strict=True):
                times = best_medians(one["results"], count)
                peers = {peer: time for peer, time in times.items() if peer not in OUR_CALLS}
                if draw.bytes <= TINY_BYTES:
                    peers.pop(BOUND, None)
                found += standing(draw, f"{call}, {count_of(count)}", times.get(name), peers)
    return found


def gains_of(measured, threads):
    """The times on one thread and on most of them, of each call in each mood."""
    few, many, found = min(threads), max(threads), []
    for one in measured:
        for name, results in one["moods"].items():
            alone, together = (best_medians(results, count) for count in (few, many))
            what = {"shape": one["shape"], "dtype": one["dtype"], "mood": name}
            for ours, call in OUR_CALLS.items():
                if ours in alone and ours in together:
                    times = {"seconds_on_one": alone[ours], "seconds": together[ours]}
                    own = {**what, "call": call, "threads": many, **times}
                    found.append({**own, "over_one": together[ours] / alone[ours]})
    return found


def function_costs(measured):
    """Seconds that the function takes longer than the operator, on tiny data and one thread."""
    found = {}
    for one in measured:
        times = best_medians(one["results"], 1)
        if one["data_bytes"] <= TINY_BYTES and set(OUR_CALLS) <= set(times):
            found[f"{one['shape']} {one['dtype']}"] = times[OUR_FUNCTION] - times[OURS]
    return found


def gains_summary(gains):
    for (mood, call), own in groups(gains, lambda one: (one["mood"], one["call"])).items():
        slower = [gain["over_one"] for gain in own]
        within = sum(one <= MAX_SLOWER for one in slower)
        found = {"mood": mood, "call": call, "shapes": len(own), "within": within}
        found |= {"median_over_one": statistics.median(slower), "most": max(slower)}
        yield words({**found, "met": within == len(own)})


def wrong_results(one):
    return [
        f"{one['shape']} {one['dtype']}: {own['name']}, {count_of(own['threads'])}: {own['reason']}"
        for results in (one["results"], *one["moods"].values())
        for own in results
        if own["kind"] == "failure" and own["name"] in OUR_CALLS
    ]


def print_tables(draws, measured, threads):
    standings, gains = standings_of(draws, measured, threads), gains_of(measured, threads)
    costs = function_costs(measured)
    if standings:
        print("\n## Next to the best peer, alone", *worst_standings(standings), sep="\n")
    if gains:
        slowest = worst(
            gains, lambda one: f"{one['mood']}, {one['call']}", lambda one: -one["over_one"]
        )
        print(f"\n## {count_of(max(threads))} next to one, in turn", *slowest, sep="\n")
    if costs:
        most = sorted(costs.items(), key=lambda pair: -pair[1])[:WORST]
        middle = duration(statistics.median(costs.values()))
        print(
            f"\n## What the function costs\n\nOf {len(costs)} tiny shapes on one thread: {middle}"
        )
        print(words(dict(most), is_time=True))
    print("\n## Summary\n")
    if standings:
        print(*summary(standings, SHARE_AHEAD, MEDIAN_RATIO), sep="\n")
    if gains:
        print(*gains_summary(gains), sep="\n")
    wrong = [line for one in measured for line in wrong_results(one)]
    print("\n## Wrong results of ours\n\n" + ("\n".join(f"- {line}" for line in wrong) or "none"))
    return {"standings": standings, "gains": gains, "function_costs": costs, "wrong": wrong}
