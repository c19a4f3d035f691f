"""The report of a run, as a table and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import batchkron
from batchkron.cli.output.problem_size import added_cells, describe_size
from batchkron.cli.output.text import finite, number
from batchkron.cli.running.files import RunFiles
from batchkron.problems import LinearProblem, Problem
from batchkron.solvers import EvolveStatus, Result, Run
from batchkron.solvers.evolution.start.provenance import surroundings
from batchkron.storage import ResultFile

__all__ = ["RunReport"]


@dataclass(frozen=True)
class RunReport:
    """The data of a finished run.

    ``result``: its end, with the whole state and the whole problem.
    ``content``: the content of the result file, with the errors against the exact solution.
    ``product_seconds``: the time that products with the operator took.
    ``written``: the files of the run.
    ``checkpointed``: whether there is a checkpoint of the final state.
    ``ranks``: how many ranks have shared the state.
    """

    run: Run
    result: Result
    content: ResultFile
    product_seconds: float
    written: RunFiles
    checkpointed: bool
    ranks: int = 1

    @property
    def problem(self) -> Problem | LinearProblem:
        """The problem, on the grid of the last state."""
        problem: Problem | LinearProblem = self.result.problem
        return problem

    @property
    def steps_taken(self) -> int:
        """Number of steps of this run, without those before the checkpoint it continues."""
        return self.result.steps - self.run.first_step

    @property
    def seconds_per_step(self) -> float | None:
        """Wall-clock seconds per step, including checkpoints and progress."""
        return self.result.seconds / self.steps_taken if self.steps_taken else None

    @property
    def kernel_share(self) -> float | None:
        """The fraction of the wall-clock time that was spent in products with the operator."""
        if not self.steps_taken or not self.result.seconds:
            return None
        return min(self.product_seconds / self.result.seconds, 1.0)

    @property
    def completed(self) -> bool:
        """Whether the run reached its last time."""
        return self.result.status is EvolveStatus.COMPLETED

    def to_json(self) -> dict[str, Any]:
        """Return the report for JSON; None for values that are unknown or not finite."""
        problem, result, files = self.problem, self.result, self.written
        return {
            "problem": problem.name,
            "unknowns": problem.unknowns,
            **_structure(problem),
            "stepper": result.method,
            "status": str(result.status),
            "steps": result.steps,
            "steps_taken": self.steps_taken,
            "rejected": result.rejected,
            "time": finite(result.t),
            "until": finite(self.run.integration.until),
            "dt": finite(result.dt),
            "seconds": finite(result.seconds),
            "seconds_per_step": finite(self.seconds_per_step),
            "kernel_share": finite(self.kernel_share),
            "kernel_products": self.run.products,
            "l2_error": finite(self.content.l2_error),
            "relative_error": finite(self.content.relative_error),
            "device": problem.device,
            "ranks": self.ranks,
            "threads": batchkron.get_num_threads(),
            "instruction_set": surroundings(result.u)["instruction_set"],
            "version": batchkron.__version__,
            "result": str(files.result) if self.completed else None,
            "checkpoint": str(files.checkpoint) if self.checkpointed else None,
            "plot": str(files.plot) if files.plot and self.completed else None,
            "movie": str(files.movie) if files.movie and self.completed else None,
            "recurrence_time": finite(_recurrence_time(problem)),
            "adapt": self._adapt(),
            "recorded": {name: finite(value.last) for name, value in result.watched.items()},
        }

    def rows(self) -> list[tuple[str, str]]:
        """Return the report as rows of a table."""
        result, files = self.result, self.written
        rows = [
            ("problem", f"{self.problem.name}, {describe_size(self.problem)}"),
            *added_cells(self.problem),
            *([("ranks", str(self.ranks))] if self.ranks > 1 else []),
            ("stepper", f"{result.method}, dt = {number(result.dt)}"),
            ("steps", f"{result.steps}, to t = {number(result.t, 8)}{self._remark()}"),
            ("per step", _seconds(self.seconds_per_step)),
            ("kernel's share", _percent(self.kernel_share)),
            ("L2 error", number(self.content.l2_error)),
            ("relative error", number(self.content.relative_error)),
        ]
        for name, value in result.watched.items():
            drift = f", largest change {number(value.drift, 3)}"
            rows.append((name, f"{number(value.last, 8)}{drift}"))
        recurrence = _recurrence_time(self.problem)
        if recurrence is not None:
            rows.append(("recurrence time", f"{number(recurrence)}, when damping ends at latest"))
        if self.completed:
            rows.append(("result", str(files.result)))
            if files.plot:
                rows.append(("plot", str(files.plot)))
            if files.movie:
                rows.append(("movie", str(files.movie)))
        if self.checkpointed:
            rows.append(("checkpoint", str(files.checkpoint)))
        return rows

    def _adapt(self) -> dict[str, Any] | None:
        """Return whether the grid met its tolerance; None for a grid that does not change."""
        adapt = self.result.adapt
        if adapt is None:
            return None
        return {
            "tolerance_met": adapt.tolerance_met,
            "limited": adapt.limited,
            "excess": finite(adapt.excess),
            "time": finite(adapt.t),
        }

    def _remark(self) -> str:
        remarks = [] if self.completed else [str(self.result.status)]
        if self.run.first_step:
            remarks.append(f"resumed after step {self.run.first_step}")
        return f" ({', '.join(remarks)})" if remarks else ""


def _structure(problem: Problem | LinearProblem) -> dict[str, Any]:
    """Return the size of a problem's grid, or of its batch list, for JSON."""
    if isinstance(problem, LinearProblem):
        operator: Any = problem.operator  # a BatchedKron, which is what files hold
        return {"blocks": operator.num_inputs, "products": operator.num_products}
    return {
        "cells": problem.grid.num_cells,
        "added_cells": problem.num_added_cells,
        "degree": problem.degree,
        "levels": list(problem.grid.levels),
        "grid": problem.grid.kind,
    }


def _recurrence_time(problem: Problem | LinearProblem) -> float | None:
    return None if isinstance(problem, LinearProblem) else problem.recurrence_time


def _seconds(value: float | None) -> str:
    return "no step was taken" if value is None else f"{value:.3g} s"


def _percent(value: float | None) -> str:
    return "no step was taken" if value is None else f"{100.0 * value:.0f} %"
