"""What a run is, checked before it starts: the problem, the method and the grid of times."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module
from batchkron.storage import Checkpoint

from ..protocols import TimeProblem
from ..steppers.registry import get, names
from ..steppers.stepper import Stepper
from .checkpoints import read_checkpoint, refuse_mismatch, resume_warnings

_ROUNDING = 1e-10  # a step count this close above an integer is that integer


@dataclass(frozen=True)
class ErrorControl:
    """The tolerances of a run that chooses its steps: ‖error‖ ≤ atol + rtol ‖u‖ in each step.

    Parameters
    ----------
    rtol, atol : float
        The tolerances.
    time, last_error : float or None
        Where a resumed run goes on, and the error of the step before, relative to the tolerance.
    """

    rtol: float
    atol: float
    time: float | None = None
    last_error: float | None = None


@dataclass(frozen=True, eq=False)
class Plan:
    """A run from step ``first_step`` to step ``steps``.

    Parameters
    ----------
    problem : TimeProblem
        What is solved.
    stepper : type
        The method.
    t0, until, dt : float
        The first time, the last one and the step, in the problem's unit of time; with ``control``
        the first step to try, 0 to have it chosen.
    steps : int
        Steps from t0 to until; 0 with ``control``.
    u : ndarray, shape (N,)
        The state at ``first_step``; a fresh array.
    first_step : int
        0, or the step of the checkpoint that the run goes on from.
    history : list of dict
        The records of the checkpoint.
    warnings : list of str
        What differs between here and the place where the checkpoint was written.
    resumed : bool
        Whether there was a checkpoint.
    control : ErrorControl or None
        The tolerances where the run chooses its steps.
    """

    problem: TimeProblem
    stepper: type[Stepper]
    t0: float
    until: float
    dt: float
    steps: int
    u: NDArray[Any]
    first_step: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    resumed: bool = False
    control: ErrorControl | None = None

    def time(self, step: int) -> float:
        """Return t0 + step · dt, and exactly ``until`` for the last step."""
        return self.until if step == self.steps else self.t0 + step * self.dt

    @property
    def begin(self) -> float:
        """The time of ``u``."""
        if self.control is None:
            return self.time(self.first_step)
        return self.t0 if self.control.time is None else self.control.time

    @property
    def first_end(self) -> float:
        """The end of the first step; a guess, not beyond ``until``, where it is chosen later."""
        if self.control is None:
            return self.time(min(self.first_step + 1, self.steps))
        length = self.until - self.begin
        return self.begin + min(self.dt or 1e-3 * length, length)

    @property
    def is_done(self) -> bool:
        """Whether there is no step to take."""
        if self.control is None:
            return self.first_step >= self.steps
        return self.begin >= self.until


def plan_run(
    problem: Any,
    *,
    until: Any,
    method: Any,
    dt: Any,
    resume: str | os.PathLike[str] | Checkpoint | None,
    rtol: Any = None,
    atol: Any = None,
) -> Plan:
    """Check a run's arguments and lay out its steps.

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
    Plan
        The run.

    Raises
    ------
    ValueError
        If a value is wrong, or the checkpoint is another run's.
    TypeError
        If a kind of object or a dtype is wrong.
    """
    initial = _checked_initial(problem)
    t0 = _finite("problem.t0", getattr(problem, "t0", 0.0))
    until = _finite("until", until)
    if until < t0:
        raise ValueError(f"until is {until}; expected at least the problem's first time t0 = {t0}.")
    if dt is not None:
        dt = _positive_step(dt)
    control = _error_control(rtol, atol)
    if resume is not None:
        return _resumed(problem, initial, read_checkpoint(resume), t0, until, method, dt, control)
    stepper = get(_default(problem, method, "method"))
    if control is not None:
        _refuse_without_estimate(stepper)
        _check_interval(problem, t0, until)
        return Plan(problem, stepper, t0, until, dt or 0.0, 0, initial, control=control)
    if dt is None and not step_suits(problem, method):
        raise ValueError(
            f"dt is missing: the problem suggests {_suggested(problem, 'dt')} for the implicit "
            f"method {_suggested(problem, 'method')!r}, most likely far beyond what the explicit "
            f"{method!r} is stable with. Give dt, because there is no other suggestion."
        )
    steps, dt = time_grid(t0, until, _positive_step(_default(problem, dt, "dt")))
    _check_interval(problem, t0, until)
    return Plan(problem, stepper, t0, until, dt, steps, initial)


def _error_control(rtol: Any, atol: Any) -> ErrorControl | None:
    """Check tolerances; None where there are none."""
    if rtol is None and atol is None:
        return None
    found = []
    for name, value in (("rtol", rtol), ("atol", atol)):
        number = 0.0 if value is None else _finite(name, value)
        if number < 0.0:
            raise ValueError(f"{name} is {number}; expected a number >= 0.")
        found.append(number)
    if not any(found):
        raise ValueError("rtol and atol are both 0; expected one that is greater.")
    return ErrorControl(*found)


def _refuse_without_estimate(stepper: type[Stepper]) -> None:
    if stepper.error_order == 0:
        able = [name for name in names() if get(name).error_order]
        raise ValueError(
            f"method {stepper.name!r} does not estimate its error: give dt alone, without rtol and "
            f"atol, or take one of {', '.join(able)}."
        )


def step_suits(problem: Any, method: str | None) -> bool:
    """Return whether a method may take the step that the problem suggests for its own.

    Parameters
    ----------
    problem : TimeProblem
        Its ``stepper`` is looked at, if it has one.
    method : str or None
        The method; None is the problem's.

    Returns
    -------
    bool
        False for an explicit method where the problem's is implicit. An implicit method is stable
        with the step of an explicit one.

    Raises
    ------
    ValueError
        If one of the names is unknown.
    """
    own = _suggested(problem, "method")
    if method is None or own is None or method == own:
        return True
    return get(method).implicit or not get(own).implicit


def _check_interval(problem: Any, begin: float, until: float) -> None:
    """Have the problem's functions of time checked where it offers that."""
    check = getattr(problem, "check_interval", None)
    if check is not None:
        check(begin, until)


def time_grid(t0: float, until: float, dt: float) -> tuple[int, float]:
    """Return (steps, step): the fewest equal steps ≤ dt that lead from t0 exactly to until.

    Parameters
    ----------
    t0, until : float
        The first and the last time, until ≥ t0.
    dt : float
        The longest step; exceeded by at most 1e-10 of itself.

    Returns
    -------
    steps : int
        Their number, 0 if until = t0.
    step : float
        (until - t0) / steps.

    Raises
    ------
    ValueError
        If the times cannot be told apart in float64.

    Examples
    --------
    >>> time_grid(0.0, 1.0, 0.3)
    (4, 0.25)
    """
    if until == t0:
        return 0, dt
    resolution = float(np.spacing(max(abs(t0), abs(until))))
    if dt <= 4.0 * resolution:
        raise ValueError(
            f"dt is {dt}, too small for times between {t0} and {until}, which float64 resolves to "
            f"{resolution:.1e}. Take a larger dt."
        )
    steps = max(1, math.ceil((until - t0) / dt * (1.0 - _ROUNDING)))
    return steps, (until - t0) / steps


def _resumed(
    problem: Any,
    initial: NDArray[Any],
    checkpoint: Checkpoint,
    t0: float,
    until: float,
    method: str | None,
    dt: float | None,
    control: ErrorControl | None,
) -> Plan:
    stepper = get(checkpoint.method if method is None else method)
    refuse_mismatch(checkpoint, problem, initial, t0, stepper.name)
    if (control is None) != (checkpoint.time is None):
        kind = "chosen by their errors" if control is None else "all equal"
        advice = "give its rtol or atol" if control is None else "leave rtol and atol out"
        raise ValueError(
            f"The checkpoint was written by a run whose steps are {kind}; {advice} to go on "
            "with that, or start anew without resume."
        )
    if dt is not None and control is None and not _same_step(checkpoint, dt):
        raise ValueError(
            f"dt is {dt}, but the checkpoint was written by a run with dt = {checkpoint.dt}. "
            "Leave dt out to go on with that, or start anew without resume."
        )
    if control is None:
        steps = _remaining_grid(checkpoint, until)
    else:
        steps = 0
        control = replace(control, time=checkpoint.time, last_error=checkpoint.last_error)
        if until < checkpoint.t:
            raise ValueError(
                f"until is {until}, before the checkpoint's time {checkpoint.t}; expected that or "
                "a later one."
            )
    _check_interval(problem, min(checkpoint.t, until), until)
    return Plan(
        problem=problem,
        stepper=stepper,
        t0=t0,
        until=until,
        dt=checkpoint.dt,
        steps=steps,
        u=array_module(initial).array(checkpoint.u, dtype=initial.dtype),
        first_step=checkpoint.step,
        history=list(checkpoint.history),
        warnings=resume_warnings(checkpoint, initial),
        resumed=True,
        control=control,
    )


def _same_step(checkpoint: Checkpoint, dt: float) -> bool:
    """Whether dt is the checkpoint's step, or the request that led to it."""
    if math.isclose(dt, checkpoint.dt, rel_tol=_ROUNDING):
        return True
    return time_grid(checkpoint.t0, checkpoint.until, dt)[1] == checkpoint.dt


def _remaining_grid(checkpoint: Checkpoint, until: float) -> int:
    """Return the steps of the checkpoint's dt from its t0 to until."""
    t0, dt = checkpoint.t0, checkpoint.dt
    ratio = (until - t0) / dt
    steps = round(ratio)
    if abs(ratio - steps) > 10.0 * _ROUNDING * max(1.0, ratio):
        below = t0 + math.floor(ratio) * dt
        raise ValueError(
            f"until is {until}, which no whole number of the checkpoint's steps (dt = {dt}) "
            f"reaches from t0 = {t0}; the nearest times are {below} and {below + dt}."
        )
    if steps < checkpoint.step:
        raise ValueError(
            f"until is {until}, before the checkpoint's time {t0 + checkpoint.step * dt}; "
            "expected that or a later one."
        )
    return steps


def _checked_initial(problem: Any) -> NDArray[Any]:
    """Return a fresh copy of the problem's initial state."""
    if not hasattr(problem, "initial") or not callable(getattr(problem, "rhs", None)):
        raise TypeError(
            f"problem is a {type(problem).__name__}; expected an object with initial and "
            "rhs(t, u, out)."
        )
    initial: NDArray[Any] = array_module(problem.initial).array(problem.initial)
    if initial.dtype.char not in "fdFD":
        raise TypeError(
            f"problem.initial has dtype {initial.dtype}; expected float32, float64, complex64 or "
            "complex128."
        )
    if initial.ndim != 1:
        raise ValueError(
            f"problem.initial has shape {initial.shape}; expected (N,). Flatten it with ravel()."
        )
    if not np.isfinite(initial).all():
        place = int(np.argmin(np.isfinite(initial)))
        raise ValueError(
            f"problem.initial[{place}] is {initial[place]}; expected finite values, none that are "
            "NaN or infinite."
        )
    return initial.astype(initial.dtype.newbyteorder("="), copy=False)


def _default(problem: Any, value: Any, name: str) -> Any:
    """Return the value, or the one that the problem suggests."""
    if value is not None:
        return value
    suggested = _suggested(problem, name)
    if suggested is None:
        expected = f"one of {', '.join(names())}" if name == "method" else "the time step"
        raise ValueError(
            f"{name} is missing, and the problem suggests none in problem.stepper; "
            f"pass {name}=, {expected}."
        )
    return suggested


def _suggested(problem: Any, name: str) -> Any:
    """Return the problem's own "method" or "dt", or None."""
    settings = getattr(problem, "stepper", None)
    return settings.get(name) if isinstance(settings, Mapping) else getattr(settings, name, None)


def _finite(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{name} is {value!r}; expected a number.")
    if not math.isfinite(value):
        raise ValueError(f"{name} is {value}; expected a finite number.")
    return float(value)


def _positive_step(value: Any) -> float:
    dt = _finite("dt", value)
    if dt <= 0.0:
        raise ValueError(f"dt is {dt}; expected a number > 0.")
    return dt
