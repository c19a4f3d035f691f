"""Checkpoints of a run: when one is due, what it says, and whether a run may go on from it."""

from __future__ import annotations

import datetime
import hashlib
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import batchkron
from batchkron.arrays import array_module, to_host
from batchkron.storage import Checkpoint, checkpoint_obstacle, load_checkpoint, save_checkpoint
from batchkron.storage.content_limits import unreadable_state
from batchkron.storage.results import check_checkpoint

from .result import Result


class ResumeWarning(UserWarning):
    """A run goes on from a checkpoint that was written in other surroundings.

    The result is as accurate as ever, but may differ in its last bits from an undisturbed run.
    """


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


class CheckpointWriter:
    """Writes the checkpoints of one run.

    What cannot be written, as on a full disk, does not end the run: its state is safest in it.

    Parameters
    ----------
    path : path or None
        The file; None writes nothing.
    every : int, float, timedelta or None
        An int is a number of steps; a float or a timedelta is wall-clock time (a float in
        seconds); None writes only where the run ends.
    unknowns : int
        Length of the state.

    Attributes
    ----------
    failure : OSError or None
        Why the last checkpoint could not be written.

    Raises
    ------
    ValueError
        If ``every`` is not positive, comes without a path, or the path cannot be written, a
        file there would be lost, or a checkpoint of so many unknowns could not be read back.
    TypeError
        If ``every`` is of another kind.
    """

    def __init__(self, path: str | os.PathLike[str] | None, every: Any, unknowns: int = 0) -> None:
        self._path = None if path is None else Path(path)
        self._steps, self._seconds = _interval(every)
        if self._path is None and every is not None:
            raise ValueError("checkpoint_every needs checkpoint, the path of the file to write.")
        if self._path is not None:
            _check_target(self._path)
            _check_size(self._path, unknowns)
        self.failure: OSError | None = None
        self._tried_at = time.monotonic()
        self._written: tuple[int, float] | None = None  # step and time

    @property
    def active(self) -> bool:
        """Whether there is a file to write."""
        return self._path is not None

    def due(self, step: int) -> bool:
        """Return whether a checkpoint is to be written after this step."""
        if self._steps is not None:
            return step % self._steps == 0
        if self._seconds is not None:
            return time.monotonic() - self._tried_at >= self._seconds
        return False

    def write(self, step: int, make: Callable[[], Checkpoint], *, is_last: bool = False) -> None:
        """Write the checkpoint that ``make`` returns, unless that of this step is written.

        Parameters
        ----------
        step : int
            The step that the checkpoint is of.
        make : callable
        is_last : bool
            Whether the run ends with it: then a failure is an error to come, and no warning.

        Warns
        -----
        CheckpointWarning
            If it cannot be written, and the one before it could.
        """
        if self._path is None or (self._written is not None and step == self._written[0]):
            return
        checkpoint = make()
        before, self.failure = self.failure, None
        try:
            save_checkpoint(self._path, checkpoint)
            self._written = step, checkpoint.t
        except OSError as error:
            self.failure = error
            if before is None and not is_last:
                warnings.warn(
                    f"the checkpoint of step {step}, t = {checkpoint.t:.6g}, is not written: "
                    f"{_reason(error)}. The run goes on, and tries again when the next one is "
                    f"due. {self._kept}",
                    CheckpointWarning,
                    stacklevel=2,
                )
        self._tried_at = time.monotonic()

    def complaint(self) -> str | None:
        """Return why the last checkpoint is missing and which one is there, None if none is."""
        if self.failure is None:
            return None
        return f"{_reason(self.failure)}. The last checkpoint of the run is missing. {self._kept}"

    def raise_failure(self, result: Result) -> None:
        """Raise `CheckpointError` if the last checkpoint could not be written.

        Parameters
        ----------
        result : Result
            The end of the run.
        """
        if self.failure is None:
            return
        text = (
            f"{self.complaint()} The run has ended as '{result.status}' at step {result.steps}, "
            f"t = {result.t:.6g}."
        )
        error = CheckpointError(self.failure.errno, text, str(self._path))
        error.result, error.kept = result, self._written is not None
        error.add_note("The end of the run is in the attribute `result` of this error.")
        raise error from self.failure

    @property
    def _kept(self) -> str:
        """The last good checkpoint in words."""
        if self._written is None:
            if self._path is not None and self._path.exists():
                return f"{self._path} is as it was before the run."
            return "No checkpoint of the run is there."
        step, t = self._written
        return f"The last good checkpoint, {self._path}, is of step {step}, t = {t:.6g}."


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


def problem_hash(problem: Any, initial: NDArray[Any]) -> str:
    """Return what tells this problem from others, for a checkpoint.

    Parameters
    ----------
    problem : TimeProblem
        Its ``content_hash`` is taken where it has one.
    initial : ndarray, shape (N,)
        Its initial state, hashed otherwise.

    Returns
    -------
    str
        Hexadecimal digits.
    """
    own = getattr(problem, "content_hash", None)
    if own is not None:
        return str(own)
    initial = to_host(initial, "problem.initial")
    initial = initial.astype(initial.dtype.newbyteorder("="), copy=False)
    described = hashlib.sha256(f"{initial.dtype} {initial.shape}".encode())
    described.update(np.ascontiguousarray(initial).tobytes())
    return described.hexdigest()


def surroundings(state: NDArray[Any]) -> dict[str, Any]:
    """Return what the last bits of a result depend on: version, threads, instruction set.

    Parameters
    ----------
    state : ndarray
        A vector of the run; for a CuPy array the instruction set is that of its device.

    Returns
    -------
    dict
        With the keys ``version``, ``threads`` and ``instruction_set``.
    """
    module = array_module(state)
    instruction_set = batchkron.instruction_set()
    if module is not np:
        instruction_set = f"cuda sm_{module.cuda.Device().compute_capability}"
    return {
        "version": batchkron.__version__,
        "threads": batchkron.get_num_threads(),
        "instruction_set": instruction_set,
    }


def read_checkpoint(resume: str | os.PathLike[str] | Checkpoint) -> Checkpoint:
    """Return the checkpoint that ``resume`` is or names.

    Parameters
    ----------
    resume : path or Checkpoint
        A file written by `evolve`, or what `batchkron.storage.load_checkpoint` returned.

    Returns
    -------
    Checkpoint
        The checkpoint.

    Raises
    ------
    TypeError
        If ``resume`` is neither.
    ValueError
        If the fields of a Checkpoint contradict each other.
    ProblemFileError
        If the file is not a sound checkpoint.
    """
    if isinstance(resume, Checkpoint):
        check_checkpoint(resume)
        return resume
    if not isinstance(resume, (str, os.PathLike)):
        raise TypeError(f"resume is a {type(resume).__name__}; expected a path or a Checkpoint.")
    return load_checkpoint(resume)


def refuse_mismatch(
    checkpoint: Checkpoint, problem: Any, initial: NDArray[Any], t0: float, method: str
) -> None:
    """Raise ValueError if a checkpoint is not one of this problem, dtype and method.

    Parameters
    ----------
    checkpoint : Checkpoint
        What is resumed from.
    problem : TimeProblem
        The problem now.
    initial : ndarray, shape (N,)
        Its initial state.
    t0 : float
        Its first time.
    method : str
        The stepper's name now.

    Raises
    ------
    ValueError
        If one differs; the text names it with both values.
    """
    pairs = {
        "problem_hash": (checkpoint.problem_hash, problem_hash(problem, initial)),
        "dtype": (checkpoint.dtype, str(initial.dtype)),
        "shape": (checkpoint.u.shape, initial.shape),
        "t0": (checkpoint.t0, t0),
        "method": (checkpoint.method, method),
    }
    for name, (written, now) in pairs.items():
        if written != now:
            raise ValueError(
                f"The checkpoint has {name} {written!r}, but this run has {now!r}: they are not "
                "of the same run. Resume with the problem and method it was written with."
            )


def resume_warnings(checkpoint: Checkpoint, state: NDArray[Any]) -> list[str]:
    """Return what differs in version, threads or instruction set since the checkpoint.

    Parameters
    ----------
    checkpoint : Checkpoint
        What is resumed from.
    state : ndarray
        A vector of this run.

    Returns
    -------
    list of str
        One sentence for each difference.
    """
    return [
        f"The checkpoint was written with {name} {getattr(checkpoint, name)!r}, and this run has "
        f"{now!r}: the result may differ in its last bits from an undisturbed run."
        for name, now in surroundings(state).items()
        if getattr(checkpoint, name) != now
    ]
