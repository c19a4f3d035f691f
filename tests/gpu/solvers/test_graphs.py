"""Whole time steps as graphs: a run without Python between the steps."""

from types import SimpleNamespace

import numpy as np
import pytest

import batchkron as bk
from batchkron.problems import make
from batchkron.solvers import steppers

pytestmark = pytest.mark.gpu

STEPS = 50


def linear(op, initial):
    """u' = A u."""
    return SimpleNamespace(initial=initial, rhs=lambda t, u, out: op.matvec(u, out))


def operators(rng):
    """Operators of bounded norm, a kernel or several each; 8^5 has a result between two passes."""
    pool = rng.standard_normal((6, 3, 3)) / 3
    ids = rng.integers(0, 6, (200, 3))
    lists = ids, rng.integers(0, 20, 200), rng.integers(0, 20, 200)
    yield bk.BatchedKron(pool, *lists, num_inputs=20, num_outputs=20, accumulation="owner")
    yield bk.BatchedKron(pool, *lists, num_inputs=20, num_outputs=20, accumulation="atomic")
    yield bk.KroneckerProduct(rng.standard_normal((5, 8, 8)) / 4)
    yield bk.KroneckerSum(rng.standard_normal((3, 9, 9)) / 3)
    product = bk.KroneckerProduct(rng.standard_normal((2, 5, 5)) / 3)
    yield 2 * product @ product - bk.Identity(25)


def captured_step(cupy, stream, stepper, u):
    """The graph of a step of u; u is as it was."""
    start = u.copy()
    cupy.cuda.Device().synchronize()
    with stream:
        stepper.step(u, 0.0, stepper.dt)  # compiles, and allocates the workspace
        u[...] = start
        stream.synchronize()
        stream.begin_capture()
        stepper.step(u, 0.0, stepper.dt)
        graph = stream.end_capture()
    stream.synchronize()
    np.testing.assert_array_equal(u.get(), start.get())
    return graph


def check_replays(cupy, monkeypatch, problem, device, method, dt):
    """Steps by replay equal those on the CPU, and launch no kernel from Python."""
    from batchkron.backends.cuda.runtime.launch import Launch

    expected, u = np.array(problem.initial), cupy.array(device.initial)
    on_cpu = steppers.get(method)(problem, dt)
    for _ in range(STEPS):
        on_cpu.step(expected, 0.0, dt)
    stepper, stream = steppers.get(method)(device, dt), cupy.cuda.Stream(non_blocking=True)
    graph = captured_step(cupy, stream, stepper, u)

    def refuse(*arguments):
        raise AssertionError("Python launches a kernel")

    monkeypatch.setattr(Launch, "__call__", refuse)
    for _ in range(STEPS):
        graph.launch(stream)
    stream.synchronize()
    assert np.abs(expected - np.array(problem.initial)).max() > 1e-3 * np.abs(expected).max()
    scale = 1e-11 * np.abs(expected).max()
    np.testing.assert_allclose(u.get(), expected, rtol=0, atol=scale)


@pytest.mark.parametrize("method", ["forward-euler", "ssp-rk3", "rk4"])
@pytest.mark.parametrize("case", range(5), ids=["owner", "atomic", "8^5", "sum", "algebra"])
def test_steps_replay_without_python(cupy, rng, monkeypatch, case, method):
    op = list(operators(rng))[case]
    initial = rng.standard_normal(op.shape[0])
    device = linear(op.to("cuda"), cupy.asarray(initial))
    check_replays(cupy, monkeypatch, linear(op, initial), device, method, 0.01)


@pytest.mark.parametrize("name", ["advection-1d", "pitch-angle-e"])
def test_steps_of_an_autonomous_problem_replay_without_python(cupy, monkeypatch, name):
    problem = make(name, level=4, degree=2)
    device, settings = problem.to("cuda"), problem.stepper
    pair = [SimpleNamespace(initial=2 * one.initial, rhs=one.rhs) for one in (problem, device)]
    check_replays(cupy, monkeypatch, *pair, settings.method, settings.dt)
