"""The checkpoints of a run: where they go, when one is due, and what is told where one fails."""

from __future__ import annotations

import contextlib
import datetime
import os
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from batchkron.arrays import to_host
from batchkron.storage import Checkpoint, checkpoint_obstacle, save_checkpoint
from batchkron.storage.content_limits import unreadable_state

from ..products import Vector
from .history import History
from .integration import Integration
from .provenance import problem_hash, surroundings
from .result import EvolveStatus, Result
from .step_control import ResumePoint, StepControl

__all__ = [
    "CheckpointError",
    "CheckpointFile",
    "CheckpointWarning",
    "Checkpoints",
    "as_checkpoint_file",
    "make_checkpoint",
]


class CheckpointWarning(UserWarning):
    """A checkpoint cannot be written; the run goes on, and tries again at the next one."""


class CheckpointError(OSError):
    """A run has ended, and the last of its checkpoints could not be written.

    The text says which checkpoint is there instead.

    Attributes
    ----------
    result : Result
        The end of the run, as `evolve` would have returned it.
    kept : bool
        Whether an earlier checkpoint of the run is there.
    """

    result: Result
    kept: bool


@dataclass(frozen=True)
class CheckpointFile:
    """Where checkpoints go, and how often.

    Parameters
    ----------
    path : Path or None
        The file; None writes nothing.
    steps : int or None
        Steps from one checkpoint to the next, counted from t0.
    seconds : float or None
        Wall-clock seconds instead. Where neither is given, one is written where the run ends.
    """

    path: Path | None
    steps: int | None = None
    seconds: float | None = None


def as_checkpoint_file(
    path: str | os.PathLike[str] | None, every: Any, state: Vector
) -> CheckpointFile:
    """Check where checkpoints are to go, and how often.

    Parameters
    ----------
    path : path or None
        The file; None writes nothing.
    every : int, float, timedelta or None
        An int is a number of steps; a float or a timedelta is wall-clock time (a float in
        seconds); None writes only where the run ends.
    state : ndarray, shape (N,)
        What is to be written.

    Returns
    -------
    CheckpointFile
        The same, checked.

    Raises
    ------
    ValueError
        If ``every`` is not positive, comes without a path, or the path cannot be written, a
        file there would be lost, or a checkpoint of so many unknowns could not be read back.
    TypeError
        If ``every`` is of another kind, or the state is complex.
    """
    steps, seconds = _interval(every)
    if path is None:
        if every is not None:
            raise ValueError("checkpoint_every needs checkpoint, the path of the file to write.")
        return CheckpointFile(None)
    file = CheckpointFile(Path(path), steps, seconds)
    _check_target(Path(path))
    _check_size(Path(path), state.size)
    if state.dtype.kind == "c":
        raise TypeError(
            f"checkpoint is given, but the state has dtype {state.dtype}, and only real states "
            "can be saved; leave checkpoint out."
        )
    return file


class Checkpoints:
    """Writes the checkpoints of one run: opened before it, told of each step, closed at its end.

    A context manager around the steps: an exception that ends them leaves a checkpoint of the last
    good state. What cannot be written, as on a full disk, does not end the run: its state is
    safest in it.

    Parameters
    ----------
    file : CheckpointFile
        Where they go, and how often.
    integration : Integration
        What is integrated.
    u : ndarray, shape (N,)
        The state of the run, which its steps overwrite.
    control : StepControl
        Knows which step the state is of.
    history : History
        The records that go with it.
    """

    def __init__(
        self,
        file: CheckpointFile,
        integration: Integration,
        u: Vector,
        control: StepControl,
        history: History,
    ) -> None:
        self._file, self._integration = file, integration
        self._u, self._control, self._history = u, control, history
        self._failure: OSError | None = None  # why the last one could not be written
        self._tried_at = time.monotonic()
        self._written: tuple[int, float] | None = None  # step and time
        self._problem_hash = ""
        if file.path is not None:
            problem = integration.problem
            self._problem_hash = problem_hash(problem, problem.initial)

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not isinstance(error, Exception):
            return
        with contextlib.suppress(Exception):  # what stopped the run is the error to be seen
            if bool(np.isfinite(self._u).all()):
                self._write(self._u, self._control.resume_point(), is_last=True)
        if self._failure is not None:
            error.add_note(self._what_is_missing(self._failure))

    def after_step(self) -> None:
        """Write a checkpoint of the step that has just been taken, if one is due.

        Warns
        -----
        CheckpointWarning
            If it cannot be written, and the one before it could.
        """
        file = self._file
        if file.steps is not None:
            due = self._control.step % file.steps == 0
        elif file.seconds is not None:
            due = time.monotonic() - self._tried_at >= file.seconds
        else:
            return
        if due:
            self._write(self._u, self._control.resume_point())

    def before_event(self, u: Vector) -> None:
        """Write the state before the last step, in which an event has ended the run."""
        self._write(u, self._control.previous_point(), is_last=True)

    def close(self, status: EvolveStatus) -> None:
        """Write the state at the end of the run, unless it is lost, or that before an event is."""
        if not status.is_lost and status is not EvolveStatus.EVENT:
            self._write(self._u, self._control.resume_point(), is_last=True)

    def raise_failure(self, result: Result) -> None:
        """Raise `CheckpointError` if the last checkpoint of the run could not be written.

        Of a run whose state is lost none was due at the end, and a warning has told of the others.

        Parameters
        ----------
        result : Result
            The end of the run.
        """
        if self._failure is None or result.status.is_lost:
            return
        text = (
            f"{self._what_is_missing(self._failure)} The run has ended as '{result.status}' at "
            f"step {result.steps}, t = {result.t:.6g}."
        )
        error = CheckpointError(self._failure.errno, text, str(self._file.path))
        error.result, error.kept = result, self._written is not None
        error.add_note("The end of the run is in the attribute `result` of this error.")
        raise error from self._failure

    def _write(self, u: Vector, point: ResumePoint, *, is_last: bool = False) -> None:
        """Write a checkpoint, unless that of its step is written; the last one warns of nothing."""
        path, step = self._file.path, point.step
        if path is None or (self._written is not None and step == self._written[0]):
            return
        checkpoint = make_checkpoint(
            self._integration, u, point, self._history.records, self._problem_hash
        )
        before, self._failure = self._failure, None
        try:
            save_checkpoint(path, checkpoint)
            self._written = step, checkpoint.t
        except OSError as error:
            self._failure = error
            if before is None and not is_last:
                warnings.warn(
                    f"the checkpoint of step {step}, t = {checkpoint.t:.6g}, is not written: "
                    f"{_reason(error)}. The run goes on, and tries again when the next one is "
                    f"due. {self._kept}",
                    CheckpointWarning,
                    stacklevel=3,
                )
        self._tried_at = time.monotonic()

    def _what_is_missing(self, failure: OSError) -> str:
        """Return why the last checkpoint is missing, and which one is there."""
        return f"{_reason(failure)}. The last checkpoint of the run is missing. {self._kept}"

    @property
    def _kept(self) -> str:
        """The last good checkpoint in words."""
        path = self._file.path
        if self._written is None:
            if path is not None and path.exists():
                return f"{path} is as it was before the run."
            return "No checkpoint of the run is there."
        step, t = self._written
        return f"The last good checkpoint, {path}, is of step {step}, t = {t:.6g}."


def make_checkpoint(
    integration: Integration,
    u: Vector,
    point: ResumePoint,
    history: Sequence[dict[str, Any]],
    problem_hash: str,
) -> Checkpoint:
    """Return the checkpoint of a state.

    Parameters
    ----------
    integration : Integration
        What is integrated.
    u : ndarray, shape (N,)
        The state; a copy is made only on a device or in another precision.
    point : ResumePoint
        Which step it is of, and how the steps go on.
    history : sequence of dict
        The records so far.
    problem_hash : str
        See `problem_hash`.
    """
    return Checkpoint(
        u=np.asarray(to_host(u, "u"), dtype=np.float64),
        t0=integration.t0,
        dt=point.dt,
        step=point.step,
        until=integration.until,
        method=integration.method.name,
        problem_hash=problem_hash,
        dtype=str(u.dtype),
        history=list(history),
        time=point.time,
        last_error=point.last_error,
        **surroundings(u),
    )


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def _interval(every: Any) -> tuple[int | None, float | None]:
    """Return (steps, seconds), of which at most one is set."""
    if every is None:
        return None, None
    if isinstance(every, datetime.timedelta):
        every = every.total_seconds()
    if isinstance(every, bool) or not isinstance(every, (int, float, np.integer, np.floating)):
        raise TypeError(
            f"checkpoint_every is {every!r}; expected an int (steps), a float (seconds) or a "
            "timedelta."
        )
    if not every > 0 or not np.isfinite(every):
        raise ValueError(f"checkpoint_every is {every}; expected a finite number > 0.")
    if isinstance(every, (int, np.integer)):
        return int(every), None
    return None, float(every)


def _check_target(path: Path) -> None:
    """Refuse a path that could not be written at the end of a long run."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise ValueError(f"checkpoint is {path}, whose folder does not exist; create it first.")
    if path.is_dir():
        raise ValueError(f"checkpoint is {path}, a folder; expected the name of a file.")
    if not os.access(folder, os.W_OK):
        raise ValueError(f"checkpoint is {path}, whose folder cannot be written; choose another.")
    obstacle = checkpoint_obstacle(path)
    if obstacle is not None:
        raise ValueError(f"checkpoint is {path}, but {obstacle}.")


def _check_size(path: Path, unknowns: int) -> None:
    """Refuse a state whose checkpoints could not be read back."""
    fault = unreadable_state(unknowns)
    if fault is not None:
        raise ValueError(
            f"checkpoint is {path}, but {fault}; leave checkpoint out, or run where there is more "
            "memory."
        )
