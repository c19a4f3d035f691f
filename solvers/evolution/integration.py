"""What is integrated in time: the problem, the method, where it starts and which steps it takes."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from batchkron.arrays import array_module
from batchkron.storage import Checkpoint

from ..protocols import TimeProblem
from ..steppers.registry import get, names
from ..steppers.stepper import Stepper
from .arguments import (
    Tolerances,
    as_tolerances,
    finite_number,
    initial_state,
    positive_step,
    refuse_unsuited_step,
    setting,
)
from .resume import read_checkpoint, refuse_mismatch, resume_warnings
from .time_grid import is_step_of, last_step_of, time_grid

__all__ = ["Integration", "Resumed", "plan_integration"]

_SHORT = 1e-3  # share of the interval: a guess of a first step where the run chooses it later


@dataclass(frozen=True)
class Resumed:
    """What a run takes over from the checkpoint that it goes on from, beside the state.

    Parameters
    ----------
    history : list of dict
        The records of the run so far.
    warnings : list of str
        What differs between here and the place where the checkpoint was written.
    time, last_error : float or None
        Where steps are chosen: the time of the state, and the error of the step before, relative
        to the tolerance.
    """

    history: list[dict[str, Any]]
    warnings: list[str]
    time: float | None
    last_error: float | None


@dataclass(frozen=True, eq=False)
class Integration:
    """u' = f(t, u) from the state ``u`` to the time ``until``, by a method, in given steps.

    Parameters
    ----------
    problem : TimeProblem
        What is solved.
    method : type
        The stepper's class.
    t0, until, dt : float
        The first time, the last one and the step, in the problem's unit of time; with
        ``tolerances`` the first step to try, 0 to have it chosen.
    last_step : int
        Steps from t0 to until; 0 with ``tolerances``.
    u : ndarray, shape (N,)
        The state at ``first_step``; a fresh array.
    first_step : int
        0, or the step of the checkpoint that the run goes on from.
    tolerances : Tolerances or None
        By which the run chooses its steps; None for equal ones.
    resumed : Resumed or None
        None where no checkpoint is resumed from.
    """

    problem: TimeProblem
    method: type[Stepper]
    t0: float
    until: float
    dt: float
    last_step: int
    u: NDArray[Any] = field(repr=False)
    first_step: int = 0
    tolerances: Tolerances | None = None
    resumed: Resumed | None = None

    def time(self, step: int) -> float:
        """Return t0 + step · dt, and exactly ``until`` for the last step."""
        return self.until if step == self.last_step else self.t0 + step * self.dt

    @property
    def begin(self) -> float:
        """The time of ``u``."""
        if self.tolerances is None:
            return self.time(self.first_step)
        time = None if self.resumed is None else self.resumed.time
        return self.t0 if time is None else time

    @property
    def trial_dt(self) -> float:
        """The step, or a guess of the first one where it is chosen later; never 0."""
        return self.dt or _SHORT * (self.until - self.t0) or 1.0

    @property
    def first_end(self) -> float:
        """The end of the first step; a guess, not beyond ``until``, where it is chosen later."""
        if self.tolerances is None:
            return self.time(min(self.first_step + 1, self.last_step))
        length = self.until - self.begin
        return self.begin + min(self.dt or _SHORT * length, length)

    @property
    def is_done(self) -> bool:
        """Whether there is no step to take."""
        if self.tolerances is None:
            return self.first_step >= self.last_step
        return self.begin >= self.until


def plan_integration(
    problem: Any,
    *,
    until: Any,
    method: Any = None,
    dt: Any = None,
    resume: str | os.PathLike[str] | Checkpoint | None = None,
    rtol: Any = None,
    atol: Any = None,
) -> Integration:
    """Check what is to be integrated, and lay out its steps; f is not evaluated.

    Parameters
    ----------
    problem : TimeProblem
        With ``initial`` and ``rhs``.
    until : float
        The last time.
    method : str or None
        The stepper's name; by default the checkpoint's, else ``problem.stepper.method``.
    dt : float or None
        The longest step; by default the checkpoint's, else ``problem.stepper.dt``, which an
        explicit method takes from a problem with an explicit one only.
    resume : path, Checkpoint or None
        Where to go on from.
    rtol, atol : float or None
        With one of them the run chooses its steps by their errors, and ``dt`` is the first one.

    Returns
    -------
    Integration
        What is integrated.

    Raises
    ------
    ValueError
        If a value is wrong, or the checkpoint is another run's.
    TypeError
        If a kind of object or a dtype is wrong.
    """
    initial = initial_state(problem)
    t0 = finite_number("problem.t0", getattr(problem, "t0", 0.0))
    until = finite_number("until", until)
    if until < t0:
        raise ValueError(f"until is {until}; expected at least the problem's first time t0 = {t0}.")
    if dt is not None:
        dt = positive_step(dt)
    tolerances = as_tolerances(rtol, atol)
    if resume is not None:
        checkpoint = read_checkpoint(resume)
        return _resumed(problem, initial, checkpoint, t0, until, method, dt, tolerances)
    stepper = get(setting(problem, method, "method"))
    if tolerances is not None:
        _refuse_without_estimate(stepper)
        _check_interval(problem, t0, until)
        return Integration(
            problem, stepper, t0, until, dt or 0.0, 0, initial, tolerances=tolerances
        )
    if dt is None:
        refuse_unsuited_step(problem, method)
    steps, dt = time_grid(t0, until, positive_step(setting(problem, dt, "dt")))
    _check_interval(problem, t0, until)
    return Integration(problem, stepper, t0, until, dt, steps, initial)


def _resumed(
    problem: Any,
    initial: NDArray[Any],
    checkpoint: Checkpoint,
    t0: float,
    until: float,
    method: str | None,
    dt: float | None,
    tolerances: Tolerances | None,
) -> Integration:
    """Return what goes on from a checkpoint, with its steps; refuse those of another run."""
    stepper = get(checkpoint.method if method is None else method)
    refuse_mismatch(checkpoint, problem, initial, t0, stepper.name)
    if (tolerances is None) != (checkpoint.time is None):
        kind = "chosen by their errors" if tolerances is None else "all equal"
        advice = "give its rtol or atol" if tolerances is None else "leave rtol and atol out"
        raise ValueError(
            f"The checkpoint was written by a run whose steps are {kind}; {advice} to go on "
            "with that, or start anew without resume."
        )
    if tolerances is None:
        if dt is not None and not is_step_of(checkpoint.dt, checkpoint.t0, checkpoint.until, dt):
            raise ValueError(
                f"dt is {dt}, but the checkpoint was written by a run with dt = {checkpoint.dt}. "
                "Leave dt out to go on with that, or start anew without resume."
            )
        last_step = last_step_of(checkpoint.dt, checkpoint.t0, until, checkpoint.step)
    else:
        last_step = 0
        if until < checkpoint.t:
            raise ValueError(
                f"until is {until}, before the checkpoint's time {checkpoint.t}; expected that or "
                "a later one."
            )
    _check_interval(problem, min(checkpoint.t, until), until)
    return Integration(
        problem=problem,
        method=stepper,
        t0=t0,
        until=until,
        dt=checkpoint.dt,
        last_step=last_step,
        u=array_module(initial).array(checkpoint.u, dtype=initial.dtype),
        first_step=checkpoint.step,
        tolerances=tolerances,
        resumed=Resumed(
            history=list(checkpoint.history),
            warnings=resume_warnings(checkpoint, initial),
            time=checkpoint.time,
            last_error=checkpoint.last_error,
        ),
    )


def _refuse_without_estimate(stepper: type[Stepper]) -> None:
    """Refuse tolerances with a method that cannot tell its errors."""
    if stepper.error_order == 0:
        able = [name for name in names() if get(name).error_order]
        raise ValueError(
            f"method {stepper.name!r} does not estimate its error: give dt alone, without rtol and "
            f"atol, or take one of {', '.join(able)}."
        )


def _check_interval(problem: Any, begin: float, until: float) -> None:
    """Have the problem's functions of time checked where it offers that."""
    check = getattr(problem, "check_interval", None)
    if check is not None:
        check(begin, until)
