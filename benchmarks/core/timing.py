"""Times of several contenders on the same data, in turn, so that a disturbance hits them all."""

import gc
import itertools
import math
import statistics
import sys
import time
from dataclasses import dataclass

import numpy as np

import batchkron

OURS = "batchkron"
OUR_FUNCTION = "batchkron's function"
SAMPLE_SECONDS = 100e-6  # short calls are repeated until the clock's own cost does not count
HOPELESS = 5.0  # a peer so many times slower than the fastest has one round only
SLOW_SECONDS = 0.1  # such a peer has no round at all if its first call, the check, takes so long
MAX_SETTLING_SECONDS = 0.5  # longest wait for the threads of the contender before
SETTLING_SECONDS = 0.012  # Linux counts the time of threads that run by ticks, of up to 10 ms


def nothing():
    pass


def waiter(device):
    """What waits until a device has done its work."""
    if device == "cpu":
        return nothing
    import cupy

    return cupy.cuda.Device().synchronize


def set_threads(count):
    """Give so many threads to ours, to libraries of linear algebra, and to torch if it is there."""
    from threadpoolctl import threadpool_limits

    batchkron.set_num_threads(count)
    threadpool_limits(count)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(count)


def seconds_of(call, repeats=1, wait=nothing):
    """The time of one of several calls, until the device has done them."""
    wait()
    begun = time.perf_counter()
    for _ in range(repeats):
        call()
    wait()
    return (time.perf_counter() - begun) / repeats


def in_turn(calls, rounds, seconds=0.0, wait=nothing, rest=0.0):
    """The seconds of each call in each round; calls take turns, each round another one first.

    A turn takes about ``seconds``, in which a call is repeated, after a ``rest`` in which threads
    of the contender before stop spinning; ``wait`` waits for the device.
    """
    repeats = {}
    for name, call in calls.items():
        call()  # plans, compiles and allocates
        once = seconds_of(call, 1, wait)
        repeats[name] = max(1, min(10_000, round(seconds / max(once, 1e-7))))
    found = {name: [] for name in calls}
    names = list(calls)
    for turn in range(rounds):
        for place in range(len(names)):
            name = names[(turn + place) % len(names)]
            time.sleep(rest)
            calls[name]()  # its data are in the cache, its threads awake
            found[name].append(seconds_of(calls[name], repeats[name], wait))
    return found


def medians(times):
    return {name: statistics.median(own) for name, own in times.items()}


def least(times):
    return {name: min(own) for name, own in times.items()}


@dataclass(frozen=True)
class Contender:
    """One way of computing a result: a call for each set of the data.

    The result is in the data's output, or, with ``returns``, what the call returns. ``keeps`` are
    arrays that the calls know by address only: they are kept alive here.
    """

    name: str
    variant: str
    calls: list
    returns: bool = False
    keeps: tuple = ()

    @property
    def who(self):
        return {"name": self.name, "variant": self.variant}

    def result(self, data):
        returned = self.calls[0]()
        return np.asarray(returned) if self.returns else data.outputs[0]


def absent(name, variant, reason):
    """What is said in the place of times of a way that is not measured."""
    return {"kind": "absent", "name": name, "variant": variant, "reason": reason}


class Lane:
    """One contender on one number of threads."""

    def __init__(self, contender, threads):
        self.contender = contender
        self.threads = threads
        self.calls = itertools.cycle(contender.calls)
        self.loops = 1
        self.samples = []
        self.hopeless = False

    def sample(self):
        calls = list(itertools.islice(self.calls, self.loops))
        start = time.perf_counter()
        for call in calls:
            call()
        return (time.perf_counter() - start) / self.loops

    def warm_up(self):
        """Call until caches and threads are warm, and find out how many calls make a sample."""
        seconds = self.sample()
        if not self.samples:
            while seconds * self.loops < SAMPLE_SECONDS:
                grown = math.ceil(1.2 * SAMPLE_SECONDS / max(seconds, 1e-9))
                self.loops = min(max(2 * self.loops, grown), 100_000)
                seconds = self.sample()

    def turn(self, seconds):
        if not self.samples or statistics.median(self.samples) < seconds:
            self.warm_up()
        end = time.perf_counter() + seconds
        while True:
            self.samples.append(self.sample())
            if time.perf_counter() >= end:
                return

    def give_up(self, seconds, fastest):
        """Stop if this cannot be the best peer; without samples, ``seconds`` is the only one."""
        if self.contender.name not in (OURS, OUR_FUNCTION) and seconds > HOPELESS * fastest:
            self.hopeless = True
            self.samples = self.samples or [seconds]

    def times(self):
        """Seconds per call."""
        ordered = sorted(self.samples)
        quarter, middle = len(ordered) // 4, statistics.median(ordered)
        found = {"median": middle, "quartiles": (ordered[quarter], ordered[-1 - quarter])}
        found |= {"least": ordered[0], "samples": len(ordered)}
        return {"kind": "times", **self.contender.who, "threads": self.threads, **found}


def settle():
    """Wait until the threads of the library that ran last have stopped spinning for more work."""
    end = time.perf_counter() + MAX_SETTLING_SECONDS
    while time.perf_counter() < end:
        before = time.process_time()
        time.sleep(SETTLING_SECONDS)
        if time.process_time() - before < 0.1 * SETTLING_SECONDS:
            return


def verified(contenders, data, threads, set_threads):
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
                wrong = f"{type(error).__name__}: {error}"
            else:
                seconds = time.perf_counter() - start
                wrong = data.wrong(result)
            if wrong:
                where = {"threads": count, "reason": wrong}
                failures.append({"kind": "failure", **contender.who, **where})
                continue
            lane = Lane(contender, count)
            fastest = min(fastest, seconds)
            if seconds > SLOW_SECONDS:  # a first call may be twice as slow as others
                lane.give_up(seconds, 2 * fastest)
            lanes.append(lane)
    return lanes, failures


def measure(contenders, data, threads, set_threads, rounds, turn_seconds):
    """Times, or failures, of all contenders in some rounds, in which each has a turn."""
    lanes, failures = verified(contenders, data, threads, set_threads)
    gc.collect()
    gc.disable()
    try:
        for turn in range(rounds):
            for count in threads:
                set_threads(count)
                race([lane for lane in lanes if lane.threads == count], turn, turn_seconds)
    finally:
        gc.enable()
    return [*(lane.times() for lane in lanes), *failures]


def race(lanes, turn, seconds):
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


def best_medians(results, threads):
    best = {}
    for one in results:
        if one["kind"] == "times" and one["threads"] == threads:
            best[one["name"]] = min(one["median"], best.get(one["name"], math.inf))
    return best


def next_to_peers(results, threads):
    """Times, failures, the best peer, and how many times as long it takes as we do."""
    seconds = best_medians(results, threads)
    peers = {name: value for name, value in seconds.items() if name != OURS}
    failures = [one for one in results if one["kind"] == "failure" and one["threads"] == threads]
    failed = {one["name"]: one["reason"] for one in failures}
    found = {"threads": threads, "seconds": seconds, "failed": failed}
    if OURS in seconds and peers:
        best = min(peers, key=peers.__getitem__)
        found |= {"best_peer": best, "gain": peers[best] / seconds[OURS]}
    return found
