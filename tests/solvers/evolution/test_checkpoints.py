"""Checkpoints are written when due, never of a bad state; resumed runs give the same bits."""

import dataclasses
import datetime
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from types import SimpleNamespace

import numpy as np
import pytest
from methods import EQUAL_STEPS
from scipy.sparse import coo_array, csr_array
from stiff_diffusion import SIZE, Diffusion

import batchkron
from batchkron.problems import make
from batchkron.solvers import (
    EvolveStatus,
    ResumeWarning,
    evolve,
)
from batchkron.storage import content_limits, load_checkpoint, previous_path, write_document
from batchkron.storage.document import Document


def stop_at(step):
    return lambda state: state.step == step


ARGUMENTS = {"until": 0.3, "dt": 0.01}


@pytest.mark.parametrize("method", EQUAL_STEPS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_resumed_run_ends_bitwise_equal(tmp_path, method, dtype):
    path = tmp_path / "run.h5"
    options = {**ARGUMENTS, "method": method}
    undisturbed = evolve(Diffusion(dtype), **options)
    assert undisturbed.status is EvolveStatus.COMPLETED
    stopped = evolve(Diffusion(dtype), **options, checkpoint=path, callback=stop_at(13))
    assert (stopped.status, stopped.steps) == (EvolveStatus.STOPPED, 13)
    resumed = evolve(Diffusion(dtype), **options, resume=path)
    assert (resumed.status, resumed.steps, resumed.t) == (EvolveStatus.COMPLETED, 30, 0.3)
    assert resumed.u.dtype == dtype
    np.testing.assert_array_equal(resumed.u, undisturbed.u)


def test_resume_from_a_checkpoint_in_memory_needs_no_method_and_no_step(tmp_path):
    path = tmp_path / "run.h5"
    undisturbed = evolve(Diffusion(), until=0.3, dt=0.0077, method="ssp-rk3")
    evolve(
        Diffusion(),
        until=0.3,
        dt=0.0077,
        method="ssp-rk3",
        checkpoint=path,
        callback=stop_at(5),
    )
    checkpoint = load_checkpoint(path)
    kept = checkpoint.u.copy()
    for dt in (None, 0.0077, checkpoint.dt):
        resumed = evolve(Diffusion(), until=0.3, dt=dt, resume=checkpoint)
        np.testing.assert_array_equal(resumed.u, undisturbed.u)
    np.testing.assert_array_equal(checkpoint.u, kept)


def test_a_finished_run_can_be_prolonged(tmp_path):
    path = tmp_path / "run.h5"
    options = {"method": "crank-nicolson", "dt": 1 / 64}
    evolve(Diffusion(), until=0.25, **options, checkpoint=path)
    assert load_checkpoint(path).step == 16
    longer = evolve(Diffusion(), until=0.5, **options, resume=path, checkpoint=path)
    undisturbed = evolve(Diffusion(), until=0.5, **options)
    np.testing.assert_array_equal(longer.u, undisturbed.u)
    assert load_checkpoint(path).step == 32
    again = evolve(Diffusion(), until=0.5, resume=path)
    assert (again.status, again.steps) == (EvolveStatus.COMPLETED, 32)


def test_resume_carries_the_history_on(tmp_path):
    path = tmp_path / "run.h5"
    options = {**ARGUMENTS, "method": "rk4"}
    evolve(Diffusion(), **options, checkpoint=path, callback=stop_at(13))
    resumed = evolve(Diffusion(), **options, resume=path)
    steps = [record["step"] for record in resumed.history if record["event"] == "step"]
    assert steps == list(range(1, 31))
    (event,) = [record for record in resumed.history if record["event"] == "resume"]
    assert (event["step"], event["warnings"]) == (13, [])
    json.dumps(resumed.history, allow_nan=False)


def test_history_stays_bounded_over_many_resumes():
    checkpoint_history = [{"event": "resume", "step": 0, "t": 0.0, "seconds": 0.0}] * 5000
    problem = Diffusion()
    template = make_checkpoint(problem)
    template = dataclasses.replace(template, history=checkpoint_history)
    result = evolve(problem, until=0.3, resume=template)
    assert len(result.history) < 450


def make_checkpoint(problem, **changes):
    """The checkpoint that a run of ARGUMENTS with ssp-rk3 leaves at step 7."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "run.h5")
        evolve(problem, **ARGUMENTS, method="ssp-rk3", checkpoint=path, callback=stop_at(7))
        return dataclasses.replace(load_checkpoint(path), **changes)


def steps_written(monkeypatch):
    """Record the step of every checkpoint that is saved, instead of saving it."""
    written = []
    module = sys.modules["batchkron.solvers.evolution.checkpoints"]
    monkeypatch.setattr(module, "save_checkpoint", lambda path, c: written.append(c.step))
    return written


@pytest.mark.parametrize(
    ("every", "steps"),
    [
        (None, [30]),
        (10, [10, 20, 30]),
        (np.int64(7), [7, 14, 21, 28, 30]),
        (1000, [30]),
        (1e-9, list(range(1, 31))),
        (datetime.timedelta(microseconds=1), list(range(1, 31))),
        (3600.0, [30]),
        (datetime.timedelta(hours=1), [30]),
    ],
)
def test_when_checkpoints_are_written(tmp_path, monkeypatch, every, steps):
    written = steps_written(monkeypatch)
    options = {"checkpoint": tmp_path / "run.h5", "checkpoint_every": every}
    evolve(Diffusion(), **ARGUMENTS, method="forward-euler", **options)
    assert written == steps


def test_periodic_checkpoints_count_from_t0_after_a_resume(tmp_path, monkeypatch):
    checkpoint = make_checkpoint(Diffusion())
    written = steps_written(monkeypatch)
    evolve(
        Diffusion(),
        **ARGUMENTS,
        resume=checkpoint,
        checkpoint=tmp_path / "run.h5",
        checkpoint_every=10,
    )
    assert written == [10, 20, 30]


@pytest.mark.parametrize(
    ("every", "error"),
    [
        (0, ValueError),
        (-1.0, ValueError),
        (np.inf, ValueError),
        (True, TypeError),
        ("5", TypeError),
    ],
)
def test_wrong_intervals(tmp_path, every, error):
    with pytest.raises(error, match="checkpoint_every is"):
        evolve(
            Diffusion(),
            **ARGUMENTS,
            method="rk4",
            checkpoint=tmp_path / "run.h5",
            checkpoint_every=every,
        )


def test_what_a_checkpoint_says(tmp_path):
    path = tmp_path / "run.h5"
    problem = Diffusion(content_hash="ab" * 32, t0=1.0)
    evolve(problem, until=1.5, method="rk4", dt=0.01, checkpoint=path, callback=stop_at(3))
    checkpoint = load_checkpoint(path)
    assert (checkpoint.t0, checkpoint.step, checkpoint.until, checkpoint.dt) == (1.0, 3, 1.5, 0.01)
    assert (checkpoint.method, checkpoint.dtype) == ("rk4", "float64")
    assert checkpoint.problem_hash == "ab" * 32
    assert checkpoint.version == batchkron.__version__
    assert checkpoint.threads == batchkron.get_num_threads()
    assert checkpoint.instruction_set == batchkron.instruction_set()


def test_blow_up_leaves_the_last_good_checkpoint(tmp_path):
    path = tmp_path / "run.h5"
    problem = SimpleNamespace(
        initial=np.ones(1), rhs=lambda t, u, out: out.fill(0.0 if t < 0.055 else np.nan)
    )
    options = {"until": 1.0, "method": "rk4", "dt": 0.01}
    result = evolve(problem, **options, checkpoint=path, checkpoint_every=1)
    assert result.status is EvolveStatus.NOT_FINITE
    good = load_checkpoint(path)
    assert good.step == result.steps - 1
    assert np.isfinite(good.u).all()
    assert load_checkpoint(previous_path(path)).step == good.step - 1
    assert evolve(problem, until=1.0, resume=path).status is EvolveStatus.NOT_FINITE


def test_what_could_not_be_read_back_is_refused_before_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(content_limits, "memory_bytes", lambda: 16 * SIZE)
    path = tmp_path / "run.h5"
    evolve(Diffusion(), **ARGUMENTS, method="rk4", checkpoint=path)
    assert evolve(Diffusion(), until=0.3, resume=path).status is EvolveStatus.COMPLETED
    monkeypatch.setattr(content_limits, "memory_bytes", lambda: 16 * SIZE - 2)
    steps = []
    with pytest.raises(
        ValueError, match=r"run2\.h5, but a state of 60 unknowns .*not be read back"
    ):
        evolve(
            Diffusion(),
            **ARGUMENTS,
            method="rk4",
            checkpoint=tmp_path / "run2.h5",
            callback=steps.append,
        )
    assert steps == []


def test_failed_solve_leaves_the_last_good_state(tmp_path):
    path = tmp_path / "run.h5"
    problem = Diffusion()

    def failing_later(A, b, M=None):
        failing_later.calls += 1
        matrix = np.eye(b.size) - A.scale * problem.operator
        return np.linalg.solve(matrix, b), 0 if failing_later.calls < 5 else 3

    failing_later.calls = 0
    options = {**ARGUMENTS, "method": "backward-euler"}
    result = evolve(problem, **options, solver=failing_later, checkpoint=path)
    assert (result.status, result.steps) == (EvolveStatus.SOLVER_FAILED, 4)
    np.testing.assert_array_equal(load_checkpoint(path).u, result.u)
    assert evolve(problem, until=0.3, resume=path).status is EvolveStatus.COMPLETED


@pytest.mark.parametrize(
    ("problem", "change", "options", "text"),
    [
        (Diffusion(seed=4), {}, {}, "problem_hash"),
        (Diffusion(content_hash="00"), {}, {}, "problem_hash.*'00'"),
        (Diffusion(content_hash="00", dtype=np.float32), {"problem_hash": "00"}, {}, "dtype"),
        (Diffusion(), {"u": np.ones(3)}, {}, r"shape \(3,\)"),
        (Diffusion(t0=0.1), {}, {}, "t0 0.0"),
        (Diffusion(), {}, {"method": "rk4"}, "method 'ssp-rk3', but this run has 'rk4'"),
        (Diffusion(), {}, {"dt": 0.02}, "dt is 0.02, but the checkpoint"),
        (Diffusion(), {}, {"until": 0.305}, "until is 0.305, which no whole number"),
        (Diffusion(), {}, {"until": 0.05}, "until is 0.05, before the checkpoint's time"),
    ],
)
def test_mismatch_is_refused(problem, change, options, text):
    checkpoint = make_checkpoint(Diffusion(), **change)
    with pytest.raises(ValueError, match=text):
        evolve(problem, **{"until": 0.3, "resume": checkpoint, **options})


@pytest.mark.parametrize(
    ("name", "value"), [("version", "0.0.1"), ("threads", 77), ("instruction_set", "abacus")]
)
def test_other_surroundings_warn_and_are_recorded(name, value):
    checkpoint = make_checkpoint(Diffusion(), **{name: value})
    with pytest.warns(ResumeWarning, match=f"written with {name} {value!r}"):
        result = evolve(Diffusion(), until=0.3, resume=checkpoint)
    assert result.status is EvolveStatus.COMPLETED
    (event,) = [record for record in result.history if record["event"] == "resume"]
    assert [name in text for text in event["warnings"]] == [True]


def test_targets_that_cannot_be_written_are_refused_at_once(tmp_path):
    other = tmp_path / "other.h5"
    attributes = {"format": "batchkron-result", "format_version": 1}
    write_document(other, Document(attributes, {}))
    before = other.read_bytes()
    calls = []
    for path in (tmp_path / "missing" / "run.h5", tmp_path, other):
        with pytest.raises(ValueError, match="checkpoint is "):
            evolve(Diffusion(), **ARGUMENTS, method="rk4", checkpoint=path, callback=calls.append)
    assert calls == []
    assert other.read_bytes() == before


def test_complex_states_are_refused_at_once(tmp_path):
    with pytest.raises(TypeError, match="dtype complex128, and only real states"):
        evolve(Diffusion(np.complex128), **ARGUMENTS, method="rk4", checkpoint=tmp_path / "run.h5")


CHILD = """
import sys, time
import numpy as np
from pathlib import Path
from batchkron.solvers import evolve

class Problem:
    def __init__(self):
        rng = np.random.default_rng(5)
        second = np.diag(np.ones(59), 1) + np.diag(np.ones(59), -1)
        self.operator = 40.0 * (second - 2.0 * np.eye(60))
        self.source, self.initial = rng.standard_normal((2, 60))

    def rhs(self, t, u, out):
        np.dot(self.operator, u, out=out)
        out += np.cos(7.0 * t) * self.source

path, method, pause = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
kept = path.exists() or path.with_name(path.name + ".previous").exists()
result = evolve(
    Problem(), until=1.0, dt=0.005, method=method, checkpoint=path, checkpoint_every=1,
    resume=path if kept else None, callback=lambda state: time.sleep(pause),
)
print(result.status, result.steps, result.u.tobytes().hex())
"""


def stamp(path):
    """When the file was written last, None where there is none."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return None


def run_child(path, method, pause):
    arguments = [sys.executable, "-W", "ignore", "-c", CHILD, str(path), method, str(pause)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["ssp-rk3", "crank-nicolson"])
def test_killed_runs_resume_bitwise(tmp_path, method):
    undisturbed = run_child(tmp_path / "undisturbed.h5", method, 0.0)
    path = tmp_path / "killed.h5"
    rng = np.random.default_rng()
    for _ in range(5):
        before = stamp(path)
        child = run_child(path, method, 0.02)
        while stamp(path) in (before, None):
            assert child.poll() is None
            time.sleep(0.005)
        time.sleep(rng.uniform(0.0, 0.1))
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
        child.stdout.close()
    steps = load_checkpoint(path).step if path.exists() else 1
    last = run_child(path, method, 0.0)
    printed = [child.communicate()[0] for child in (undisturbed, last)]
    assert 0 < steps < 200
    assert printed[0].startswith("completed 200 ")
    assert printed[0] == printed[1]


@pytest.mark.parametrize(
    ("field", "value"), [("dt", 0.0), ("dt", 5e-324), ("until", -1.0), ("dtype", "f" * 300)]
)
def test_a_checkpoint_object_that_lies_is_refused(tmp_path, field, value):
    path = tmp_path / "run.h5"
    evolve(Diffusion(), **ARGUMENTS, method="rk4", checkpoint=path, callback=stop_at(3))
    lying = dataclasses.replace(load_checkpoint(path), **{field: value})
    with pytest.raises(ValueError, match=f"attribute '{field}'"):
        evolve(Diffusion(), until=0.3, resume=lying)


@pytest.mark.parametrize("options", [{"dt": 0.005}, {"rtol": 1e-5}], ids=str)
def test_a_reused_slope_is_the_one_that_a_resumed_run_evaluates(tmp_path, options):
    """The last node of dormand-prince is 1, so that sources are those of the step's end."""
    problem, path = make("continuity-2d", level=3, degree=1), tmp_path / "checkpoint.h5"
    whole = evolve(problem, until=0.1, method="dormand-prince", **options)
    stop = {"callback": lambda state: state.step >= 5, "checkpoint": path}
    evolve(problem, until=0.1, method="dormand-prince", **stop, **options)
    resumed = evolve(problem, until=0.1, method="dormand-prince", resume=path, **options)
    np.testing.assert_array_equal(resumed.u, whole.u)


@pytest.mark.parametrize("kind", [np.asarray, csr_array, coo_array], ids=lambda kind: kind.__name__)
def test_other_matrices_are_refused(tmp_path, rng, kind):
    path, matrix, u0 = tmp_path / "run.h5", -np.eye(3) + np.tri(3), rng.normal(size=3)
    evolve(kind(matrix), u0=u0, **ARGUMENTS, method="rk4", checkpoint=path, callback=stop_at(3))
    assert evolve(kind(matrix), u0=u0, until=0.3, resume=path).steps == 30
    with pytest.raises(ValueError, match="problem_hash"):
        evolve(kind(2.0 * matrix), u0=u0, until=0.3, resume=path)
