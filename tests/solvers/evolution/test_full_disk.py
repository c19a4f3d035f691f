"""Checkpoints that cannot be written: runs go on, and say which state is the last good one."""

import errno
import os
from types import SimpleNamespace

import numpy as np
import pytest
from stiff_diffusion import Diffusion

from batchkron.solvers import (
    CheckpointError,
    CheckpointWarning,
    EvolveStatus,
    evolve,
)
from batchkron.solvers.evolution import checkpoints as checkpointing
from batchkron.solvers.evolution.start.integration import plan_integration
from batchkron.solvers.evolution.steps.step_control import FixedSteps
from batchkron.storage import atomic_write as atomic
from batchkron.storage import load_checkpoint, previous_path

ARGUMENTS = {"until": 0.3, "dt": 0.01}


class Disk:
    """A disk on which every write fails while ``is_full``."""

    def __init__(self, monkeypatch, number=errno.ENOSPC):
        self.is_full, self._number, self._write_all = False, number, atomic._write_all
        monkeypatch.setattr(atomic, "_write_all", self._write)

    def _write(self, descriptor, data):
        self._write_all(descriptor, data[:100] if self.is_full else data)
        if self.is_full:
            raise OSError(self._number, os.strerror(self._number))

    def full_from(self, first, last=1000):
        """A callback; the checkpoint of a step is written before it is called."""

        def callback(state):
            self.is_full = first <= state.step < last

        return callback


@pytest.mark.parametrize(
    ("number", "text"),
    [(errno.ENOSPC, "disk is full"), (errno.EDQUOT, "quota"), (errno.EIO, "input/output error")],
)
def test_a_full_disk_warns_and_the_run_goes_on(tmp_path, monkeypatch, number, text):
    path = tmp_path / "run.h5"
    disk = Disk(monkeypatch, number)
    options = {**ARGUMENTS, "method": "rk4", "checkpoint": path, "checkpoint_every": 5}
    undisturbed = evolve(Diffusion(), **ARGUMENTS, method="rk4")
    with pytest.warns(CheckpointWarning) as caught:
        result = evolve(Diffusion(), **options, callback=disk.full_from(12, 22))
    assert result.status is EvolveStatus.COMPLETED
    np.testing.assert_array_equal(result.u, undisturbed.u)
    (warning,) = caught  # one for both failures, at steps 15 and 20
    for part in ("of step 15, t = 0.15, is not written", text, f"{path}, is of step 10, t = 0.1."):
        assert part in str(warning.message)
    assert load_checkpoint(path).step == 30
    assert load_checkpoint(previous_path(path)).step == 25
    assert sorted(os.listdir(tmp_path)) == ["run.h5", "run.h5.previous"]


@pytest.mark.filterwarnings("ignore::batchkron.solvers.CheckpointWarning")
@pytest.mark.parametrize("every", [5, None])
def test_a_disk_that_stays_full_is_an_error_with_the_result(tmp_path, monkeypatch, every):
    path = tmp_path / "run.h5"
    disk = Disk(monkeypatch)
    options = {**ARGUMENTS, "method": "rk4", "checkpoint": path, "checkpoint_every": every}
    with pytest.raises(CheckpointError, match="the disk is full") as caught:
        evolve(Diffusion(), **options, callback=disk.full_from(12))
    error, text = caught.value, str(caught.value)
    undisturbed = evolve(Diffusion(), **ARGUMENTS, method="rk4")
    assert (error.errno, error.filename) == (errno.ENOSPC, str(path))
    assert error.result.status is EvolveStatus.COMPLETED
    np.testing.assert_array_equal(error.result.u, undisturbed.u)
    assert "ended as 'completed' at step 30, t = 0.3." in text
    assert error.kept == (every == 5)
    if every is None:
        assert "No checkpoint of the run is there" in text
        assert os.listdir(tmp_path) == []
        return
    assert f"{path}, is of step 10, t = 0.1." in text
    disk.is_full = False
    resumed = evolve(Diffusion(), until=0.3, resume=path)
    np.testing.assert_array_equal(resumed.u, undisturbed.u)


def test_a_blow_up_on_a_full_disk_says_where_the_last_good_state_is(tmp_path, monkeypatch):
    path = tmp_path / "run.h5"
    problem = SimpleNamespace(
        initial=np.ones(1), rhs=lambda t, u, out: out.fill(0.0 if t < 0.055 else np.nan)
    )
    options = {"until": 1.0, "method": "rk4", "dt": 0.01, "checkpoint": path}
    disk = Disk(monkeypatch)
    with pytest.warns(CheckpointWarning, match=r"of step 3, .*is of step 2, t = 0\.02\."):
        result = evolve(problem, **options, checkpoint_every=1, callback=disk.full_from(2))
    assert result.status is EvolveStatus.NOT_FINITE
    disk.is_full = False
    with (
        pytest.warns(CheckpointWarning, match=r"of step 3, .*is of step 2, t = 0\.02\."),
        pytest.raises(RuntimeError, match="not-finite at step 6") as caught,
    ):
        evolve(
            problem,
            **options,
            checkpoint_every=1,
            callback=disk.full_from(2),
            raise_on_failure=True,
        )
    assert str(caught.value) == result.message


def test_an_error_on_a_full_disk_says_where_the_last_good_state_is(tmp_path, monkeypatch):
    path = tmp_path / "run.h5"
    disk = Disk(monkeypatch)

    def callback(state):
        disk.is_full = state.step > 5
        if state.step == 8:
            raise KeyError("mine")

    options = {**ARGUMENTS, "method": "rk4", "checkpoint": path, "checkpoint_every": 5}
    with pytest.raises(KeyError, match="mine") as caught:
        evolve(Diffusion(), **options, callback=callback)
    (note,) = caught.value.__notes__
    assert "the disk is full" in note
    assert f"{path}, is of step 5, t = 0.05." in note


def test_a_failure_is_not_tried_again_before_the_next_one_is_due(tmp_path, monkeypatch):
    clock, path = [0.0], tmp_path / "run.h5"
    monkeypatch.setattr(checkpointing, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    integration = plan_integration(Diffusion(), **ARGUMENTS, method="rk4")
    control = FixedSteps(integration)
    file = checkpointing.as_checkpoint_file(path, 10.0, integration)

    def state():
        point = control.resume_point()
        return checkpointing.SavedState(integration.u, control.t, *point, [], integration.problem)

    checkpoints = checkpointing.Checkpoints(file, integration, state)
    disk = Disk(monkeypatch)

    def after_step(step, seconds, is_full):
        control.step, clock[0], disk.is_full = step, seconds, is_full
        checkpoints.after_step(step)

    with pytest.warns(CheckpointWarning, match="of step 7"):
        after_step(7, 11.0, is_full=True)
    after_step(8, 11.0, is_full=False)
    assert not path.exists()
    end = SimpleNamespace(status=EvolveStatus.COMPLETED, steps=8, t=0.08)
    with pytest.raises(CheckpointError, match="the disk is full"):
        checkpoints.raise_failure(end)
    after_step(9, 22.0, is_full=False)
    assert load_checkpoint(path).step == 9
    checkpoints.raise_failure(end)
    error = KeyError("mine")
    checkpoints.__exit__(KeyError, error, None)
    assert not hasattr(error, "__notes__")
