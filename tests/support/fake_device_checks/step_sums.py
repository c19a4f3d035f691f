"""Sums of steps: rows of a table, what they find, and graphs that serve several steps."""

from contextlib import nullcontext
from itertools import pairwise
from types import SimpleNamespace

import cupy
import numpy as np
import pytest
from split_problem import many_stages, pair, textbook_step, wave

from batchkron.backends import backend_for
from batchkron.backends.cuda.runtime import device as device_runtime
from batchkron.backends.cuda.runtime.recorder import Recorder
from batchkron.backends.cuda.runtime.repeated_work import RepeatedWork
from batchkron.backends.cuda.step_sums.plan import StepTable
from batchkron.solvers import steppers
from batchkron.solvers.steppers.step_runner import StepTimes
from fake_device_checks import DEVICE
from fake_device_checks.common import Counted, on_device


def sums():
    """All of a table, and of what repeats work by keys."""
    tables()
    graphs()
    several()
    late_copies()
    numbers_that_stay()
    recorders()
    captures_of_users()


def tables():
    """Each step takes its row, from the first one after `begin`; its last pass ends it."""
    rng = np.random.default_rng(3)
    for dtype, count in (("f4", 1), ("f8", 2), ("f8", 16)):
        table = backend_for(cupy).step_table(4, 20, 2)
        assert isinstance(table, StepTable)
        assert count <= table.max_vectors
        host = [rng.standard_normal(9).astype(dtype) for _ in range(count)]
        vectors, out = on_device(host), cupy.empty(9, dtype)
        passes = [
            table.sum_pass(3, vectors, out, 1),
            table.sum_pass(0, [out, vectors[0]], vectors[0]),  # in place
            table.sum_pass(1, vectors[-1:], None, 0, ends=True),  # only the norm
        ]
        for _ in range(2):
            rows = rng.standard_normal((4, 3 + count))
            table.begin()
            table.write(0, rows[:1])
            table.write(1, rows[1:])
            found = []
            for row in rows.astype(dtype):
                for work in passes:
                    work()
                total = sum(a * x for a, x in zip(row[3:], host, strict=True))
                host[0] = row[0] * total + row[1] * host[0]
                np.testing.assert_allclose(out.host, total, rtol=20 * np.finfo(dtype).eps)
                host[0] = vectors[0].host.copy()
                norm = np.sum((row[1] * host[-1]).astype("f8") ** 2)
                found.append([norm, np.sum(out.host.astype("f8") ** 2)])
            np.testing.assert_allclose(table.read(4), found, rtol=1e-6 if dtype == "f4" else 1e-14)
            assert table.read(2).shape == (2, 2)
            assert int(table._numbers.host[:1].view(np.int64)[0]) == 4
    empty = cupy.empty(0, "f8")
    table.sum_pass(0, [empty, empty], empty, 0, ends=True)


def graphs():
    """The same captured kernels serve steps with other numbers."""
    table = StepTable(8, 2, 1)
    u, k = on_device([np.ones(5), np.arange(5.0)])
    work = [table.sum_pass(0, [u, k], u, 0, ends=True)]
    recorder, expected, graphs = Recorder(), np.ones(5), []

    def step():
        for each in work:
            each()

    for first in range(4):
        rows = np.random.default_rng(first).uniform(0.5, 1.5, (8, 2))
        table.begin()
        table.write(0, rows)
        for row in rows:
            graphs.append(recorder.run(step, step))
            expected = row[0] * expected + row[1] * k.host
            np.testing.assert_allclose(u.host, expected, rtol=1e-13)
        squares = table.read(8)
        assert squares[-1, 0] == pytest.approx(expected @ expected, rel=1e-12)
    assert graphs == [False] * 6 + [True] * 26
    (graph,) = recorder._graphs.values()
    assert len(graph.nodes) == 1


def several():
    """Many runs of one work take few launches, and do what single ones do, in their order."""
    recorder, work = Recorder(), Adds()
    launches = []
    for number in range(1, 60):
        recorder.run_several("a", work, 17)
        launches.append(sum(graph.launches for graph in recorder._graphs.values()))
        assert work.total == 17 * number
    taken = np.diff(launches)
    assert taken[5] == 17
    assert taken[-1] == 3  # twice eight, and one
    recorder.run_several("b", Adds(RuntimeError("a copy to the host")), 500)
    assert not recorder._stream.capturing
    recorder.run_several("a", work, 8)
    assert work.total == 17 * 59 + 8


def late_copies():
    """The host writes numbers while the device is at earlier ones, and waits before it would
    overwrite what the device has not copied yet."""
    table, expected = StepTable(4, 1, 1), np.ones(3)
    (u,) = on_device([np.ones(3)])
    work = table.sum_pass(0, [u], u, 0, ends=True)
    DEVICE.late = []
    for number in range(2, 12):  # nobody reads
        table.begin()
        table.write(0, np.full((1, 1), float(number)))
        work()
        table.write(1, np.full((3, 1), 0.5))
        work()
        expected *= 0.5 * number
    assert DEVICE.late
    np.testing.assert_array_equal(u.get(), expected)
    for number in range(2, 12):
        table.begin()
        table.write(0, np.full((1, 1), 1.0 / number))
        work()
        expected /= number
        np.testing.assert_allclose(table.read(1), [[expected @ expected]], rtol=1e-12)
    DEVICE.late = None


class Adds:
    """Adds 1 to an array, as work that a stream can capture; with memory of its own."""

    def __init__(self, refuse=None, makes=0):
        self.total, self.calls, self.refuse, self.makes = np.zeros(1), 0, refuse, makes

    def __call__(self):
        self.calls += 1
        stream = cupy.cuda.get_current_stream()
        if stream.capturing and self.refuse is not None:
            raise self.refuse
        for _ in range(self.makes):
            cupy.cuda.alloc(64)
        stream.submit(lambda: np.add(self.total, 1.0, out=self.total))


def recorders():
    """Work is called five times, captured, and replayed; what cannot be captured is called."""
    recorder, work = Recorder(), Adds()
    for number in range(1, 12):
        assert recorder.run("a", work) == (number > 6)
        assert work.total == number
    assert work.calls == 6  # one of them captured
    other = Adds()
    for _ in range(3):  # another key
        assert not recorder.run("b", other)
    recorder.forget()
    for number in range(1, 8):
        assert recorder.run("a", work) == (number > 6)
    assert work.total == 18
    device_runtime.note_move()  # an update has moved arrays
    for number in range(1, 8):
        assert recorder.run("a", work) == (number > 6)
    for error in (NotImplementedError("cuBLAS"), RuntimeError("a copy to the host")):
        recorder, work = Recorder(), Adds(error)
        for number in range(1, 10):
            assert not recorder.run("a", work)
            assert work.total == number
        assert not recorder._stream.capturing
        assert work.calls == 10  # once in vain
    recorder, work = Recorder(), Adds(KeyboardInterrupt())
    for _ in range(5):
        recorder.run("a", work)
    with pytest.raises(KeyboardInterrupt):
        recorder.run("a", work)
    assert not recorder._stream.capturing
    allocated = len(DEVICE.allocated)
    recorder, work = Recorder(), Adds(makes=1)
    for _ in range(12):
        recorder.run("a", work)
    assert len(DEVICE.allocated) - allocated == 6  # by calls, not by replays


def captures_of_users():
    """A graph of the user's has the work itself, and turns are not taken inside of it."""
    recorder, work = Recorder(), Adds()
    inner = RepeatedWork(lambda x, y: work(), (3, 0), np.dtype("f8"))
    (x,) = on_device([np.ones(3)])
    for _ in range(9):
        stream = DEVICE.stream
        stream.begin_capture()
        graph = stream.graph
        with inner.turn():
            assert not recorder.run("a", work)
            inner(x)
        assert stream.end_capture() is graph
        assert len(graph.nodes) == 2
        before = work.total.copy()
        graph.launch(stream)
        assert work.total == before + 2
        with inner.turn():
            recorder.run("a", work)
        assert work.total == before + 3
    recorder, number = Recorder(), 0
    for stream in (*[DEVICE.stream] * 4, cupy.cuda.Stream(), *[DEVICE.stream] * 4):
        with stream:
            number += 1
            assert recorder.run("a", work) == (number > 7)
    before = work.total.copy()
    other = cupy.cuda.Stream()
    with other:  # the work itself, so that operators have workspace there; then the graph
        assert [recorder.run("a", work) for _ in range(3)] == [False, True, True]
    assert work.total == before + 3


def stepped(problem, is_repeatable):
    """The problem on the device, whose products a stream can capture."""

    def captured(product):
        def call(t, u, out):
            cupy.cuda.get_current_stream().submit(lambda: product(t, u.host, out.host))

        return call

    split = SimpleNamespace(
        products=[(function, captured(product)) for function, product in problem.products],
        sources=[(function, cupy.asarray(vector)) for function, vector in problem.sources],
        is_repeatable=is_repeatable,
        turn=nullcontext,
    )
    initial = cupy.asarray(problem.initial)
    return SimpleNamespace(initial=initial, rhs=None, split_rhs=lambda: split)


def steps():
    """Steps on the device are those of textbooks, also as graphs, and of more than 16 vectors."""
    rng = np.random.default_rng(5)
    for number, method in enumerate(("rk4", "ssp-rk3", "dormand-prince", many_stages(21))):
        for is_repeatable in (False, True):
            dtype = ("f4", "f8", "c8", "c16")[(number + is_repeatable) % 4]
            _, plain = pair(rng, "two with factors", "three", dtype)
            stepper = steppers.get(method)(stepped(plain, is_repeatable), 0.01)
            stepper.measures = True
            assert stepper.is_faster_ahead
            check_steps(method, stepper, plain)
            recorder = stepper._runner._recorder
            assert (recorder is not None) == is_repeatable
            assert not is_repeatable or any(recorder._graphs.values())


def check_steps(method, stepper, plain):
    t, dt, u = 0.3, 0.01, cupy.asarray(plain.initial)
    expected, tolerance = plain.initial.copy(), 2000 * np.finfo(plain.initial.dtype).eps
    DEVICE.late = []
    for count in (1, 1, 1, 12, 1, 17):
        ends = [t + k * dt for k in range(count + 1)]
        times = [StepTimes(*both, dt) for both in pairwise(ends)]
        stepper.take(u, times)
        norms = []
        for each in times:
            expected = textbook_step(method, plain, expected, *each)[0]
            norms.append(np.vdot(expected, expected).real)
        assert DEVICE.late
        np.testing.assert_allclose(stepper.squares()[:, 0], norms, rtol=tolerance)
        np.testing.assert_allclose(u.get(), expected, rtol=0, atol=tolerance)
        t = ends[-1]
    DEVICE.late = None
    if not hasattr(stepper, "attempt"):
        return
    for _ in range(8):
        out = cupy.empty_like(u)
        stepper.attempt(u, t, t + dt, dt, out)
        expected, error, _ = textbook_step(method, plain, u.get(), t, t + dt, dt)
        assert stepper.error is None
        np.testing.assert_allclose(out.get(), expected, rtol=0, atol=tolerance)
        found = np.sqrt(stepper.squares()[0, 1])
        np.testing.assert_allclose(found, np.linalg.norm(error), rtol=0, atol=tolerance)
        if stepper.tableau.first_is_last:
            slope = np.empty_like(expected)
            plain.rhs(t + dt, expected, slope)
            np.testing.assert_allclose(stepper.end_slope().get(), slope, atol=50 * tolerance)
        stepper.accept()
        u, t = out, t + dt
    stepper.measures = False  # then it is stored, as for states that are spread over ranks
    stepper.attempt(u, t, t + dt, dt, out := cupy.empty_like(u))
    _, error, _ = textbook_step(method, plain, u.get(), t, t + dt, dt)
    np.testing.assert_allclose(stepper.error.get(), error, rtol=0, atol=tolerance)
    assert out is not stepper.error


def numbers_that_stay():
    """Rows of steps of one length are written once, if nothing in them depends on time."""
    rng = np.random.default_rng(6)
    _, plain = pair(rng, "one", "no")
    steady = lambda t: np.full(np.shape(t), 2.0)  # noqa: E731
    steady.is_constant = True
    writes = Counted(StepTable, "_put")
    for function, expected in ((steady, [1, 2, 0, 1, 1]), (wave, [1, 2, 1, 1, 1])):
        plain.sources = [(function, plain.initial), (function, plain.initial)]
        stepper, u = steppers.get("rk4")(stepped(plain, True), 0.1), cupy.asarray(plain.initial)
        for (count, dt), number in zip(
            ((1, 0.1), (20, 0.1), (7, 0.1), (3, 0.2), (1, 0.1)), expected, strict=True
        ):
            writes.calls = 0
            stepper.take(u, [StepTimes(k * dt, (k + 1) * dt, dt) for k in range(count)])
            assert writes.calls == number
