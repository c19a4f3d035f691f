"""The run in time: from a problem's initial state to a last time, step by step."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from batchkron.arrays import device_errors
from batchkron.storage import Checkpoint

from ..protocols import TimeProblem
from .plan import plan_run
from .result import EvolveState, EvolveStatus, Result
from .run import Run

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
    plan = plan_run(
        problem,
        until=until,
        method=method,
        dt=dt,
        resume=resume,
        rtol=rtol,
        atol=atol,
        solver=solver,
        preconditioner=preconditioner,
        at=at,
        events=events,
        watch=watch,
        callback=callback,
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
        allow_unstable=allow_unstable,
    )
    result = Run(plan).to_end(progress=progress)
    if raise_on_failure and result.status in _FAILURES:
        raise RuntimeError(result.message)
    return result
