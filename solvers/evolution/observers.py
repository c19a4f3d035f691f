"""What a run in time looks at on its way: samples, events and conserved quantities."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import scipy.optimize
from numpy.typing import NDArray

from batchkron.arrays import array_module

Vector = NDArray[Any]


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


@dataclass(frozen=True, eq=False)
class Quantity:
    """A number that the exact solution conserves.

    Parameters
    ----------
    measure : callable or array_like, shape (N,)
        ``measure(t, u)``, or weights w of Σ w_i u_i.
    tolerance : float
        The run ends where it has moved by more than this from its first value.

    Raises
    ------
    ValueError
        If the tolerance is negative.
    """

    measure: Any
    tolerance: float = math.inf

    def __post_init__(self) -> None:
        if not self.tolerance >= 0.0:
            raise ValueError(f"tolerance is {self.tolerance!r}; expected a number >= 0")

    def value(self, t: float, u: Vector) -> float:
        """Return the quantity of a state."""
        if callable(self.measure):
            return float(self.measure(t, u))
        return float(np.vdot(array_module(u).asarray(self.measure), u).real)


@dataclass(frozen=True)
class Watched:
    """How a quantity has moved.

    Parameters
    ----------
    first, last : float
        At the beginning of the call and at its end.
    drift : float
        The largest distance from the first value at the end of any step.
    """

    first: float
    last: float
    drift: float


class Observer:
    """Looks at every step of a run.

    Parameters
    ----------
    at : sequence of float
        Times to keep the state of.
    events : sequence of Event or callable
        What to look out for.
    watch : mapping of str to Quantity, callable or weights
        What to measure.
    interval : tuple of float
        The first and last time of the run, or of the one that it resumes.

    Raises
    ------
    ValueError
        If a time is not in the interval.
    TypeError
        If an event is no function.
    """

    def __init__(
        self,
        at: Sequence[float] | None,
        events: Sequence[Any] | Any,
        watch: Mapping[str, Any] | None,
        interval: tuple[float, float],
    ) -> None:
        times = [] if at is None else [float(t) for t in np.atleast_1d(np.asarray(at, float))]
        first, last = interval
        for time in times:
            if not first <= time <= last:
                raise ValueError(f"at has {time}; expected times from t0 = {first} to {last}.")
        self._times = sorted(times)
        given = [events] if isinstance(events, Event) or callable(events) else list(events)
        self._events = [_as_event(event, k) for k, event in enumerate(given)]
        self._quantities = {name: _as_quantity(q) for name, q in dict(watch or {}).items()}
        self._signs: list[float] = []
        self._first = False
        self.samples: list[tuple[float, Vector]] = []
        self.records: list[EventRecord] = []
        self.watched: dict[str, Watched] = {}

    @property
    def interpolates(self) -> bool:
        """Whether states inside of steps may be asked for."""
        return bool(self._times or self._events)

    def begin(self, t: float, u: Vector, *, first: bool) -> None:
        """Look at the state where a run begins (``first``) or goes on; it may be the problem's."""
        self._first = first
        if isinstance(u, np.ndarray):
            u = u.view()
            u.flags.writeable = False
        self._times = [time for time in self._times if time >= t]
        while self._times and self._times[0] == t:
            self.samples.append((self._times.pop(0), u.copy()))
        self._signs = [_value(event, t, u) for event in self._events]
        for name, quantity in self._quantities.items():
            value = quantity.value(t, u)
            self.watched[name] = Watched(value, value, 0.0)

    def look(self, step: Interpolant) -> EventRecord | None:
        """Look for events and samples in a step; return the first terminal event, if any."""
        end = step.interval[1]
        found: list[tuple[float, Event]] = []
        for k, event in enumerate(self._events):
            before, after = self._signs[k], _value(event, end, step.at(end))
            self._signs[k] = after
            if self._first and before == 0.0:
                if after * event.direction >= 0.0:
                    found.append((step.interval[0], event))
            elif _passes(before, after, event.direction):
                found.append((_root(event, step, before, after), event))
        self._first = False
        terminal: EventRecord | None = None
        for t, event in sorted(found, key=lambda pair: pair[0]):
            record = EventRecord(event.name, t, step.at(t).copy())
            self.records.append(record)
            if event.terminal:
                terminal, end = record, t
                break
        while self._times and self._times[0] <= end:
            time = self._times.pop(0)
            self.samples.append((time, step.at(time).copy()))
        return terminal

    def measure(self, t: float, u: Vector) -> bool:
        """Measure all quantities of a state; return whether one has left its tolerance."""
        left = False
        for name, quantity in self._quantities.items():
            before = self.watched[name]
            value = quantity.value(t, u)
            distance = abs(value - before.first)
            self.watched[name] = Watched(before.first, value, max(before.drift, distance))
            left |= not distance <= quantity.tolerance
        return left


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


def _as_quantity(given: Any) -> Quantity:
    return given if isinstance(given, Quantity) else Quantity(given)


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
