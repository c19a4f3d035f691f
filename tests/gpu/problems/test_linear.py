"""Lists and other operators in time on the device, from Python and by the command."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from dense_oracle import random_array
from random_lists import random_list, random_problem

import batchkron as bk
from batchkron.cli import main
from batchkron.problems import LinearProblem, load_problem, save_problem, time
from batchkron.solvers import ResumeWarning, evolve
from batchkron.storage import load_result

pytestmark = pytest.mark.gpu

RUN = {"until": 0.5, "dt": 0.01}


@pytest.mark.parametrize("method", ["rk4", "ssp-rk3", "backward-euler", "ark2"])
def test_runs_are_those_of_the_cpu(cupy, rng, dtype, method):
    problem = random_problem(rng, dtype)
    expected = evolve(problem, method=method, **RUN)
    result = evolve(problem.to("cuda"), method=method, **RUN)
    assert isinstance(result.u, cupy.ndarray)
    assert result.u.dtype == np.dtype(dtype)
    tolerance = (
        1e-9 if np.dtype(dtype).itemsize // (1 + (np.dtype(dtype).kind == "c")) > 4 else 1e-3
    )
    scale = np.abs(expected.u).max()
    np.testing.assert_allclose(result.u.get(), expected.u, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("source", [None, "fixed", "cosine"])
def test_steps_as_a_graph_have_the_same_bits(cupy, rng, source):
    op, u0, v = random_list(rng).to("cuda"), rng.standard_normal(24), rng.standard_normal(24)
    given = {None: None, "fixed": v, "cosine": (time.cos(2.0), v)}[source]
    problem = LinearProblem(op, u0, given)
    assert problem.split_rhs().is_repeatable
    result = evolve(problem, method="rk4", **RUN)
    again = evolve(op, u0=cupy.asarray(u0), source=given, method="rk4", **RUN)
    np.testing.assert_array_equal(result.u.get(), again.u.get())


def test_functions_on_the_device(cupy, rng):
    op = random_list(rng)
    u0 = 0.1 * rng.standard_normal((4, 6))
    expected = evolve(lambda t, u: op.apply(u) - u**3, u0=u0, method="rk4", **RUN)
    moved = op.to("cuda")

    def f(t, u, out):
        moved.apply(u, out=out)
        out -= u**3

    result = evolve(f, u0=cupy.asarray(u0), method="rk4", **RUN)
    np.testing.assert_allclose(result.u.get(), expected.u, rtol=1e-11)
    source = cupy.asarray(rng.standard_normal(24))
    result = evolve(moved, u0=u0, source=lambda t: t * source, method="rk4", **RUN)
    expected = evolve(op, u0=u0, source=lambda t: t * source.get(), method="rk4", **RUN)
    np.testing.assert_allclose(result.u.get(), expected.u, rtol=1e-11)


def test_flat_vectors_of_a_list(cupy, rng, dtype):
    op = random_list(rng, dtype)
    x = random_array(rng, (3, 24), dtype)
    moved, given = op.to("cuda"), cupy.asarray(x)
    for place in (0, slice(None)):
        out = cupy.full(given[place].shape, cupy.nan, dtype)
        for _ in range(2):  # the second call by the fast path
            moved.apply(given[place], out=out)
        expected = op.apply(x[place])
        tolerance = 100 * np.finfo(dtype).eps * np.abs(expected).max()
        np.testing.assert_allclose(out.get(), expected, rtol=0, atol=tolerance)


def test_kronmult_on_the_device(cupy, rng):
    matrices, x = rng.standard_normal(50), rng.standard_normal(32)
    offsets, places = rng.integers(0, 41, (9, 3)), 8 * rng.integers(0, 4, (2, 9))
    counts = {"num_inputs": 4, "num_outputs": 4, "lda": 3}
    op = bk.BatchedKron.from_kronmult(matrices, offsets, *places, n=2, **counts)
    moved = op.to("cuda")
    given = bk.BatchedKron.from_kronmult(cupy.asarray(matrices), offsets, *places, n=2, **counts)
    for values in (matrices, rng.standard_normal(50)):
        op.update(values)
        given.update(cupy.asarray(values))
        for device in (moved, given):
            y = device.accumulate(cupy.asarray(x), cupy.ones(32))
            np.testing.assert_allclose(y.get(), 1.0 + op.apply(x), rtol=1e-12, atol=1e-12)


def test_the_command(cupy, rng, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    problem = random_problem(rng)
    save_problem("list.h5", problem)
    assert isinstance(load_problem("list.h5", device="cuda").initial, cupy.ndarray)
    words = ("run", "list.h5", "--device", "cuda", "--json", "--record", "mass,norm")
    done = CliRunner().invoke(main, [*words, "--plot", "a.png", "--checkpoint", "c.h5"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout.splitlines()[-1])
    assert (report["device"], report["status"]) == ("cuda", "completed")
    expected = evolve(problem, until=0.5).u
    scale = np.abs(expected).max()
    np.testing.assert_allclose(load_result("list.result.h5").u, expected, atol=1e-11 * scale)
    with pytest.warns(ResumeWarning):  # of another instruction set
        resumed = evolve(load_problem("list.h5"), until=0.5, resume="c.h5")
    assert resumed.steps == 25
    for words in (("warmup", "list.h5"), ("validate", "list.h5")):
        done = CliRunner().invoke(main, list(words))
        assert done.exit_code == 0, done.output
