"""Work on vectors of fixed lengths that a device repeats by a CUDA graph."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import numpy as np

from batchkron.backends.cuda.runtime.device import (
    DeviceArray,
    GraphMemory,
    cupy,
    current_device,
    device_errors,
    end_capture,
    graph_memory,
    moves,
    order_streams,
    runtime,
)

# Calls before the one that captures, which takes about as long as four others; chosen by hand.
_CALLS_BEFORE_CAPTURE = 5
# Elements of x or y from which work is never a graph, whose own vectors would take memory. Kernels
# take longer than their launches there; chosen by hand.
_MAX_ELEMENTS = 1 << 21
_MAX_PREPARED = 64  # streams of a thread that a work remembers; chosen by hand
_STREAM_OF_THREAD = 2  # the address of the default stream of whatever thread asks for it


class _Turns:
    """Work on the same arrays: threads take turns, and streams wait for each other."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._last: Any = None  # the last stream; kept, so that no other has its address
        self._done: Any = None  # the event after its work

    def begin(self, stream: Any) -> None:
        """Let the stream wait for earlier work on another one."""
        if self._last is None:
            return
        if self._last.ptr != stream.ptr or stream.ptr == _STREAM_OF_THREAD:
            stream.wait_event(self._done)

    def end(self, stream: Any) -> None:
        """Record the end of work."""
        if self._done is None:
            self._done = cupy.cuda.Event(disable_timing=True)
        self._done.record(stream)
        self._last = stream


class Prepared(threading.local):
    """The streams on which the calling thread has done a work, or work of some keys.

    The first call of a thread on a stream is never a graph, so that operators have workspace there,
    and the thread may capture the work itself afterwards.
    """

    def __init__(self) -> None:
        self._known: set[tuple[object, int]] = set()

    def is_first(self, stream: Any, key: object = None) -> bool:
        """Return whether it is the first call, and note it."""
        place = key, int(stream.ptr)
        if place in self._known:
            return False
        if len(self._known) >= _MAX_PREPARED:
            self._known.clear()
        self._known.add(place)
        return True


class _WarmUp(threading.local):
    """Whether the calling thread does work once before it captures it."""

    is_under_way = False


_warm_up = _WarmUp()


@contextmanager
def warming_up() -> Iterator[None]:
    """Let repeated work inside be called as it is: all of it will be one graph."""
    before, _warm_up.is_under_way = _warm_up.is_under_way, True
    try:
        yield
    finally:
        _warm_up.is_under_way = before


def captured(stream: Any, memory: GraphMemory, pool: Any, work: Callable[[], object]) -> Any:
    """Return the graph of work that a stream captures, None if it cannot be captured.

    The work has been done on the stream before, with the same workspace and the same pool for what
    it allocates.
    """
    graph = None
    with stream, memory.in_use(), cupy.cuda.using_allocator(pool.malloc):
        try:
            stream.begin_capture()
            work()
        except Exception:  # such as copies to the host
            with suppress(Exception):  # a capture that has become invalid ends with an error
                stream.end_capture()
            return None
        except BaseException:
            with suppress(Exception):
                stream.end_capture()
            raise
        with suppress(Exception):
            graph = end_capture(stream)
    return graph


class RepeatedWork:
    """Work that reads a vector x and overwrites a vector y, after a few calls by a graph.

    The graph has an x and a y of its own, to and from which vectors are copied, so that it does not
    depend on the addresses of a call. What the work allocates while it is captured comes from a
    memory pool that belongs to the graph, as does the workspace of operators. Work that cannot be
    captured is called as it is, always; so is all work on a stream that is captured by others.

    Threads take turns. A call on another stream than the one before waits for it on the device. The
    first call of a thread on a stream is never a graph, see `Prepared`. Work may consist of other
    repeated work.

    ``work``: ``work(x, y)`` launches the same kernels for all x, on the current stream. It may
    change arrays of its own. It must not keep this object alive. ``sizes``: lengths of x and y; the
    latter is 0 for work without y, which is called with None. ``dtype``: of both. ``beside``: work
    on the same arrays, with which it takes turns.
    """

    def __init__(
        self,
        work: Callable[[Any, Any], None],
        sizes: tuple[int, int],
        dtype: np.dtype[Any],
        beside: RepeatedWork | None = None,
    ) -> None:
        self._work, self._sizes, self._dtype = work, sizes, np.dtype(dtype)
        self._device = current_device()
        self._turns: _Turns = _Turns() if beside is None else beside._turns
        self._prepared = Prepared()
        self._calls, self._moves = 0, moves()
        self._refused = max(sizes) > _MAX_ELEMENTS  # whether it is never captured
        self._graph: Any = None
        self._pool: Any = None  # for arrays of the graph
        self._memory: GraphMemory | None = None  # workspace of the graph
        self._x: DeviceArray | None = None
        self._y: DeviceArray | None = None
        self._own_stream: Any = None

    @property
    def is_captured(self) -> bool:
        """Whether the next call will be a graph."""
        return self._graph is not None and self._moves == moves()

    def __call__(self, x: DeviceArray, y: DeviceArray | None = None) -> None:
        """Do the work, as work of the current stream."""
        stream = cupy.cuda.get_current_stream()
        in_graph = _warm_up.is_under_way or stream.is_capturing() or graph_memory() is not None
        if in_graph or not self._fit(x, y):
            with self._turns.lock:
                self._work(x, y)
            return
        with self.turn(), device_errors():
            self._run(stream, x, y)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Have the turn: threads wait, and the current stream unless it is captured by the user."""
        stream = cupy.cuda.get_current_stream()
        with self._turns.lock:
            if stream.is_capturing():
                yield
                return
            self._turns.begin(stream)
            try:
                yield
            finally:
                self._turns.end(stream)

    def _fit(self, x: DeviceArray, y: DeviceArray | None) -> bool:
        """Whether vectors can be copied to and from those of the graph as they are."""
        if runtime.getDevice() != self._device:
            return False
        given = (x,) if y is None else (x, y)
        return all(
            type(one) is cupy.ndarray
            and one.data.device_id == self._device
            and one.dtype == self._dtype
            and one.shape == (size,)
            and one.flags.c_contiguous
            for one, size in zip(given, self._sizes, strict=False)
        )

    def _run(self, stream: Any, x: DeviceArray, y: DeviceArray | None) -> None:
        if self._moves != moves():
            # an update has moved arrays that the graph reads
            self._moves, self._graph, self._memory, self._calls = moves(), None, None, 0
        if self._prepared.is_first(stream) or self._refused or not x.size:
            self._calls += 1
            self._work(x, y)
            return
        if self._graph is None:
            self._calls += 1
            if self._calls <= _CALLS_BEFORE_CAPTURE:
                self._work(x, y)
            else:
                self._capture(stream, x, y)
            return
        assert self._x is not None
        self._x.data.copy_from_device_async(x.data, x.nbytes, stream)
        self._graph.launch(stream)
        self._copy_result(y, stream)

    def _copy_result(self, y: DeviceArray | None, stream: Any) -> None:
        if y is not None and self._y is not None:
            y.data.copy_from_device_async(self._y.data, y.nbytes, stream)

    def _capture(self, stream: Any, x: DeviceArray, y: DeviceArray | None) -> None:
        """Do the work on a stream of its own, so that workspace is there, and capture it."""
        if not self._allocated():
            self._refuse()
            self._work(x, y)
            return
        assert self._x is not None
        own, self._memory = self._own_stream, GraphMemory()
        self._x.data.copy_from_device_async(x.data, x.nbytes, stream)
        order_streams(stream, own)
        try:
            with own, self._memory.in_use(), warming_up():
                self._work(self._x, self._y)
        finally:
            order_streams(own, stream)
        self._copy_result(y, stream)
        work = partial(self._work, self._x, self._y)
        self._graph = captured(own, self._memory, self._pool, work)
        if self._graph is None:
            self._refuse()

    def _refuse(self) -> None:
        """Never try again, and give back all memory."""
        self._refused = True
        self._x = self._y = self._pool = self._memory = self._own_stream = None

    def _allocated(self) -> bool:
        """Make the graph's own vectors and stream; return whether there is memory for them."""
        if self._x is None:
            self._pool = cupy.cuda.MemoryPool()
            try:
                with cupy.cuda.using_allocator(self._pool.malloc):
                    self._y = cupy.empty(self._sizes[1], self._dtype) if self._sizes[1] else None
                    self._x = cupy.empty(self._sizes[0], self._dtype)
            except MemoryError:
                return False
            self._own_stream = cupy.cuda.Stream(non_blocking=True)
        return True
