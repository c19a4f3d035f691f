"""Events: times at which a function of time and state passes through 0."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import scipy  # which loads scipy.optimize on first use

from batchkron.attributes import attribute

from ...products import Vector
from .returned import number_or_bool

__all__ = ["Event", "EventDetector", "EventRecord", "Interpolant"]


class Interpolant(Protocol):
    """The solution at all times of a step."""

    @property
    def interval(self) -> tuple[float, float]:
        """The times of the step's ends."""
        ...

    @property
    def degree(self) -> int:
        """The degree in time of the solution inside the step."""
        ...

    def at(self, t: float) -> Vector:
        """Return the state at a time of the step."""
        ...


@dataclass(frozen=True, eq=False)
class Event:
    """An event: it occurs when a function of time and state passes through 0.

    Parameters
    ----------
    function : callable
        ``function(t, u)`` returns a number that is continuous in time, and never NaN, or a bool,
        of which False is less than 0 and True is more; also as an array of one element. In a run
        whose grid changes it takes states of any grid, or has a method ``for_problem(problem)``
        that returns the function for the problem on another one.
    name : str
        The event's name in records.
    terminal : bool, optional
        Whether the event ends the run; by default ``function.terminal``, or False.
    direction : {0, 1, -1}, optional
        With 1 only zeros count where the function grows, with -1 those where it falls; by default
        the sign of ``function.direction``, or 0.

    Raises
    ------
    TypeError
        If ``function`` cannot be called.
    ValueError
        If ``direction`` is another number, or ``terminal`` is not a bool but a count.

    Notes
    -----
    The function is evaluated at the end of each step and at equally spaced times inside, as many as
    the degree of the solution there: 3, or that of the method's continuous weights (dormand-prince
    4). An event occurs between two of these times if the function has different signs there. Two
    zeros between them are missed: they need shorter steps. If the function is exactly 0 at one of
    them, the event occurs there, and not again after it. If it is 0 at t0, the event occurs at t0
    if the next value has the direction that counts or is 0 as well, as with
    `scipy.integrate.solve_ivp`. So a terminal event that begins at 0 and grows ends the run at t0;
    with ``direction=-1`` it does not. If the function returns NaN, a ValueError is raised, and a
    TypeError for what is no number, and the last step's checkpoint is kept; SciPy would silently
    miss the event. Where only a sign is known, as of bools, the change is found by bisection, and
    the event has the new value at its time.

    Examples
    --------
    >>> from batchkron.solvers import Event
    >>> half = Event(lambda t, u: u[0] - 0.5, "half", terminal=True)
    """

    function: Callable[[float, Vector], Any]
    name: str = "event"
    terminal: bool | None = None
    direction: int | None = None

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise TypeError(
                f"event {self.name!r} has a {type(self.function).__name__} as its function; "
                "expected a function (t, u)."
            )
        if self.terminal is None:
            given = _single(attribute(self.function, "terminal"))
            object.__setattr__(self, "terminal", False if given is None else given)
        if self.direction is None:
            given = _single(attribute(self.function, "direction"))
            if isinstance(given, numbers.Real) and not math.isnan(sign := float(given)):
                given = int(sign > 0) - int(sign < 0)  # SciPy takes any number's sign
            object.__setattr__(self, "direction", 0 if given is None else given)
        if not np.isscalar(self.terminal) or self.terminal not in (False, True):
            raise ValueError(
                f"terminal is {self.terminal!r}; expected True, which ends the run at the first "
                "time, or False"
            )
        if not np.isscalar(self.direction) or self.direction not in (-1, 0, 1):
            raise ValueError(f"direction is {self.direction!r}; expected -1, 0 or 1")


def _single(given: Any) -> Any:
    """Return the only element of an array, or what was given."""
    return given.item() if isinstance(given, np.ndarray | np.generic) and given.size == 1 else given


@dataclass(frozen=True, eq=False)
class EventRecord:
    """An event that has occurred.

    Parameters
    ----------
    name : str
        The event's name.
    t : float
        The time of the event.
    u : ndarray, shape (N,)
        The state at that time.
    problem : TimeProblem
        The problem, on the grid of the state.
    """

    name: str
    t: float
    u: Vector = field(repr=False)
    problem: Any = field(default=None, repr=False)


class EventDetector:
    """Finds the events in the steps of a run.

    ``events`` (sequence of Event or callable): the events to find, at least one.

    Raises `TypeError` if an event is not a function.
    """

    def __init__(self, events: Sequence[Any]) -> None:
        self.events = [_as_event(event, k) for k, event in enumerate(events)]
        self._values: list[float] = []
        self._at_t0 = False

    def begin(self, t: float, u: Vector, *, first: bool) -> None:
        """Set the state at which a run begins, at t0 if ``first``, else after a checkpoint."""
        self._at_t0 = first
        self._values = [_value(event, t, u) for event in self.events]

    def move(self, problem: Any) -> None:
        """Make functions with ``for_problem`` for a problem on another grid; values stay."""
        for k, event in enumerate(self.events):
            make = attribute(event.function, "for_problem")
            if make is not None:
                self.events[k] = replace(event, function=make(problem))

    def save(self) -> tuple[list[float], bool]:
        """Return the functions' values, for `restore`."""
        return list(self._values), self._at_t0

    def restore(self, saved: tuple[list[float], bool]) -> None:
        """Return to the values at the time of `save`."""
        values, self._at_t0 = saved
        self._values = list(values)

    def find(self, step: Interpolant) -> list[tuple[float, Event]]:
        """Return the events in a step with their times, the earliest first."""
        found: list[tuple[float, Event]] = []
        t, end = step.interval
        last = self._values_at(end, step)
        rows = [(inside, self._values_at(inside, step)) for inside in _times_inside(step)]
        for t_next, values in [*rows, (end, last)]:
            for event, before, after in zip(self.events, self._values, values, strict=True):
                direction = event.direction or 0
                if self._at_t0 and before == 0.0:
                    if direction == 0 or after * direction >= 0.0:
                        found.append((t, event))
                elif _passes(before, after, direction):
                    found.append((_root(event, step, (t, t_next), before, after), event))
            self._at_t0, self._values, t = False, values, t_next
        return sorted(found, key=lambda pair: pair[0])

    def _values_at(self, t: float, step: Interpolant) -> list[float]:
        u = step.at(t)
        return [_value(event, t, u) for event in self.events]


def _as_event(given: Any, number: int) -> Event:
    if isinstance(given, Event):
        return given
    if not callable(given):
        raise TypeError(
            f"events[{number}] is a {type(given).__name__}; expected an Event or a function (t, u)."
        )
    return Event(given, getattr(given, "__name__", "event"))


def _times_inside(step: Interpolant) -> list[float]:
    """Return the times inside a step at which the functions are evaluated, ascending."""
    begin, end = step.interval
    parts = step.degree + 1
    times = {begin + (end - begin) * (k / parts) for k in range(1, parts)}
    return sorted(t for t in times if begin < t < end)


def _value(event: Event, t: float, u: Vector) -> float:
    """Return the value of the event's function, ±inf for bools, after checking that it is one."""
    value = number_or_bool(event.function(t, u), f"event {event.name!r}", t)
    if isinstance(value, bool):
        return math.inf if value else -math.inf
    if math.isnan(value):
        raise ValueError(
            f"event {event.name!r} is NaN at t = {t:.10g}; expected a number, whose sign tells "
            "whether it passes through 0. Return one also where the event cannot happen."
        )
    return value


def _passes(before: float, after: float, direction: int) -> bool:
    """Whether a function passed through 0; a zero at the earlier time does not count."""
    rises, falls = before < 0.0 <= after, before > 0.0 >= after
    return (rises and direction >= 0) or (falls and direction <= 0)


def _root(
    event: Event, step: Interpolant, between: tuple[float, float], before: float, after: float
) -> float:
    """Return the time of the function's zero between two times of a step, with opposite signs."""
    begin, end = between
    if after == 0.0:
        return end
    values = {begin: before, end: after}

    def value(t: float) -> float:
        return values[t] if t in values else _value(event, t, step.at(t))

    resolution = 4.0 * float(np.spacing(max(abs(begin), abs(end))))
    if math.isfinite(before) and math.isfinite(after):
        return float(scipy.optimize.brentq(value, begin, end, xtol=resolution))
    while end - begin > resolution:  # only the sign is known
        middle = begin + 0.5 * (end - begin)
        if value(middle) * math.copysign(1.0, after) >= 0.0:
            end = middle
        else:
            begin = middle
    return end
