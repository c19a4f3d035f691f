"""The loop of a run in time: one for equal steps and for chosen ones."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from batchkron.arrays import to_host
from batchkron.storage import Checkpoint

from ..krylov.result import KrylovResult, Status
from ..products import Vector, norm
from ..steppers.embedded import EmbeddedStepper
from ..steppers.stepper import Stepper
from .checkpoints import CheckpointKeeper, problem_hash, surroundings
from .dense_output import StepInterpolant
from .growth_bound import GrowthBound
from .history import History
from .observers import EventRecord, Observer
from .plan import Plan
from .result import EvolveState, EvolveStatus, Result
from .step_control import ChosenSteps, Target, pace_of
from .step_doubling import StepDoubling


class Run:
    """A plan being carried out.

    Parameters
    ----------
    plan : Plan
        The run.
    stepper : Stepper
        The method.
    keeper : CheckpointKeeper
        Where checkpoints go.
    observer : Observer
        What is looked at on the way.
    callback : callable or None
        Called after each step.
    halve : callable or None
        ``halve(dt)`` returns a new stepper of the method, with which to compare steps with two of
        half their length now and then; None not to do so.

    Attributes
    ----------
    pace : EqualSteps or ChosenSteps
        How steps are chosen.
    """

    def __init__(
        self,
        plan: Plan,
        stepper: Stepper,
        keeper: CheckpointKeeper,
        observer: Observer,
        callback: Callable[[EvolveState], object] | None,
        halve: Callable[[float], Stepper] | None = None,
    ) -> None:
        self._plan, self._stepper, self._keeper = plan, stepper, keeper
        self._observer, self._callback = observer, callback
        self._u = plan.u
        self._seen = self._u.view()
        if isinstance(self._seen, np.ndarray):
            self._seen.flags.writeable = False
        self.pace = pace_of(plan, stepper)
        self._embedded = stepper if isinstance(stepper, EmbeddedStepper) else None
        if self._embedded is not None:
            self._embedded.estimates = plan.control is not None
        self._proposal = self._u if self._embedded is None else np.empty_like(self._u)
        self._inside: StepInterpolant | None = None
        if observer.interpolates:
            self._inside = StepInterpolant(plan.problem, stepper, self._u)
        self._growth = GrowthBound(plan.problem, self.pace.t, self._u)
        self._doubling = None if halve is None else StepDoubling(halve, plan.dt, plan.steps)
        self._unstable = ""  # what says so
        self._ended: tuple[float, Vector] | None = None
        self._failed_solve: KrylovResult | None = None
        self._began = time.perf_counter()
        self._history = History(self.pace.steps, plan.history)
        self._problem_hash = ""
        if keeper.active:
            self._problem_hash = problem_hash(plan.problem, plan.problem.initial)
        if plan.resumed:
            self._record("resume", warnings=list(plan.warnings))
        observer.begin(self.pace.t, self._u, first=plan.first_step == 0)

    def march(self, show: Callable[[int, float], None]) -> EvolveStatus:
        """Take the steps; return why they ended."""
        pace = self.pace
        while not pace.done:
            target = pace.target()
            status = self._take(target)
            if status is not None:
                return status
            if self._ended is not None:
                return EvolveStatus.EVENT
            if self._history.wants(pace.step):
                self._record_step()
            if self._keeper.due(pace.step):
                self._keeper.write(pace.step, self._make_checkpoint)
            show(pace.shown, pace.t)
            if self._observer.measure(pace.t, self._seen):
                return EvolveStatus.DRIFTED
            if self._stopped_by_callback() and not pace.done:
                return EvolveStatus.STOPPED
        return EvolveStatus.COMPLETED

    def _take(self, target: Target) -> EvolveStatus | None:
        """Take one step, or as many attempts as it needs; return why there is none."""
        if self._inside is not None:
            self._inside.begin(target.t, self._u)
        if self._doubling is not None:
            self._doubling.prepare(self.pace.step + 1, self._u)
        while True:
            with np.errstate(over="ignore", invalid="ignore"):
                failed = self._attempt(target)
            size = _size(self._proposal) if failed is None else math.nan
            bad = not math.isfinite(size)
            if bad and self.pace.shorten():
                target = self.pace.target()
                continue
            if failed is not None and failed.status is not Status.NOT_FINITE:
                self._failed_solve = failed
                return EvolveStatus.SOLVER_FAILED
            if bad:
                self._failed_solve = failed
                self._refuse_unwritten()
                if isinstance(self.pace, ChosenSteps):
                    return EvolveStatus.STEP_TOO_SMALL
                if failed is None:  # the state is there to be looked at
                    self.pace.advance()
                return EvolveStatus.NOT_FINITE
            if self._accepts(target, size):
                return EvolveStatus.UNSTABLE if self._unstable else None
            if isinstance(self.pace, ChosenSteps) and not self.pace.resolved:
                return EvolveStatus.STEP_TOO_SMALL
            target = self.pace.target()

    def _attempt(self, target: Target) -> KrylovResult | None:
        """Compute the state at the end of a step."""
        if self._embedded is None:
            return self._stepper.step(self._u, target.t, target.t_next)
        return self._embedded.attempt(self._u, target.t, target.t_next, target.dt, self._proposal)

    def _accepts(self, target: Target, size: float) -> bool:
        """Judge an attempt, and make it the state if it is good, or look for an event in it."""
        step, dt = self.pace.step, self.pace.dt
        last_error = self.pace.last_error
        error = None if self._embedded is None else self._embedded.error
        if not self.pace.judge(error, self._u, self._proposal):
            return False
        try:
            event = None if self._is_unstable(target, size) else self._look(target)
        except Exception:
            self._take_attempt()  # the step is counted, and is kept
            raise
        if event is None:
            self._take_attempt()
            return True
        self._ended = (event.t, event.u)
        self._keep_before(step, target.t, dt, last_error)
        return True

    def _look(self, target: Target) -> EventRecord | None:
        """Look for events and samples in a step that has been computed."""
        if self._inside is None:
            return None
        self._inside.complete(target.t_next, self._proposal)
        return self._observer.look(self._inside)

    def _take_attempt(self) -> None:
        """Make an attempt the state."""
        if self._embedded is not None:
            np.copyto(self._u, self._proposal)
            self._embedded.accept()

    def _is_unstable(self, target: Target, size: float) -> bool:
        """Whether the end of a step, of norm ``size``, is no state that the solution can have."""
        if self._growth.is_exceeded(target.t, target.t_next, self._proposal, size):
            self._unstable = self._growth.text
            return True
        doubling = self._doubling
        if doubling is not None and doubling.is_unstable(target.t, target.t_next, self._proposal):
            self._unstable = doubling.text
        return bool(self._unstable)

    def _keep_before(self, step: int, t: float, dt: float, last_error: float | None) -> None:
        """Write the state before a step that an event ended, from which a run can go on."""
        assert self._inside is not None
        begin = self._inside.at(t).copy() if self._embedded is None else self._u
        chosen = None if self.pace.time is None else t
        self._keeper.write(
            step, lambda: self._checkpoint_of(begin, step, dt, chosen, last_error), is_last=True
        )

    def keep(self) -> None:
        """Write the state of the last step, whose successor or callback has failed."""
        with contextlib.suppress(Exception):  # what stopped the run is the error to be seen
            if math.isfinite(_size(self._u)):
                self._keeper.write(self.pace.step, self._make_checkpoint, is_last=True)

    def _refuse_unwritten(self) -> None:
        """Raise TypeError if the right-hand side leaves ``out`` as it is."""
        initial = np.empty_like(self._u)
        initial[...] = self._plan.problem.initial
        for poison in (np.nan, 7.0):
            out = np.full_like(initial, poison)
            with np.errstate(all="ignore"):
                self._plan.problem.rhs(self._plan.t0, initial, out)
            if not np.array_equal(out, np.full_like(out, poison), equal_nan=True):
                return
        raise TypeError(
            "problem.rhs(t, u, out) did not write into out; expected out[...] = f(t, u), and what "
            "it returns is not looked at."
        )

    def finish(self, status: EvolveStatus) -> Result:
        """Write the last checkpoint and return the result."""
        pace = self.pace
        if not status.is_lost and status is not EvolveStatus.EVENT:
            self._keeper.write(pace.step, self._make_checkpoint, is_last=True)
        bad = status is EvolveStatus.NOT_FINITE and self._embedded is not None
        t, u = self._ended or (pace.t, self._proposal if bad else self._u)
        message = self._message(status, t)
        self._history.add(str(status), pace.step, t, self._seconds, message=message)
        return Result(
            u=u,
            t=t,
            status=status,
            steps=pace.step,
            history=self._history.records,
            dt=pace.dt,
            method=self._stepper.name,
            seconds=time.perf_counter() - self._began,
            message=message,
            rejected=pace.rejected,
            samples=self._observer.samples,
            events=self._observer.records,
            watched=self._observer.watched,
            last_error=pace.last_error,
        )

    def _stopped_by_callback(self) -> bool:
        if self._callback is None:
            return False
        pace = self.pace
        return bool(
            self._callback(
                EvolveState(self._seen, pace.t, pace.step, pace.steps, pace.dt, pace.last_error)
            )
        )

    @property
    def _seconds(self) -> float:
        return time.perf_counter() - self._began

    def _record(self, event: str, **more: Any) -> None:
        self._history.add(event, self.pace.step, self.pace.t, self._seconds, **more)

    def _record_step(self) -> None:
        solve = self._stepper.last_solve
        more = {} if solve is None else {"iterations": solve.iterations}
        self._record("step", norm=norm(self._u), **more)

    def _make_checkpoint(self) -> Checkpoint:
        pace = self.pace
        return self._checkpoint_of(self._u, pace.step, pace.dt, pace.time, pace.last_error)

    def _checkpoint_of(
        self, u: Vector, step: int, dt: float, t: float | None, last_error: float | None
    ) -> Checkpoint:
        plan = self._plan
        return Checkpoint(
            u=np.array(to_host(u, "u"), dtype=np.float64),
            t0=plan.t0,
            dt=dt,
            step=step,
            until=plan.until,
            method=self._stepper.name,
            problem_hash=self._problem_hash,
            dtype=str(u.dtype),
            history=list(self._history.records),
            time=t,
            last_error=last_error,
            **surroundings(u),
        )

    def _message(self, status: EvolveStatus, t: float) -> str:
        steps = self.pace.steps
        of = "" if steps is None else f" of {steps}"
        where = f"{status} at step {self.pace.step}{of}, t = {t:.6g}."
        if status is EvolveStatus.UNSTABLE:
            return f"{where} {self._unstable} {status.advice}"
        solve = self._failed_solve
        if solve is None:
            return f"{where} {status.advice}"
        return (
            f"{where} The linear solve of the next step ended as '{solve.status}' after "
            f"{solve.iterations} iterations. {status.advice}"
        )


def _size(u: Vector) -> float:
    """Return ‖u‖₂, by one pass where the squares do not overflow; NaN if u is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        square = float(np.vdot(u, u).real)
        if math.isfinite(square):
            return math.sqrt(square)
        return min(norm(u), sys.float_info.max) if bool(np.isfinite(u).all()) else math.nan
