"""The loop of a run in time, from its plan to its result."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from batchkron.errors import NotPhysicalError

from ..krylov.systems.result import KrylovResult, Status
from ..krylov.vectors.ranks import any_over
from ..protocols import refuse_unwritten
from ..steppers.stepper import Stepper
from .adapt.adapt import AdaptiveProblem
from .adapt.follower import IntervalStart
from .checkpoints import Checkpoints, HeldState
from .guards.growth_bound import GrowthBound
from .guards.guard import Guard
from .guards.step_doubling import StepDoubling, watched
from .history import History
from .observation.events import EventRecord
from .observation.progress import make_progress
from .operator_checks.stability import Watch, check_stability
from .plan import GridPlan, Plan
from .result import EvolveState, EvolveStatus, Result
from .start.integration import Integration, moved_integration
from .steps.dense_output import StepInterpolant
from .steps.pace import Pace
from .steps.step_control import FixedSteps, Step, step_control
from .steps.trial_steps import TrialSteps

__all__ = ["Run"]


class Run:
    """The execution of a plan.

    Parameters
    ----------
    plan : Plan
        The checked run.
    """

    def __init__(self, plan: Plan) -> None:
        integration, stepper = plan.integration, plan.stepper
        resumed, u = integration.resumed, integration.u
        self._observer, self._callback = plan.observer, plan.callback
        self._control = control = step_control(integration, stepper)
        self._use(integration, stepper)
        self._guards: list[Guard] = [
            GrowthBound(integration.problem, control.t, u, integration.ranks)
        ]
        if plan.doubling is not None:
            self._guards.append(plan.doubling)
        self._grids = plan.grids
        self._objection = ""  # a guard's text if the last step shows instability
        self._refusal = ""  # why the step is not stable on a grid that has become finer
        self._event: EventRecord | None = None  # the terminal event, if one ended the run
        self._failed_solve: KrylovResult | None = None
        self._began = time.perf_counter()
        self._history = History(
            control.last_step,
            [] if resumed is None else resumed.history,
            adapts=plan.grids is not None,
            measured=bool(plan.observer.quantities),
        )
        self._checkpoints = Checkpoints(
            plan.checkpoint_file,
            integration,
            u,
            control,
            self._history,
            "" if plan.grids is None else plan.grids.problem_hash,
        )
        if resumed is not None:
            self._record("resume", warnings=list(resumed.warnings))
        plan.observer.begin(control.t, u, first=integration.first_step == 0)
        if plan.observer.quantities and resumed is None:
            self._record("start", **self._measured)
        if self._grids is not None:
            first = self._grids.follower.grid
            if first.added:
                self._record("adapt", added=first.added, removed=first.removed)
            self._begin_interval()

    def _use(self, integration: Integration, stepper: Stepper) -> None:
        """Set what belongs to one grid: problem, state, method and interpolation."""
        self._integration, self._stepper, u = integration, stepper, integration.u
        self._shown_u = u.view()  # the state for the callback, read-only if NumPy's
        if isinstance(self._shown_u, np.ndarray):
            self._shown_u.flags.writeable = False
        self._unknowns = integration.unknowns
        estimates, ranks = integration.tolerances is not None, integration.ranks
        self._trial = TrialSteps(stepper, u, estimates=estimates, ranks=ranks)
        self._pace = Pace()
        self._dense: StepInterpolant | None = None
        if self._observer.interpolates:
            self._dense = StepInterpolant(integration.problem, stepper, u, ranks)
        self._observer.move(integration.problem)

    def to_end(self, *, progress: bool) -> Result:
        """Run to the end and return the result.

        Parameters
        ----------
        progress : bool
            Show the progress on standard error.

        Returns
        -------
        Result
            The end of the run.

        Raises
        ------
        CheckpointError
            If the last checkpoint could not be written.
        """
        control = self._control
        ranks = self._integration.ranks
        shown = progress and (ranks is None or ranks.rank == 0)
        display = make_progress(shown, control.shown_first, control.shown_last)
        with display, self._checkpoints:
            status = self._march(display.update)
        if status is EvolveStatus.COMPLETED:
            self._hold(self._trial.u)
        self._checkpoints.close(status)
        result = self._result(status)
        self._checkpoints.raise_failure(result)
        return result

    def _march(self, show: Callable[[int, float], None]) -> EvolveStatus:
        """Take steps until the run ends; return why it ended."""
        control = self._control
        if self._grids is not None and self._grids.follower.undefined is not None:
            self._trial.not_physical = self._grids.follower.undefined
            return EvolveStatus.NOT_PHYSICAL
        while not control.done:
            if self._take_several():
                self._checkpoints.after_step()
                show(control.shown, control.t)
                if self._is_stopped() and not control.done:
                    return EvolveStatus.STOPPED
                continue
            ended = self._take_step()
            if ended is not None:
                return ended
            try:
                drifted = self._observer.measure(control.t, self._shown_u)
            except Exception:
                self._checkpoints.after_step()  # the step counts
                raise
            if self._history.wants(control.step):
                self._record_step(self._trial.size)
            self._checkpoints.after_step()
            show(control.shown, control.t)
            if drifted:
                return EvolveStatus.DRIFTED
            if self._is_stopped() and not control.done:
                return EvolveStatus.STOPPED
            ended = None if self._grids is None else self._follow(self._grids)
            if ended is not None:
                return ended
        return EvolveStatus.COMPLETED

    def _follow(self, grids: GridPlan) -> EvolveStatus | None:
        """Look at the grid if that is due; return a status if the run ends."""
        control, follower = self._control, grids.follower
        if not follower.is_due(control.step, control.done):
            return None
        try:
            found = follower.look(self._trial.u, control.t)
        except NotPhysicalError as error:
            self._trial.not_physical = error
            return EvolveStatus.NOT_PHYSICAL
        if follower.may_repeat(found):
            self._return(follower.start.saved)
            is_stable = self._move(grids, follower.repeated(found), "repeat")
            return None if is_stable else EvolveStatus.UNSTABLE
        follower.note(found, control.t)
        if control.done:
            return None
        changes, follower.grid = found.problem is not self._integration.problem, found
        if changes and not self._move(grids, found, "adapt"):
            return EvolveStatus.UNSTABLE
        self._begin_interval()
        return None

    def _move(self, grids: GridPlan, found: AdaptiveProblem, event: str) -> bool:
        """Continue on another grid; return False if the step is not stable there."""
        control = self._control
        integration = moved_integration(
            self._integration,
            found.problem,
            own_step=grids.own_step,
            step=control.step,
            t=control.t,
        )
        make = grids.make_stepper(integration)
        control.move(integration)
        self._use(integration, make(control.dt))
        self._record(event, added=found.added, removed=found.removed)
        before = next((guard for guard in self._guards if isinstance(guard, StepDoubling)), None)
        watch = None if before is None else Watch(before.is_linear)
        if found.is_finer:
            try:
                watch = check_stability(integration, grids.allow_unstable)
            except ValueError as refusal:
                self._refusal = f"The grid became finer. {refusal}"
                return False
        del self._guards[1:]
        self._guards[0].move(found.problem)
        if watch is not None:
            self._guards.append(watched(integration, make, watch.is_linear))
        return True

    def _begin_interval(self) -> None:
        """Save what repeating the steps from here on needs."""
        assert self._grids is not None
        control = self._control
        saved = (
            dict(vars(control)),
            [copy.copy(guard) for guard in self._guards],
            self._history.save(),
            self._observer.save(),
        )
        start = IntervalStart(control.t, self._trial.u.copy(), saved)
        self._grids.follower.begin_interval(control.step, start)
        self._hold(start.u)

    def _hold(self, u: Any) -> None:
        """Give the state at an adaptation to the checkpoints."""
        if self._grids is None or not self._checkpoints.holds:
            return
        control, follower = self._control, self._grids.follower
        self._checkpoints.hold(
            HeldState(
                u,
                control.t,
                control.resume_point(),
                self._integration.origin if self._grids.own_step else None,
                follower.grid.saved(),
                self._history.save()[0],
                self._integration.problem,
            )
        )

    def _return(self, saved: tuple[Any, ...]) -> None:
        """Return to the beginning of an interval, to repeat its steps."""
        control, guards, history, observed = saved
        vars(self._control).update(control)
        self._guards = [copy.copy(guard) for guard in guards]
        self._history.restore(history)
        self._observer.restore(observed)

    def _take_several(self) -> bool:
        """Take steps that nobody looks at, if there are some; return whether it has."""
        count = self._unobserved()
        control, trial = self._control, self._trial
        if count < 1 or not isinstance(control, FixedSteps):
            return False
        steps = control.upcoming(count)
        if not steps:
            return False
        with self._pace.of(len(steps)):
            sizes = trial.take_several(steps)
        if sizes is not None and not all(guard.allows(sizes) for guard in self._guards):
            trial.undo()
            sizes = None
        if sizes is None:
            self._pace.take_singly(len(steps))
            return False
        for size in sizes:
            control.advance()
            if self._history.wants(control.step):
                self._record_step(size)
        for guard in self._guards:
            guard.note(sizes[-1])
        return True

    def _unobserved(self) -> int:
        """Return how many steps to take next before looking at any of them, 0 for single ones."""
        calls = self._callback is not None and not getattr(self._callback, "may_skip", False)
        looks = calls or self._dense is not None or self._grids is not None
        if looks or self._observer.quantities or not self._trial.takes_several:
            return 0
        number = self._control.step + 1
        counts = [guard.unwatched(number) for guard in self._guards]
        last = self._control.last_step
        left = 0 if last is None else last - self._control.step
        return min(self._pace.steps(), left, self._checkpoints.unwritten(), *counts)

    def _take_step(self) -> EvolveStatus | None:
        """Take one step, with as many trials as needed; return a status if the run ends."""
        control, trial = self._control, self._trial
        if not control.is_resolved:
            return EvolveStatus.STEP_TOO_SMALL
        step = control.next_step()
        if self._dense is not None:
            self._dense.begin(step.t, trial.u)
        for guard in self._guards:
            guard.before_step(control.step + 1, trial.u)
        while True:
            size, failed = trial.attempt(step)
            if not math.isfinite(size):
                if not control.shorten():
                    return self._give_up(failed)
            elif control.accepts(trial.error_size, max(trial.size, size)):
                return self._complete(step, size)
            elif not control.is_resolved:
                return EvolveStatus.STEP_TOO_SMALL
            step = control.next_step()

    def _give_up(self, failed: KrylovResult | None) -> EvolveStatus:
        """Return the status of a run in which no trial step gives a finite state."""
        self._failed_solve = failed
        if self._trial.not_physical is not None:
            return EvolveStatus.NOT_PHYSICAL
        if failed is not None and failed.status is not Status.NOT_FINITE:
            return EvolveStatus.SOLVER_FAILED
        problem, initial = self._integration.problem, np.empty_like(self._trial.u)
        initial[...] = problem.initial
        if self._integration.ranks is None:  # ranks evaluate f together, and some may have nothing
            refuse_unwritten(problem, self._integration.t0, initial)
        if self._control.is_adaptive:
            return EvolveStatus.STEP_TOO_SMALL
        if failed is None:  # keep the state that is not finite, for inspection
            self._control.advance()
        return EvolveStatus.NOT_FINITE

    def _complete(self, step: Step, size: float) -> EvolveStatus | None:
        """Accept a step, unless a terminal event ends the run inside it; return that status."""
        try:
            self._objection = self._objection_to(step, size)
            self._event = None if self._objection else self._look(step)
        except Exception:
            self._trial.accept()  # the step counts, so that its checkpoint is written
            raise
        if self._event is None:
            self._trial.accept()
            return EvolveStatus.UNSTABLE if self._objection else None
        before = self._trial.u
        if self._trial.in_place:  # overwritten by the step; only the interpolant has a copy
            assert self._dense is not None
            before = self._dense.at(step.t)
        self._checkpoints.before_event(before)
        return EvolveStatus.EVENT

    def _objection_to(self, step: Step, size: float) -> str:
        """Return the guards' text if the end of a step shows instability, else ""."""
        for guard in self._guards:
            objection = guard.objection(step, self._trial.end, size)
            if objection:
                return objection
        return ""

    def _look(self, step: Step) -> EventRecord | None:
        """Find events and samples in a step; return the terminal event, if one ends the run."""
        if self._dense is None:
            return None
        self._dense.complete(step.t_next, self._trial.end)
        return self._observer.look(self._dense)

    def _is_stopped(self) -> bool:
        """Call the callback, if there is one; return whether it ends the run."""
        if self._callback is None:
            return False
        control = self._control
        state = EvolveState(
            self._shown_u,
            control.t,
            control.step,
            control.last_step,
            control.dt,
            control.last_error,
            self._integration.problem,
        )
        return any_over(self._integration.ranks, bool(self._callback(state)))

    def _result(self, status: EvolveStatus) -> Result:
        """Record the end of the run and return it."""
        control, observer, event = self._control, self._observer, self._event
        t, u = control.t, self._trial.u
        if event is not None:
            t, u = event.t, event.u
        elif status is EvolveStatus.NOT_FINITE:
            u = self._trial.end
        message = f"{self._message(status, t)} {self._integration.note}".rstrip()
        more: dict[str, Any] = {"message": message, **self._size}
        if status in (EvolveStatus.COMPLETED, EvolveStatus.STOPPED, EvolveStatus.DRIFTED):
            more.update(self._measured)
        self._history.add(str(status), control.step, t, self._seconds, **more)
        return Result(
            u=u,
            t=t,
            status=status,
            steps=control.step,
            history=self._history.records,
            dt=control.dt,
            method=self._stepper.name,
            seconds=self._seconds,
            message=message,
            rejected=control.rejected,
            samples=observer.samples,
            events=observer.records,
            watched=observer.watched,
            last_error=control.last_error,
            problem=self._integration.problem,
            sample_problems=observer.sample_problems,
            adapt=None if self._grids is None else self._grids.follower.outcome,
            problem_hash="" if self._grids is None else self._grids.problem_hash,
        )

    def _message(self, status: EvolveStatus, t: float) -> str:
        """Return a text about the status: what happened, at which step, and what to do."""
        steps = self._control.last_step
        of = "" if steps is None else f" of {steps}"
        where = f"{status} at step {self._control.step}{of}, t = {t:.6g}."
        if self._refusal:
            return f"{where} {self._refusal}"
        if status is EvolveStatus.UNSTABLE:
            return f"{where} {self._objection} {status.advice}"
        if status is EvolveStatus.NOT_PHYSICAL:
            return f"{where} {self._trial.not_physical}. {status.advice}"
        if status is EvolveStatus.STEP_TOO_SMALL:
            where = f"{where} {self._resolution}"
        solve = self._failed_solve
        if solve is None:
            limit = "" if self._grids is None else self._grids.follower.outcome.text
            return f"{where} {status.advice}{limit and f' {limit}'}"
        return (
            f"{where} The linear solve of the next step ended as '{solve.status}' after "
            f"{solve.iterations} iterations. {status.advice}"
        )

    @property
    def _resolution(self) -> str:
        """How far float64 resolves the time, for the text on steps that are too short."""
        control = self._control
        return (
            f"Here float64 resolves times to {math.ulp(control.t):.2g}, so that no step may be "
            f"shorter than {control.shortest:.2g}; the next one would be {control.dt:.2g}."
        )

    @property
    def _seconds(self) -> float:
        """Wall-clock seconds of the run so far."""
        return time.perf_counter() - self._began

    def _record(self, event: str, **more: Any) -> None:
        more.update(self._size)
        self._history.add(event, self._control.step, self._control.t, self._seconds, **more)

    @property
    def _size(self) -> dict[str, int]:
        """The number of unknowns, for the records of a run whose grid changes."""
        return {} if self._grids is None else {"unknowns": self._unknowns}

    def _record_step(self, norm: float) -> None:
        solve = self._stepper.last_solve
        more = {} if solve is None else {"iterations": solve.iterations}
        self._record("step", norm=norm, **more, **self._measured)

    @property
    def _measured(self) -> dict[str, Any]:
        """The values of the quantities, for the records of a run that has some."""
        values = self._observer.values
        return {"quantities": values} if values else {}
