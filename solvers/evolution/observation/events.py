"""Events: times at which a function of time and state passes through 0."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import scipy.optimize

from ...products import Vector

__all__ = ["Event", "EventDetector", "EventRecord", "Interpolant"]


class Interpolant(Protocol):
    """The solution at all times of a step."""

    @property
    def interval(self) -> tuple[float, float]:
        """The times of the step's ends."""
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
        ``function(t, u)`` returns a number that is continuous in time, and never NaN. In a run
        whose grid changes it takes states of any grid, or has a method ``for_problem(problem)``
        that returns the function for the problem on another one.
    name : str
        The event's name in records.
    terminal : bool
        Whether the event ends the run.
    direction : {0, 1, -1}
        With 1 only zeros count where the function grows, with -1 those where it falls.

    Raises
    ------
    ValueError
        If ``direction`` is another number, or ``terminal`` is not a bool but a count.

    Notes
    -----
    An event occurs in a step if the function has different signs at the step's ends. If it is
    exactly 0 at the end of a step, the event occurs there, and not again in the next step. If it is
    0 at t0, the event occurs at t0 if the value at the end of the first step has the direction that
    counts or is 0 as well, as with `scipy.integrate.solve_ivp`. So a terminal event that begins at
    0 and grows ends the run at t0; with ``direction=-1`` it does not. If the function returns NaN,
    a ValueError is raised, and the last step's checkpoint is kept; SciPy would silently miss the
    event.

    Examples
    --------
    >>> from batchkron.solvers import Event
    >>> half = Event(lambda t, u: u[0] - 0.5, "half", terminal=True)
    """

    function: Callable[[float, Vector], Any]
    name: str = "event"
    terminal: bool = False
    direction: int = 0

    def __post_init__(self) -> None:
        if self.terminal not in (False, True):
            raise ValueError(
                f"terminal is {self.terminal!r}; expected True, which ends the run at the first "
                "time, or False"
            )
        if self.direction not in (-1, 0, 1):
            raise ValueError(f"direction is {self.direction!r}; expected -1, 0 or 1")


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

    Parameters
    ----------
    events : Event, callable, or sequence of them
        The events to find.

    Raises
    ------
    TypeError
        If an event is not a function.
    """

    def __init__(self, events: Sequence[Any] | Any) -> None:
        given = [events] if isinstance(events, Event) or callable(events) else list(events)
        self.events = [_as_event(event, k) for k, event in enumerate(given)]
        self._values: list[float] = []
        self._at_t0 = False

    def begin(self, t: float, u: Vector, *, first: bool) -> None:
        """Set the state at which a run begins, at t0 if ``first``, else after a checkpoint."""
        self._at_t0 = first
        self._values = [_value(event, t, u) for event in self.events]

    def move(self, problem: Any) -> None:
        """Make functions with ``for_problem`` for a problem on another grid; values stay."""
        for k, event in enumerate(self.events):
            make = getattr(event.function, "for_problem", None)
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
        end = step.interval[1]
        found: list[tuple[float, Event]] = []
        for k, event in enumerate(self.events):
            before, after = self._values[k], _value(event, end, step.at(end))
            self._values[k] = after
            if self._at_t0 and before == 0.0:
                if after * event.direction >= 0.0:
                    found.append((step.interval[0], event))
            elif _passes(before, after, event.direction):
                found.append((_root(event, step, before, after), event))
        self._at_t0 = False
        return sorted(found, key=lambda pair: pair[0])


def _as_event(given: Any, number: int) -> Event:
    if isinstance(given, Event):
        return given
    if not callable(given):
        raise TypeError(
            f"events[{number}] is a {type(given).__name__}; expected an Event or a function (t, u)."
        )
    name = getattr(given, "__name__", "event")
    terminal, direction = getattr(given, "terminal", False), getattr(given, "direction", 0)
    return Event(given, name, terminal, int(np.sign(direction)))


def _value(event: Event, t: float, u: Vector) -> float:
    """Return the value of the event's function, after checking that it is a number."""
    value = float(event.function(t, u))
    if math.isnan(value):
        raise ValueError(
            f"event {event.name!r} is NaN at t = {t:.10g}; expected a number, whose sign tells "
            "whether it passes through 0. Return one also where the event cannot happen."
        )
    return value


def _passes(before: float, after: float, direction: int) -> bool:
    """Whether a function passed through 0 in a step; a zero at its beginning does not count."""
    rises, falls = before < 0.0 <= after, before > 0.0 >= after
    return (rises and direction >= 0) or (falls and direction <= 0)


def _root(event: Event, step: Interpolant, before: float, after: float) -> float:
    """Return the time of the function's zero in a step at whose ends it has opposite signs."""
    begin, end = step.interval
    if after == 0.0:
        return end
    values = {begin: before, end: after}

    def value(t: float) -> float:
        return values[t] if t in values else _value(event, t, step.at(t))

    resolution = 4.0 * float(np.spacing(max(abs(begin), abs(end))))
    return float(scipy.optimize.brentq(value, begin, end, xtol=resolution))
