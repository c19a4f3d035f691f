"""The checkpoints of a run: their file, when one is due, and what happens if writing one fails."""

from __future__ import annotations

import contextlib
import datetime
import errno
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from batchkron.arrays import to_host
from batchkron.callers import users_level
from batchkron.storage import (
    Checkpoint,
    StoredGrid,
    StoredMemory,
    checkpoint_obstacle,
    save_checkpoint,
)
from batchkron.storage.content_limits import unreadable_state

from ..products import Vector, any_over
from .result import EvolveStatus, Result
from .start.integration import Integration
from .start.provenance import problem_hash as identification
from .start.provenance import surroundings

__all__ = [
    "CheckpointError",
    "CheckpointFile",
    "CheckpointWarning",
    "Checkpoints",
    "SavedState",
    "as_checkpoint_file",
]


class CheckpointWarning(UserWarning):
    """A checkpoint cannot be written; the run continues, and the next checkpoint is tried."""


class CheckpointError(OSError):
    """A run has ended, and its last checkpoint could not be written.

    The text says which checkpoint exists instead.

    Attributes
    ----------
    result : Result
        The result that `evolve` would have returned.
    kept : bool
        Whether an earlier checkpoint of the run exists.
    """

    result: Result
    kept: bool


CheckpointFile: TypeAlias = tuple[Path | None, int | None, float | None, bool]
"""The file of checkpoints, None if none are written; the steps, or the wall-clock seconds, from one
checkpoint to the next, counted from t0, both None if only the last state is written; and whether
that always is, or only in a run that is stopped, or that an exception ends after some step."""


def as_checkpoint_file(
    path: str | os.PathLike[str] | None,
    every: Any,
    integration: Integration,
    *,
    at_end: bool = True,
) -> CheckpointFile:
    """Check the arguments for checkpoints.

    ``path``: the file; None writes nothing.
    ``every`` (int, float, timedelta or None): an int is a number of steps; a float or a timedelta
      is wall-clock time (a float in seconds); None writes only at the end of the run.
    ``integration``: of the run; if ranks share its state, rank 0 writes the file.
    ``at_end``: whether the last state is always written.

    Raises `ValueError` if ``every`` is not positive or given without a path, the path cannot be
    written, another file would be overwritten, or a checkpoint of this size could not be read back.
    `TypeError` if ``every`` has another type, or the state is complex.
    """
    steps, seconds = _interval(every)
    if path is None:
        if every is not None:
            raise ValueError("checkpoint_every needs checkpoint, the path of the file to write.")
        return None, None, None, at_end
    state, ranks = integration.u, integration.ranks
    resumed = integration.resumed
    is_whole = resumed is not None and resumed.grid is not None  # not yet divided
    unknowns = state.size if is_whole else integration.unknowns
    fault: ValueError | None = None
    if ranks is None or ranks.rank == 0:
        try:
            _check_target(Path(path))
            _check_size(Path(path), unknowns)
        except ValueError as error:
            fault = error
    if any_over(ranks, fault is not None):
        raise fault or ValueError(f"checkpoint is {path}, which rank 0 cannot write.")
    if state.dtype.kind == "c":
        raise TypeError(
            f"checkpoint is given, but the state has dtype {state.dtype}, and only real states "
            "can be saved; leave checkpoint out."
        )
    return Path(path), steps, seconds, at_end


class SavedState(NamedTuple):
    """A state of a run, with what its checkpoint needs besides.

    ``u`` (ndarray, shape (N,)): the state, or this rank's block.
    ``step``, ``dt``, ``time``, ``last_error``: its `ResumePoint`.
    ``records``: the history until then.
    ``problem``: the problem; if the grid follows the solution, on the grid of ``u``.
    ``origin``: as of `Integration`, if equal steps follow the grid.
    ``grid``: the grid, if it follows the solution.
    ``memory``: what the method needs of earlier steps; vectors (N,) and numbers.
    """

    u: Vector
    t: float
    step: int
    dt: float
    time: float | None
    last_error: float | None
    records: list[dict[str, Any]]
    problem: Any
    origin: tuple[int, float] | None = None
    grid: StoredGrid | None = None
    memory: tuple[list[Vector], list[float]] = ([], [])


class Checkpoints:
    """Writes the checkpoints of one run.

    It is a context manager around the steps: if an exception ends them, a checkpoint of the last
    good state is written. A checkpoint that cannot be written, as on a full disk, does not end the
    run, because the state would then be lost. If ranks share the state, rank 0 gathers and writes
    it, after steps and at the end, not after an exception, which others might not know of.

    ``file``: the file, and how often it is written.
    ``integration``: the problem, the method and its steps.
    ``state``: returns the `SavedState` to write. In a run whose grid follows the solution it is
      that of the last adaptation: what happens between two of them depends on where they were.
    ``problem_hash``: the identification of the problem, by default that of the integration's. It is
      given for a run whose grid follows the solution.
    ``written``: step and time of the last checkpoint that was written.
    """

    def __init__(
        self,
        file: CheckpointFile,
        integration: Integration,
        state: Callable[[], SavedState],
        problem_hash: str = "",
    ) -> None:
        self._path, self._steps, self._seconds, self._at_end = file
        self._integration, self._state = integration, state
        self._ranks = integration.ranks
        self._failure: OSError | None = None  # why the last checkpoint could not be written
        self._tried_at = time.monotonic()
        self.written: tuple[int, float] | None = None
        self._is_due = False  # whether the state at the next adaptation is to be written
        self._problem_hash = problem_hash
        if self._path is not None and not problem_hash:
            problem = integration.problem
            self._problem_hash = identification(problem, problem.initial)

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not isinstance(error, Exception) or self._ranks is not None:
            return
        with contextlib.suppress(Exception):  # so that the user sees the error that ended the run
            if self._at_end or self._state().step > self._integration.first_step:
                self.save()
        if self._failure is not None:
            error.add_note(self._what_is_missing(self._failure))

    def after_step(self, step: int, *, waits: bool = False) -> None:
        """Write a checkpoint of the state after a step, if one is due.

        ``step``: the number of the step.
        ``waits``: whether the state is written at the next adaptation of the grid instead.

        Warns
        -----
        CheckpointWarning
            If it cannot be written; of several failures in a row, only at the first.
        """
        if self._steps is not None:
            due = step % self._steps == 0
        elif self._seconds is not None:
            due = time.monotonic() - self._tried_at >= self._seconds
            if self._ranks is not None:  # by the clock of one of them
                due = any_over(self._ranks, due and self._ranks.rank == 0)
        else:
            return
        if due and waits:
            self._is_due = True
        elif due:
            self._write(self._state())

    def after_adaptation(self) -> None:
        """Write the state after an adaptation of the grid, if one was due since the last one."""
        if self._is_due:
            self._write(self._state())
            self._is_due = False

    def steps_left(self, step: int) -> int:
        """Return how many steps there are until the next checkpoint that comes after some steps."""
        steps = self._steps
        return sys.maxsize if steps is None else steps - step % steps

    def write_last(self, state: SavedState | None = None) -> None:
        """Write the last state of the run, or another one."""
        self._write(self._state() if state is None else state, is_last=True)

    def save(self) -> None:
        """Write the present state, unless that is done.

        Raises `OSError` if it cannot be written. `ValueError` if it is not finite, or there is no
        file.
        """
        if self._path is None:
            raise ValueError("there is no file for it: give the run a checkpoint=")
        state = self._state()
        if any_over(self._ranks, not np.isfinite(state.u).all()):
            raise ValueError("the state is not finite")
        self.write_last(state)
        if self._failure is not None:
            raise self._failure

    def close(self, status: EvolveStatus) -> None:
        """Write the final state, unless it is lost or the state before a terminal event was."""
        wanted = self._at_end or status is EvolveStatus.STOPPED
        if wanted and not status.is_lost and status is not EvolveStatus.EVENT:
            self.write_last()

    def raise_failure(self, result: Result) -> None:
        """Raise `CheckpointError` if the last checkpoint of the run could not be written.

        A run whose state is lost writes no checkpoint at its end; for earlier ones, a warning was
        given.

        ``result``: the end of the run.
        """
        if self._failure is None or result.status.is_lost:
            return
        text = (
            f"{self._what_is_missing(self._failure)} The run has ended as '{result.status}' at "
            f"step {result.steps}, t = {result.t:.6g}."
        )
        error = CheckpointError(self._failure.errno, text, str(self._path))
        error.result, error.kept = result, self.written is not None
        error.add_note("The end of the run is in the attribute `result` of this error.")
        raise error from self._failure

    def _write(self, state: SavedState, *, is_last: bool = False) -> None:
        """Write a checkpoint unless its step has one; ``is_last`` suppresses the warning."""
        path, step, t, ranks = self._path, state.step, state.t, self._ranks
        if path is None or (self.written is not None and step == self.written[0]):
            return
        vectors, numbers = state.memory
        whole = state.u
        if ranks is not None:
            whole, *vectors = [state.problem.gather(own, root=0) for own in (whole, *vectors)]
        before, self._failure = self._failure, None
        if whole is not None:
            checkpoint = self._checkpoint_of(state._replace(u=whole, memory=(vectors, numbers)))
            t = checkpoint.t
            self._failure = self._save(path, checkpoint, warns=before is None and not is_last)
        if any_over(ranks, self._failure is not None):
            other = OSError(errno.EIO, "rank 0 could not write the checkpoint", str(path))
            self._failure = self._failure or other
        else:
            self.written = step, t
        self._tried_at = time.monotonic()

    def _checkpoint_of(self, state: SavedState) -> Checkpoint:
        """Return the checkpoint of a whole state, which is copied only from a device or dtype."""
        integration, u = self._integration, state.u
        return Checkpoint(
            u=np.asarray(to_host(u, "u"), dtype=np.float64),
            t0=integration.t0,
            dt=state.dt,
            step=state.step,
            until=integration.until,
            method=integration.method.name,
            problem_hash=self._problem_hash,
            dtype=str(u.dtype),
            history=list(state.records),
            time=state.time,
            last_error=state.last_error,
            origin_step=None if state.origin is None else state.origin[0],
            origin_time=None if state.origin is None else state.origin[1],
            grid=state.grid,
            memory=_stored(*state.memory),
            **surroundings(u),
        )

    def _save(self, path: Path, checkpoint: Checkpoint, *, warns: bool) -> OSError | None:
        """Write a checkpoint to its file; return why that failed, if it did."""
        try:
            save_checkpoint(path, checkpoint)
        except OSError as error:
            if warns:
                warnings.warn(
                    f"the checkpoint of step {checkpoint.step}, t = {checkpoint.t:.6g}, is not "
                    f"written: {_reason(error)}. The run goes on, and tries again when the next "
                    f"one is due. {self._kept}",
                    CheckpointWarning,
                    stacklevel=users_level(),
                )
            return error
        return None

    def _what_is_missing(self, failure: OSError) -> str:
        """Return why the last checkpoint is missing, and which one exists."""
        return f"{_reason(failure)}. The last checkpoint of the run is missing. {self._kept}"

    @property
    def _kept(self) -> str:
        """A description of the last checkpoint that was written."""
        path = self._path
        if self.written is None:
            if path is not None and path.exists():
                return f"{path} is as it was before the run."
            return "No checkpoint of the run is there."
        step, t = self.written
        return f"The last good checkpoint, {path}, is of step {step}, t = {t:.6g}."


def _stored(vectors: list[Vector], numbers: list[float]) -> StoredMemory | None:
    if not vectors:
        return None
    rows = np.array([to_host(vector, "memory") for vector in vectors], dtype=np.float64)
    return StoredMemory(rows, np.array(numbers, dtype=np.float64))


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def _interval(every: Any) -> tuple[int | None, float | None]:
    """Return (steps, seconds) from one checkpoint to the next; at least one of them is None."""
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
    """Raise ValueError if a path cannot be written: better before a long run than after it."""
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
    """Raise ValueError if a checkpoint of the state would be too large to be read back."""
    fault = unreadable_state(unknowns)
    if fault is not None:
        raise ValueError(
            f"checkpoint is {path}, but {fault}; leave checkpoint out, or run where there is more "
            "memory."
        )
