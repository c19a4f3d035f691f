"""Trials on the device: checks whether a candidate's result is right, and measures its time."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from batchkron.backends.cuda.runtime.device import (
    DeviceArray,
    cupy,
    device_errors,
    device_limits,
    keep_code,
    options_for,
)
from batchkron.backends.cuda.runtime.kernel_cache import private_folder
from batchkron.backends.cuda.tuning.compilers import Compilers
from batchkron.backends.cuda.tuning.search import Choice, Measure, RejectedError, Search, Space
from batchkron.backends.cuda.tuning.store import Entry, keep_entry, kept_entry
from batchkron.backends.cuda.tuning.tuning import Outcome, Tuning
from batchkron.errors import BackendUnavailableError, ContextLostError
from batchkron.log import logger
from batchkron.spec.kron import Array

TF32_ROUNDING = 2.0**-16
"""Unit of rounding of results in TF32. A `Trial` allows differences of 1000 units, 1.5 % of the
largest result: about 30 roundings to TF32's 11 bits."""

Apply = Callable[[int, int], None]  # a product, called with the addresses of x and y

_log = logger("tuning")

# The pairs (x, y) of vectors that are used in turn have this many bytes together, more than any
# device's cache, so that a call does not find its x there.
_CACHE_BYTES = 240 << 20
# Vectors of up to this many bytes stay in the cache in real use, too: one pair is enough.
_TINY_BYTES = 1 << 20
# Numbers below were chosen by hand.
_MAX_BUFFER_SETS = 8  # largest number of pairs of vectors
_REPLAY_MICROSECONDS = 4000  # µs that one replay of a CUDA graph should take
_MAX_ROUNDS = 100  # largest number of rounds over all pairs of vectors in one graph
_REPLAYS = 5  # replays of a graph, whose median time is taken
# A candidate is measured no further if the faster of its first two calls takes longer than this
# factor times the best time, plus the noise of such a call in µs.
_MAX_SLOWDOWN = 1.3
_FIRST_CALL_NOISE = 50
_TOLERANCE = 1000  # allowed difference in units of rounding, relative to the largest result
_COMPARED_ELEMENTS = 1 << 24  # elements that are compared at a time, to save memory
# Random numbers repeat after this many elements, a prime: no tile size divides it.
_PERIOD = 1_000_003

_searching = threading.Lock()  # one search at a time: a second one would disturb the times


class Trial:
    """Vectors to which candidates are applied, and the first candidate's result to compare with."""

    def __init__(
        self, inputs: int, outputs: int, dtype: np.dtype[Any], rounding: float | None = None
    ) -> None:
        """Allocate vectors of ``inputs`` and ``outputs`` elements.

        ``rounding`` is the unit of rounding of a product, by default the dtype's.

        Raises MemoryError if the device does not have enough memory for further vectors of these
        sizes.
        """
        moved = (inputs + outputs) * dtype.itemsize
        count = max(1, min(_MAX_BUFFER_SETS, _CACHE_BYTES // moved)) if moved > _TINY_BYTES else 1
        self._pairs = [
            (_random_vector(inputs, dtype, seed), cupy.empty(outputs, dtype))
            for seed in range(count)
        ]
        self._expected: DeviceArray | None = None
        self._rounding = float(np.finfo(dtype).eps) if rounding is None else rounding
        self._stream = cupy.cuda.Stream(non_blocking=True)
        cupy.cuda.Device().synchronize()

    def measure(self, prepare: Callable[[], Apply], best: float) -> float:
        """Return the time in µs of a call of the product that ``prepare`` returns.

        If the first two calls take much longer than ``best`` µs, a call's time is returned at once.

        Raises RejectedError if it cannot be launched, or its result differs from that of the first
        candidate.
        """
        with _rejections(), device_errors(), self._stream:
            apply = prepare()
            self._check(apply)
            calls = [(x.data.ptr, y.data.ptr) for x, y in self._pairs]
            # the first one alone may be slow: after a pause of the host, up to 170 µs on an H200
            first = min(self._elapsed(lambda: apply(*calls[0])) for _ in range(2))
            if first > _MAX_SLOWDOWN * best + _FIRST_CALL_NOISE:
                return first
            return self._replayed(apply, calls)

    def _check(self, apply: Apply) -> None:
        """Compare the result with the first candidate's; y is filled with NaN before the call."""
        x, y = self._pairs[-1]
        y.fill(np.nan)
        apply(x.data.ptr, y.data.ptr)
        if self._expected is None:
            if not bool(cupy.isfinite(y).all()):
                raise RejectedError("the result is not finite")
            self._expected = y.copy()
            return
        error = scale = 0.0
        for begin in range(0, y.size, _COMPARED_ELEMENTS):
            piece = slice(begin, begin + _COMPARED_ELEMENTS)
            expected = self._expected[piece]
            one = float(cupy.abs(y[piece] - expected).max())
            error = one if not one <= error else error  # unlike max, keeps a NaN
            scale = max(scale, float(cupy.abs(expected).max()))
        if not error <= _TOLERANCE * self._rounding * scale:
            raise RejectedError(f"wrong result, error {error:.1e} at values up to {scale:.1e}")

    def _replayed(self, apply: Apply, calls: Sequence[tuple[int, int]]) -> float:
        """Return the time of a call in µs: the median over replays of a graph of all calls."""

        def once() -> None:
            for call in calls:
                apply(*call)

        whole = self._elapsed(once)
        rounds = max(1, min(_MAX_ROUNDS, int(_REPLAY_MICROSECONDS / max(whole, 1))))
        self._stream.begin_capture()
        try:
            for _ in range(rounds):
                once()
        finally:
            graph = self._stream.end_capture()
        graph.launch(self._stream)
        times = [self._elapsed(lambda: graph.launch(self._stream)) for _ in range(_REPLAYS)]
        return statistics.median(times) / (rounds * len(calls))

    def _elapsed(self, work: Callable[[], object]) -> float:
        """Return the device time of ``work`` in µs, measured by CUDA events."""
        start, stop = cupy.cuda.Event(), cupy.cuda.Event()
        start.record(self._stream)
        work()
        stop.record(self._stream)
        stop.synchronize()
        return float(1000 * cupy.cuda.get_elapsed_time(start, stop))


@contextmanager
def _rejections() -> Iterator[None]:
    """Turn errors after which the device still works into RejectedError."""
    try:
        yield
    except (RejectedError, ContextLostError, BackendUnavailableError):
        raise
    except (RuntimeError, MemoryError) as error:
        raise RejectedError(str(error)) from error


def random_values(shape: tuple[int, ...], dtype: np.dtype[Any], seed: int = 0) -> Array:
    """Return standard normal numbers on the host; for complex dtypes both parts are random."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape)
    if dtype.kind == "c":
        values = values + 1j * rng.standard_normal(shape)
    return np.asarray(values, dtype)


def _random_vector(elements: int, dtype: np.dtype[Any], seed: int) -> DeviceArray:
    block = cupy.asarray(random_values((min(elements, _PERIOD),), dtype, seed))
    vector = cupy.empty(elements, dtype)
    for begin in range(0, elements, _PERIOD):
        part = vector[begin : begin + _PERIOD]
        part[...] = block[: part.size]
    return vector


def is_searched(key: str, shape: str, tuning: Tuning) -> bool:
    """Whether the store has a result of an earlier search; if so, add it to the outcomes."""
    entry = None if tuning.again else kept_entry(key)
    if entry is None:
        return False
    times = entry.rule_microseconds, entry.microseconds
    _log.info("%s: %.3g µs, %.3g by the rule, by an earlier search", shape, times[1], times[0])
    tuning.outcomes.append(Outcome(shape, *times, was_known=True, choice=entry.choice))
    return True


def search_and_keep(
    key: str,
    shape: str,
    space: Space[Choice],
    measure: Measure[Choice],
    written: Callable[[Choice], Any],
    device: int,
    tuning: Tuning,
) -> None:
    """Search a space and store result and kernels; RejectedError as `run`, OSError if it cannot."""
    private_folder()  # raises before any work if nothing can be stored
    with _searching, Compilers(options_for(device)) as compilers:
        search = Search(space, compilers, measure, device_limits(device), tuning, shape)
        outcome = search.run()
        outcome = replace(outcome, choice=written(search.best))
        keep_entry(key, Entry(outcome.choice, outcome.rule_microseconds, outcome.microseconds))
        for program, code in search.best_kernels().items():
            keep_code(program, code, device)
    best, rule = outcome.microseconds, outcome.rule_microseconds
    found = (shape, best, rule, outcome.tried, outcome.seconds)
    _log.info("%s: %.3g µs, %.3g by the rule, after %d candidates in %.1f s", *found)
    tuning.outcomes.append(outcome)
    cupy.get_default_memory_pool().free_all_blocks()
