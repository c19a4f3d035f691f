"""Candidates of a search on the device: right or rejected, and how long they take."""

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
from batchkron.spec.kron import Array

Apply = Callable[[int, int], None]  # from the address of x to that of y

_CACHE_BYTES = 240 << 20  # inputs and outputs of all pairs: more than any device's cache
_TINY_BYTES = 1 << 20  # of vectors that stay in the cache between calls, so that one pair will do
_MAX_BUFFER_SETS = 8  # pairs of vectors that are used in turn; chosen by hand
_REPLAY_MICROSECONDS = 4000  # that one replay of a graph should take; chosen by hand
_MAX_ROUNDS = 100  # over all pairs of vectors in one graph; chosen by hand
_REPLAYS = 5  # of a graph, of which the fastest counts; chosen by hand
_MAX_SLOWDOWN = 1.3  # times the best time, beyond which a candidate is not measured further
_FIRST_CALL_NOISE = 50  # microseconds that the first timed call may be off by
_TOLERANCE = 1000  # units of rounding, of the largest result
_COMPARED_ELEMENTS = 1 << 24  # elements that are compared at a time
_PERIOD = 1_000_003  # random numbers repeat after so many; no size of a tile divides it

_searching = threading.Lock()  # times are those of one kernel at a time


class Trial:
    """Vectors that candidates are applied to, and the result of the first one."""

    def __init__(
        self, inputs: int, outputs: int, dtype: np.dtype[Any], rounding: float | None = None
    ) -> None:
        """Take the elements of x and of y, and the unit of rounding, by default the dtype's.

        Raises
        ------
        MemoryError
            If the device has not enough memory for another two vectors like these.
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
        """Return the µs of a call of what ``prepare`` makes.

        Only those of a first call where that takes much longer than ``best``.

        Raises
        ------
        RejectedError
            If it cannot be launched, or its result differs from that of the first candidate.
        """
        with _rejections(), device_errors(), self._stream:
            apply = prepare()
            self._check(apply)
            calls = [(x.data.ptr, y.data.ptr) for x, y in self._pairs]
            first = self._elapsed(lambda: apply(*calls[0]))
            if first > _MAX_SLOWDOWN * best + _FIRST_CALL_NOISE:
                return first
            return self._replayed(apply, calls)

    def _check(self, apply: Apply) -> None:
        """Compare a result with the first one; the output is poisoned before."""
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
            error = one if not one <= error else error  # NaN stays
            scale = max(scale, float(cupy.abs(expected).max()))
        if not error <= _TOLERANCE * self._rounding * scale:
            raise RejectedError(f"wrong result, error {error:.1e} at values up to {scale:.1e}")

    def _replayed(self, apply: Apply, calls: Sequence[tuple[int, int]]) -> float:
        """Return the median over replays of a graph of all calls in turn."""

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
        """Return the µs on the device between events around ``work``."""
        start, stop = cupy.cuda.Event(), cupy.cuda.Event()
        start.record(self._stream)
        work()
        stop.record(self._stream)
        stop.synchronize()
        return float(1000 * cupy.cuda.get_elapsed_time(start, stop))


@contextmanager
def _rejections() -> Iterator[None]:
    """Reject a candidate for errors that leave the device as it was."""
    try:
        yield
    except (RejectedError, ContextLostError, BackendUnavailableError):
        raise
    except (RuntimeError, MemoryError) as error:
        raise RejectedError(str(error)) from error


def random_values(shape: tuple[int, ...], dtype: np.dtype[Any], seed: int = 0) -> Array:
    """Return standard normal numbers on the host, complex ones for complex dtypes."""
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
    """Whether an earlier search has found something, which is then noted as known."""
    entry = None if tuning.again else kept_entry(key)
    if entry is None:
        return False
    times = entry.rule_microseconds, entry.microseconds
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
    """Search a space, and keep what is found, with its kernels.

    Raises
    ------
    RejectedError
        If the rule's own kernels do not work.
    OSError
        If nothing can be kept.
    """
    private_folder()  # refuses before the work
    with _searching, Compilers(options_for(device)) as compilers:
        search = Search(space, compilers, measure, device_limits(device), tuning, shape)
        outcome = search.run()
        outcome = replace(outcome, choice=written(search.best))
        keep_entry(key, Entry(outcome.choice, outcome.rule_microseconds, outcome.microseconds))
        for program, code in search.best_kernels().items():
            keep_code(program, code, device)
    tuning.outcomes.append(outcome)
    cupy.get_default_memory_pool().free_all_blocks()
