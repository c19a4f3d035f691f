"""`Run`: a run in time that is planned, and what happens in its steps."""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np

from batchkron.arrays import device_errors
from batchkron.attributes import attribute, names_meant
from batchkron.callers import users_level
from batchkron.errors import NotPhysicalError
from batchkron.storage import Checkpoint

from ..products import ProductHook, any_over, ranks_of_problem
from ..protocols import as_time_problem
from .adapt.adapt import Adapt, AdaptiveProblem, as_rule
from .adapt.follower import GridFollower, first_grid, refuse_of_one_grid
from .checkpoints import Checkpoints, SavedState, as_checkpoint_file
from .guards import watched
from .observation.observers import History, Observer, measured_at
from .observation.progress import make_progress
from .on_ranks import refuse_for_ranks
from .operator_checks.imex_step import check_imex_step
from .operator_checks.linearity import refuse_nonlinear
from .operator_checks.stability import check_stability
from .operator_checks.suited_step import suited_step
from .result import EvolveState, EvolveStatus, Result
from .start.arguments import OTHER_NAMES, Method, Solver, refuse_solver
from .start.integration import Integration, moved_integration, plan_integration, stepper_factory
from .start.resume import ResumeWarning, resume_warnings
from .stepping import Stepping
from .steps.step_control import StepControl

__all__ = ["Run"]


class Run:
    """A run in time whose arguments are checked: `to_end` takes its steps.

    `evolve` makes one and takes its steps in one call. A `Run` of your own tells its method, its
    steps and their length before the first one, calls hooks, and still has its last state after an
    exception.

    Parameters
    ----------
    problem, until, method, dt, ... : object
        As for `evolve`, which also says what is raised.
    checkpoint_at_end : bool
        Whether ``checkpoint`` is always written at the end; if False, only if the run is stopped,
        or an exception ends it after some step.
    on_step : callable, optional
        Called with an `EvolveState` after each step; a truthy return stops the run. It is the
        ``callback`` of `evolve`, which says what its attribute ``may_skip`` does.
    on_product : callable, optional
        Returns a context manager, inside of which a product with A, or an evaluation of f, is done.
        Steps that the core or a CUDA graph takes in one call do theirs without it, but for one step
        of each such call of the core: a hook that measures time is to scale it to `products`.
    on_failure : callable, optional
        Called with an exception that ends the steps, after the checkpoint of the last good state
        is written (if it can be), and before the exception is raised.

    Attributes
    ----------
    integration : Integration
        The checked arguments: ``method`` (the stepper's class), ``t0``, ``until``, ``dt``,
        ``last_step`` (0 with ``tolerances``), ``tolerances``, ``resumed``; in a run whose grid
        changes, of the present grid.
    first_step : int
        Number of steps from t0 to the state with which the run begins; not 0 if it is resumed.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> from batchkron.solvers import Run
    >>> decay = SimpleNamespace(initial=np.ones(1), rhs=lambda t, u, out: np.negative(u, out=out))
    >>> run = Run(decay, until=1.0, method="rk4", dt=0.3)
    >>> run.integration.last_step, run.integration.dt
    (4, 0.25)
    >>> run.on_step = lambda state: state.t >= 0.5
    >>> result = run.to_end()
    >>> print(result.status, result.t, run.step)
    stopped 0.5 2
    """

    @names_meant(OTHER_NAMES)
    @device_errors()
    def __init__(
        self,
        problem: Any,
        *,
        until: float | None = None,
        method: Method | None = None,
        dt: float | None = None,
        solver: Solver | None = None,
        preconditioner: Any = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: Any = None,
        checkpoint_at_end: bool = True,
        resume: str | os.PathLike[str] | Checkpoint | None = None,
        rtol: float | None = None,
        atol: Any = None,
        at: Sequence[float] | None = None,
        events: Sequence[Any] | Any = (),
        watch: Mapping[str, Any] | None = None,
        allow_unstable: bool = False,
        adapt: Adapt | bool | None = None,
        u0: Any = None,
        source: Any = None,
        jac: Any = None,
        on_step: Callable[[EvolveState], object] | None = None,
        on_product: ProductHook | None = None,
        on_failure: Callable[[Exception], object] | None = None,
    ) -> None:
        self.on_step, self.on_product, self.on_failure = on_step, on_product, on_failure
        problem = as_time_problem(problem, u0, source, jac)
        own = attribute(problem, "adapt") if adapt is None else None
        rule = (None if adapt is False else adapt) if own is None else as_rule(own)
        if ranks_of_problem(problem) is not None:
            saves = checkpoint is not None or resume is not None
            refuse_for_ranks(problem, solver, preconditioner, events, watch, saves=saves)
        integration = plan_integration(
            problem,
            until=until,
            method=method,
            dt=dt,
            resume=resume,
            rtol=rtol,
            atol=atol,
            adapts=rule is not None,
            find_step=suited_step,
        )
        ranks, resumed = integration.ranks, integration.resumed
        self.first_step = integration.first_step
        refuse_solver(integration.method, solver, preconditioner, on_ranks=ranks is not None)
        self._observer = Observer(at, events, watch, (integration.t0, integration.until), ranks)
        file = as_checkpoint_file(
            checkpoint, checkpoint_every, integration, at_end=checkpoint_at_end
        )
        self._follower: GridFollower | None = None
        if rule is not None:
            refuse_of_one_grid(integration, self._observer, preconditioner)
            suggested = dt is None and not integration.note
            self._follower, integration = first_grid(integration, rule, follows_grid=suggested)
        self._keeps_grids = rule is not None and checkpoint is not None
        if integration.method.implicit:
            refuse_nonlinear(integration)
        factory = partial(stepper_factory, solver=solver, preconditioner=preconditioner)
        self._factory, self._allow_unstable = factory, allow_unstable
        make_stepper = factory(integration)
        stepper = make_stepper(integration.trial_dt)
        check_imex = partial(check_imex_step, make_stepper=factory)
        compared = check_stability(integration, allow_unstable, check_imex)
        differences = [] if resumed is None else resume_warnings(resumed, integration.u)
        for text in differences:
            warnings.warn(text, ResumeWarning, stacklevel=users_level())
        doubling = watched(integration, make_stepper, compared)
        self._stepping = Stepping(integration, stepper, doubling, self._observer)
        self._checkpoints = Checkpoints(
            file,
            integration,
            self._saved_state,
            "" if self._follower is None else self._follower.problem_hash,
        )
        self._begin(integration, differences)

    def _begin(self, integration: Integration, differences: list[str]) -> None:
        """Record the beginning of the run, and how it differs from one that it continues."""
        self._see_state()
        control, observer, resumed = self._control, self._observer, integration.resumed
        self._refusal = ""  # why the step is not stable on a grid that has become finer
        self._began = time.perf_counter()
        carried = [] if resumed is None else resumed.history
        self._history = History(
            control.last_step,
            carried,
            adapts=self._follower is not None,
            measured=bool(observer.quantities),
        )
        self._adaptation: SavedState | None = None  # at the last one, for checkpoints
        self._is_lost = False  # whether the run has ended by a step that failed
        if resumed is not None:
            self._record("resume", warnings=differences)
        before = measured_at(control.t, carried)  # the history may have dropped that record
        observer.begin(control.t, self._shown_u, first=integration.first_step == 0, before=before)
        if observer.quantities and resumed is None:
            self._record("start", **self._measured)
        if self._follower is not None:
            first = self._follower.grid
            if first.added:
                self._record("adapt", added=first.added, removed=first.removed)
            self._begin_interval(self._follower)

    def _see_state(self) -> None:
        """Make the view of the state for hooks, which is read-only if the state is NumPy's."""
        self._shown_u = self.integration.u.view()
        if isinstance(self._shown_u, np.ndarray):
            self._shown_u.flags.writeable = False
        if self._follower is not None:
            self._unknowns = self.integration.unknowns

    @property
    def integration(self) -> Integration:
        """The checked arguments, of the present grid."""
        return self._stepping.integration

    @property
    def _control(self) -> StepControl:
        return self._stepping.control

    @property
    def t(self) -> float:
        """The time of the state."""
        return self._control.t

    @property
    def u(self) -> Any:
        """The state, shape (N,); the next step overwrites it, and you must not."""
        return self._shown_u

    @property
    def step(self) -> int:
        """Number of steps from t0."""
        return self._control.step

    @property
    def products(self) -> int:
        """Number of products with A, or evaluations of f, in the steps that were taken or tried."""
        return self._stepping.stepper.products.count

    @property
    def last_checkpoint(self) -> tuple[int, float] | None:
        """Step and time of the last checkpoint that this run has written."""
        return self._checkpoints.written

    def save_checkpoint(self) -> None:
        """Write the present state to the file ``checkpoint``, unless that has it already.

        In a run whose grid follows the solution it is the state of the last adaptation, and after a
        terminal event the one before the step with the event.

        Raises
        ------
        OSError
            If it cannot be written.
        ValueError
            If there is no such file, or the state is not finite or lost otherwise.
        """
        if self._is_lost:
            raise ValueError("the state is not finite, or the step that ended the run failed")
        self._checkpoints.save()

    @device_errors()
    def to_end(self, *, progress: bool = False) -> Result:
        """Run to the end and return the result; once.

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
        ranks = self.integration.ranks
        display = None
        if progress and (ranks is None or ranks.rank == 0):
            display = make_progress(self._control.shown_first, self._control.shown_last)
        self._began = time.perf_counter()
        self._stepping.stepper.products.hook = self.on_product
        try:
            with display or nullcontext(), self._checkpoints:
                status = self._take_steps(None if display is None else display.update)
                self._is_lost = status.is_lost
        except Exception as error:
            if self.on_failure is not None:
                self.on_failure(error)
            raise
        if status is EvolveStatus.COMPLETED and self._keeps_grids:
            self._adaptation = self._saved_grid(self.u)
        self._checkpoints.close(status)
        result = self._result(status)
        self._checkpoints.raise_failure(result)
        return result

    def _take_steps(self, show: Callable[[int, float], None] | None) -> EvolveStatus:
        """Take steps until the run ends; return why it ended."""
        if self._follower is not None and self._follower.undefined is not None:
            self._stepping.trial.not_physical = self._follower.undefined
            return EvolveStatus.NOT_PHYSICAL
        stepping, takes_several, drifted = self._stepping, self._takes_several, False
        while not stepping.control.done:
            most = self._checkpoints.steps_left(self.step) if takes_several else 0
            if not (most and stepping.take_several(most, self._record_step)):
                ended = stepping.take_one()
                if ended is EvolveStatus.EVENT:
                    self._checkpoints.write_last()
                if ended is not None:
                    return ended
                if self._observer.quantities:
                    drifted = self._measure()
                self._record_step()
            self._checkpoints.after_step(stepping.control.step, waits=self._keeps_grids)
            if show is not None:
                show(stepping.control.shown, stepping.control.t)
            if drifted:
                return EvolveStatus.DRIFTED
            if self.on_step is not None and self._is_stopped() and not stepping.control.done:
                return EvolveStatus.STOPPED
            ended = None if self._follower is None else self._adapt(self._follower)
            if ended is not None:
                return ended
        return EvolveStatus.COMPLETED

    @property
    def _takes_several(self) -> bool:
        """Whether several steps are taken before anything looks at them."""
        calls = self.on_step is not None and not attribute(self.on_step, "may_skip", False)
        looks = calls or self._follower is not None or bool(self._observer.quantities)
        return not looks and self._stepping.takes_several

    def _measure(self) -> bool:
        """Measure the quantities of the state; return whether one is beyond its tolerance."""
        try:
            return self._observer.measure(self.t, self.u)
        except Exception:  # the step counts
            self._checkpoints.after_step(self.step, waits=self._keeps_grids)
            raise

    # Grids that follow the solution.

    def _adapt(self, follower: GridFollower) -> EvolveStatus | None:
        """Adapt the grid if that is due; return a status if the run ends."""
        if not follower.is_due(self.step, self._control.done):
            return None
        try:
            found = follower.look(self._stepping.trial.u, self.t)
        except NotPhysicalError as error:
            self._stepping.trial.not_physical = error
            return EvolveStatus.NOT_PHYSICAL
        if follower.may_repeat(found):
            stepping, history, observed = follower.saved
            self._stepping.restore(stepping)
            self._history.restore(history)
            self._observer.restore(observed)
            is_stable = self._move(follower, follower.repeated(found), "repeat")
            return None if is_stable else EvolveStatus.UNSTABLE
        follower.note(found, self.t)
        if self._control.done:
            return None
        changes, follower.grid = found.problem is not self.integration.problem, found
        if changes and not self._move(follower, found, "adapt"):
            return EvolveStatus.UNSTABLE
        self._begin_interval(follower)
        return None

    def _move(self, follower: GridFollower, found: AdaptiveProblem, event: str) -> bool:
        """Continue on another grid; return False if the step is not stable there."""
        stepping = self._stepping
        integration = moved_integration(
            self.integration,
            found.problem,
            own_step=follower.follows_grid,
            step=self.step,
            t=self.t,
        )
        make = self._factory(integration)
        stepping.control.move(integration)
        stepper, done = make(stepping.control.dt), stepping.stepper.products
        stepper.products.count, stepper.products.hook = done.count, done.hook
        stepping.set_grid(integration, stepper)
        self._see_state()
        self._record(event, added=found.added, removed=found.removed)
        compared = None if stepping.doubling is None else stepping.doubling.is_linear
        if found.is_finer:
            try:
                compared = check_stability(integration, self._allow_unstable, check_imex_step)
            except ValueError as refusal:
                self._refusal = f"The grid became finer. {refusal}"
                return False
        stepping.growth.move(found.problem)
        stepping.doubling = watched(integration, make, compared)
        return True

    def _begin_interval(self, follower: GridFollower) -> None:
        """Save what repeating the steps from here on needs, and the state for checkpoints."""
        saved = self._stepping.save(), self._history.save(), self._observer.save()
        u = self._stepping.trial.u.copy()
        follower.begin_interval(self.step, self.t, u, saved)
        if self._keeps_grids:
            self._adaptation = self._saved_grid(u)
            self._checkpoints.after_adaptation()

    def _saved_state(self) -> SavedState:
        """Return the state for a checkpoint: the present one, or that of the last adaptation."""
        if self._adaptation is not None:
            return self._adaptation
        control, stepping = self._control, self._stepping
        u, t, point = stepping.trial.u, control.t, control.resume_point
        if stepping.event is not None:  # the state before the step that it is in
            (u, t), point = stepping.state_before(), control.previous_point
        saved, problem = point(), self.integration.problem
        records = self._records_until(saved[0], t)
        return SavedState(u, t, *saved, records, problem, memory=stepping.stepper.memory())

    def _saved_grid(self, u: Any) -> SavedState:
        """Return a state at an adaptation for its checkpoint."""
        follower, integration, control = self._follower, self.integration, self._control
        assert follower is not None
        return SavedState(
            u,
            control.t,
            *control.resume_point(),
            self._records_until(control.step, control.t),
            integration.problem,
            integration.origin if follower.follows_grid else None,
            follower.grid.saved(),
        )

    def _records_until(self, step: int, t: float) -> list[dict[str, Any]]:
        """Return the history for a checkpoint, with the quantities of its state."""
        records = self._history.save()[0]
        observer = self._observer
        if observer.quantities and observer.measured_at == t and not measured_at(t, records):
            seconds = round(time.perf_counter() - self._began, 6)
            records.append({"event": "checkpoint", "step": step, "t": t, "seconds": seconds})
            records[-1] |= self._size | self._measured
        return records

    def _is_stopped(self) -> bool:
        """Call the hook of steps; return whether it ends the run."""
        assert self.on_step is not None
        control = self._control
        state = EvolveState(
            self._shown_u,
            control.t,
            control.step,
            control.last_step,
            control.dt,
            control.last_error,
            self.integration.problem,
        )
        return any_over(self.integration.ranks, bool(self.on_step(state)))

    def _result(self, status: EvolveStatus) -> Result:
        """Record the end of the run and return it."""
        control, observer, event = self._control, self._observer, self._stepping.event
        follower = self._follower
        t, u = control.t, self._stepping.trial.u
        if event is not None:
            t, u = event.t, event.u
        elif status is EvolveStatus.NOT_FINITE:
            u = self._stepping.trial.end
        message = f"{self._message(status, t)} {self.integration.note}".rstrip()
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
            method=self._stepping.stepper.name,
            seconds=self._seconds,
            message=message,
            rejected=control.rejected,
            samples=observer.samples,
            events=observer.records,
            watched=observer.watched,
            last_error=control.last_error,
            problem=self.integration.problem,
            sample_problems=observer.sample_problems,
            adapt=None if follower is None else follower.outcome,
            problem_hash="" if follower is None else follower.problem_hash,
        )

    def _message(self, status: EvolveStatus, t: float) -> str:
        """Return a text about the status: what happened, at which step, and what to do."""
        steps = self._control.last_step
        of = "" if steps is None else f" of {steps}"
        where = f"{status} at step {self._control.step}{of}, t = {t:.6g}."
        if self._refusal:
            return f"{where} {self._refusal}"
        if status is EvolveStatus.UNSTABLE:
            return f"{where} {self._stepping.instability} {status.advice}"
        if status is EvolveStatus.NOT_PHYSICAL:
            return f"{where} {self._stepping.trial.not_physical}. {status.advice}"
        if status is EvolveStatus.STEP_TOO_SMALL:
            where = f"{where} {self._resolution}"
        solve = self._stepping.failed_solve
        if solve is None:
            limit = "" if self._follower is None else self._follower.outcome.text
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
        control, seconds = self._stepping.control, time.perf_counter() - self._began
        if self._follower is not None:
            more.update(self._size)
        self._history.add(event, control.step, control.t, seconds, **more)

    @property
    def _size(self) -> dict[str, int]:
        """The number of unknowns, for the records of a run whose grid changes."""
        return {} if self._follower is None else {"unknowns": self._unknowns}

    def _record_step(self, norm: float | None = None) -> None:
        """Record a step, if one is due; its norm is found if it is not given."""
        stepping = self._stepping
        if not self._history.wants(stepping.control.step):
            return
        more: dict[str, Any] = {"norm": stepping.trial.size if norm is None else norm}
        solve = stepping.stepper.last_solve
        if solve is not None:
            more["iterations"] = solve.iterations
        if self._observer.quantities:
            more.update(self._measured)
        self._record("step", **more)

    @property
    def _measured(self) -> dict[str, Any]:
        """The values of the quantities, for the records of a run that has some."""
        values = self._observer.values
        return {"quantities": values} if values else {}
