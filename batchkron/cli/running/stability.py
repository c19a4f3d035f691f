"""Steps that an explicit method is not stable with, refused before a run."""

from __future__ import annotations

from batchkron.cli.failure import CommandError
from batchkron.solvers.evolution.integration import Plan
from batchkron.solvers.evolution.stability import find_unstable_step, is_explicit_and_linear

__all__ = ["refuse_unstable_step"]


def refuse_unstable_step(plan: Plan) -> None:
    """Raise CommandError if a run's step is too long for its method.

    Parameters
    ----------
    plan : Plan
        The run.

    Raises
    ------
    CommandError
        If so; the text names the largest stable step.
    """
    unstable = find_unstable_step(plan) if is_explicit_and_linear(plan) else None
    if unstable is not None:
        raise CommandError(unstable.text("--allow-unstable"))
