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
from .checkpoints import CheckpointWriter, problem_hash, surroundings
from .dense_output import StepInterpolant
from .growth_bound import GrowthBound
from .history import History
from .integration import Plan
from .observers import EventRecord, Observer
from .result import EvolveState, EvolveStatus, Result
from .step_control import AdaptiveSteps, Target, step_control_of
from .step_doubling import StepDoubling


class Run:
    """A plan being carried out.

    Parameters
    ----------
    plan : Plan
        The run.
    stepper : Stepper
        The method.
    checkpoints : CheckpointWriter
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
    step_control : FixedSteps or AdaptiveSteps
        How steps are chosen.
    """

    def __init__(
        self,
        plan: Plan,
        stepper: Stepper,
        checkpoints: CheckpointWriter,
        observer: Observer,
        callback: Callable[[EvolveState], object] | None,
        halve: Callable[[float], Stepper] | None = None,
    ) -> None:
        self._plan, self._stepper, self._checkpoints = plan, stepper, checkpoints
        self._observer, self._callback = observer, callback
        self._u = plan.u
        self._seen = self._u.view()
        if isinstance(self._seen, np.ndarray):
            self._seen.flags.writeable = False
        self.step_control = step_control_of(plan, stepper)
        self._embedded = stepper if isinstance(stepper, EmbeddedStepper) else None
        if self._embedded is not None:
            self._embedded.estimates = plan.control is not None
        self._proposal = self._u if self._embedded is None else np.empty_like(self._u)
        self._inside: StepInterpolant | None = None
        if observer.interpolates:
            self._inside = StepInterpolant(plan.problem, stepper, self._u)
        self._growth = GrowthBound(plan.problem, self.step_control.t, self._u)
        self._doubling = None if halve is None else StepDoubling(halve, plan.dt, plan.steps)
        self._unstable = ""  # what says so
        self._ended: tuple[float, Vector] | None = None
        self._failed_solve: KrylovResult | None = None
        self._began = time.perf_counter()
        self._history = History(self.step_control.steps, plan.history)
        self._problem_hash = ""
        if checkpoints.active:
            self._problem_hash = problem_hash(plan.problem, plan.problem.initial)
        if plan.resumed:
            self._record("resume", warnings=list(plan.warnings))
        observer.begin(self.step_control.t, self._u, first=plan.first_step == 0)

    def march(self, show: Callable[[int, float], None]) -> EvolveStatus:
        """Take the steps; return why they ended."""
        step_control = self.step_control
        while not step_control.done:
            target = step_control.target()
            status = self._take(target)
            if status is not None:
                return status
            if self._ended is not None:
                return EvolveStatus.EVENT
            if self._history.wants(step_control.step):
                self._record_step()
            if self._checkpoints.due(step_control.step):
                self._checkpoints.write(step_control.step, self._make_checkpoint)
            show(step_control.shown, step_control.t)
            if self._observer.measure(step_control.t, self._seen):
                return EvolveStatus.DRIFTED
            if self._stopped_by_callback() and not step_control.done:
                return EvolveStatus.STOPPED
        return EvolveStatus.COMPLETED

    def _take(self, target: Target) -> EvolveStatus | None:
        """Take one step, or as many attempts as it needs; return why there is none."""
        if self._inside is not None:
            self._inside.begin(target.t, self._u)
        if self._doubling is not None:
            self._doubling.prepare(self.step_control.step + 1, self._u)
        while True:
            with np.errstate(over="ignore", invalid="ignore"):
                failed = self._attempt(target)
            size = _size(self._proposal) if failed is None else math.nan
            bad = not math.isfinite(size)
            if bad and self.step_control.shorten():
                target = self.step_control.target()
                continue
            if failed is not None and failed.status is not Status.NOT_FINITE:
                self._failed_solve = failed
                return EvolveStatus.SOLVER_FAILED
            if bad:
                self._failed_solve = failed
                self._refuse_unwritten()
                if isinstance(self.step_control, AdaptiveSteps):
                    return EvolveStatus.STEP_TOO_SMALL
                if failed is None:  # the state is there to be looked at
                    self.step_control.advance()
                return EvolveStatus.NOT_FINITE
            if self._accepts(target, size):
                return EvolveStatus.UNSTABLE if self._unstable else None
            if isinstance(self.step_control, AdaptiveSteps) and not self.step_control.resolved:
                return EvolveStatus.STEP_TOO_SMALL
            target = self.step_control.target()

    def _attempt(self, target: Target) -> KrylovResult | None:
        """Compute the state at the end of a step."""
        if self._embedded is None:
            return self._stepper.step(self._u, target.t, target.t_next)
        return self._embedded.attempt(self._u, target.t, target.t_next, target.dt, self._proposal)

    def _accepts(self, target: Target, size: float) -> bool:
        """Judge an attempt, and make it the state if it is good, or look for an event in it."""
        step, dt = self.step_control.step, self.step_control.dt
        last_error = self.step_control.last_error
        error = None if self._embedded is None else self._embedded.error
        if not self.step_control.judge(error, self._u, self._proposal):
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
        chosen = None if self.step_control.time is None else t
        self._checkpoints.write(
            step, lambda: self._checkpoint_of(begin, step, dt, chosen, last_error), is_last=True
        )

    def keep(self) -> None:
        """Write the state of the last step, whose successor or callback has failed."""
        with contextlib.suppress(Exception):  # what stopped the run is the error to be seen
            if math.isfinite(_size(self._u)):
                self._checkpoints.write(self.step_control.step, self._make_checkpoint, is_last=True)

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
        step_control = self.step_control
        if not status.is_lost and status is not EvolveStatus.EVENT:
            self._checkpoints.write(step_control.step, self._make_checkpoint, is_last=True)
        bad = status is EvolveStatus.NOT_FINITE and self._embedded is not None
        t, u = self._ended or (step_control.t, self._proposal if bad else self._u)
        message = self._message(status, t)
        self._history.add(str(status), step_control.step, t, self._seconds, message=message)
        return Result(
            u=u,
            t=t,
            status=status,
            steps=step_control.step,
            history=self._history.records,
            dt=step_control.dt,
            method=self._stepper.name,
            seconds=time.perf_counter() - self._began,
            message=message,
            rejected=step_control.rejected,
            samples=self._observer.samples,
            events=self._observer.records,
            watched=self._observer.watched,
            last_error=step_control.last_error,
        )

    def _stopped_by_callback(self) -> bool:
        if self._callback is None:
            return False
        step_control = self.step_control
        return bool(
            self._callback(
                EvolveState(
                    self._seen,
                    step_control.t,
                    step_control.step,
                    step_control.steps,
                    step_control.dt,
                    step_control.last_error,
                )
            )
        )

    @property
    def _seconds(self) -> float:
        return time.perf_counter() - self._began

    def _record(self, event: str, **more: Any) -> None:
        self._history.add(event, self.step_control.step, self.step_control.t, self._seconds, **more)

    def _record_step(self) -> None:
        solve = self._stepper.last_solve
        more = {} if solve is None else {"iterations": solve.iterations}
        self._record("step", norm=norm(self._u), **more)

    def _make_checkpoint(self) -> Checkpoint:
        step_control = self.step_control
        return self._checkpoint_of(
            self._u, step_control.step, step_control.dt, step_control.time, step_control.last_error
        )

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
        steps = self.step_control.steps
        of = "" if steps is None else f" of {steps}"
        where = f"{status} at step {self.step_control.step}{of}, t = {t:.6g}."
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
