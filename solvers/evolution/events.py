"""Events: what happens where a function of time and state passes through 0 in a step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import scipy.optimize

from ..products import Vector

__all__ = ["Event", "EventDetector", "EventRecord", "Interpolant"]


class Interpolant(Protocol):
    """The solution in a step."""

    @property
    def interval(self) -> tuple[float, float]:
        """The times of the step's ends."""
        ...

    def at(self, t: float) -> Vector:
        """Return the state at a time of the step."""
        ...


@dataclass(frozen=True, eq=False)
class Event:
    """Something that happens where a function of time and state passes through 0.

    Parameters
    ----------
    function : callable
        ``function(t, u)`` returns a number that is continuous in time; NaN is refused.
    name : str
        What records call it.
    terminal : bool
        Whether the run ends there.
    direction : {0, 1, -1}
        1 counts where the function grows only, -1 where it falls.

    Raises
    ------
    ValueError
        For another direction, or a number of times for ``terminal``.

    Notes
    -----
    In a step the function passes through 0 where it has another sign at the end than at the
    beginning; one that is exactly 0 at the end of a step does so there, and not once more in the
    next step. One that is 0 where the run begins, at t0, happens at t0 if its value at the end of
    the first step has the direction that counts, or is 0 as well: as for
    `scipy.integrate.solve_ivp`. So a terminal event that begins at 0 and may grow ends the run at
    t0; with ``direction=-1`` it does not. A function that is NaN is a ValueError, after which the
    last step's checkpoint is kept; SciPy misses such events without a word.

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
    """An event that has happened.

    Parameters
    ----------
    name : str
        The event's.
    t : float
        When.
    u : ndarray, shape (N,)
        The state then.
    """

    name: str
    t: float
    u: Vector = field(repr=False)


class EventDetector:
    """Finds the events in the steps of a run.

    Parameters
    ----------
    events : Event, callable, or sequence of them
        What to look out for.

    Raises
    ------
    TypeError
        If an event is no function.
    """

    def __init__(self, events: Sequence[Any] | Any) -> None:
        given = [events] if isinstance(events, Event) or callable(events) else list(events)
        self.events = [_as_event(event, k) for k, event in enumerate(given)]
        self._values: list[float] = []
        self._at_t0 = False

    def begin(self, t: float, u: Vector, *, first: bool) -> None:
        """Take the state where a run begins at t0 (``first``) or goes on."""
        self._at_t0 = first
        self._values = [_value(event, t, u) for event in self.events]

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
    """Return the event's function, which is a number."""
    value = float(event.function(t, u))
    if math.isnan(value):
        raise ValueError(
            f"event {event.name!r} is NaN at t = {t:.10g}; expected a number, whose sign tells "
            "whether it passes through 0. Return one also where the event cannot happen."
        )
    return value


def _passes(before: float, after: float, direction: int) -> bool:
    """Whether a function has passed through 0 in a step; one that began at 0 has not."""
    rises, falls = before < 0.0 <= after, before > 0.0 >= after
    return (rises and direction >= 0) or (falls and direction <= 0)


def _root(event: Event, step: Interpolant, before: float, after: float) -> float:
    """Return where the function is 0 in a step at whose ends it has opposite signs."""
    begin, end = step.interval
    if after == 0.0:
        return end
    values = {begin: before, end: after}

    def value(t: float) -> float:
        return values[t] if t in values else _value(event, t, step.at(t))

    resolution = 4.0 * float(np.spacing(max(abs(begin), abs(end))))
    return float(scipy.optimize.brentq(value, begin, end, xtol=resolution))
