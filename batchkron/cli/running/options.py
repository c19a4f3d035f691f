"""The options of `batchkron run`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from batchkron.cli.arguments.adapt import AdaptRule
from batchkron.names import SolverName, StepperName

__all__ = ["RunOptions"]


@dataclass(frozen=True)
class RunOptions:
    """The options of `batchkron run` except those of the problem; see ``batchkron run --help``."""

    until: float | None
    dt: float | None
    stepper: StepperName | None
    rtol: float | None
    atol: float | None
    solver: SolverName | None
    preconditioner: str | None
    threads: int | None
    device: str
    operator: str | None
    plot: Path | None
    output: Path | None
    force: bool
    checkpoint: Path | None
    checkpoint_every: int | float | None
    resume: Path | None
    allow_unstable: bool
    quiet: bool
    adapt_rule: AdaptRule
    record: tuple[str, ...] = ()
    plot_every: float | None = None
    movie: Path | None = None
    slices: Mapping[str, float] = field(default_factory=dict)
    marginal: tuple[str, ...] = ()

    @property
    def has_tolerance(self) -> bool:
        """Whether steps are chosen by their errors."""
        return self.rtol is not None or self.atol is not None

    @property
    def asks_for_checkpoints(self) -> bool:
        """Whether checkpoints are written, also of a run that is not stopped."""
        return self.checkpoint is not None or self.checkpoint_every is not None
