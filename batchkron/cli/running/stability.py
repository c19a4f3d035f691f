"""Steps that are not stable, as errors of the command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from batchkron.cli.failure import CommandError
from batchkron.solvers.evolution.operator_checks.stability import UnstableStepError

__all__ = ["unstable_steps_refused"]


@contextmanager
def unstable_steps_refused() -> Iterator[None]:
    """Turn the refusal of a step that is not stable into an error of the command.

    Raises `CommandError` in place of an `UnstableStepError`; the text names the command's option.
    """
    try:
        yield
    except UnstableStepError as error:
        raise CommandError(error.text("--allow-unstable")) from error
