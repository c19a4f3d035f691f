"""Work that is called again and again, as CUDA graphs by keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from batchkron.backends.cuda.runtime.device import (
    GraphMemory,
    cupy,
    device_errors,
    moves,
    order_streams,
)
from batchkron.backends.cuda.runtime.repeated_work import Prepared, captured, warming_up

_RUNS_BEFORE_CAPTURE = 5  # launches of the same work before it is captured; chosen by hand
# Runs of one work that follow each other are launched so many at a time, after so many such groups:
# a launch takes 28 µs of Python, a capture about 4 ms. Chosen by hand.
_TOGETHER, _GROUPS_BEFORE_CAPTURE = 8, 25


class Recorder:
    """Runs repeated work: at first by calling it, later by launching a captured CUDA graph.

    Making a graph takes about as long as five runs of 8 iterations (0.9 ms on an H200). The run
    before the capture is on the recorder's own stream, so that operators allocate their workspace
    for that stream, in memory that lives as long as the recorder; so do arrays that the work makes.
    Work that cannot be captured, such as one that copies to the host, is called always; so is all
    work on a stream that the user captures, and the first of a thread on a stream, see `Prepared`.
    All graphs are dropped when an update of an operator moves its arrays.
    """

    def __init__(self) -> None:
        self._stream: Any = None
        self._pool: Any = None
        self._runs: dict[object, int] = {}
        self._graphs: dict[object, Any] = {}  # None: it cannot be captured
        self._prepared = Prepared()
        self._moves = moves()
        self._memory = GraphMemory()

    def run_several(self, key: object, work: Callable[[], None], count: int) -> None:
        """Do what ``work`` does ``count`` times, with fewer launches if that is often."""

        def together() -> None:
            for _ in range(_TOGETHER):
                self.run(key, work)

        groups, single = divmod(count, _TOGETHER)
        for _ in range(groups):
            self.run((key, _TOGETHER), together, _GROUPS_BEFORE_CAPTURE)
        for _ in range(single):
            self.run(key, work)

    def run(
        self, key: object, work: Callable[[], None], runs_before: int = _RUNS_BEFORE_CAPTURE
    ) -> bool:
        """Do a key's work, by a graph after ``runs_before`` runs; return whether by one."""
        current = cupy.cuda.get_current_stream()
        if current.is_capturing():
            work()
            return False
        if self._moves != moves():
            self.forget()
        if self._prepared.is_first(current, key) and key in self._runs:
            work()
            return False
        graph = self._graphs.get(key)
        if graph is not None:
            graph.launch(current)
            return True
        runs = self._runs[key] = self._runs.get(key, 0) + 1
        if runs < runs_before or key in self._graphs:
            work()
            return False
        with device_errors():
            if self._stream is None:
                self._stream = cupy.cuda.Stream(non_blocking=True)
                self._pool = cupy.cuda.MemoryPool()
            if runs == runs_before:
                order_streams(current, self._stream)
                pool = cupy.cuda.using_allocator(self._pool.malloc)
                with self._stream, self._memory.in_use(), pool, warming_up():
                    work()
                order_streams(self._stream, current)
                return False
            graph = captured(self._stream, self._memory, self._pool, work)
            self._graphs[key] = graph
            if graph is None:
                work()
            else:
                graph.launch(current)
            return False

    def forget(self) -> None:
        """Drop all graphs."""
        self._prepared, self._moves = Prepared(), moves()
        self._runs.clear()
        self._graphs.clear()
