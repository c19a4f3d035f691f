"""Checks of single arguments of a run, the problem's own defaults for them, and equal steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module, native_dtype
from batchkron.attributes import attribute, has_attribute
from batchkron.errors import NotPhysicalError
from batchkron.names import SolverName, StepperName

from ...preconditioners import NamedPreconditioner
from ...products import Ranks, any_over, norm_over
from ...steppers.registry import get, names
from ...steppers.stepper import Stepper
from ...steppers.tableau import Tableau

__all__ = [
    "OTHER_NAMES",
    "Method",
    "Solver",
    "Tolerances",
    "as_tolerances",
    "check_interval",
    "fewest_steps",
    "finite_number",
    "found_step_text",
    "initial_state",
    "is_step_of",
    "last_step_of",
    "positive_step",
    "refuse_solver",
    "refuse_unsuited_step",
    "setting",
    "step_suits",
    "suggests_step",
    "time_grid",
    "with_size_of_rise",
]

Method: TypeAlias = StepperName | Tableau | type[Stepper]
"""A time stepper; `steppers.get(name)` returns one that another distribution brings."""

Solver: TypeAlias = SolverName | Mapping[str, Any] | Callable[..., Any]
"""A linear solver: its name, a mapping with options, or a function (A, b, M=...) -> (x, info)."""

OTHER_NAMES = {
    "M": "preconditioner",
    "integrator": "method",
    "stepper": "method",
    "step": "dt",
    "t_end": "until",
    "t_eval": "at",
    "t_final": "until",
    "t_span": "until",
    "tol": "rtol",
    "y0": "u0",
}
"""Arguments of a run by the names that they have elsewhere, with the names here."""

# Parts of a run at which f says how fast a state that is 0 rises; chosen by hand, the later ones so
# that periods that divide the run do not hide it.
_PROBES = (1e-3, 0.137, 0.618, 0.909)
# If (until - t0) / dt exceeds an integer by less than this, relatively, that integer is taken.
_ROUNDING = 1e-10


@dataclass(frozen=True)
class Tolerances:
    """Tolerances of step-size control: ‖error‖ ≤ atol + rtol ‖u‖ in each step.

    ``atol`` (float or ndarray, shape (N,)): the absolute tolerance, or one for each element, see
      `ErrorScale`.
    """

    rtol: float
    atol: float | NDArray[Any]


def with_size_of_rise(
    tolerances: Tolerances,
    problem: Any,
    initial: NDArray[Any],
    t0: float,
    until: float,
    ranks: Ranks | None,
) -> Tolerances:
    """Return tolerances of a run: with an atol for one with rtol alone that begins at the state 0.

    It is rtol times what f(t, 0), the largest at four times, adds in a thousandth of the run: while
    a state rises from 0, errors relative to it would make steps short without end. 0 where f is 0.
    """
    if not isinstance(tolerances.atol, float) or tolerances.atol > 0.0:
        return tolerances
    if norm_over(ranks, initial) > 0.0:
        return tolerances
    slope, speed = np.empty_like(initial), 0.0
    for part in _PROBES:
        try:
            problem.rhs(t0 + part * (until - t0), initial, slope)
        except NotPhysicalError:
            continue
        found = norm_over(ranks, slope)
        speed = max(speed, found) if math.isfinite(found) else speed
    return replace(tolerances, atol=tolerances.rtol * speed * 1e-3 * (until - t0))


def initial_state(problem: Any, ranks: Ranks | None) -> NDArray[Any]:
    """Return a new copy of the problem's initial state.

    ``problem``: with ``initial`` and ``rhs``.
    ``ranks``: those that share its state.

    Returns ndarray, shape (N,): in the byte order of the machine. Raises `TypeError` if one of
    these attributes is missing, or the state is neither float nor complex. `ValueError` if the
    state is not a vector, or not finite; on all ranks if it is not on one of them.
    """
    if not has_attribute(problem, "initial") or not callable(attribute(problem, "rhs")):
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
    finite = bool(np.isfinite(initial).all())
    if ranks is not None and any_over(ranks, not finite):
        raise ValueError("problem.initial has NaN or infinite values; expected finite ones.")
    if not finite:
        place = int(np.argmin(np.isfinite(initial)))
        raise ValueError(
            f"problem.initial[{place}] is {initial[place]}; expected finite values, none that are "
            "NaN or infinite."
        )
    return initial.astype(native_dtype(initial.dtype), copy=False)


def finite_number(name: str, value: Any) -> float:
    """Return a number as a float; raise TypeError if it is not one, ValueError if not finite."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{name} is {value!r}; expected a number.")
    if not math.isfinite(value):
        raise ValueError(f"{name} is {value}; expected a finite number.")
    return float(value)


def positive_step(value: Any) -> float:
    """Return a time step as a float; raise ValueError if it is not positive."""
    dt = finite_number("dt", value)
    if dt <= 0.0:
        raise ValueError(f"dt is {dt}; expected a number > 0.")
    return dt


def as_tolerances(rtol: Any, atol: Any) -> Tolerances | None:
    """Return the tolerances of a run, None if none is given and its steps are equal.

    Raises `TypeError` if one is not a number. `ValueError` if one is negative or not finite, or
    both are 0.
    """
    if rtol is None and atol is None:
        return None
    if np.ndim(atol) > 0:
        return Tolerances(_not_negative("rtol", rtol), _tolerance_of_elements(atol))
    found = [_not_negative("rtol", rtol), _not_negative("atol", atol)]
    if not any(found):
        raise ValueError("rtol and atol are both 0; expected one that is greater.")
    return Tolerances(*found)


def _not_negative(name: str, value: Any) -> float:
    number = 0.0 if value is None else finite_number(name, value)
    if number < 0.0:
        raise ValueError(f"{name} is {number}; expected a number >= 0.")
    return number


def _tolerance_of_elements(atol: Any) -> NDArray[Any]:
    """Return an absolute tolerance for each element, which has to be positive."""
    module = array_module(atol)
    found = module.array(atol, dtype=np.float64)
    if not bool((module.isfinite(found) & (found > 0.0)).all()):
        raise ValueError(
            "atol is an array; expected positive finite numbers of shape (N,), one for each "
            "element of the state, or of the shape of u0."
        )
    return found  # type: ignore[no-any-return]


def setting(problem: Any, value: Any, name: str) -> Any:
    """Return the value of "until", "method" or "dt"; for None, the problem's default.

    Raises `ValueError` if the value is None and the problem has no default.
    """
    if value is not None:
        return value
    suggested = _suggested(problem, name)
    if suggested is None:
        expected = {"until": "the last time", "dt": "the time step"}
        expected["method"] = f"one of {', '.join(names())}"
        raise ValueError(
            f"{name} is missing, and the problem suggests none in problem.stepper; "
            f"pass {name}=, {expected[name]}."
        )
    return suggested


def step_suits(problem: Any, method: Any) -> bool:
    """Return whether the problem's default step suits a method other than its default one.

    It does not if the method is explicit, and the problem's default method, in its ``stepper``, is
    implicit. An implicit method is stable with the step of an explicit one. For the method None,
    the problem's default, it does.

    Raises `ValueError` if one of the names is unknown.
    """
    own = _suggested(problem, "method")
    if method is None or own is None or method == own:
        return True
    return get(method).implicit or not get(own).implicit


def suggests_step(problem: Any) -> bool:
    """Return whether a problem has a default step."""
    return _suggested(problem, "dt") is not None


def refuse_unsuited_step(problem: Any, method: Any) -> None:
    """Raise ValueError if the problem's default step does not suit a method, see `step_suits`."""
    if not step_suits(problem, method):
        raise ValueError(
            f"dt is missing: the problem suggests {_suggested(problem, 'dt')} for the implicit "
            f"method {_suggested(problem, 'method')!r}, most likely far beyond what the explicit "
            f"{get(method).name!r} is stable with. Give dt: the largest stable step is known only "
            "for f(t, u) = A(t) u + s(t) with an operator, and if there is one."
        )


def found_step_text(problem: Any, method: str) -> str:
    """Return a text that says where the step of an explicit method without dt comes from."""
    if not suggests_step(problem):
        return f"dt was not given: it is at most 0.8 times the largest stable step of {method!r}."
    return (
        f"dt was not given, and the problem suggests {_suggested(problem, 'dt'):.4g} for "
        f"{_suggested(problem, 'method')!r}: it is at most that and 0.8 times the largest stable "
        f"step of {method!r}."
    )


def _suggested(problem: Any, name: str) -> Any:
    """Return the problem's default for "until", "method" or "dt", or None."""
    settings = attribute(problem, "stepper")
    return settings.get(name) if isinstance(settings, Mapping) else attribute(settings, name)


def refuse_solver(
    method: type[Stepper], solver: Any, preconditioner: Any, *, on_ranks: bool
) -> None:
    """Raise for a solver that a method does not use or does not know, or a method not for ranks.

    Raises `ValueError` if the method solves no system, or the preconditioner's name is unknown.
    `TypeError` if steps of the method need the whole state, which ranks share.
    """
    if on_ranks and not method.works_on_ranks:
        able = [name for name in names() if get(name).works_on_ranks]
        raise TypeError(
            f"method {method.name!r} takes no steps of a state that is spread over ranks; take one "
            f"of {', '.join(able)}."
        )
    if not method.implicit and (solver is not None or preconditioner is not None):
        raise ValueError(
            f"method {method.name!r} is explicit and solves no system: leave solver and "
            "preconditioner out, or take an implicit method."
        )
    if isinstance(preconditioner, str):
        NamedPreconditioner(preconditioner)


def time_grid(t0: float, until: float, dt: float) -> tuple[int, float]:
    """Return (steps, step): the fewest equal steps ≤ dt that lead from t0 exactly to until.

    ``t0``, ``until``: the first and the last time, until ≥ t0.
    ``dt``: the longest step; exceeded by at most 1e-10 of itself.

    Returns ``steps``: number of steps, 0 if until = t0; ``step``: length of a step, (until - t0) /
    steps. Raises `ValueError` if the steps are so short that their times would be equal in float64.

    Examples
    --------
    >>> time_grid(0.0, 1.0, 0.3)
    (4, 0.25)
    """
    resolution = float(np.spacing(max(abs(t0), abs(until))))
    if until > t0 and dt <= 4.0 * resolution:
        raise ValueError(
            f"dt is {dt}, too small for times between {t0} and {until}, which float64 resolves to "
            f"{resolution:.1e}. Take a larger dt."
        )
    return fewest_steps(t0, until, dt)


def fewest_steps(t0: float, until: float, dt: float) -> tuple[int, float]:
    """Return the steps of `time_grid`, also where float64 does not resolve their times."""
    if until == t0:
        return 0, dt
    steps = max(1, math.ceil((until - t0) / dt * (1.0 - _ROUNDING)))
    return steps, (until - t0) / steps


def is_step_of(step: float, t0: float, until: float, dt: float) -> bool:
    """Return whether ``dt`` is a grid's step, or a longest step that leads to the same grid."""
    return math.isclose(dt, step, rel_tol=_ROUNDING) or time_grid(t0, until, dt)[1] == step


def last_step_of(step: float, t0: float, until: float, done: int) -> int:
    """Return the number of steps of a resumed run from t0 to a last time that may have changed.

    ``step`` and ``done`` are the length and the number of the checkpoint's steps.

    Raises `ValueError` if ``until`` is not reached by a whole number of steps, or by fewer than are
    done.
    """
    ratio = (until - t0) / step
    steps = round(ratio)
    if abs(ratio - steps) > 10.0 * _ROUNDING * max(1.0, ratio):
        below = t0 + math.floor(ratio) * step
        raise ValueError(
            f"until is {until}, which no whole number of the checkpoint's steps (dt = {step}) "
            f"reaches from t0 = {t0}; the nearest times are {below} and {below + step}."
        )
    if steps < done:
        raise ValueError(
            f"until is {until}, before the checkpoint's time {t0 + done * step}; "
            "expected that or a later one."
        )
    return steps


def check_interval(problem: Any, begin: float, until: float) -> None:
    """Call the problem's ``check_interval(begin, until)``, if it has one."""
    check = attribute(problem, "check_interval")
    if check is not None:
        check(begin, until)
