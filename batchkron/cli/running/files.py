"""The files of a run: their names, and checks before the run that they can be written."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from batchkron.cli.arguments.output_paths import check_name, check_outputs
from batchkron.cli.arguments.problem import ProblemArgument
from batchkron.cli.failure import CommandError
from batchkron.storage import previous_path

__all__ = ["RunFiles", "plan_files"]


@dataclass(frozen=True)
class RunFiles:
    """The files that a run reads and writes.

    ``result``: the result file.
    ``checkpoint``: the file of checkpoints, if any are written.
    ``resume``: the checkpoint from which the run continues.
    """

    result: Path
    checkpoint: Path
    plot: Path | None
    resume: Path | None
    movie: Path | None = None


def plan_files(
    problem: ProblemArgument,
    *,
    output: Path | None,
    checkpoint: Path | None,
    plot: Path | None,
    resume: Path | None,
    force: bool,
    movie: Path | None = None,
) -> RunFiles:
    """Return the files of a run after checking that they can be written.

    Names that are not given are derived from the problem. ``force`` replaces existing files.

    Raises `CommandError` if the checkpoint to resume from is missing, or an output cannot or must
    not be written.
    """
    result = output or problem.beside(".result.h5")
    check_name("the result", result)
    kept = checkpoint or resume or _checkpoint_beside(result)
    check_name("the checkpoint", kept)
    check_name("the checkpoint before the last one", previous_path(kept))
    inputs = {} if problem.path is None else {"the problem": problem.path}
    outputs = {"the result": result}
    if plot is not None:
        outputs["the plot"] = plot
    if movie is not None:
        outputs["the movie"] = movie
    if resume is not None:
        _check_resume(resume, problem)
    _check_previous(kept, outputs)
    if resume is not None and os.path.realpath(kept) == os.path.realpath(resume):
        check_outputs({"the checkpoint": kept}, inputs, force=True)
        check_outputs(outputs, {**inputs, "the checkpoint": kept}, force=force)
    else:
        if resume is not None:
            inputs["the checkpoint to resume from"] = resume
        _refuse_old_checkpoint(kept, force)
        check_outputs({**outputs, "the checkpoint": kept}, inputs, force=force)
    return RunFiles(result, kept, plot, resume, movie)


def _checkpoint_beside(result: Path) -> Path:
    return result.with_name(f"{result.stem.removesuffix('.result')}.checkpoint.h5")


def _check_previous(checkpoint: Path, outputs: Mapping[str, Path]) -> None:
    previous = previous_path(checkpoint)
    for what, path in outputs.items():
        if os.path.realpath(path) == str(previous):
            raise CommandError(
                f"{what} would go to {path}, where the checkpoint before the one in {checkpoint} "
                f"is kept; choose another."
            )


def _check_resume(resume: Path, problem: ProblemArgument) -> None:
    if problem.path is not None and os.path.realpath(resume) == os.path.realpath(problem.path):
        raise CommandError(
            f"{resume}, the checkpoint to resume from, is the problem itself; expected a file that "
            f"an earlier run has left, such as NAME.checkpoint.h5."
        )
    if not resume.exists() and not previous_path(resume).exists():
        raise CommandError(
            f"{resume}, the checkpoint to resume from, does not exist; expected a file that an "
            f"earlier run has left, such as NAME.checkpoint.h5."
        )


def _refuse_old_checkpoint(checkpoint: Path, force: bool) -> None:
    if checkpoint.is_file() and not force:
        raise CommandError(
            f"{checkpoint} exists, perhaps of a run that was stopped; go on from it with "
            f"--resume {checkpoint}, or pass --force to replace it."
        )
