"""Runs that take several steps before looking at any, as on a device; here on the CPU."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from batchkron.backends.cpu.backend import StepTable
from batchkron.solvers import evolve
from batchkron.solvers.evolution import stepping
from batchkron.solvers.steppers.step_runner import StepRunner


@contextmanager
def several_at_once():
    """Let steppers say that several steps at once are faster; return the reads and the batches."""
    seen = SimpleNamespace(reads=0, batches=[])
    read, run = StepTable.read, StepRunner.run

    def counted(self, count):
        seen.reads += 1
        return read(self, count)

    def noted(self, steps, measures):
        if measures:
            seen.batches.append(len(steps))
        run(self, steps, measures)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StepRunner, "is_faster_ahead", True)
        patch.setattr(StepTable, "read", counted)
        patch.setattr(StepRunner, "run", noted)
        patch.setattr(stepping, "_SECONDS", 1e9)  # so that batches do not depend on the machine
        yield seen


def without_seconds(result):
    records = [{k: v for k, v in one.items() if k != "seconds"} for one in result.history]
    return {
        "u": result.u.tobytes(),
        "dtype": result.u.dtype,
        "t": result.t,
        "status": result.status,
        "steps": result.steps,
        "rejected": result.rejected,
        "dt": result.dt,
        "message": result.message,
        "history": records,
    }


def check_same_run(make_problem, **options):
    """Run one by one and several at once; return the result and what was seen of the latter."""
    single = evolve(make_problem(), **options)
    with several_at_once() as seen:
        together = evolve(make_problem(), **options)
    assert without_seconds(together) == without_seconds(single)
    return together, seen
