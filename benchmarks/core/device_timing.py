"""Times on the device: replays of captured graphs between two events."""

import math
import statistics
from contextlib import nullcontext, suppress
from contextvars import ContextVar
from functools import cache
from time import perf_counter

import cupy
import numpy as np

from benchmarks.core.energy import EnergyError, energy_counter, watts

CACHE_BYTES = 240 << 20  # inputs and outputs of all calls in turn: more than any cache holds
REPLAY_MICROSECONDS = 4_000  # about the length of a graph
MAX_ROUNDS = 100  # of all calls in a graph
REPLAYS = 5
BUSY_MICROSECONDS = 20_000  # of calls before the device is waited for, when energy is measured
EAGER_MICROSECONDS = 4_000  # about the length of a batch of eager calls
MAX_EAGER_ROUNDS = 300  # of all calls in a batch
SLOWER = 1.3  # a variant that is this much slower than a peer's best is not timed
# largest error that counts as right, relative to the largest entry
TOLERANCE = {"float16": 2e-3, "float32": 1e-5, "float64": 1e-13, "tf32x3": 1e-5, "tf32": 3e-3}
BLOCK = 1 << 22  # random numbers that large arrays repeat

# what `measure` reads joules from, None if it measures times only
_counter = ContextVar("counter of joules", default=None)


@cache
def _block(dtype):
    return cupy.asarray(np.random.default_rng(0).standard_normal(BLOCK).astype(dtype))


@cache
def _stream():
    """The stream of all measurements: operators have memory for each stream."""
    return cupy.cuda.Stream(non_blocking=True)


def random_array(shape, dtype, seed=0):
    """Standard normal numbers; large arrays repeat four million of them."""
    block = _block(dtype)
    array = cupy.empty(math.prod(shape), dtype)
    start, position = seed * 1_000_003 % BLOCK, 0
    while position < array.size:
        part = block[start : start + array.size - position]
        array[position : position + part.size] = part
        position, start = position + part.size, 0
    return array.reshape(shape)


def elapsed(stream, work):
    start, stop = cupy.cuda.Event(), cupy.cuda.Event()
    start.record(stream)
    work()
    stop.record(stream)
    stop.synchronize()
    return float(1000 * cupy.cuda.get_elapsed_time(start, stop))


def _captured(stream, work):
    """A graph of ``work``, None if it cannot be captured."""
    stream.begin_capture()
    try:
        work()
    except Exception:
        with suppress(Exception):
            stream.end_capture()
        return None
    try:
        return stream.end_capture()
    except Exception:
        return None


def count_energy():
    """Let `measure` also find the energy of a call; `EnergyError` if it cannot be read."""
    bus = cupy.cuda.runtime.deviceGetPCIBusId(cupy.cuda.Device().id)
    _counter.set(energy_counter(bus))


def _all_of(calls, rounds=1):
    def work():
        for _ in range(rounds):
            for call in calls:
                call()

    return work


def _repeated(calls, on, rounds):
    """A stream, what does all calls there so many times, and whether that is a graph."""
    work, stream = _all_of(calls, rounds), _stream()
    with stream, on(stream):
        graph = _captured(stream, work)
    if graph is not None:
        return stream, lambda: graph.launch(stream), True
    _stream.cache_clear()  # a failed capture leaves the stream unusable
    return _stream(), work, False


def power(calls, on, microseconds):
    """Watts while calls of so many µs are repeated; `EnergyError` if they cannot be measured."""
    counter = _counter.get()
    if counter is None:
        raise EnergyError("not measured: give --energy")
    one = max(microseconds, 1e-3) * len(calls)
    rounds = min(max(1, int(BUSY_MICROSECONDS / one)), MAX_ROUNDS)
    stream, work, _ = _repeated(calls, on, rounds)

    def busy():
        for _ in range(max(1, int(BUSY_MICROSECONDS / (rounds * one)))):
            work()
        stream.synchronize()

    with stream, on(stream):
        return watts(busy, counter)


def energy_of(calls, on, microseconds):
    """Power, and joules of a call of so many µs, if they are to be found; else nothing."""
    if _counter.get() is None:
        return {}
    try:
        found = power(calls, on, microseconds)
    except EnergyError as error:
        return {"energy_reason": str(error)}
    return {"watts": found, "joules": 1e-6 * found * microseconds}


def timed(calls, *how):
    """GPU time of one call: the median over replays of a graph of all ``calls`` in turn."""
    return _replayed(calls, *how)[0]


def _replayed(calls, on=nullcontext, length=REPLAY_MICROSECONDS, replays=REPLAYS):
    """The microseconds of one call, and whether it was replayed from a graph."""
    stream, once = _stream(), _all_of(calls)
    cupy.cuda.Device().synchronize()
    with stream, on(stream):
        once()
        first = elapsed(stream, once)
    rounds = max(1, min(MAX_ROUNDS, int(length / max(first, 1))))
    stream, work, is_captured = _repeated(calls, on, rounds)
    with stream, on(stream):
        work()
        times = [elapsed(stream, work) for _ in range(replays)]
    return statistics.median(times) / (rounds * len(calls)), is_captured


def call_microseconds(call, calls, repeats, wait=None):
    """Time of an eager call: the median over batches, each from one synchronisation to the next."""
    wait = cupy.cuda.Device().synchronize if wait is None else wait
    times = []
    for _ in range(repeats):
        wait()
        begun = perf_counter()
        for _ in range(calls):
            call()
        wait()
        times.append(1e6 * (perf_counter() - begun) / calls)
    return statistics.median(times)


def eager_rounds(microseconds):
    """How many times something that takes so long makes a batch."""
    return max(1, min(MAX_EAGER_ROUNDS, int(EAGER_MICROSECONDS / max(microseconds, 1))))


def eager_microseconds(calls, on, microseconds):
    """Time of one eager call, of several in turn; ``microseconds``: about what one takes."""
    stream, once = _stream(), _all_of(calls)
    with stream, on(stream):
        once()
        rounds = eager_rounds(microseconds * len(calls))
        return call_microseconds(once, rounds, REPLAYS) / len(calls)


def first_time(calls, on=nullcontext):
    """Microseconds of the last call, once."""
    stream = _stream()
    cupy.cuda.Device().synchronize()
    with stream, on(stream):
        return elapsed(stream, calls[-1])


def measure(variants, on, dtype, output, error_of):
    """Check the last result of each variant's calls once, time the fastest variant.

    ``on`` makes a stream the one that they run on; the calls of a variant take arrays in turn.
    """
    firsts = {}
    errors = {}
    for name, calls in variants.items():
        output.fill(np.nan)
        first_time(calls, on)
        errors[name] = error_of()
        if not errors[name] <= TOLERANCE[dtype]:
            return {"reason": f"wrong result, relative error {errors[name]:.1e}"}
        firsts[name] = first_time(calls, on)
    bound = SLOWER * min(firsts.values()) + 50  # µs that are allowed for noise in short ones
    near = [name for name, first in firsts.items() if first <= bound]
    times = {name: _replayed(variants[name], on) for name in near}
    best = min(times, key=lambda name: times[name][0])
    found = {"microseconds": times[best][0], "captured": times[best][1], "variant": best}
    found["relative_error"] = errors[best]
    return found | energy_of(variants[best], on, found["microseconds"])


def measured(make, *how):
    """`measure` what ``make`` returns, or why it was not possible."""
    try:
        return measure(*make(), *how)
    except Exception as error:
        cupy.get_default_memory_pool().free_all_blocks()
        return {"reason": f"not measured: {type(error).__name__}: {error}"[:200]}
