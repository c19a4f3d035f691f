"""Observations during a run: samples, events and conserved quantities; the record of its steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from batchkron.arrays import array_module
from batchkron.attributes import attribute, has_attribute

from ...products import Ranks, Vector, dot_over
from .events import Event, EventDetector, EventRecord, Interpolant
from .measures import MomentWeights, Outflow
from .returned import number_or_bool

__all__ = ["History", "Observer", "Quantity", "Watched"]

# Number of steps recorded of a run; up to twice as many if the number of steps is not known in
# advance. Chosen by hand.
_MAX_STEPS = 200
# The same if quantities are recorded at these steps, which fits of rates and pictures need.
_MAX_MEASURED_STEPS = 2000


@dataclass(frozen=True, eq=False)
class Quantity:
    """A quantity that is measured after each step, such as one that the solution conserves.

    Parameters
    ----------
    measure : callable or array_like, shape (N,) or in blocks
        A function ``measure(t, u)``, or weights w, which stand for the real part of Σ w_i u_i. In a
        run whose grid changes the function takes states of any grid, or has a method
        ``for_problem(problem)`` that returns the measure for the problem on another one. A measure
        that depends on the states before has methods ``begin()``, called where a run begins,
        ``save()``, called where steps that may be repeated begin, and ``restore(saved)``, which
        forgets the states since. Where a run is resumed, ``resume(value)``, if there is one, gets
        the value at the checkpoint after ``begin()``.
    tolerance : float
        The run ends as DRIFTED when the quantity differs by more than this from its first value.

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

    @classmethod
    def moment(cls, problem: Any, powers: Any, tolerance: float = math.inf) -> Quantity:
        """Return the quantity ∫ v_1^k_1 v_2^k_2 … f dV, the integral over all axes.

        Parameters
        ----------
        problem : object
            With ``moment_weights(powers)``, as of `batchkron.problems.Problem`.
        powers : Axis, sequence of Axis, or mapping of Axis to int
            The powers k_i, 0 for an axis that is not named: ``Quantity.moment(problem, {v: 1})`` is
            the momentum along v.
        tolerance : float
            As of the class.

        Returns
        -------
        Quantity
            Also for a run whose grid changes.

        Raises
        ------
        TypeError, ValueError
            If the problem has no moments, an axis or power is wrong, or the tolerance is negative.
        """
        if not has_attribute(problem, "moment_weights"):
            raise TypeError(
                f"problem is a {type(problem).__name__} without moment_weights(powers); expected a "
                "Problem of batchkron.problems, or give Quantity(weights)"
            )
        return cls(MomentWeights(problem, powers), tolerance)

    @classmethod
    def outflow(cls, problem: Any, warn_at: float = 1e-6, tolerance: float = math.inf) -> Quantity:
        """Return the quantity ∫ rate dt: what has flowed out at the ends since the run's beginning.

        The rate is -d/dt ∫ f without sources and data of the ends, so that reactions count as well.

        Parameters
        ----------
        problem : object
            With ``outflow_rate(t, u)`` and ``integral(u)``, as of `batchkron.problems.Problem`.
        warn_at : float
            A UserWarning is given when this share of ∫ f at the beginning has flowed out.
        tolerance : float
            As of the class.

        Returns
        -------
        Quantity
            For one run, also one whose grid changes. The rates at the ends of the steps are
            integrated with error O(dt⁴).

        Raises
        ------
        TypeError
            If the problem has no such methods.
        ValueError
            If the tolerance is negative.
        """
        if not has_attribute(problem, "outflow_rate") or not has_attribute(problem, "integral"):
            raise TypeError(
                f"problem is a {type(problem).__name__} without outflow_rate(t, u) and "
                "integral(u); expected a Problem of batchkron.problems"
            )
        return cls(Outflow(problem, warn_at), tolerance)

    def value(self, t: float, u: Vector, ranks: Ranks | None = None) -> float:
        """Return the value of the quantity for a state, or for one that ranks share."""
        if callable(self.measure):
            name = getattr(self.measure, "__name__", type(self.measure).__name__)
            return float(number_or_bool(self.measure(t, u), f"the measure {name!r}", t))
        measure = self.measure
        given = measure.weights if isinstance(measure, MomentWeights) else measure
        weights = array_module(u).asarray(given).reshape(-1)
        if weights.size != u.size:
            raise ValueError(
                f"a quantity in watch has weights of size {weights.size}; expected {u.size}, one "
                "for each unknown"
            )
        return dot_over(ranks, weights.conj(), u).real


@dataclass(frozen=True)
class Watched:
    """The change of a quantity during a run.

    Parameters
    ----------
    first, last : float
        Its values at the beginning and at the end of the call.
    drift : float
        The largest difference from the first value at the end of any step.
    label, unit : str
        What the quantity is, as a formula, and its unit, if the measure has these attributes.
    """

    first: float
    last: float
    drift: float
    label: str = ""
    unit: str = ""


class Observer:
    """Records samples, events and quantities in every step of a run.

    ``at``: times at which the state is recorded.
    ``events``: the events to find.
    ``watch`` (mapping of str to Quantity, callable or weights): the quantities to measure.
    ``interval``: the first and last time of the run; of a resumed run, t0 and the last time.
    ``ranks``: the ranks that share the state.

    Raises `ValueError` if a time is not in the interval. `TypeError` if an event is no function.
    """

    def __init__(
        self,
        at: Sequence[float] | None,
        events: Sequence[Any] | Any,
        watch: Mapping[str, Any] | None,
        interval: tuple[float, float],
        ranks: Ranks | None = None,
    ) -> None:
        self._ranks = ranks
        times = [] if at is None else [float(t) for t in np.atleast_1d(np.asarray(at, float))]
        first, last = interval
        for time in times:
            if not first <= time <= last:
                raise ValueError(f"at has {time}; expected times from t0 = {first} to {last}.")
        self._times = sorted(times)
        if not isinstance(watch, Mapping | None):
            raise TypeError(
                f"watch is {watch!r}; expected a mapping of names to quantities, such as "
                "problem.quantities('norm') or {'mass': function of (t, u)}"
            )
        given = dict(watch or {}).items()
        self.quantities = {n: q if isinstance(q, Quantity) else Quantity(q) for n, q in given}
        several = [events] if isinstance(events, Event) or callable(events) else list(events)
        self._detector = EventDetector(several) if several else None
        self._problem: Any = None
        self.samples: list[tuple[float, Vector]] = []
        self.sample_problems: list[Any] = []
        self.records: list[EventRecord] = []
        self.watched: dict[str, Watched] = {}
        self.measured_at = math.nan  # time of the state whose quantities were all measured last

    @property
    def interpolates(self) -> bool:
        """Whether states inside steps are needed, for samples or events."""
        return bool(self._times) or self._detector is not None

    @property
    def values(self) -> dict[str, float | None]:
        """The value of each quantity when it was measured last; None if that is not finite."""
        measured = {name: watched.last for name, watched in self.watched.items()}
        return {name: v if math.isfinite(v) else None for name, v in measured.items()}

    def begin(self, t: float, u: Vector, *, first: bool, before: Mapping[str, Any]) -> None:
        """Inspect the state at which a run begins (``first``) or continues; do not modify it.

        ``before``: the values that quantities had at this state, in the run that is resumed.
        """
        if isinstance(u, np.ndarray):
            u = u.view()
            u.flags.writeable = False
        self._times = [time for time in self._times if time >= t]
        while self._times and self._times[0] == t:
            self._sample(self._times.pop(0), u)
        if self._detector is not None:
            self._detector.begin(t, u, first=first)
        for name, quantity in self.quantities.items():
            measure = quantity.measure
            if _remembers(measure):
                measure.begin()
                known = before.get(name)
                if isinstance(known, int | float) and has_attribute(measure, "resume"):
                    measure.resume(known)
            value = quantity.value(t, u, self._ranks)
            texts = (str(getattr(measure, part, "")) for part in ("label", "unit"))
            self.watched[name] = Watched(value, value, 0.0, *texts)
        self.measured_at = t

    def move(self, problem: Any) -> None:
        """Continue on another grid: events and quantities with ``for_problem`` are made for it."""
        self._problem = problem
        for name, quantity in self.quantities.items():
            make = attribute(quantity.measure, "for_problem")
            if make is not None:
                self.quantities[name] = replace(quantity, measure=make(problem))
        if self._detector is not None:
            self._detector.move(problem)

    def save(self) -> tuple[Any, ...]:
        """Return what `restore` needs to forget the steps that follow."""
        detector = None if self._detector is None else self._detector.save()
        counts = len(self.samples), len(self.records)
        measures = {
            name: quantity.measure.save()
            for name, quantity in self.quantities.items()
            if _remembers(quantity.measure)
        }
        watched = dict(self.watched), self.measured_at
        return list(self._times), detector, counts, watched, measures

    def restore(self, saved: tuple[Any, ...]) -> None:
        """Forget all that was recorded since `save`."""
        times, detector, (samples, records), watched, measures = saved
        self._times = list(times)
        self.watched, self.measured_at = dict(watched[0]), watched[1]
        if self._detector is not None:
            self._detector.restore(detector)
        for name, measure in measures.items():
            self.quantities[name].measure.restore(measure)
        del self.samples[samples:], self.sample_problems[samples:], self.records[records:]

    def _sample(self, t: float, u: Vector) -> None:
        self.samples.append((t, u.copy()))
        self.sample_problems.append(self._problem)

    def look(self, step: Interpolant) -> EventRecord | None:
        """Find the events and samples in a step; return the first terminal event, if any."""
        end = step.interval[1]
        terminal: EventRecord | None = None
        for t, event in [] if self._detector is None else self._detector.find(step):
            record = EventRecord(event.name, t, step.at(t).copy(), self._problem)
            self.records.append(record)
            if event.terminal:
                terminal, end = record, t
                break
        while self._times and self._times[0] <= end:
            time = self._times.pop(0)
            self._sample(time, step.at(time))
        return terminal

    def measure(self, t: float, u: Vector) -> bool:
        """Measure all quantities of a state; return whether one exceeds its tolerance."""
        left = False
        for name, quantity in self.quantities.items():
            before = self.watched[name]
            value = quantity.value(t, u, self._ranks)
            distance = abs(value - before.first)
            self.watched[name] = replace(before, last=value, drift=max(before.drift, distance))
            left |= not distance <= quantity.tolerance
        self.measured_at = t
        return left


def _remembers(measure: Any) -> bool:
    """Return whether a measure depends on the states before."""
    return all(has_attribute(measure, name) for name in ("begin", "save", "restore"))


def measured_at(t: float, records: Sequence[Any]) -> Mapping[str, Any]:
    """Return the quantities of the last record that has some, if it is of this time."""
    for record in reversed(records):
        given = record.get("quantities") if isinstance(record, Mapping) else None
        if isinstance(given, Mapping):
            return given if record.get("t") == t else {}
    return {}


class History:
    """The records of a run, which can be written as JSON; at most about 400, or 4000 if measured.

    ``steps``: steps of the whole run, of which about 200 are recorded at even distances. None if
      the number is not known: then every second record is dropped whenever there are too many.
    ``carried``: records of the run that this one continues; some are dropped if there are too many.
    ``adapts``: whether changes of the grid are recorded as well; then, too, every second record is
      dropped whenever there are too many.
    ``measured``: whether quantities are recorded; then ten times as many steps are.
    """

    def __init__(
        self,
        steps: int | None,
        carried: list[dict[str, Any]],
        *,
        adapts: bool = False,
        measured: bool = False,
    ) -> None:
        self._limit = _MAX_MEASURED_STEPS if measured else _MAX_STEPS
        self.records = list(carried)
        while len(self.records) > self._limit:
            del self.records[::2]
        self._open = steps is None or adapts
        self._stride = max(1, math.ceil((steps or 0) / self._limit))

    def wants(self, step: int) -> bool:
        """Return whether this step is to be recorded."""
        return step % self._stride == 0

    def save(self) -> tuple[list[dict[str, Any]], int]:
        """Return what `restore` needs to forget the records that follow."""
        return list(self.records), self._stride

    def restore(self, saved: tuple[list[dict[str, Any]], int]) -> None:
        """Forget all records since `save`."""
        records, self._stride = saved
        self.records = list(records)

    def add(self, event: str, step: int, t: float, seconds: float, **more: Any) -> None:
        """Add a record.

        ``event``: "start" (if quantities are recorded), "step", "resume", "adapt", "repeat", or the
          status at the end; files have "checkpoint", too, where quantities are in no other record.
        ``step``: the step's number, counted from t0.
        ``t``: the time after the step.
        ``seconds``: wall-clock seconds since this run, or its continuation, began.
        ``**more``: further details, which can be written as JSON.
        """
        record = {"event": event, "step": step, "t": t, "seconds": round(seconds, 6), **more}
        self.records.append(record)
        if self._open and len(self.records) > 2 * self._limit:
            del self.records[::2]
            self._stride *= 2
