"""Timing of the products with a problem's operator."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module

__all__ = ["KernelClock"]

# Number of pairs of CUDA events that are recorded before their times are added up; chosen by hand.
_MAX_PENDING_EVENTS = 1024


class KernelClock:
    """The time spent in products with the operator: wall-clock time, or time on the device.

    ``like``: a vector of the run. For a CuPy array the time is measured by CUDA events before and
      after a product, so that the host need not wait.
    """

    def __init__(self, like: NDArray[Any]) -> None:
        self._arrays = array_module(like)
        self._seconds, self._timed = 0.0, 0
        self._events: list[tuple[Any, Any]] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        """Time the product inside a ``with`` block, unless a CUDA graph captures it."""
        if self._arrays is not np and self._arrays.cuda.get_current_stream().is_capturing():
            yield
            return
        self._timed += 1
        if self._arrays is np:
            began = time.perf_counter()
            yield
            self._seconds += time.perf_counter() - began
            return
        start, stop = self._arrays.cuda.Event(), self._arrays.cuda.Event()
        start.record()
        yield
        stop.record()
        self._events.append((start, stop))
        if len(self._events) == _MAX_PENDING_EVENTS:
            self._add_events()

    def seconds_of(self, products: int) -> float:
        """Return the seconds of so many products, estimated from those that were timed.

        On a device this waits for the products to end.
        """
        self._add_events()
        return self._seconds * products / self._timed if self._timed else 0.0

    def _add_events(self) -> None:
        for start, stop in self._events:
            stop.synchronize()
            self._seconds += 1e-3 * self._arrays.cuda.get_elapsed_time(start, stop)
        self._events.clear()
