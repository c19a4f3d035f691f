"""Convergence of a problem with the level: a run on each level, and the observed orders."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import batchkron
from batchkron.cli.output.text import number
from batchkron.cli.running.signals import StopOnSignal
from batchkron.cli.running.stability import unstable_steps_refused
from batchkron.problems import Problem
from batchkron.solvers import EvolveState, EvolveStatus, Result, Run
from batchkron.solvers.evolution.observation.progress import ProgressBar

__all__ = ["Convergence", "LevelRun", "run_level"]

_WIDTHS = (5, 11, 9, 12, 12, 8, 13, 10)  # characters of each column of the table
_COLUMNS = ("level", "unknowns", "steps", "L2 error", "relative", "order", "projection", "seconds")


@dataclass(frozen=True)
class LevelRun:
    """The run on one level.

    ``level``: finest level of every axis.
    ``cells``, ``unknowns``, ``steps``: cells of the grid, unknowns, and time steps.
    ``dt``, ``seconds``: the time step, and the wall-clock time of the steps.
    ``status``: why the run ended; if it is not COMPLETED, the errors are None.
    ``message``: a text about the status.
    ``l2_error``, ``relative_error``: the L2 error against the exact solution, and relative to that.
    ``projection_error``: the L2 error of the exact solution's projection on the grid, the smallest
      possible error.
    ``order``: observed order: log2 of the ratio of the previous run's L2 error to this one's, per
      level.
    """

    level: int
    cells: int
    unknowns: int
    steps: int
    dt: float
    seconds: float
    status: EvolveStatus
    message: str
    l2_error: float | None
    relative_error: float | None
    projection_error: float | None
    order: float | None

    def row(self) -> str:
        """Return a line of the table."""
        texts = (
            str(self.level),
            str(self.unknowns),
            str(self.steps),
            *map(_error, (self.l2_error, self.relative_error)),
            "-" if self.order is None else f"{self.order:.2f}",
            _error(self.projection_error),
            f"{self.seconds:.3g}",
        )
        return _line(texts)


class Convergence:
    """The runs of a problem on ascending levels.

    ``problem``: the problem on one of the levels.
    ``runs``: the runs so far.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.runs: list[LevelRun] = []

    @property
    def expected_order(self) -> int:
        """The expected order of the L2 error in the cell width, the smallest degree + 1."""
        return min(self.problem.degrees) + 1

    @property
    def status(self) -> EvolveStatus:
        """Why the last run ended."""
        return self.runs[-1].status

    def heading(self) -> str:
        """Return the two lines above the rows."""
        stepper = self.problem.stepper
        return (
            f"{self.describe()}, {stepper.method} to t = {number(stepper.until, 8)}; "
            f"expected order {self.expected_order}\n{_line(_COLUMNS)}"
        )

    def describe(self) -> str:
        """Return a short description of the problem."""
        problem = self.problem
        return f"{problem.name}, {problem.grid.kind} grid, degree {problem.degree}"

    def to_json(self) -> dict[str, Any]:
        """Return all data for JSON; None for values that are unknown or not finite."""
        problem = self.problem
        runs = [{**asdict(run), "status": str(run.status)} for run in self.runs]
        for run in runs:
            del run["message"]
        return {
            "problem": problem.name,
            "degree": problem.degree,
            "grid": problem.grid.kind,
            "stepper": problem.stepper.method,
            "until": problem.stepper.until,
            "expected_order": self.expected_order,
            "status": str(self.status),
            "levels": runs,
            "threads": batchkron.get_num_threads(),
            "instruction_set": batchkron.instruction_set(),
            "version": batchkron.__version__,
        }


def run_level(
    problem: Problem,
    before: Sequence[LevelRun],
    stop: StopOnSignal,
    *,
    show: bool,
    allow_unstable: bool = False,
) -> LevelRun:
    """Run a problem, which has an exact solution, with its own stepper to its end.

    ``problem``: the problem on a level.
    ``before``: the runs on lower levels, to compute the order.
    ``stop``: stops the run after a signal.
    ``show``, ``allow_unstable``: show a progress bar on standard error; allow a step for which an
      explicit method is not stable.

    Raises `CommandError` if the step is not stable, and ``allow_unstable`` is False.
    """
    until = problem.stepper.until
    # The first product assembles the operator, which should not count as time of the steps.
    problem.rhs(problem.t0, problem.initial, np.empty_like(problem.initial))
    with unstable_steps_refused():
        run = Run(problem, until=until, allow_unstable=allow_unstable)
    display = ProgressBar(0, run.integration.last_step, stays=False) if show else None

    def after_step(state: EvolveState) -> bool:
        if display is not None:
            display.update(state.step, state.t)
        return stop(state)

    after_step.may_skip = True  # type: ignore[attr-defined]
    run.on_step = after_step
    with display or nullcontext():
        return _summary(problem, run.to_end(), before)


def _summary(problem: Problem, result: Result, before: Sequence[LevelRun]) -> LevelRun:
    level = max(problem.grid.levels)
    l2_error = relative_error = None
    if result.status is EvolveStatus.COMPLETED:
        content = result.file_content()
        l2_error, relative_error = content.l2_error, content.relative_error
    projected = problem.exact_coefficients(result.t)
    return LevelRun(
        level=level,
        cells=problem.grid.num_cells,
        unknowns=problem.unknowns,
        steps=result.steps,
        dt=result.dt,
        seconds=result.seconds,
        status=result.status,
        message=result.message,
        l2_error=l2_error,
        relative_error=relative_error,
        projection_error=None if projected is None else problem.l2_error(projected, result.t),
        order=_order(before[-1], level, l2_error) if before else None,
    )


def _order(before: LevelRun, level: int, l2_error: float | None) -> float | None:
    if not before.l2_error or not l2_error:
        return None
    return math.log2(before.l2_error / l2_error) / (level - before.level)


def _error(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3e}"


def _line(texts: Sequence[str]) -> str:
    return "".join(f"{text:>{width}}" for text, width in zip(texts, _WIDTHS, strict=True))
