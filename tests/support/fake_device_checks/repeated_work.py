"""Work that is repeated: when it is captured, on which streams, with which memory."""

import threading

import cupy
import numpy as np
import pytest

from batchkron.backends.cuda.runtime import device as device_runtime
from fake_device_checks import DEVICE


class Squares:
    """y = x² and a count of the calls from Python, as work that a stream can capture."""

    def __init__(self, refuse=None):
        self.calls, self.refuse = 0, refuse

    def __call__(self, x, y):
        self.calls += 1
        stream = cupy.cuda.get_current_stream()
        if stream.capturing and self.refuse is not None:
            raise self.refuse

        def node():
            target = x if y is None else y
            target.host[...] = x.host**2

        if stream.capturing:
            stream.graph.nodes.append(node)
        else:
            node()


def repeated_work():
    """Work is called a few times, then replayed with all vectors and on all streams."""
    from batchkron.backends.cuda.runtime.repeated_work import RepeatedWork

    rng, work = np.random.default_rng(0), Squares()
    repeated = RepeatedWork(work, (7, 7), np.dtype("f8"))

    def check(repeated, work, calls, dtype="f8"):
        x, y = rng.standard_normal(7).astype(dtype), np.full(7, np.nan, dtype)
        target = cupy.asarray(y)
        repeated(cupy.asarray(x), target)
        np.testing.assert_array_equal(target.host, x**2)
        assert work.calls == calls

    for calls in range(1, 6):
        check(repeated, work, calls)
        assert not repeated.is_captured
    check(repeated, work, 7)  # once for the workspace of its stream, once captured
    assert repeated.is_captured
    for _ in range(3):
        check(repeated, work, 7)
    check(repeated, work, 8, "f4")  # does not fit
    DEVICE.stream.begin_capture()  # of a user, whose graph has the work itself
    mine = DEVICE.stream.graph
    x, y = (cupy.asarray(rng.standard_normal(7)) for _ in range(2))
    repeated(x, y)
    assert DEVICE.stream.end_capture() is mine
    assert len(mine.nodes) == 1
    mine.launch(DEVICE.stream)
    np.testing.assert_array_equal(y.host, x.host**2)
    other, before = cupy.cuda.Stream(), DEVICE.stream
    DEVICE.waits.clear()
    with other:
        check(repeated, work, 10)  # the work itself, so that its workspace is there
        assert DEVICE.waits == [(other, before)]
        check(repeated, work, 10)
        assert len(DEVICE.waits) == 1
    check(repeated, work, 10)
    assert DEVICE.waits[1:] == [(before, other)]
    device_runtime.note_move()
    assert not repeated.is_captured
    for calls in range(11, 16):
        check(repeated, work, calls)
    check(repeated, work, 17)
    assert repeated.is_captured
    for error in (NotImplementedError("cuBLAS"), RuntimeError("a copy to the host")):
        work = Squares(error)
        repeated = RepeatedWork(work, (7, 7), np.dtype("f8"))
        for calls in range(1, 6):
            check(repeated, work, calls)
        check(repeated, work, 7)
        assert not DEVICE.stream.capturing
        for calls in range(8, 10):
            check(repeated, work, calls)
        assert not repeated.is_captured
        assert repeated._pool is None
    workspaces = device_runtime.Workspaces()
    places = []

    def with_workspace(x, y):
        places.append(workspaces.pointer(64))
        work(x, y)

    work = Squares()
    repeated = RepeatedWork(with_workspace, (7, 7), np.dtype("f8"))
    for calls in range(1, 6):
        check(repeated, work, calls)
    check(repeated, work, 7)
    assert places[-1] == places[-2] != places[0]  # of the graph, for which it was made before
    assert not workspaces._captured
    thread = threading.Thread(target=check, args=(repeated, work, 8))
    thread.start()  # has a stream without workspace
    thread.join()
    check(repeated, work, 8)
    assert places[-1] not in places[:-1]
    work = Squares(KeyboardInterrupt())
    repeated = RepeatedWork(work, (7, 7), np.dtype("f8"))
    for calls in range(1, 6):
        check(repeated, work, calls)
    with pytest.raises(KeyboardInterrupt):
        check(repeated, work, 7)
    assert not repeated._own_stream.capturing
    repeated = RepeatedWork(Squares(), (7, 0), np.dtype("f8"))
    for _ in range(7):
        repeated(x)
    assert repeated.is_captured
    work = Squares()
    inner = RepeatedWork(work, (7, 7), np.dtype("f8"))

    def twice(x, y):
        between = cupy.asarray(np.full(7, np.nan))
        inner(x, between)
        inner(between, y)

    outer = RepeatedWork(twice, (7, 7), np.dtype("f8"), inner)
    for _ in range(9):
        x = rng.standard_normal(7)
        outer(cupy.asarray(x), y)
        np.testing.assert_allclose(y.host, x**4, rtol=1e-14)
    assert inner.is_captured
    assert outer.is_captured
    assert len(outer._graph.nodes) == 2  # work that is captured is never a graph itself
    large = RepeatedWork(Squares(), ((1 << 21) + 1, 0), np.dtype("f8"))
    x = cupy.asarray(np.ones((1 << 21) + 1))
    for _ in range(7):
        large(x)
    assert not large.is_captured
