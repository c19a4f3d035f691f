"""The run in time: from a problem's initial state to a last time, step by step."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from batchkron.arrays import device_errors
from batchkron.storage import Checkpoint

from ..protocols import TimeProblem
from ..steppers.stepper import Stepper
from .checkpoints import CheckpointWriter, ResumeWarning
from .integration import Plan, plan_run
from .linearity import is_imex, refuse_nonlinear
from .observers import Observer
from .progress import make_progress
from .result import EvolveState, EvolveStatus, Result
from .run import Run
from .stability import StepCheck, check_step, is_explicit_and_linear, is_linear_run

_FAILURES = (
    EvolveStatus.NOT_FINITE,
    EvolveStatus.SOLVER_FAILED,
    EvolveStatus.STEP_TOO_SMALL,
    EvolveStatus.DRIFTED,
    EvolveStatus.UNSTABLE,
)


@device_errors()
def evolve(
    problem: TimeProblem,
    *,
    until: float,
    method: Any = None,
    dt: float | None = None,
    solver: Any = None,
    preconditioner: Any = None,
    callback: Callable[[EvolveState], object] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: Any = None,
    resume: str | os.PathLike[str] | Checkpoint | None = None,
    progress: bool = False,
    raise_on_failure: bool = False,
    rtol: float | None = None,
    atol: float | None = None,
    at: Sequence[float] | None = None,
    events: Sequence[Any] | Any = (),
    watch: Mapping[str, Any] | None = None,
    allow_unstable: bool = False,
) -> Result:
    """Solve u' = f(t, u), u(t0) = initial, up to a time, in equal steps or in chosen ones.

    Parameters
    ----------
    problem : TimeProblem
        Any object with ``initial`` (shape (N,), float or complex) and ``rhs(t, u, out)``; for
        implicit methods f(t, u) = A(t) u + s(t) with ``operator`` or ``operator_at(t)``, for IMEX
        methods ``implicit_operator`` and ``implicit_source(t, out)``; see `TimeProblem`.
        Optional: ``t0`` (0), ``stepper`` (``method`` and ``dt`` by default), ``content_hash``.
    until : float
        The last time, in the problem's unit.
    method : str, Tableau or type, optional
        A name of `batchkron.solvers.steppers.names`, or a method of your own.
    dt : float, optional
        The longest step: ceil((until - t0) / dt) steps are taken, shortened to land on ``until``.
        With ``resume`` it may be left out, and must not be another one. An explicit ``method``
        needs it where the problem suggests the step of an implicit one. With ``rtol`` or ``atol``
        it is the first step to try.
    solver : str, mapping or callable, optional
        For implicit methods: a name ("gmres" by default, "cg", "bicgstab"), a mapping such as
        ``{"name": "gmres", "rtol": 1e-8, "restart": 40, "maxiter": 10}``, or a function
        ``solver(A, b, M=...) -> (x, info)``. rtol is 1e-9 by default (1e-5 in single
        precision), relative to the right-hand side of the increment, which is O(dt). For
        exponential methods "krylov", "kronecker" or "auto".
    preconditioner : str, object or callable, optional
        For implicit methods: a name of `batchkron.solvers.preconditioners.names`, M ≈ (I - c A)⁻¹
        (c = dt for backward Euler, dt/2 for Crank-Nicolson, else a tableau's diagonal times dt), or
        a function ``(A, c) -> M``, called again where c changes.
    callback : callable, optional
        Called with an `EvolveState` after each step; a truthy return stops the run.
    checkpoint : path, optional
        The file that checkpoints go to: one where the run ends (unless the state is not finite;
        also where the problem or the callback raises), and those of ``checkpoint_every``. One
        that cannot be written, as on a full disk, does not end the run: it warns, and the next
        one is tried.
    checkpoint_every : int, float or timedelta, optional
        An int is a number of steps, counted from t0; a float is seconds of wall-clock time.
    resume : path or Checkpoint, optional
        Goes on from there. ``until`` may differ from the first run's by whole steps.
    progress : bool
        Show a bar on standard error, or plain lines where it is no terminal.
    raise_on_failure : bool
        Raise where the run ends as NOT_FINITE, SOLVER_FAILED, STEP_TOO_SMALL, DRIFTED or UNSTABLE.
    rtol, atol : float, optional
        With one of them the steps are chosen so that the estimated error of each is
        ‖e‖₂ ≤ atol + rtol ‖u‖₂ (the other is 0), for methods with ``error_order``.
    at : sequence of float, optional
        Times from t0 to ``until`` whose states are kept, interpolated in the steps that pass them.
    events : Event, function, or sequence of them
        Functions g(t, u) whose passing through 0 is recorded, or ends the run; attributes
        ``terminal`` and ``direction`` as for `scipy.integrate.solve_ivp`. One that is 0 at t0
        happens there, with the direction that it then takes, as in SciPy; see `Event`.
    watch : mapping of str to Quantity, callable or weights, optional
        Numbers that should be conserved: measured after each step.
    allow_unstable : bool
        Run an explicit method with a step that it is not stable with. By default such a step of a
        linear problem, f(t, u) = A(t) u + s(t) with an operator, is refused.

    Returns
    -------
    Result
        ``u``, ``t``, ``status``, ``steps``, ``history`` and more.

    Raises
    ------
    ValueError
        If a value is wrong, a checkpoint is of another problem, dtype, method or step,
        ``problem.check_interval(t0, until)``, where there is one, says so, an explicit method is
        not stable with dt, or an event function returns NaN; if a checkpoint could not be read back
        on this machine, where its memory is too small. If the method is implicit or exponential and
        f(t, u + v) - f(t, u) is not A(t) v, tried once a run; of IMEX methods only the implicit
        part has to be linear. Methods with ``nonlinear = True`` are not tried.
    TypeError
        If an object is of the wrong kind, or ``rhs`` returns f(t, u) instead of writing it.
    ProblemFileError
        If ``resume`` names a file that is not a sound checkpoint.
    CheckpointError
        An OSError: if the last checkpoint of the run could not be written. It says which one is
        there, and holds the Result as its attribute ``result``. None is due, and so none missing,
        at the end of a run that is NOT_FINITE or UNSTABLE.
    RuntimeError
        If ``raise_on_failure`` and the run failed.

    Warns
    -----
    CheckpointWarning
        If a checkpoint on the way cannot be written; of several in a row, at the first.
    ResumeWarning
        If a checkpoint was written with another version, thread count or instruction set. The
        warning is recorded in the history as well.

    Notes
    -----
    The time of step n is t0 + n dt, from the integer n, and exactly ``until`` at the end. A step
    is a function of (u, n) alone, so that a run resumed in the same surroundings ends bitwise
    equal to an undisturbed one. Where the steps are chosen, a step depends on those before it
    through its length only, which checkpoints hold: there, too, a resumed run ends bitwise equal.

    The state is checked after each step: one that is not finite ends the run and is never written.
    So does one that no solution can have (UNSTABLE): of a linear problem, with all methods, a norm
    beyond 10³ exp(max(0, ω) (t - t0)) (‖u(t0)‖ + ∫‖s‖), ω the largest eigenvalue of (A + A^H) / 2,
    see `growth_bound`; of other problems, with explicit or IMEX methods and equal
    steps, a step that disagrees with two of half its length, looked at every 32nd step and at the
    last one, see `step_doubling`; so are the explicit steps of a linear problem
    that are near or beyond the estimated largest stable one, unless ``allow_unstable``. What is
    refused before a run is in `stability`.

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
    plan = plan_run(problem, until=until, method=method, dt=dt, resume=resume, rtol=rtol, atol=atol)
    observer = Observer(at, events, watch, (plan.t0, plan.until))
    checkpoints = CheckpointWriter(checkpoint, checkpoint_every, plan.u.size)
    if checkpoints.active and plan.u.dtype.kind == "c":
        raise TypeError(
            f"checkpoint is given, but the state has dtype {plan.u.dtype}, and only real states "
            "can be saved; leave checkpoint out."
        )
    if callback is not None and not callable(callback):
        raise TypeError(
            f"callback is a {type(callback).__name__}; expected a function callback(state)."
        )
    refuse_nonlinear(plan)
    make = _stepper_maker(plan, solver, preconditioner)
    stepper = make(plan.dt or 1e-3 * (plan.until - plan.t0) or 1.0)  # a first one, if it is chosen
    linear = is_explicit_and_linear(plan)
    check = check_step(plan) if linear and not allow_unstable else None
    if check is not None and check.unstable is not None:
        raise ValueError(check.unstable.text("allow_unstable=True"))
    for text in plan.warnings:
        warnings.warn(text, ResumeWarning, stacklevel=2)
    halve = make if _is_doubled(plan, linear, check) else None
    run = Run(plan, stepper, checkpoints, observer, callback, halve)
    with make_progress(progress, run.step_control.first, run.step_control.total) as display:
        try:
            status = run.march(display.update)
        except Exception as error:
            run.keep()
            if complaint := checkpoints.complaint():
                error.add_note(complaint)
            raise
    result = run.finish(status)
    if not status.is_lost:  # else none was due at the end, and a warning has told of the others
        checkpoints.raise_failure(result)
    if raise_on_failure and status in _FAILURES:
        raise RuntimeError(result.message)
    return result


def _is_doubled(plan: Plan, linear: bool, check: StepCheck | None) -> bool:
    """Whether to compare steps with halves: where an explicit part is not known to be stable."""
    if plan.control is not None:
        return False
    if linear:
        return check is not None and not check.is_safe
    return not plan.stepper.implicit or (is_imex(plan.stepper) and not is_linear_run(plan))


def _stepper_maker(plan: Plan, solver: Any, preconditioner: Any) -> Callable[[float], Stepper]:
    """Return what makes a stepper of the run's method for a step."""
    if plan.stepper.implicit:
        make: Callable[..., Stepper] = plan.stepper
        settings = {"t0": plan.t0, "solver": solver, "preconditioner": preconditioner}
        return lambda dt: make(plan.problem, dt, **settings)
    if solver is not None or preconditioner is not None:
        raise ValueError(
            f"method {plan.stepper.name!r} is explicit and solves no system: leave solver and "
            "preconditioner out, or take an implicit method."
        )
    return lambda dt: plan.stepper(plan.problem, dt)
