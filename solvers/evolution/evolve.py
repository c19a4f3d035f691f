"""`evolve`: integrate a problem in time from its initial state to a last time."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from numpy.typing import NDArray

from batchkron.attributes import names_meant
from batchkron.operators import Operator
from batchkron.storage import Checkpoint

from ..protocols import TimeProblem
from .adapt.adapt import Adapt
from .result import EvolveState, EvolveStatus, Result
from .run import Run
from .start.arguments import OTHER_NAMES, Method, Solver

# Statuses for which ``raise_on_failure`` raises.
_FAILURES = (
    EvolveStatus.NOT_FINITE,
    EvolveStatus.SOLVER_FAILED,
    EvolveStatus.STEP_TOO_SMALL,
    EvolveStatus.DRIFTED,
    EvolveStatus.UNSTABLE,
    EvolveStatus.NOT_PHYSICAL,
)


@names_meant(OTHER_NAMES)
def evolve(
    problem: TimeProblem | Operator | Callable[..., Any] | NDArray[Any],
    *,
    until: float | None = None,
    method: Method | None = None,
    dt: float | None = None,
    solver: Solver | None = None,
    preconditioner: Any = None,
    callback: Callable[[EvolveState], object] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: Any = None,
    resume: str | os.PathLike[str] | Checkpoint | None = None,
    progress: bool = False,
    raise_on_failure: bool = False,
    rtol: float | None = None,
    atol: float | NDArray[Any] | Sequence[float] | None = None,
    at: Sequence[float] | None = None,
    events: Sequence[Any] | Any = (),
    watch: Mapping[str, Any] | None = None,
    allow_unstable: bool = False,
    adapt: Adapt | Literal[False] | None = None,
    u0: Any = None,
    source: Any = None,
    jac: Any = None,
) -> Result:
    """Solve u' = f(t, u), u(t0) = initial, up to a time, with equal or with adaptive steps.

    Parameters
    ----------
    problem : TimeProblem, Operator or function
        An operator A, or a matrix, with ``u0`` and perhaps ``source``: u' = A u + s(t), from
        t0 = 0 on. Or an object with ``operator`` alone. Or a function f(t, u) that returns an
        array, or f(t, u, out) that writes it, with ``u0``; it is called with states of that shape.
        Or any object with ``initial`` (shape (N,), float or complex) and ``rhs(t, u, out)``, or
        ``rhs(t, u)``, which returns its value; for
        implicit methods f(t, u) = A(t) u + s(t) with ``operator`` or ``operator_at(t)``, for IMEX
        methods ``implicit_operator`` and ``implicit_source(t, out)``; see `TimeProblem`.
        Optional: ``t0`` (0), ``stepper`` (``method`` and ``dt`` by default), ``content_hash``.
    until : float, optional
        The last time, in the problem's unit; by default that of the checkpoint, else
        ``problem.stepper.until``.
    method : str, Tableau or type, optional
        A name of `batchkron.solvers.steppers.names`, or a method of your own.
    dt : float, optional
        The longest step: ceil((until - t0) / dt) equal steps are taken, which end exactly at
        ``until``. With ``resume`` it may be omitted, and must not differ from the first run's. If
        it is omitted, ``method`` is explicit and the problem's default step is for an implicit
        method, 0.8 times the largest stable step is taken where that is known (linear problems
        with an operator), and ``message`` of the result says so. With ``rtol`` or ``atol`` it is
        the first step to try.
    solver : str, mapping or callable, optional
        For implicit methods: a name ("gmres" by default, "cg", "bicgstab"), a mapping such as
        ``{"name": "gmres", "rtol": 1e-8, "restart": 40, "maxiter": 10}``, or a function
        ``solver(A, b, M=...) -> (x, info)``. rtol is 1e-9 by default (1e-5 in single
        precision), relative to the right-hand side of the increment, which is O(dt). For
        exponential methods "krylov", "kronecker" or "auto".
    preconditioner : str, object, callable or False, optional
        For implicit methods: a name of `batchkron.solvers.preconditioners.names`, M ≈ (I - c A)⁻¹
        (c = dt for backward Euler, dt/2 for Crank-Nicolson, else a tableau's diagonal times dt), or
        a function ``(A, c) -> M``, called again when c changes. "none", or False, is none. If it is
        omitted, it is "auto" where A knows its Kronecker terms, steps are stiff (c |λ| ≥ 100 for
        the eigenvalue λ of A with the largest modulus, 20 on a device or if M is a `FibreInverse`),
        the solver is gmres, fgmres or bicgstab, and M helps in a trial; a solve that fails with
        this M is done again without. M has storage of its own: "none" saves that.
    callback : callable, optional
        Called with an `EvolveState` after each step; a truthy return stops the run. If it has an
        attribute ``may_skip`` that is true, it is not called after every step, but at least every
        64 or about 50 ms, as suffices to look for an interruption; the run then is as fast as
        without it.
    checkpoint : path, optional
        The file of checkpoints: one is written at the end of the run (unless the state is not
        finite; also if the problem or the callback raises), and others as ``checkpoint_every``
        says. A checkpoint that cannot be written, as on a full disk, does not end the run: a
        warning is given, and the next one is tried.
    checkpoint_every : int, float or timedelta, optional
        An int is a number of steps, counted from t0; a float is seconds of wall-clock time.
    resume : path or Checkpoint, optional
        A checkpoint from which the run continues. ``until`` may differ from the first run's by
        whole steps.
    progress : bool
        Show a bar on standard error, or plain lines if that is not a terminal.
    raise_on_failure : bool
        Raise if the run ends as NOT_FINITE, SOLVER_FAILED, STEP_TOO_SMALL, DRIFTED, UNSTABLE or
        NOT_PHYSICAL.
    rtol, atol : float, or atol an array of shape (N,) or that of u0, optional
        If one of them is given, the step sizes are adapted so that the estimated error of each step
        is ‖e‖₂ ≤ atol + rtol ‖u‖₂ (the other is 0). Requires a method with ``error_order``. For
        "bdf", atol may have a number for each element: then the root of the mean square of
        e_i / (atol_i + rtol |u_i|) is at most 1. A run with rtol alone that begins at the state 0
        has a small atol, of what its forcing adds in a thousandth of the run.
    at : sequence of float, optional
        Times from t0 to ``until`` at which the state is recorded, by interpolation inside steps.
    events : Event, function, or sequence of them
        Functions g(t, u) whose zeros are recorded, or end the run, or bools that change; attributes
        ``terminal`` and ``direction`` as for `scipy.integrate.solve_ivp`. g is looked at inside
        steps, too. If it is 0 at t0, the event occurs there, with the direction that g then takes,
        as in SciPy; see `Event`.
    watch : mapping of str to Quantity, callable or weights, optional
        Quantities that should be conserved, or are of interest, such as those of
        `batchkron.problems.Problem.quantities`. They are measured after each step; ``recorded`` of
        the result has their values over time.
    allow_unstable : bool
        Allow an explicit or IMEX method to run with a step for which it is not stable. By default
        such a step is refused for a linear problem, f(t, u) = A(t) u + s(t) with an operator.
    adapt : Adapt or False, optional
        The rule by which the grid is refined and coarsened during the run, for problems with a
        method ``adaptive``, as those of `batchkron.problems`. By default that of the problem, its
        attribute ``adapt``, if it has one, see `batchkron.problems.Problem.with_adapt`; with False
        the grid does not change. ``result.problem`` is the problem on
        the last grid. Equal steps that the problem suggests follow its finest cells; steps of a
        given ``dt`` stay. Checkpoints have the state and the grid of the last adaptation, and that
        of the end; to resume, give the same rule.
    u0 : ndarray, shape (N,) or in blocks, optional
        The state at t0, by default ``problem.initial``. A run that is resumed must be given the
        same one. For an operator it is copied to where that is, and may be a list; the states have
        the dtype that `numpy.result_type` gives for both. States of a run are flat.
    source : ndarray, function or pairs, optional
        s of an operator: a vector, flat or in blocks; a function s(t) that returns one, or
        s(t, out) that writes it; or a sequence of pairs (f, vector), for Σ f(t) vector.
    jac : matrix, operator or function, optional
        For "bdf" and a nonlinear f: the Jacobian ∂f/∂u, or a function jac(t, u) that returns it; by
        default the attribute ``jacobian`` of the problem. Without one it is approximated by
        differences of f: as a dense matrix for up to 200 unknowns on the CPU, else by products.
        Also with a ``solver`` they are products.

    Returns
    -------
    Result
        ``u``, ``t``, ``status``, ``steps``, ``history`` and more.

    Raises
    ------
    ValueError
        If a value is wrong; if a checkpoint belongs to another problem, dtype, method or step; if
        the problem has a method ``check_interval(t0, until)`` and that raises; if an explicit or
        IMEX method is not stable with dt; if an event function returns NaN; if this machine has too
        little memory to read a checkpoint back. Also if the method is implicit or exponential and
        f(t, u + v) - f(t, u) is not A(t) v, which is tested once per run; for IMEX methods only the
        implicit part has to be linear, and methods with ``nonlinear = True`` are not tested.
    TypeError
        If an object has the wrong type, or ``rhs`` returns f(t, u) instead of writing it.
    ProblemFileError
        If ``resume`` names a file that is not a valid checkpoint.
    CheckpointError
        An OSError: if the last checkpoint of the run could not be written. It says which one
        exists, and its attribute ``result`` is the Result. A run that ends as NOT_FINITE or
        UNSTABLE writes no checkpoint at its end, so this error does not occur.
    RuntimeError
        If ``raise_on_failure`` and the run failed.

    Warns
    -----
    CheckpointWarning
        If a checkpoint during the run cannot be written; of several failures in a row, only at the
        first.
    ResumeWarning
        If a checkpoint was written with another version, thread count or instruction set. The
        warning is recorded in the history as well.

    Notes
    -----
    The time of step n is t0 + n dt, computed from the integer n, and exactly ``until`` at the end.
    A step is a function of (u, n) alone, so that a run that is resumed with the same version,
    threads and instruction set ends bitwise equal to an uninterrupted one. With adaptive steps, a
    step depends on earlier ones only through its length, which checkpoints contain: so these runs
    end bitwise equal, too.

    The state is checked after each step. A state that is not finite ends the run and is never
    written. So does a state that no solution can have (UNSTABLE):

    - for linear problems, with all methods, if its norm exceeds
      10³ exp(max(0, ω) (t - t0)) (‖u(t0)‖ + ∫‖s‖), where ω is the largest eigenvalue of
      (A + A^H) / 2, see `GrowthBound`;
    - for other problems, with explicit or IMEX methods and equal steps, if a step disagrees with
      two steps of half its length; every 32nd step and the last one are compared, and one whenever
      the norm has doubled, see `StepDoubling`. The same is done for explicit or IMEX steps of a
      linear problem that are near or beyond the estimated largest stable one, unless
      ``allow_unstable``.

    `stability` describes which steps are refused before a run.

    If ``rhs`` raises `batchkron.NotPhysicalError` in a step, the run ends as NOT_PHYSICAL with the
    state before that step; with adaptive steps, if shorter ones raise it, too.

    The state of a problem that `batchkron.distributed.distribute` returns is spread over ranks, all
    of which call this function. ``u`` is each one's block. Norms are taken over all ranks, which
    decide together on every step and on the end; a callback that stops one stops all. Rank 0 shows
    the progress, and writes checkpoints of the whole state, which any number of ranks resumes; all
    of them read the file. With ``adapt`` all ranks decide about the whole grid, as one process, and
    ``result.problem`` knows the blocks of the last one. A preconditioner by name is made of the
    whole operator by each rank, and dealt out to all of them; so is a function's by
    `batchkron.distributed.distribute`. Events, functions in ``watch`` other than the problem's
    ``quantities()``, and functions as ``solver`` need the whole state and are refused (TypeError).

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> from batchkron.solvers import evolve
    >>> decay = SimpleNamespace(initial=np.ones(1), rhs=lambda t, u, out: np.negative(u, out=out))
    >>> result = evolve(decay, until=1.0, method="ssp-rk3", dt=0.01)
    >>> print(result.status, result.t, result.steps, result.u.round(6))
    completed 1.0 100 [0.367879]

    A batch list, and a nonlinear right-hand side around it:

    >>> import batchkron as bk
    >>> pool = np.array([[[-1.0, 0.0], [0.0, -2.0]]])
    >>> op = bk.BatchedKron(pool, [[0], [0]], inputs=[0, 1], outputs=[0, 1])
    >>> evolve(op, u0=np.ones(4), until=1.0, method="rk4", dt=0.01).u.round(6)
    array([0.367879, 0.135335, 0.367879, 0.135335])
    >>> result = evolve(lambda t, u: op.apply(u) + u**2, u0=np.ones(4), until=1.0, method="rk4",
    ...                 dt=0.01)
    >>> result.u.round(6)
    array([1.      , 0.238406, 1.      , 0.238406])
    """
    if callback is not None and not callable(callback):
        raise TypeError(
            f"callback is a {type(callback).__name__}; expected a function callback(state)."
        )
    run = Run(
        problem,
        until=until,
        method=method,
        dt=dt,
        solver=solver,
        preconditioner=preconditioner,
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
        resume=resume,
        rtol=rtol,
        atol=atol,
        at=at,
        events=events,
        watch=watch,
        allow_unstable=allow_unstable,
        adapt=adapt,
        u0=u0,
        source=source,
        jac=jac,
        on_step=callback,
    )
    result = run.to_end(progress=progress)
    if raise_on_failure and result.status in _FAILURES:
        raise RuntimeError(result.message)
    return result
