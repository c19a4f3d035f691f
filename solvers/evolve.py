"""The run in time: from a problem's initial state to a last time, step by step."""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from batchkron.arrays import device_errors, to_host
from batchkron.solvers.checkpointing import (
    CheckpointKeeper,
    ResumeWarning,
    problem_hash,
    surroundings,
)
from batchkron.solvers.evolve_plan import Plan, plan_run
from batchkron.solvers.evolve_result import EvolveState, EvolveStatus, Result
from batchkron.solvers.history import History
from batchkron.solvers.krylov_result import KrylovResult, Status
from batchkron.solvers.products import Vector, norm
from batchkron.solvers.progress import make_progress
from batchkron.solvers.protocols import TimeProblem
from batchkron.solvers.steppers.stepper import ImplicitStepper, Stepper
from batchkron.storage import Checkpoint


@device_errors()
def evolve(
    problem: TimeProblem,
    *,
    until: float,
    method: str | None = None,
    dt: float | None = None,
    solver: Any = None,
    preconditioner: Any = None,
    callback: Callable[[EvolveState], object] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: Any = None,
    resume: str | os.PathLike[str] | Checkpoint | None = None,
    progress: bool = False,
    raise_on_failure: bool = False,
) -> Result:
    """Solve u' = f(t, u), u(t0) = initial, up to a time, in steps of equal length.

    Parameters
    ----------
    problem : TimeProblem
        Any object with ``initial`` (shape (N,), float or complex) and ``rhs(t, u, out)``; for
        implicit methods f(t, u) = A(t) u + s(t) with ``operator`` or ``operator_at(t)``.
        Optional: ``t0`` (0), ``stepper`` (``method`` and ``dt`` by default), ``content_hash``.
    until : float
        The last time, in the problem's unit.
    method : str, optional
        A name of `batchkron.solvers.steppers.names`.
    dt : float, optional
        The longest step: ceil((until - t0) / dt) steps are taken, shortened to land on ``until``.
        With ``resume`` it may be left out, and must not be another one. An explicit ``method``
        needs it where the problem suggests the step of an implicit one.
    solver : str, mapping or callable, optional
        For implicit methods: a name ("gmres" by default, "cg", "bicgstab"), a mapping such as
        ``{"name": "gmres", "rtol": 1e-8, "restart": 40, "maxiter": 10}``, or a function
        ``solver(A, b, M=...) -> (x, info)``. rtol is 1e-9 by default (1e-5 in single
        precision), relative to the right-hand side of the increment, which is O(dt).
    preconditioner : object or callable, optional
        For implicit methods: M ≈ (I - c A)⁻¹, c = dt (backward Euler) or dt/2 (Crank-Nicolson),
        or a function ``(A, c) -> M``.
    callback : callable, optional
        Called with an `EvolveState` after each step; a truthy return stops the run.
    checkpoint : path, optional
        The file that checkpoints go to: one where the run ends (unless the state is not finite;
        also where the problem or the callback raises), and those of ``checkpoint_every``.
    checkpoint_every : int, float or timedelta, optional
        An int is a number of steps, counted from t0; a float is seconds of wall-clock time.
    resume : path or Checkpoint, optional
        Goes on from there. ``until`` may differ from the first run's by whole steps.
    progress : bool
        Show a bar on standard error, or plain lines where it is no terminal.
    raise_on_failure : bool
        Raise where the run ends as NOT_FINITE or SOLVER_FAILED.

    Returns
    -------
    Result
        ``u``, ``t``, ``status``, ``steps``, ``history`` and more.

    Raises
    ------
    ValueError
        If a value is wrong, a checkpoint is of another problem, dtype, method or step, or
        ``problem.check_interval(t0, until)``, where there is one, says so.
    TypeError
        If an object is of the wrong kind, or ``rhs`` returns f(t, u) instead of writing it.
    ProblemFileError
        If ``resume`` names a file that is not a sound checkpoint.
    RuntimeError
        If ``raise_on_failure`` and the run failed.

    Warns
    -----
    ResumeWarning
        If a checkpoint was written with another version, thread count or instruction set. The
        warning is recorded in the history as well.

    Notes
    -----
    The time of step n is t0 + n dt, from the integer n, and exactly ``until`` at the end. A step
    is a function of (u, n) alone, so that a run resumed in the same surroundings ends bitwise
    equal to an undisturbed one. The state is checked after each step: one that is not finite ends
    the run and is never written.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> from batchkron.solvers import evolve
    >>> decay = SimpleNamespace(initial=np.ones(1), rhs=lambda t, u, out: np.negative(u, out=out))
    >>> result = evolve(decay, until=1.0, method="ssp-rk3", dt=0.01)
    >>> print(result.status, result.t, result.steps, result.u.round(6))
    completed 1.0 100 [0.367879]
    """
    plan = plan_run(problem, until=until, method=method, dt=dt, resume=resume)
    keeper = CheckpointKeeper(checkpoint, checkpoint_every)
    if keeper.active and plan.u.dtype.kind == "c":
        raise TypeError(
            f"checkpoint is given, but the state has dtype {plan.u.dtype}, and only real states "
            "can be saved; leave checkpoint out."
        )
    if callback is not None and not callable(callback):
        raise TypeError(
            f"callback is a {type(callback).__name__}; expected a function callback(state)."
        )
    stepper = _make_stepper(plan, solver, preconditioner)
    for text in plan.warnings:
        warnings.warn(text, ResumeWarning, stacklevel=2)
    run = _Run(plan, stepper, keeper, callback)
    with make_progress(progress, plan.first_step, plan.steps) as display:
        try:
            status = run.march(display.update)
        except Exception:
            run.keep()
            raise
    result = run.finish(status)
    if raise_on_failure and status in (EvolveStatus.NOT_FINITE, EvolveStatus.SOLVER_FAILED):
        raise RuntimeError(result.message)
    return result


def _make_stepper(plan: Plan, solver: Any, preconditioner: Any) -> Stepper:
    if issubclass(plan.stepper, ImplicitStepper):
        return plan.stepper(
            plan.problem, plan.dt, t0=plan.t0, solver=solver, preconditioner=preconditioner
        )
    if solver is not None or preconditioner is not None:
        raise ValueError(
            f"method {plan.stepper.name!r} is explicit and solves no system: leave solver and "
            "preconditioner out, or take an implicit method."
        )
    return plan.stepper(plan.problem, plan.dt)


class _Run:
    """A plan being carried out."""

    def __init__(
        self,
        plan: Plan,
        stepper: Stepper,
        keeper: CheckpointKeeper,
        callback: Callable[[EvolveState], object] | None,
    ) -> None:
        self._plan, self._stepper, self._keeper = plan, stepper, keeper
        self._callback = callback
        self._u = plan.u
        self._seen = self._u.view()
        if isinstance(self._seen, np.ndarray):
            self._seen.flags.writeable = False
        self._step = plan.first_step
        self._failed_solve: KrylovResult | None = None
        self._began = time.perf_counter()
        self._history = History(plan.steps, plan.history)
        self._problem_hash = ""
        if keeper.active:
            self._problem_hash = problem_hash(plan.problem, plan.problem.initial)
        if plan.resumed:
            self._record("resume", warnings=list(plan.warnings))

    @property
    def _t(self) -> float:
        return self._plan.time(self._step)

    def march(self, show: Callable[[int, float], None]) -> EvolveStatus:
        """Take the steps; return why they ended."""
        plan = self._plan
        while self._step < plan.steps:
            with np.errstate(over="ignore", invalid="ignore"):
                failed = self._stepper.step(self._u, self._t, plan.time(self._step + 1))
            if failed is not None:
                self._failed_solve = failed
                if failed.status is not Status.NOT_FINITE:
                    return EvolveStatus.SOLVER_FAILED
                self._refuse_unwritten()
                return EvolveStatus.NOT_FINITE
            self._step += 1
            if not _is_finite(self._u):
                self._refuse_unwritten()
                return EvolveStatus.NOT_FINITE
            if self._history.wants(self._step):
                self._record_step()
            if self._keeper.due(self._step):
                self._keeper.write(self._step, self._make_checkpoint)
            show(self._step, self._t)
            if self._stopped_by_callback() and self._step < plan.steps:
                return EvolveStatus.STOPPED
        return EvolveStatus.COMPLETED

    def keep(self) -> None:
        """Write the state of the last step, whose successor or callback has failed."""
        with contextlib.suppress(Exception):  # what stopped the run is the error to be seen
            if _is_finite(self._u):
                self._keeper.write(self._step, self._make_checkpoint)

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
        if status is not EvolveStatus.NOT_FINITE:
            self._keeper.write(self._step, self._make_checkpoint)
        message = self._message(status)
        self._record(str(status), message=message)
        return Result(
            u=self._u,
            t=self._t,
            status=status,
            steps=self._step,
            history=self._history.records,
            dt=self._plan.dt,
            method=self._stepper.name,
            seconds=time.perf_counter() - self._began,
            message=message,
        )

    def _stopped_by_callback(self) -> bool:
        if self._callback is None:
            return False
        plan = self._plan
        return bool(
            self._callback(EvolveState(self._seen, self._t, self._step, plan.steps, plan.dt))
        )

    def _record(self, event: str, **more: Any) -> None:
        seconds = time.perf_counter() - self._began
        self._history.add(event, self._step, self._t, seconds, **more)

    def _record_step(self) -> None:
        solve = self._stepper.last_solve
        more = {} if solve is None else {"iterations": solve.iterations}
        self._record("step", norm=norm(self._u), **more)

    def _make_checkpoint(self) -> Checkpoint:
        plan = self._plan
        return Checkpoint(
            u=np.array(to_host(self._u, "u"), dtype=np.float64),
            t0=plan.t0,
            dt=plan.dt,
            step=self._step,
            until=plan.until,
            method=self._stepper.name,
            problem_hash=self._problem_hash,
            dtype=str(self._u.dtype),
            history=list(self._history.records),
            **surroundings(self._u),
        )

    def _message(self, status: EvolveStatus) -> str:
        where = f"{status} at step {self._step} of {self._plan.steps}, t = {self._t:.6g}."
        solve = self._failed_solve
        if solve is None:
            return f"{where} {status.advice}"
        return (
            f"{where} The linear solve of the next step ended as '{solve.status}' after "
            f"{solve.iterations} iterations. {status.advice}"
        )


def _is_finite(u: Vector) -> bool:
    """Whether all elements are finite, by one pass where the squares do not overflow."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(np.vdot(u, u))) or bool(np.isfinite(u).all())
