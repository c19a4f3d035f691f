"""The last state of a run that did not reach its end: where it is, and how to go on from it."""

from __future__ import annotations

import shlex
from pathlib import Path

from batchkron.cli.output.printing import print_line
from batchkron.cli.output.text import number, one_line, printable
from batchkron.solvers import Run

__all__ = ["LastState"]


class LastState:
    """Says on standard error where the last state of a run is.

    ``run``: the run, with a file of checkpoints.
    ``path``: that file.
    ``words``: the arguments of the command line after "run".
    """

    def __init__(self, run: Run, path: Path, words: list[str]) -> None:
        self._run, self._path, self._words = run, path, words

    def keep(self, error: Exception) -> None:
        """Write the state of a run that an exception ends as a checkpoint, and say so.

        Nothing is written before the first step. If ranks share the state, there is no checkpoint
        either: the others cannot give their parts of it.
        """
        if self._run.step == self._run.first_step or self._run.integration.ranks is not None:
            return
        try:
            self._run.save_checkpoint()
        except Exception as failure:
            text = f"batchkron: a checkpoint cannot be written either: {one_line(str(failure))}"
            print_line(text, err=True)
            return
        assert self._run.last_checkpoint is not None
        place = self._place(*self._run.last_checkpoint)
        print_line(f"batchkron: kept the state after {place}; {self.how_to_go_on()}", err=True)

    def stopped_place(self) -> str:
        """Return a text: the step and the time at which the run was stopped."""
        return self._place(*(self._run.last_checkpoint or (self._run.step, self._run.t)))

    def _place(self, step: int, t: float) -> str:
        integration = self._run.integration
        of = "" if integration.tolerances else f" of {integration.last_step}"
        return f"step {step}{of}, t = {number(t, 8)}"

    def how_to_go_on(self) -> str:
        """Return a text: how to resume from the checkpoint that was written."""
        command = ["batchkron", "run", *_without_resume(self._words)]
        command += ["--resume", str(self._path)]
        return f"go on with\n  {printable(shlex.join(command))}"


def _without_resume(words: list[str]) -> list[str]:
    """Return the arguments of a command line without the option --resume."""
    kept: list[str] = []
    left = iter(words)
    for word in left:
        if word == "--resume":
            next(left, None)
        elif not word.startswith("--resume="):
            kept.append(word)
    return kept
