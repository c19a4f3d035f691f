"""The numbers that a step multiplies vectors by: weights, times dt and functions of time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Numbers", "Part", "StepTimes", "TimeFactor"]


class StepTimes(NamedTuple):
    """The times of a step: t, t_next and dt."""

    t: float
    t_next: float
    dt: float

    def at(self, node: float) -> float:
        """Return t + node dt, exactly t_next at the end."""
        return self.t_next if _is_end(node) else self.t + node * self.dt


def _is_end(node: Any) -> Any:
    """Whether a node stands for the end of the step, but for rounding."""
    return abs(node - 1.0) < 1e-14


TimeFactor: TypeAlias = Callable[[Any], Any]  # of an array of times


class Part(NamedTuple):
    """A part (constant + per_dt dt) f(t + node dt) of a number; without f that is 1."""

    constant: float
    per_dt: float
    function: TimeFactor | None = None
    node: float = 0.0


class Numbers:
    """The numbers of a step, each a sum of parts."""

    def __init__(self) -> None:
        self._parts: list[list[Part]] = []
        self._ready: tuple[Any, ...] | None = None

    def add(self, numbers: Sequence[Sequence[Part]]) -> int:
        """Add numbers; return the place of the first one."""
        place = len(self._parts)
        self._parts += [list(parts) for parts in numbers]
        return place

    def __len__(self) -> int:
        return len(self._parts)

    def of(self, steps: Sequence[StepTimes]) -> NDArray[np.float64]:
        """Return the numbers (steps, n) of steps of one length."""
        if self._ready is None:
            self._ready = self._prepared()
        constant, per_dt, places, starts, moments, width = self._ready
        count = len(steps)
        rows: NDArray[np.float64] = constant + per_dt * steps[0].dt
        if moments:
            t, t_next, dt = steps[0] if count == 1 else np.array(steps).T[:, :, None]
            values = np.empty((count, width))
            values[:, 0], last = 1.0, 1
            for nodes, ends, functions in moments:
                at = t + nodes * dt
                at[:, ends] = t_next
                for function in functions:
                    first, last = last, last + nodes.shape[1]
                    values[:, first:last] = _values(function, at)
            rows = rows * values[:, places]
        elif count > 1:
            rows = np.repeat(rows, count, axis=0)
        return rows if starts is None else np.add.reduceat(rows, starts, axis=1)

    @cached_property
    def depends_on_time(self) -> bool:
        """Whether the numbers of steps of one length differ."""
        return any(part.function is not None for own in self._parts for part in own)

    def _prepared(self) -> tuple[Any, ...]:
        """Return the parts as arrays, and functions with the nodes that they have in common."""
        parts = [part for own in self._parts for part in own]
        # By identity: functions need have no hash, as polynomials of NumPy have none.
        of_function: dict[int, tuple[TimeFactor, list[float]]] = {}
        for part in parts:
            if part.function is not None:
                _, own = of_function.setdefault(id(part.function), (part.function, []))
                if part.node not in own:
                    own.append(part.node)
        of_nodes: dict[tuple[float, ...], list[TimeFactor]] = {}
        for function, nodes in of_function.values():
            of_nodes.setdefault(tuple(nodes), []).append(function)
        order = [
            (id(function), node)
            for nodes, functions in of_nodes.items()
            for function in functions
            for node in nodes
        ]
        places = [
            0 if part.function is None else 1 + order.index((id(part.function), part.node))
            for part in parts
        ]
        starts = None
        if len(parts) > len(self._parts):
            starts = np.cumsum([0, *(len(own) for own in self._parts[:-1])])
        constant = np.array([[part.constant for part in parts]])
        per_dt = np.array([[part.per_dt for part in parts]])
        moments = [
            (np.array([nodes]), np.flatnonzero(_is_end(np.array(nodes))), functions)
            for nodes, functions in of_nodes.items()
        ]
        return constant, per_dt, np.array(places), starts, moments, 1 + len(order)


def _values(function: TimeFactor, times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return f of an array of times; raise TypeError for a function of single times alone."""
    found: Any = None
    cause: Exception | None = None
    try:
        found = function(times.copy())  # which it may overwrite
    except TypeError as error:
        cause = error
    except ValueError as error:
        if "truth value" not in str(error):  # of an array, as where it compares times
            raise
        cause = error
    is_real_array = type(found) is np.ndarray and found.dtype.kind in "fiub"
    if is_real_array and found.shape == times.shape:
        return found  # type: ignore[no-any-return]
    if np.iscomplexobj(found):
        raise TypeError(
            f"split_rhs() has the function of time {function!r}, whose values are of dtype "
            f"{np.asarray(found).dtype}; expected real ones. Put complex factors into the product "
            "or the vector."
        )
    if np.shape(found) == times.shape:
        return found  # type: ignore[no-any-return]
    raise TypeError(
        f"split_rhs() has the function of time {function!r}, which returns no array for an array "
        f"of times of shape {times.shape}; write it with functions of NumPy, or pass "
        "numpy.vectorize(function)."
    ) from cause
