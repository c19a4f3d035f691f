"""The check before a run that an explicit method is stable with its step."""

from __future__ import annotations

from batchkron.cli.failure import CommandError
from batchkron.solvers.evolution.operator_checks.stability import (
    find_unstable_step,
    is_explicit_and_linear,
)
from batchkron.solvers.evolution.start.integration import Integration

__all__ = ["refuse_unstable_step"]


def refuse_unstable_step(integration: Integration) -> None:
    """Raise CommandError if an explicit method is not stable with the step of a run.

    Parameters
    ----------
    integration : Integration
        The integration.

    Raises
    ------
    CommandError
        If it is not stable; the text has the largest stable step.
    """
    unstable = find_unstable_step(integration) if is_explicit_and_linear(integration) else None
    if unstable is not None:
        raise CommandError(unstable.text("--allow-unstable"))
