"""The emergency checkpoint: the last good state of a run that an exception ends."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from batchkron.cli.output.printing import print_line
from batchkron.cli.output.text import number, one_line, printable
from batchkron.cli.running.ranks import RunRanks
from batchkron.solvers import EvolveState, Result
from batchkron.solvers.evolution.checkpoints import make_checkpoint
from batchkron.solvers.evolution.start.integration import Integration
from batchkron.solvers.evolution.steps.step_control import ResumePoint
from batchkron.storage import save_checkpoint

__all__ = ["EmergencyCheckpoint"]


class EmergencyCheckpoint:
    """Keeps a run's last good state, and writes it as a checkpoint if an exception ends the run.

    It is a context manager. Nothing is written if no step has been taken, or if the exception is
    not an `Exception` (after a second Ctrl-C).

    Parameters
    ----------
    problem : Problem or DistributedProblem
        The problem.
    integration : Integration
        The method and its steps.
    path : Path
        The file of the checkpoint.
    words : list of str
        The arguments of the command line after "run".
    ranks : RunRanks
        The ranks that share the state. If there are several, an exception of one of them leaves
        no checkpoint, because the others cannot give their parts of it.
    """

    def __init__(
        self,
        problem: Any,
        integration: Integration,
        path: Path,
        words: list[str],
        ranks: RunRanks,
    ) -> None:
        self._ranks = ranks
        self._problem, self._integration = problem, integration
        self._path, self._words = path, words
        self._state: tuple[EvolveState | Result, int, list[Any]] | None = None

    def __enter__(self) -> EmergencyCheckpoint:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._state is None or not isinstance(error, Exception) or self._ranks.several:
            return
        try:
            self.save()
        except Exception as failure:
            text = f"batchkron: a checkpoint cannot be written either: {one_line(str(failure))}"
            print_line(text, err=True)
        else:
            print_line(f"batchkron: kept the state after {self.advice()}", err=True)

    def note(self, state: EvolveState | Result, history: Sequence[Any] = ()) -> None:
        """Set the last good state; it is not copied."""
        step = state.steps if isinstance(state, Result) else state.step
        self._state = (state, step, list(history))

    def forget(self) -> None:
        """Forget the state, because there is a result, or no good state."""
        self._state = None

    def save(self) -> None:
        """Write the last state as a checkpoint.

        Raises
        ------
        OSError
            If it cannot be written.
        """
        assert self._state is not None
        state, step, history = self._state
        integration = self._integration
        time = None if integration.tolerances is None else state.t
        point = ResumePoint(step, state.dt, time, state.last_error)
        problem_hash = self._problem.content_hash
        u = self._problem.gather(state.u, 0) if self._ranks.several else state.u
        if self._ranks.first:
            checkpoint = make_checkpoint(integration, u, point, history, problem_hash)
            save_checkpoint(self._path, checkpoint)

    def advice(self) -> str:
        """Return a text: the step of the last state, and how to resume from its checkpoint."""
        assert self._state is not None
        state, step, _ = self._state
        integration = self._integration
        of = "" if integration.tolerances else f" of {integration.last_step}"
        return f"step {step}{of}, t = {number(state.t, 8)}; {self.resume_hint()}"

    def resume_hint(self) -> str:
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
