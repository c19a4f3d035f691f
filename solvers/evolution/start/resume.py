"""Resuming a run: whether a checkpoint fits, and warnings about another environment."""

from __future__ import annotations

import os
from typing import Any

from numpy.typing import NDArray

from batchkron.storage import Checkpoint, load_checkpoint
from batchkron.storage.results import check_checkpoint

from .provenance import problem_hash, surroundings

__all__ = ["ResumeWarning", "read_checkpoint", "refuse_mismatch", "resume_warnings"]


class ResumeWarning(UserWarning):
    """The checkpoint was written with another version, thread count or instruction set.

    The result is as accurate as ever, but may differ in its last bits from that of an
    uninterrupted run.
    """


def read_checkpoint(resume: str | os.PathLike[str] | Checkpoint) -> Checkpoint:
    """Return the checkpoint that is given, or that is in the file that is given.

    Raises `TypeError` if it is neither a path nor a Checkpoint. `ValueError`, `ProblemFileError` if
    the fields of a Checkpoint contradict each other, or the file is no valid checkpoint.
    """
    if isinstance(resume, Checkpoint):
        check_checkpoint(resume)
        return resume
    if not isinstance(resume, (str, os.PathLike)):
        raise TypeError(f"resume is a {type(resume).__name__}; expected a path or a Checkpoint.")
    return load_checkpoint(resume)


def refuse_mismatch(
    checkpoint: Checkpoint,
    problem: Any,
    initial: NDArray[Any],
    t0: float,
    method: str,
    unknowns: int,
) -> None:
    """Raise ValueError if a checkpoint does not belong to this problem, dtype and method.

    The text names what differs, with both values. ``initial`` is the problem's initial state, and
    ``unknowns`` is the number of unknowns on all ranks that share the state.
    """
    pairs = {
        "problem_hash": (checkpoint.problem_hash, problem_hash(problem, initial)),
        "dtype": (checkpoint.dtype, str(initial.dtype)),
        "shape": (checkpoint.u.shape, (unknowns,)),
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
    """Return a sentence for each difference in version, threads or instruction set.

    It is between the checkpoint and this run, of which ``state`` is a vector.
    """
    return [
        f"The checkpoint was written with {name} {getattr(checkpoint, name)!r}, and this run has "
        f"{now!r}: the result may differ in its last bits from an undisturbed run."
        for name, now in surroundings(state).items()
        if getattr(checkpoint, name) != now
    ]
